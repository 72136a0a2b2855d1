# runs
# Two rates and one program.
import jax, jax.numpy as jnp, optax

x = jax.random.normal(jax.random.key(0), (256, 20))
y = x @ jnp.arange(20.0)
rule = optax.inject_hyperparams(optax.adam)(1e-3)

@jax.jit
def fit(rate):
    state = rule.init(jnp.zeros(20))
    state.hyperparams["learning_rate"] = rate
    def one(carry, _):
        w, state = carry
        loss, g = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
        updates, state = rule.update(g, state, w)
        return (optax.apply_updates(w, updates), state), loss
    return jax.lax.scan(one, (jnp.zeros(20), state), None, length=100)[1][-1]

rates = jnp.array([1e-3, 1e-2, 1e-1])
print(jax.vmap(fit)(rates))
