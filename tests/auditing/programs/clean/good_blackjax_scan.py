# runs
# needs: blackjax
# Blackjax in a scan.
import blackjax, jax, jax.numpy as jnp

data = jax.random.normal(jax.random.key(0), (200,)) * 2 + 1

def logdensity(p):
    return jax.scipy.stats.norm.logpdf(data, p["loc"], jnp.exp(p["log_scale"])).sum() - p["loc"] ** 2

def infer(key, samples=1000):
    warm, run = jax.random.split(key)
    adapt = blackjax.window_adaptation(blackjax.nuts, logdensity)
    start = {"loc": jnp.zeros(()), "log_scale": jnp.zeros(())}
    (state, parameters), _ = adapt.run(warm, start, num_steps=200)
    kernel = blackjax.nuts(logdensity, **parameters).step
    @jax.jit
    def sample(state, key):
        def one(state, k):
            state, _ = kernel(k, state)
            return state, state.position
        return jax.lax.scan(one, state, jax.random.split(key, samples))[1]
    return sample(state, run)

positions = infer(jax.random.key(1))
print(positions["loc"].mean(), positions["log_scale"].std())
