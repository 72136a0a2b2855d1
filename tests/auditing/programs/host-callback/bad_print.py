# runs
# A print left in the step.
import jax, jax.numpy as jnp

@jax.jit
def step(x):
    y = jnp.cos(x)
    jax.debug.print("mean {m}", m=y[0].mean())  # expect: host-callback
    return y

x = jnp.ones((256, 256))
for i in range(400):
    x = step(x)
print(x.sum())
