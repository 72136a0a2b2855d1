# runs
import jax
import jax.numpy as jnp
import numpy as np

dates = 2459580.5 + np.linspace(0, 60, 1440)
phase = jax.jit(lambda t: jnp.sin(t))
print(phase(jnp.asarray(dates - dates[0])).sum())
