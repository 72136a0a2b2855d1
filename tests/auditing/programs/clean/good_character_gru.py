# runs
"""A character GRU in equinox: train on synthetic text, sample with a scan."""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

TEXT = "the quick brown fox jumps over the lazy dog. pack my box with five dozen jugs. " * 200
CHARS = sorted(set(TEXT))
LENGTH, BATCH, STEPS = 32, 16, 90


class CharRNN(eqx.Module):
    embed: eqx.nn.Embedding
    cell: eqx.nn.GRUCell
    out: eqx.nn.Linear

    def __init__(self, vocab, width, key):
        k1, k2, k3 = jax.random.split(key, 3)
        self.embed = eqx.nn.Embedding(vocab, 24, key=k1)
        self.cell = eqx.nn.GRUCell(24, width, key=k2)
        self.out = eqx.nn.Linear(width, vocab, key=k3)

    def advance(self, hidden, token):
        hidden = self.cell(self.embed(token), hidden)
        return hidden, self.out(hidden)

    def start(self):
        return jnp.zeros(self.cell.hidden_size)

    def __call__(self, tokens):
        return jax.lax.scan(lambda h, t: self.advance(h, t), self.start(), tokens)[1]


def loss_fn(model, windows):
    logits = jax.vmap(model)(windows[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, windows[:, 1:]).mean()


tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-3))


@eqx.filter_jit
def train_step(model, opt_state, text, key):
    first = jax.random.randint(key, (BATCH, 1), 0, text.size - LENGTH - 1)
    windows = text[first + jnp.arange(LENGTH + 1)]
    loss, grads = eqx.filter_value_and_grad(loss_fn)(model, windows)
    updates, opt_state = tx.update(grads, opt_state)
    return eqx.apply_updates(model, updates), opt_state, loss


@eqx.filter_jit
def sample(model, key, first, length):
    def body(carry, key):
        hidden, token = carry
        hidden, logits = model.advance(hidden, token)
        token = jax.random.categorical(key, 2.0 * logits)
        return (hidden, token), token

    return jax.lax.scan(body, (model.start(), first), jax.random.split(key, length))[1]


def main():
    index = {c: i for i, c in enumerate(CHARS)}
    text = jnp.asarray([index[c] for c in TEXT], jnp.int32)
    k_model, k_loop, k_sample = jax.random.split(jax.random.key(0), 3)
    model = CharRNN(len(CHARS), 64, k_model)
    opt_state = tx.init(eqx.filter(model, eqx.is_array))
    for i, key in enumerate(jax.random.split(k_loop, STEPS)):
        model, opt_state, loss = train_step(model, opt_state, text, key)
        if i % 30 == 0:
            print(f"step {i}: loss {loss:.3f}")
    drawn = np.asarray(sample(model, k_sample, text[0], 60))
    print("sample:", "".join(CHARS[i] for i in drawn))


if __name__ == "__main__":
    main()
