"""A case on its way to a measurement: inputs → program → build → first call. Everything that runs a case begins here.

Each step is made once, at its first use. So a caller that only traces does not compile, and a built case is not built
again. Each step is announced before it begins. Exceptions of the user's function pass through, and belong to that step.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import jax

from benchax.case import Case
from benchax.measuring import stages
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.measuring.program import CallableProgram, program_of
from benchax.measuring.stages import BuiltProgram
from benchax.measuring.state import Surroundings
from benchax.measuring.timers.base import Ready, Subject
from benchax.program.compiled import inline_flops
from benchax.watching.compiles import watch_compiles

Enter = Callable[[str], None]
"""Told the name of each step before it begins."""


@dataclass(frozen=True)
class FirstRun:
    """The first call of a program."""

    subject: Subject
    """With the outputs of the call."""
    elapsed_s: float
    compiles: int
    """Programs that were compiled in it: then its time is not that of a first run."""


def prepare(case: Case, seed: int = 0, enter: Enter = lambda step: None) -> Prepared:
    """The case with its inputs.

    Args:
        seed: of the data made from specs.

    Raises:
        UsageError: a spec that cannot be read. Whatever the factory of the inputs raises passes through.
    """
    enter("inputs")
    inputs = make_inputs(case, seed)
    return Prepared(program_of(case, inputs), inputs, enter)


@dataclass(eq=False)
class Prepared:
    """A program and its inputs, and what has been made of them so far."""

    program: CallableProgram
    inputs: Inputs
    tell: Enter = lambda step: None
    forgets: bool = True
    """False leaves a jitted function the programs that it has: to look at one, times are not needed."""
    step: str = "trace"
    """That was entered last, or is the first to come: where a failure belongs."""

    def on_inputs_of(self, case: Case, seed: int) -> Prepared:
        """The same program with the inputs of another case: a jitted function is called with several."""
        return replace(self, inputs=make_inputs(case, seed))

    def enter(self, step: str) -> None:
        self.step = step
        self.tell(step)

    @cached_property
    def surroundings(self) -> Surroundings:
        """Taken with the first use, which is before the function is traced."""
        return Surroundings(self.program.eager or self.program.call)

    @cached_property
    def built(self) -> BuiltProgram:
        """Traced, lowered and compiled."""
        _ = self.surroundings  # tracing may leave something there
        return stages.build(self.program, self.inputs, self.enter, self.forgets)

    def trace(self) -> BuiltProgram:
        """Returns the results of tracing, for callers that do not compile. JAX keeps the trace: a later build would
        find it there and have no time to trace."""
        self.enter("trace")
        return stages.trace_only(self.program, self.inputs)

    @property
    def subject(self) -> Subject:
        """For timers; it has no outputs before the first run."""
        return self.subject_of(self.built)

    def subject_of(self, found: BuiltProgram | None = None) -> Subject:
        """As far as `found` tells, a build or a trace; without one, what the case declares."""
        if found is None:
            return Subject(self.program, self.inputs, None, self.inputs.static)
        return Subject(self.program, self.inputs, None, found.static, found.donates, donated=found.donated)

    @cached_property
    def hlo(self) -> str:
        """The optimised program; empty if it cannot be reached."""
        return (self.built.compiled.as_text() or "") if self.built.compiled is not None else ""

    @cached_property
    def inline_flops(self) -> float | None:
        """By which XLA:CPU decides where the program runs; None if it cannot be reached, or XLA does not say."""
        return inline_flops(self.built.compiled) if self.built.compiled is not None else None

    def call_first(self) -> FirstRun:
        """The first ordinary call, which finds the executable."""
        subject = self.subject  # built first, if it is not
        self.enter("first run")
        is_eager = self.program.kind == "eager"
        # What an eager function donates only shows in what it leaves of its arguments, so it is given copies.
        copied = is_eager and self.inputs.anew is None
        ready = Ready(subject, self.program.call, *(self.inputs.renewed() if copied else subject.calls(1)[0]))
        with watch_compiles() as log:
            result, elapsed_s = stages.first_run(ready)
        arrays = [leaf for leaf in jax.tree.leaves((ready.args, ready.kwargs)) if isinstance(leaf, jax.Array)]
        donates = subject.donates or (is_eager and any(array.is_deleted() for array in arrays))
        return FirstRun(replace(subject, outputs=ready.outcome(result), donates=donates), elapsed_s, log.compiles)
