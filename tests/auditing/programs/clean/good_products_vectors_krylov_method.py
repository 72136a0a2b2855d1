# runs
# Products with vectors in a Krylov method.
import jax, jax.numpy as jnp

def loss(w):
    return jnp.sum(jnp.tanh(jnp.outer(w, w)) ** 2) / w.size + jnp.sum(jnp.cosh(w))

@jax.jit
def newton(w):
    g = jax.grad(loss)(w)
    def product(v):
        return jax.jvp(jax.grad(loss), (w,), (v,))[1]
    direction, _ = jax.scipy.sparse.linalg.cg(product, g, maxiter=20)
    return w - direction

w = jax.random.normal(jax.random.key(0), (200,))
for i in range(10):
    w = newton(w)
print(loss(w))
