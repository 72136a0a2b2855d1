# runs
# A lookup of user embeddings by einsum.
import jax, jax.numpy as jnp, optax

def scores(params, users, items):
    u = jnp.einsum("bn,nd->bd", jax.nn.one_hot(users, 5000), params["users"])  # expect: one-hot-matmul
    v = params["items"][items]
    return jnp.sum(u * v, axis=-1)

rule = optax.adagrad(1e-2)

@jax.jit
def step(params, state, users, items, ratings):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((scores(p, users, items) - ratings) ** 2))(params)
    updates, state = rule.update(grads, state)
    return optax.apply_updates(params, updates), state, loss

key = jax.random.key(0)
a, b, c, d, e = jax.random.split(key, 5)
params = {"users": jax.random.normal(a, (5000, 32)), "items": jax.random.normal(b, (2000, 32))}
state = rule.init(params)
users, items = jax.random.randint(c, (512,), 0, 5000), jax.random.randint(d, (512,), 0, 2000)
ratings = jax.random.normal(e, (512,))
for i in range(15):
    params, state, loss = step(params, state, users, items, ratings)
print(loss)
