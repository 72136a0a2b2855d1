# runs
# An equinox network that is evaluated without jit.
import equinox as eqx
import jax, jax.numpy as jnp

net = eqx.nn.MLP(8, 1, 32, 4, key=jax.random.key(0))
xs = jax.random.normal(jax.random.key(1), (12, 64, 8))

def accuracy(net, xs):
    right = 0
    for x in xs:
        predicted = jax.vmap(net)(x)[:, 0] > 0  # expect: eager-operations
        right = right + jnp.sum(predicted == (x.sum(-1) > 0))
    return right / xs[..., 0].size

for epoch in range(3):
    print(accuracy(net, xs))
