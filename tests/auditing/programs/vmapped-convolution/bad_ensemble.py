# runs
# An ensemble of small convolutional networks, each with its own images (jax-ml/jax#26568).
import jax
import jax.numpy as jnp

def layer(x, kernel):
    y = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))  # expect: vmapped-convolution
    return jax.nn.relu(y)

@jax.jit
def ensemble(images, kernels):
    return jax.vmap(layer)(images, kernels)

images = jax.random.normal(jax.random.key(0), (6, 8, 24, 24, 3))
kernels = jax.random.normal(jax.random.key(1), (6, 3, 3, 3, 32))
for _ in range(3):
    images_out = ensemble(images, kernels)
print(images_out.shape)
