# runs
# Inference of an embedding model.
import jax, jax.numpy as jnp, numpy as np
import flax.linen as nn

class Model(nn.Module):
    @nn.compact
    def __call__(self, tokens, mask):
        x = nn.Embed(4096, 64)(tokens)
        x = nn.gelu(nn.Dense(128)(x))
        return (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)

model = Model()
rng = np.random.default_rng(0)
tokens, mask = jnp.zeros((16, 64), jnp.int32), jnp.ones((16, 64))
params = model.init(jax.random.key(0), tokens, mask)
embed = jax.jit(model.apply)
found = []
for i in range(40):
    lengths = rng.integers(5, 64, 16)
    mask = (np.arange(64) < lengths[:, None]).astype("f4")
    tokens = rng.integers(0, 4096, (16, 64)).astype("i4")
    found.append(embed(params, *jax.device_put((tokens, mask))))
print(np.concatenate(jax.device_get(found)).shape)
