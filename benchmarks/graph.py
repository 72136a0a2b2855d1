"""What a picture of a compiled program costs: seconds and bytes, for programs of 3 to some thousand boxes.

Claimed: a program of 300 operations is drawn within 2 s in at most 500 kB (pytest-jax-bench 0.5.0 with the program
`dot` needs 20 s for 5.6 MB), and the comparison with the last picture takes a fraction of that. Each program is drawn
`--rounds` times; times are medians.

    python benchmarks/graph.py [--rounds 3]      less than a minute
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
from report import header, table

from benchax import units
from benchax.program.graph import digest, svg
from benchax.program.graph.dataflow import ProgramDrawing

OPERATIONS, MOST_S, MOST_BYTES = 300, 2.0, 500_000


def chain(operations: int) -> Callable[[jax.Array], jax.Array]:
    """Sines, products and sorts, which XLA does not fuse with one another."""

    def run(x: jax.Array) -> jax.Array:
        for n in range(operations // 3):
            x = jnp.sort(jnp.sin(x) @ x, axis=n % 2)
        return x

    return run


def network(layers: int) -> Callable[[jax.Array], Any]:
    """One step of training: each activation is read again on the way back."""

    def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        for w in weights:
            x = x + jnp.tanh(x @ w) / jnp.linalg.norm(x)
        return jnp.sum(x)

    def step(x: jax.Array) -> Any:
        weights = [x * n for n in range(layers)]
        return jax.value_and_grad(loss)(weights, x)

    return step


def text_of(function: Callable[[jax.Array], Any]) -> str:
    return jax.jit(function).lower(jnp.ones((16, 16))).compile().as_text() or ""


def seconds(work: Callable[[], object], rounds: int) -> float:
    taken: list[float] = []
    for _ in range(rounds):
        start = perf_counter()
        work()
        taken.append(perf_counter() - start)
    return median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    header("graph: pictures of compiled programs")
    programs = {f"chain of {n} operations": chain(n) for n in (3, 30, OPERATIONS, 3000)}
    programs |= {f"training, {n} layers": network(n) for n in (3, 30, 100)}
    rows: list[list[str]] = []
    kept = False
    for name, function in programs.items():
        text = text_of(function)
        draws_s, size = seconds(lambda text=text: svg(text), rounds), len(svg(text).encode())
        compares_s = seconds(lambda text=text: digest(text), rounds)
        rows.append(
            [name, str(ProgramDrawing(text).drawn), units.seconds(draws_s), units.seconds(compares_s), f"{size:,}"]
        )
        if name == f"chain of {OPERATIONS} operations":
            kept = draws_s <= MOST_S and size <= MOST_BYTES
    table(["program", "boxes", "drawn in", "compared in", "bytes"], rows)
    print(f"{OPERATIONS} operations within {MOST_S:g} s and {MOST_BYTES:,} bytes: {'kept' if kept else 'NOT kept'}")


if __name__ == "__main__":
    main()
