# runs
"""Inference throughput of a linen CNN: warm-up first, then timed with a wait at the end of each repeat."""
import statistics
import time

import jax
import jax.numpy as jnp
from flax import linen as nn


class ConvNet(nn.Module):
    widths: tuple = (16, 32)
    classes: int = 10

    @nn.compact
    def __call__(self, x):
        for w in self.widths:
            x = nn.relu(nn.Conv(w, (3, 3))(x))
            x = nn.avg_pool(x, (2, 2), strides=(2, 2))
        return nn.Dense(self.classes)(x.mean(axis=(1, 2)))


net = ConvNet()


@jax.jit
def classify(params, images):
    probs = jax.nn.softmax(net.apply(params, images), axis=-1)
    return jnp.argmax(probs, axis=-1), jnp.max(probs, axis=-1)


def throughput(params, batches, repeats=5):
    jax.block_until_ready(classify(params, batches[0]))
    rates = []
    for _ in range(repeats):
        start = time.perf_counter()
        results = [classify(params, b) for b in batches]
        jax.block_until_ready(results)
        seconds = time.perf_counter() - start
        rates.append(len(batches) * batches[0].shape[0] / seconds)
    return statistics.median(rates), results


def main():
    k_init, k_data = jax.random.split(jax.random.key(0))
    batches = list(jax.random.normal(k_data, (8, 16, 16, 16, 3)))
    params = jax.jit(net.init)(k_init, batches[0])
    rate, results = throughput(params, batches)
    labels = jnp.concatenate([label for label, _ in results])
    confidence = jnp.concatenate([c for _, c in results])
    counts = jnp.bincount(labels, length=10)
    print(f"{rate:.0f} images/s, mean confidence {float(confidence.mean()):.3f}, labels {counts.tolist()}")


if __name__ == "__main__":
    main()
