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


@dataclass
class BuiltProgram:
    """The results of building: the stages of JAX, the seconds of each, and the reasons for missing ones."""

    seconds: dict[str, float] = field(default_factory=dict)
    absent: list[Absent] = field(default_factory=list)
    cache: Cache | None = None
    traced: jax.stages.Traced | None = None
    lowered: jax.stages.Lowered | None = None
    compiled: jax.stages.Compiled | None = None
    donated: tuple[int, ...] = ()
    """Which of the arrays and numbers that the compiled program takes."""
    static: tuple[int | str, ...] = ()

    @property
    def donates(self) -> bool:
        return bool(self.donated)

    @property
    def stages(self) -> Stages:
        """The times of the row."""
        return Stages(
            trace_s=self.seconds.get("trace"), lower_s=self.seconds.get("lower"), compile_s=self.seconds.get("compile")
        )

    def step(self, name: str, enter: Enter, call: Callable[[], Any]) -> Any:
        """The result of a timed step; None, with the reason, if there is no such step."""
        enter(name)
        try:
            result, self.seconds[name] = timed(call)
        except NotMeasured as error:
            self.absent.append(Absent(f"stages.{name}_s", error.problem))
            return None
        return result

    def note_cache(self, log: CompileLog) -> None:
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

    def reach_trace(self) -> jax.stages.Traced:
        """Raises `NotMeasured` if it cannot be reached."""
        if self.traced is None:
            why = (absent.why for absent in self.absent if absent.what == "stages.trace_s")
            raise NotMeasured(next(why, "its trace cannot be reached"))
        return self.traced


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
    """A program and its inputs, and what has been made of them so far."""

    program: programs.CallableProgram
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
        """Traced, lowered and compiled, each timed, from nothing."""
        _ = self.surroundings  # tracing may leave something there
        if self.forgets:
            programs.forget(self.program)
        built, (args, kwargs) = self._traced()
        lowered = built.step("lower", self.enter, lambda: programs.lower(self.program, built.traced, args, kwargs))
        if lowered is None:
            built.absent.append(Absent("stages.compile_s", built.absent[-1].why))
            built.compiled = programs.unwrapped(self.program.call, jax.stages.Compiled)
            return built
        with watch_compiles() as log:
            # JAX also sends a compilation event for a lookup in the persistent cache, and none for one in memory. So
            # the time alone does not show which it was.
            compiled = built.step("compile", self.enter, lowered.compile)
        built.lowered = programs.unwrapped(lowered, jax.stages.Lowered)
        built.compiled = programs.unwrapped(compiled, jax.stages.Compiled)
        built.note_cache(log)
        self._read_arguments(built)
        return built

    def trace(self) -> BuiltProgram:
        """Returns the results of tracing, for callers that do not compile. JAX keeps the trace: a later build would
        find it there and have no time to trace."""
        built, (args, kwargs) = self._traced()
        if built.traced is None:
            lowered = programs.lower(self.program, None, args, kwargs)
            built.lowered = programs.unwrapped(lowered, jax.stages.Lowered)
        self._read_arguments(built)
        return built

    def _traced(self) -> tuple[BuiltProgram, Call]:
        built = BuiltProgram(static=self.inputs.static)
        # Tracing does not change objects. A wrapper's own effects are its own concern.
        args, kwargs = self.inputs.renewed(copy=False)
        built.traced = built.step("trace", self.enter, lambda: programs.trace(self.program, args, kwargs))
        return built, (args, kwargs)

    def _read_arguments(self, built: BuiltProgram) -> None:
        """Which arguments are donated and which are static, as far as JAX publishes it."""
        built.traced = programs.unwrapped(built.traced, jax.stages.Traced)
        stage = built.traced or built.lowered
        if stage is None:
            return
        leaves = jax.tree.leaves(stage.args_info, is_leaf=lambda leaf: hasattr(leaf, "donated"))
        flags = [leaf.donated for leaf in leaves if hasattr(leaf, "donated")]
        built.donated = tuple(i for i, is_donated in enumerate(flags) if is_donated)
        if self.program.kind == "jit":
            built.static = undeclared_static(stage.args_info, self.inputs.args, self.inputs.kwargs)

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
        # The donations of an eager function show only in what is left of its arguments, so it gets copies.
        copied = is_eager and self.inputs.anew is None
        ready = Ready(subject, self.program.call, *(self.inputs.renewed() if copied else subject.calls(1)[0]))
        with watch_compiles() as log:
            result, elapsed_s = timed(lambda: jax.block_until_ready(programs.refuse_result(ready())))
        arrays = [leaf for leaf in jax.tree.leaves((ready.args, ready.kwargs)) if isinstance(leaf, jax.Array)]
        donates = subject.donates or (is_eager and any(array.is_deleted() for array in arrays))
        return FirstRun(replace(subject, outputs=ready.outcome(result), donates=donates), elapsed_s, log.compiles)
