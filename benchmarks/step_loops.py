"""Five training loops whose split is known: `python benchmarks/step_loops.py KIND STEPS FILE` writes it into FILE.

Each measures itself by hand: `time.perf_counter` around the piece that it is named for, and around the device's work,
for all steps but the first two. Nothing here knows of benchax; `benchmarks/steps.py` and the tests hold the split that
benchax finds from outside against what is written here.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

KINDS = ("input", "python", "device", "transfer", "compile")
WARM_UP = 2


@jax.jit
def step(w: jax.Array, x: jax.Array) -> jax.Array:
    error = jax.grad(lambda w: jnp.mean((jnp.tanh(x @ w) - 1) ** 2))(w)
    return w - 0.1 * error


def batches() -> Iterator[np.ndarray]:
    x = np.random.default_rng(0).standard_normal((256, 256), np.float32)
    while True:
        if kind == "input":
            time.sleep(0.02)
        yield x


def compute_in_python() -> int:
    total = 0
    for i in range(200_000):
        total += i * i
    return total


class Timed:
    """Adds up what its blocks take."""

    def __init__(self) -> None:
        self.total_s = 0.0

    def __enter__(self) -> None:
        self.began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.total_s += time.perf_counter() - self.began


def train(steps: int) -> dict[str, float]:
    """Returns the seconds of the piece that the loop is named for, and of the rest of a step."""
    size = 1024 if kind == "device" else 256
    w, fixed = jnp.full((size, size), 0.01), jnp.full((size, size), 0.02)
    large = np.ones((4096, 2048), np.float32)
    data = batches()
    planted, device, whole = Timed(), Timed(), Timed()
    for number in range(steps):
        if number == WARM_UP:
            planted, device, whole = Timed(), Timed(), Timed()
            whole.__enter__()
        with planted if kind == "input" else Timed():
            x = next(data)
        if kind == "python":
            with planted:
                compute_in_python()
        elif kind == "transfer":
            with planted:
                moved = jax.device_put(large).block_until_ready()
            # To free it gives 32 MiB back to the system, for up to as long as they took to copy: that is no transfer.
            del moved
        if kind == "compile":
            with planted:
                w = step(w, x[: 100 + number])
        else:
            with device:
                w = step(w, fixed if kind == "device" else x)
        with device:
            w.block_until_ready()
    whole.__exit__()
    planted_s = device.total_s if kind == "device" else planted.total_s
    return {"planted_s": planted_s, "whole_s": whole.total_s, "steps": steps - WARM_UP}


if __name__ == "__main__":
    kind = sys.argv[1]
    truth = train(int(sys.argv[2]))
    Path(sys.argv[3]).write_text(json.dumps(truth), encoding="utf-8")
