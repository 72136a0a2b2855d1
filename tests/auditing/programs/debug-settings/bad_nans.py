# runs
import jax
import jax.numpy as jnp

jax.config.update("jax_debug_nans", True)  # expect: debug-settings
print(jax.jit(jnp.sin)(jnp.ones(3)))
