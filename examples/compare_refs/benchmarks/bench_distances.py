"""benchax run benchmarks"""

import distances

import benchax


@benchax.benchmark(args=lambda n: (f"f32[{n},64]",), n=[256])
def squared_distances(x):
    return distances.squared_distances(x)


@benchax.benchmark(args=lambda n: (f"f32[{n},64]",), n=[4096])
def centred(x):
    return distances.centred(x)
