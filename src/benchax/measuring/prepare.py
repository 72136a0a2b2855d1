"""A case on its way to a measurement: inputs → program → build → first call. Everything that runs a case begins here.

Each step is made once, at its first use. So a caller that only traces does not compile, and a built case is not built
again. Each step is announced before it begins. Exceptions of the user's function pass through, and belong to that step.

Trace, lower and compile are timed on the program's own AOT path, from nothing (`program.forget`). The first run goes
through the ordinary call, which then finds the executable. The compile watch reports the use of JAX's persistent cache,
and whether anything was compiled at all. A look-up is never reported as a compile.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax

from benchax.case import Case
from benchax.errors import NotMeasured
from benchax.measuring import program as programs
from benchax.measuring.inputs import Call, Inputs, make_inputs, undeclared_static
from benchax.measuring.stages import is_cache_on, timed
from benchax.measuring.state import Surroundings
from benchax.measuring.timers.base import Ready, Subject
from benchax.model import Absent, Cache, Stages
from benchax.program.compiled import inline_flops
from benchax.watching.compiles import CompileLog, watch_compiles

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
    return Prepared(programs.program_of(case, inputs), inputs, enter)


@dataclass(eq=False)
class Prepared:
    """A program and its inputs, and what has been made of them so far: the stages of JAX, and the seconds of each."""

    program: programs.CallableProgram
    inputs: Inputs
    tell: Enter = lambda step: None
    forgets: bool = True
    """False leaves a jitted function the programs that it has: to look at one, times are not needed."""
    step: str = "trace"
    """That was entered last, or is the first to come: where a failure belongs."""
    seconds: dict[str, float] = field(init=False, default_factory=dict)
    absent: list[Absent] = field(init=False, default_factory=list)
    """The reasons for missing times."""
    cache: Cache | None = field(init=False, default=None)
    """The persistent cache's part in compiling; None if nothing was compiled."""

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

    # The objects that JAX or a wrapper gives for a step; None if there is no such step.

    @cached_property
    def _trace(self) -> Any:
        _ = self.surroundings  # tracing may leave something there
        if self.forgets:
            programs.forget(self.program)
        args, kwargs = self._call
        return self._time("trace", lambda: programs.trace(self.program, args, kwargs))

    @cached_property
    def _lower(self) -> Any:
        traced, (args, kwargs) = self._trace, self._call
        return self._time("lower", lambda: programs.lower(self.program, traced, args, kwargs))

    @cached_property
    def _compile(self) -> Any:
        lowered = self._lower
        if lowered is None:
            self.absent.append(Absent("stages.compile_s", self.absent[-1].why))
            return self.program.call  # perhaps a Compiled
        with watch_compiles() as log:
            # JAX also sends a compilation event for a lookup in the persistent cache, and none for one in memory. So
            # the time alone does not show which it was.
            compiled = self._time("compile", lowered.compile)
        self._note_cache(log)
        return compiled

    @cached_property
    def _call(self) -> Call:
        # Tracing does not change objects. A wrapper's own effects are its own concern.
        return self.inputs.renewed(copy=False)

    def _time(self, step: str, call: Callable[[], Any]) -> Any:
        """The result of a timed step; None, with the reason, if there is no such step."""
        self.enter(step)
        try:
            result, self.seconds[step] = timed(call)
        except NotMeasured as error:
            self.absent.append(Absent(f"stages.{step}_s", error.problem))
            return None
        return result

    def _note_cache(self, log: CompileLog) -> None:
        """Says what the persistent cache did, and withdraws a time to compile that was a look-up in memory."""
        # This is possible: a wrapper around a jit cannot be made to forget its programs, and `inspect` does not require
        # it.
        if not log.was_asked:
            self.cache = "warm"
            del self.seconds["compile"]
            why = "it had been compiled before in this process; a fresh one (--cold-process) shows the cost"
            self.absent.append(Absent("stages.compile_s", why))
        elif log.cache_hits:
            self.cache = "hit"
        else:
            self.cache = "miss" if is_cache_on() else "off"

    @property
    def traced(self) -> jax.stages.Traced | None:
        return programs.unwrapped(self._trace, jax.stages.Traced)

    @property
    def lowered(self) -> jax.stages.Lowered | None:
        return programs.unwrapped(self._lower, jax.stages.Lowered)

    @property
    def compiled(self) -> jax.stages.Compiled | None:
        return programs.unwrapped(self._compile, jax.stages.Compiled)

    @property
    def built(self) -> Prepared:
        """Itself, traced, lowered and compiled, each timed, from nothing."""
        _ = self._compile
        return self

    def trace(self) -> Prepared:
        """Returns itself, traced, for callers that do not compile. JAX keeps the trace: a later build would find it
        there and have no time to trace."""
        self.forgets = False
        _ = self.traced or self.lowered
        return self

    def reach_trace(self) -> jax.stages.Traced:
        """Raises `NotMeasured` if it cannot be reached."""
        if self.traced is None:
            why = (absent.why for absent in self.absent if absent.what == "stages.trace_s")
            raise NotMeasured(next(why, "its trace cannot be reached"))
        return self.traced

    @property
    def stages(self) -> Stages:
        """The times of the row."""
        seconds = self.seconds.get
        return Stages(trace_s=seconds("trace"), lower_s=seconds("lower"), compile_s=seconds("compile"))

    @cached_property
    def donated(self) -> tuple[int, ...]:
        """Which of the arrays and numbers that the compiled program takes, as far as JAX publishes it."""
        stage = self.traced or self.lowered
        infos = () if stage is None else stage.args_info
        leaves = jax.tree.leaves(infos, is_leaf=lambda leaf: hasattr(leaf, "donated"))
        flags = [leaf.donated for leaf in leaves if hasattr(leaf, "donated")]
        return tuple(i for i, is_donated in enumerate(flags) if is_donated)

    @cached_property
    def static(self) -> tuple[int | str, ...]:
        stage = self.traced or self.lowered
        if stage is None or self.program.kind != "jit":
            return self.inputs.static
        return undeclared_static(stage.args_info, self.inputs.args, self.inputs.kwargs)

    @property
    def subject(self) -> Subject:
        """For timers, as far as the trace tells. It has no outputs before the first run."""
        return Subject(self.program, self.inputs, None, self.static, bool(self.donated), donated=self.donated)

    @cached_property
    def hlo(self) -> str:
        """The optimised program; empty if it cannot be reached."""
        return (self.compiled.as_text() or "") if self.compiled is not None else ""

    @cached_property
    def inline_flops(self) -> float | None:
        """By which XLA:CPU decides where the program runs; None if it cannot be reached, or XLA does not say."""
        return inline_flops(self.compiled) if self.compiled is not None else None

    def call_first(self) -> FirstRun:
        """The first ordinary call, which finds the executable."""
        subject = self.built.subject
        self.enter("first run")
        is_eager = self.program.kind == "eager"
        # The donations of an eager function show only in what is left of its arguments, so it gets copies.
        copied = is_eager and self.inputs.anew is None
        ready = Ready(subject, self.program.call, *(self.inputs.renewed() if copied else subject.calls(1)[0]))
        with watch_compiles() as log:
            result, elapsed_s = timed(lambda: jax.block_until_ready(programs.refuse_result(ready())))
        arrays = [leaf for leaf in jax.tree.leaves((ready.args, ready.kwargs)) if isinstance(leaf, jax.Array)]
        donates = subject.donates or (is_eager and any(array.is_deleted() for array in arrays))
        return FirstRun(replace(subject, outputs=ready.outcome(result), donates=donates), elapsed_s, log.compiles)
