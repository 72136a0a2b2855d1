# runs
# A step with gradients that are clipped, in bf16.
import functools
import jax, jax.numpy as jnp, optax

rule = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(1e-2, momentum=0.9))

def loss_of(params, x):
    h = x.astype(jnp.bfloat16)
    for w in params:
        h = jax.nn.relu(h @ w.astype(jnp.bfloat16))
    return (h.astype(jnp.float32) ** 2).mean()

@functools.partial(jax.jit, donate_argnums=(0, 1))
def step(params, state, x):
    grads = jax.grad(loss_of)(params, x)
    updates, state = rule.update(grads, state)
    return optax.apply_updates(params, updates), state

keys = jax.random.split(jax.random.key(0), 4)
params = [0.1 * jax.random.normal(k, (128, 128)) for k in keys]
state = rule.init(params)
x = jax.random.normal(jax.random.key(1), (64, 128))
for i in range(60):
    params, state = step(params, state, x)
print(params[0].sum())
