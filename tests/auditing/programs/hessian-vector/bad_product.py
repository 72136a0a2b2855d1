# runs
# A whole Hessian for its product with a vector.
import jax
import jax.numpy as jnp

def loss(w):
    return jnp.sum(jnp.tanh(jnp.outer(w, w)) ** 2) / w.size + jnp.sum(jnp.cosh(w))

@jax.jit
def curvature(w, v):
    return v @ (jax.hessian(loss)(w) @ v)  # expect: hessian-vector
w, v = jax.random.normal(jax.random.key(0), (100,)), jnp.ones(100)
for i in range(20):
    v = v / (1 + curvature(w, v) * 1e-6)
print(v.sum())
