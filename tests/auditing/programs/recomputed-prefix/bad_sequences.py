# A whole sequence is computed for one position.
import jax, jax.numpy as jnp, numpy as np

KEY, TOKENS, E = jax.random.PRNGKey(0), np.zeros((64, 25), np.int32), jnp.ones((30, 32))

def _recurrent(tokens):
    cell = lambda h, x: 2 * (jnp.tanh(h @ jnp.ones((32, 32)) + x),)
    _, hs = jax.lax.scan(cell, jnp.zeros((tokens.shape[0], 32)), E[tokens].swapaxes(0, 1))
    return hs.swapaxes(0, 1) @ E.T

def _attentive(tokens):
    x = E[tokens]
    mask = jnp.tril(jnp.ones((tokens.shape[1], tokens.shape[1]), bool))
    return jnp.einsum("bts,bsd->btd", jax.nn.softmax(jnp.where(mask, jnp.einsum("btd,bsd->bts", x, x), -1e9)), x) @ E.T

def _generate(model, tokens, key):
    def write(at, tokens):
        logits = model(tokens)[:, at]  # expect: recomputed-prefix
        return tokens.at[:, at + 1].set(jax.random.categorical(jax.random.fold_in(key, at), logits))
    return jax.lax.fori_loop(0, 24, write, tokens)

def until_stop(tokens=TOKENS):
    def write(state):
        at, tokens = state
        return at + 1, tokens.at[:, at + 1].set(_recurrent(tokens)[:, at].argmax(-1))  # expect: recomputed-prefix
    return jax.lax.while_loop(lambda state: (state[0] < 24) & (state[1].sum() < 99), write, (0, tokens))[1]

recurrent = lambda tokens=TOKENS, key=KEY: _generate(_recurrent, tokens, key)
attentive = lambda tokens=TOKENS, key=KEY: _generate(_attentive, tokens, key)
