# answers: fine
# The state is carried, all of the sequence is used, or it is small.
import jax, jax.numpy as jnp, numpy as np

TOKENS, FEW, E = np.zeros((64, 25), np.int32), np.zeros((1, 9), np.int32), jnp.ones((30, 32))

def _cell(h, x):
    return 2 * (jnp.tanh(h @ jnp.ones((32, 32)) + x),)

def _recurrent(tokens):
    _, hs = jax.lax.scan(_cell, jnp.zeros((tokens.shape[0], 32)), E[tokens].swapaxes(0, 1))
    return hs.swapaxes(0, 1) @ E.T

def carried(tokens=TOKENS):
    def write(at, state):
        h, _ = _cell(state[1], E[state[0][:, at]])
        return state[0].at[:, at + 1].set((h @ E.T).argmax(-1)), h
    return jax.lax.fori_loop(0, 24, write, (tokens, jnp.zeros((64, 32))))[0]

scored = lambda tokens=TOKENS: _recurrent(tokens)[:, tokens[0, 0]]
all_used = lambda tokens=TOKENS: jax.lax.fori_loop(0, 24, lambda at, t: t.at[:, at].set(_recurrent(t).sum((1, 2)).astype(jnp.int32)), tokens)
same_each_time = lambda tokens=TOKENS: jax.lax.fori_loop(0, 24, lambda at, out: out.at[:, at].set(_recurrent(tokens)[:, at].argmax(-1)), tokens)
small = lambda tokens=FEW: jax.lax.fori_loop(0, 24, lambda at, t: t.at[:, at + 1].set(_recurrent(t)[:, at].argmax(-1)), tokens)
