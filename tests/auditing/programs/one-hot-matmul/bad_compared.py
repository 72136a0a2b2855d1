# runs
# A one-hot array made by comparing, in nnx.
import jax
import jax.numpy as jnp
import optax
from flax import nnx

class Tagger(nnx.Module):
    def __init__(self, vocab, dim, rngs: nnx.Rngs):
        self.table = nnx.Param(nnx.initializers.normal()(rngs.params(), (vocab, dim)))
        self.out = nnx.Linear(dim, 5, rngs=rngs)

    def __call__(self, tokens):
        vocab = self.table.shape[0]
        chosen = (tokens[..., None] == jnp.arange(vocab)).astype(jnp.float32)
        x = jnp.dot(chosen, self.table[...])  # expect: one-hot-matmul
        return self.out(x)

model = Tagger(8000, 64, nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.sgd(1e-2), wrt=nnx.Param)

@nnx.jit
def train_step(model, optimizer, tokens, tags):
    def loss_fn(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(tokens), tags).mean()
    loss, grads = nnx.value_and_grad(loss_fn)(model)
    optimizer.update(model, grads)
    return loss

tokens = jax.random.randint(jax.random.key(0), (16, 20), 0, 8000)
tags = tokens % 5
for i in range(15):
    loss = train_step(model, optimizer, tokens, tags)
print(loss)
