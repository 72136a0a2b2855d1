# runs
# Two dropouts of an equinox network with one key.
import equinox as eqx
import jax, jax.numpy as jnp, optax

class Net(eqx.Module):
    layers: list
    drop: eqx.nn.Dropout

    def __init__(self, key):
        a, b, c = jax.random.split(key, 3)
        self.layers = [eqx.nn.Linear(16, 64, key=a), eqx.nn.Linear(64, 64, key=b), eqx.nn.Linear(64, 1, key=c)]
        self.drop = eqx.nn.Dropout(0.3)

    def __call__(self, x, key):
        x = self.drop(jax.nn.relu(self.layers[0](x)), key=key)
        x = self.drop(jax.nn.relu(self.layers[1](x)), key=key)  # expect: key-reuse
        return self.layers[2](x)[0]

net = Net(jax.random.key(0))
rule = optax.adam(1e-3)
state = rule.init(eqx.filter(net, eqx.is_array))

@eqx.filter_jit
def step(net, state, x, y, key):
    @eqx.filter_value_and_grad
    def loss_of(net):
        keys = jax.random.split(key, len(x))
        return jnp.mean((jax.vmap(net)(x, keys) - y) ** 2)
    loss, grads = loss_of(net)
    updates, state = rule.update(grads, state)
    return eqx.apply_updates(net, updates), state, loss

x = jax.random.normal(jax.random.key(1), (64, 16))
y = x.sum(-1)
key = jax.random.key(2)
for i in range(20):
    key, mine = jax.random.split(key)
    net, state, loss = step(net, state, x, y, mine)
print(loss)
