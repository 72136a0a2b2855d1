# runs
# Nnx.jit in the body of a function.
import jax, jax.numpy as jnp, optax
from flax import nnx

net = nnx.Linear(64, 64, rngs=nnx.Rngs(0))
optimizer = nnx.Optimizer(net, optax.adam(1e-3), wrt=nnx.Param)

def train(net, optimizer, x):
    @nnx.jit  # expect: jit-in-loop
    def step(net, optimizer, x):
        loss, grads = nnx.value_and_grad(lambda net: (net(x) ** 2).mean())(net)
        optimizer.update(net, grads)
        return loss
    return step(net, optimizer, x)  # expect: jit-in-loop
x = jnp.ones((32, 64))
for i in range(5):
    loss = train(net, optimizer, x)
print(loss)
