# runs
# A search of rates that defines its step anew.
import jax
import jax.numpy as jnp
import optax

x = jax.random.normal(jax.random.key(0), (256, 20))
y = x @ jnp.arange(20.0)

def fit(rate, steps=20):
    rule = optax.adam(rate)

    @jax.jit  # expect: jit-in-loop
    def step(w, state):
        loss, g = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
        updates, state = rule.update(g, state)
        return optax.apply_updates(w, updates), state, loss

    w = jnp.zeros(20)
    state = rule.init(w)
    for _ in range(steps):
        w, state, loss = step(w, state)
    return loss

scores = {rate: fit(rate) for rate in (1e-3, 1e-2, 3e-2, 1e-1, 3e-1)}
print(min(scores, key=scores.get))
