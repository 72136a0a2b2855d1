"""The contract of a timer: one way of reading time, in one file.

A timer is prepared for one subject and then asked for samples. It says what its interval contains, and refuses with
`NotMeasured` what it cannot serve: a row without that timer, never a wrong one.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax

from benchax.measuring.inputs import Call, Inputs
from benchax.measuring.program import Program
from benchax.model import Census


@dataclass(frozen=True)
class Subject:
    """A built program and its inputs: all that a timer needs to know."""

    program: Program
    inputs: Inputs
    outputs: Any
    """Of one call; for their types and sizes."""
    static: tuple[int | str, ...] = ()
    donates: bool = False
    hlo: str = ""
    """The optimised program; empty where it cannot be reached."""

    def calls(self, n: int) -> list[Call]:
        """Arguments for `n` calls: one set of buffers for all, or fresh ones for each if the program donates."""
        if not self.donates:
            return [(self.inputs.args, self.inputs.kwargs)] * n
        return [self.inputs.renewed() for _ in range(n)]

    def call(self) -> Any:
        """One ordinary call, on fresh buffers where needed; does not wait."""
        ((args, kwargs),) = self.calls(1)
        return self.program.call(*args, **kwargs)

    @property
    def dynamic(self) -> Call:
        """The call with its static arguments taken out: `None` in their positions, their names left out."""
        args = tuple(None if i in self.static else value for i, value in enumerate(self.inputs.args))
        return args, {name: value for name, value in self.inputs.kwargs.items() if name not in self.static}

    @property
    def dynamic_leaves(self) -> list[Any]:
        """What the compiled program is given at run time: arrays and Python numbers."""
        return [leaf for leaf in jax.tree.leaves(self.dynamic) if isinstance(leaf, jax.Array | int | float | complex)]

    @property
    def input_bytes(self) -> int:
        return sum(leaf.nbytes for leaf in self.inputs.data)

    @property
    def output_bytes(self) -> int:
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self.outputs) if isinstance(leaf, jax.Array))


@dataclass(frozen=True)
class Prepared:
    """A timer ready for one subject.

    `sample(n)` returns the nanoseconds of `n` calls; for timers that take differences it can be negative.
    """

    sample: Callable[[int], int]
    take: Callable[[int, int], list[int]] | None = None
    """`take(n, count)` returns `count` samples of `n` calls at once; for timers that take them inside one program."""
    overhead_s: Callable[[int], float] | None = None
    """What a sample of `n` calls contains of the timer itself, as measured while the samples were taken."""
    clock_tier: str | None = None
    regime: str | None = None
    census: Census | None = None
    """Of the timer's own program around the function."""
    least_iterations: int = 1
    most_iterations: int = 1_000_000
    length: float = 1.0
    """How long a sample should be, in multiples of `Options.sample_time_s`."""
    sample_time_s: float | None = None
    """How long a sample should be, where the timer knows better than the options."""


class Timer(Protocol):
    name: str
    answers: str
    """The question that its number answers, in a few words; shown beside it."""

    def prepare(self, subject: Subject) -> Prepared:
        """Raises `NotMeasured` where this timer cannot serve."""
        ...
