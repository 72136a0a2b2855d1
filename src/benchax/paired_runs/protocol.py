"""How often is benchax wrong on this machine? Runs comparisons whose right answer is known: `benchax doctor --aa`.

    a round:  a kernel as it is, against  an unchanged copy · another one · 5 % more iterations · 10 % more

The kernels take turns. A round is judged as `benchax compare` judges a suite: fresh processes, interim analyses,
confirmation. The only difference is that identical programs are timed, too. A round counts only if it is finished,
because an early end would change the verdicts.

The kernels cover the usual kinds of work: many small steps, matrix products, reading memory, and allocating memory. The
planted slowdown is more iterations of the same compiled loop. All kernels compute long enough that the rest of a call
hardly dilutes it. The real slowdown of a call is measured, never assumed.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from time import monotonic
from typing import Any

import jax.numpy as jnp
from jax import lax

from benchax.case import make_case
from benchax.comparing.error_rates import UNCHANGED, ErrorRates, Trial, planted_name
from benchax.comparing.sequential import Effort
from benchax.machine import noise
from benchax.measuring.paired import Side
from benchax.model import Comparison, Version
from benchax.options import DEFAULTS
from benchax.paired_runs.paired_run import PairedRun
from benchax.paired_runs.session import compare_runs
from benchax.progress import Listener, quiet

_PIECE = 2**14
_PIECES = 64


@dataclass(frozen=True)
class Kernel:
    """A function of arrays, with the requested number of iterations."""

    function: Callable[..., Any]
    """Its first argument is the number of iterations."""
    specs: tuple[str, ...]
    """The specs of its arrays."""
    turns: int
    """The iterations of the baseline; a multiple of 20, so that +5 % is a whole number of iterations."""

    @property
    def name(self) -> str:
        return self.function.__name__

    def slower(self, share: float) -> partial[Any]:
        """Adds `share` of the iterations; 0 makes an unchanged copy."""
        return partial(self.function, round(self.turns * (1 + share)))


def steps(turns: int, x: Any) -> Any:
    """Many small steps, one after the other."""
    return lax.fori_loop(0, turns, lambda _, y: 0.5 * jnp.sin(y) + x, x)


def products(turns: int, x: Any, w: Any) -> Any:
    """Products of small matrices."""
    return lax.fori_loop(0, turns, lambda _, y: jnp.tanh(y @ w), x)


def reading(turns: int, x: Any) -> Any:
    """4 MiB of memory, read piece by piece."""

    def add(i: Any, total: Any) -> Any:
        return total + 0.5 * lax.dynamic_slice(x, ((i % _PIECES) * _PIECE,), (_PIECE,))

    return lax.fori_loop(0, turns, add, jnp.zeros(_PIECE, x.dtype))


def allocating(turns: int, x: Any) -> Any:
    """The same, with a result of 4 MiB, for which each call takes new memory."""
    return x + reading(turns, x)[0]


KERNELS = (
    Kernel(steps, ("f32[64]",), 2000),
    Kernel(products, ("f32[8,32]", "f32[32,32]"), 500),
    Kernel(reading, (f"f32[{_PIECE * _PIECES}]",), 300),
    Kernel(allocating, (f"f32[{_PIECE * _PIECES}]",), 600),
)

PLANTED = (UNCHANGED, UNCHANGED, 0.05, 0.10)
"""Two unchanged copies: false alarms are rare, so that it takes many comparisons to see how rare."""
MAX_TIME_S = 180.0
Judge = Callable[[Sequence[PairedRun], Effort, Listener], list[list[Comparison]]]


def measure_rounds(
    max_time_s: float = MAX_TIME_S,
    report: Listener = quiet,
    *,
    kernels: Sequence[Kernel] = KERNELS,
    judge: Judge = compare_runs,
    clock: Callable[[], float] = monotonic,
) -> Iterator[ErrorRates]:
    """Yields the error rates after each round. The first round is always made. Another one begins only if it will
    probably end in time.

    Raises:
        KeyboardInterrupt: passes through; the results of earlier rounds have been yielded.
    """
    begun, machine = clock(), noise.start()
    trials: list[Trial] = []
    elapsed_s = longest_s = 0.0
    for kernel in cycle(kernels):
        if trials and elapsed_s + longest_s > max_time_s:
            break
        found = judge([_make_paired_run(kernel, planted) for planted in PLANTED], Effort(skips_equal=False), report)
        trials += [
            Trial(kernel.name, planted, c)
            for planted, comparisons in zip(PLANTED, found, strict=True)
            for c in comparisons
            if c.metric == "run"
        ]
        before_s, elapsed_s = elapsed_s, clock() - begun
        longest_s = max(longest_s, elapsed_s - before_s)
        yield ErrorRates(tuple(trials), elapsed_s, noise.finish(machine))


def _make_paired_run(kernel: Kernel, planted: float) -> PairedRun:
    versions = {"as it is": kernel.slower(UNCHANGED), planted_name(planted): kernel.slower(planted)}
    cases = {label: make_case(fn, kernel.specs, name=kernel.name) for label, fn in versions.items()}
    return PairedRun(
        cases["as it is"].id,
        tuple(Side(label, case) for label, case in cases.items()),
        tuple(Version(label) for label in cases),
        DEFAULTS,  # not those of the project in which the doctor happens to be asked
    )
