# runs
# A division that where guards.
import jax, jax.numpy as jnp
from flax import nnx

class Attention(nnx.Module):
    def __init__(self, rngs):
        self.score = nnx.Linear(16, 1, rngs=rngs)

    def __call__(self, x):
        w = jax.nn.relu(self.score(x)[..., 0])
        total = w.sum(-1, keepdims=True)
        share = jnp.where(total > 0, w / total, 0.0)  # expect: where-gradient
        return (x * share[..., None]).sum(1)

net = Attention(nnx.Rngs(0))

@nnx.jit
def gradient(net, x):
    return nnx.grad(lambda net: (net(x) ** 2).mean())(net)

x = jax.random.normal(jax.random.key(0), (32, 10, 16))
for i in range(20):
    g = gradient(net, x)
print(jax.tree.leaves(g)[0].sum())
