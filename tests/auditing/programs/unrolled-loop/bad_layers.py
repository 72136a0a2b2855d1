# runs
# Layers of a transformer in a Python loop.
import jax, jax.numpy as jnp

def block(p, x):
    h = x - x.mean(-1, keepdims=True)
    q, k, v = h @ p["q"], h @ p["k"], h @ p["v"]
    x = x + jax.nn.softmax(q @ k.T / 8.0) @ v
    return x + jax.nn.gelu(x @ p["up"]) @ p["down"]

@jax.jit
def forward(layers, x):
    for p in layers:  # expect: unrolled-loop
        x = block(p, x)
    return x.sum()

key = jax.random.key(0)
sizes = {"q": (64, 64), "k": (64, 64), "v": (64, 64), "up": (64, 256), "down": (256, 64)}
layers = [{n: 0.02 * jax.random.normal(jax.random.fold_in(key, i), s) for n, s in sizes.items()} for i in range(12)]
x = jnp.ones((128, 64))
gradient = jax.jit(jax.grad(forward))
for i in range(10):
    g = gradient(layers, x)
print(g[0]["q"].sum())
