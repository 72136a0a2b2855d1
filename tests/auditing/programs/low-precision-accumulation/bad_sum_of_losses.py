# runs
# Losses that are added up in bfloat16.
import jax, jax.numpy as jnp

@jax.jit
def total_loss(w, batches):
    def add(total, x):
        loss = jnp.mean((x @ w) ** 2)
        return total + loss, None  # expect: low-precision-accumulation
    total, _ = jax.lax.scan(add, jnp.bfloat16(0), batches)  # expect: low-precision-accumulation
    return total

w = jnp.ones(16, jnp.bfloat16)
batches = jax.random.normal(jax.random.key(0), (4000, 8, 16), jnp.bfloat16)
for i in range(5):
    value = total_loss(w, batches)
print(value)
