# runs
# The same ensemble in turn, kernels that share their images, and a depthwise convolution.
import jax

def layer(x, kernel, groups=1):
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
    )

@jax.jit
def models(images, kernels, depthwise):
    in_turn = jax.lax.map(lambda pair: layer(*pair), (images, kernels))
    shared = jax.vmap(layer, (None, 0))(images[0], kernels)
    return in_turn, shared, layer(images[0], depthwise, 3)

images = jax.random.normal(jax.random.key(0), (6, 8, 24, 24, 3))
kernels = jax.random.normal(jax.random.key(1), (6, 3, 3, 3, 32))
depthwise = jax.random.normal(jax.random.key(2), (3, 3, 1, 3))
for _ in range(3):
    results = models(images, kernels, depthwise)
print([r.shape for r in results])
