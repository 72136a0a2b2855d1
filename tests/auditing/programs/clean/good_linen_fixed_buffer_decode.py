# runs
"""Linen language model; decoding fills a fixed buffer inside one fori_loop."""
import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

VOCAB, CONTEXT, DIM = 32, 24, 32


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        h = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=2)(h, h, mask=mask)
        return x + nn.Dense(DIM)(nn.gelu(nn.Dense(3 * DIM)(nn.LayerNorm()(x))))


class LM(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        mask = nn.make_causal_mask(tokens)
        pos = self.param("pos", nn.initializers.normal(0.02), (CONTEXT, DIM))
        x = nn.Embed(VOCAB, DIM)(tokens) + pos[: tokens.shape[1]]
        for _ in range(1):
            x = Block()(x, mask)
        return nn.Dense(VOCAB)(nn.LayerNorm()(x))


lm = LM()
tx = optax.adamw(2e-3)


def sample_text(key, n):
    k1, k2 = jax.random.split(key)
    start = jax.random.randint(k1, (n, 1), 0, VOCAB)
    stride = jax.random.randint(k2, (n, 1), 1, 5)
    return (start + stride * jnp.arange(CONTEXT)) % VOCAB


@jax.jit
def train_step(params, opt_state, data, key):
    batch = data[jax.random.randint(key, (16,), 0, data.shape[0])]

    def loss_fn(p):
        logits = lm.apply(p, batch[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()

    loss, g = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = tx.update(g, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


@jax.jit
def decode(params, prompt):
    start = prompt.shape[1]
    buffer = jnp.pad(prompt, ((0, 0), (0, CONTEXT - start)))

    def body(t, buf):
        logits = lm.apply(params, buf)
        return buf.at[:, t].set(jnp.argmax(logits[:, t - 1], axis=-1))

    return jax.lax.fori_loop(start, CONTEXT, body, buffer)


def main():
    k_data, k_test, k_init, key = jax.random.split(jax.random.key(15), 4)
    data = sample_text(k_data, 1024)
    params = jax.jit(lm.init)(k_init, data[:1])
    opt_state = tx.init(params)
    for i in range(1, 41):
        key, sub = jax.random.split(key)
        params, opt_state, loss = train_step(params, opt_state, data, sub)
        if i % 20 == 0:
            print(f"step {i} loss {float(loss):.4f}")
    truth = sample_text(k_test, 32)
    out = decode(params, truth[:, :12])
    print(f"accuracy of the continuation {float(jnp.mean(out[:, 12:] == truth[:, 12:])):.3f}")


if __name__ == "__main__":
    main()
