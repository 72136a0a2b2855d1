# runs
# A filter that is applied sample by sample.
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def classify(window):
    spectrum = jnp.abs(jnp.fft.rfft(window))
    return spectrum[:8].sum() > spectrum[8:].sum()

signal = np.random.default_rng(0).normal(size=20000).astype("f4")
windows = jax.device_put([signal[i : i + 64] for i in range(0, 19000, 10)])
found = []
for window in windows:
    found.append(classify(window))  # expect: small-calls
print(int(np.sum(jax.device_get(found))))
