# runs
# A running loss in a tuple that begins as a Python float.
from typing import Any, NamedTuple
import jax, jax.numpy as jnp, optax

class State(NamedTuple):
    params: Any
    moments: Any
    running: Any

rule = optax.adamw(1e-3)

def loss_of(params, x):
    h = x
    for w in params:
        h = jnp.tanh(h @ w)
    return jnp.mean((h - x) ** 2)

@jax.jit
def step(state, x):
    loss, grads = jax.value_and_grad(loss_of)(state.params, x)
    updates, moments = rule.update(grads, state.moments, state.params)
    running = 0.99 * state.running + 0.01 * loss
    return State(optax.apply_updates(state.params, updates), moments, running)

params = [jax.random.normal(k, (64, 64)) * 0.1 for k in jax.random.split(jax.random.key(0), 10)]
state = State(params, rule.init(params), 0.0)
x = jax.random.normal(jax.random.key(1), (32, 64))
for i in range(60):
    state = step(state, x)  # expect: compiled-twice
print(state.running)
