# runs
# Generation into an array of fixed length.
import equinox as eqx
import jax, jax.numpy as jnp

class Model(eqx.Module):
    embed: eqx.nn.Embedding
    head: eqx.nn.Linear

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.embed, self.head = eqx.nn.Embedding(50, 32, key=a), eqx.nn.Linear(32, 50, key=b)

    def __call__(self, tokens, n):
        x = jax.vmap(self.embed)(tokens)
        mask = jnp.arange(len(tokens)) < n
        return self.head(jnp.sum(jnp.where(mask[:, None], x, 0), 0) / n)

@eqx.filter_jit
def generate(model, prompt, key):
    start = jnp.zeros(64, jnp.int32).at[: len(prompt)].set(prompt)
    def one(n, carry):
        tokens, key = carry
        key, mine = jax.random.split(key)
        return tokens.at[n].set(jax.random.categorical(mine, model(tokens, n))), key
    return jax.lax.fori_loop(len(prompt), 64, one, (start, key))[0]

model = Model(jax.random.key(0))
for seed in range(5):
    print(generate(model, jnp.array([1, 2, 3]), jax.random.key(seed))[:10])
