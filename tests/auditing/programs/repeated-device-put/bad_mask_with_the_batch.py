# runs
# A mask that is sent in each step with the batch.
import equinox as eqx
import jax, jax.numpy as jnp, numpy as np

model = eqx.nn.MLP(64, 64, 128, 1, key=jax.random.key(0))
mask = np.tril(np.ones((512, 512), np.float32))

@eqx.filter_jit
def step(model, x, mask):
    def loss(model):
        return ((mask @ jax.vmap(model)(x)) ** 2).mean()
    grads = eqx.filter_grad(loss)(model)
    return eqx.apply_updates(model, jax.tree.map(lambda g: -1e-3 * g, grads))

rng = np.random.default_rng(0)
for i in range(60):
    batch = {"x": rng.normal(size=(512, 64)).astype("f4"), "mask": mask}
    batch = jax.device_put(batch)  # expect: repeated-device-put
    model = step(model, batch["x"], batch["mask"])
print(model(jnp.ones(64)).sum())
