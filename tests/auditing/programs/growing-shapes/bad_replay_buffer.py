# runs
# A replay buffer that grows outside of jit.
import jax, jax.numpy as jnp

@jax.jit
def act(w, state):
    return jnp.tanh(state @ w)

w = jnp.eye(8)
state = jnp.ones(8)
buffer = jnp.zeros((0, 8))
for i in range(40):
    state = act(w, state)
    buffer = jnp.vstack([buffer, state[None]])  # expect: growing-shapes
print(buffer.mean())
