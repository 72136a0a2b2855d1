"""Looks at every side once, in a worker: builds it, runs it, observes its memory, compares it with a float64 run.

Nothing here is a comparison of times; those come from pairs (`paired_runs/session.py`). The reference is the function
itself, jitted, with every float of its inputs widened to 64 bits. A side that fails is an answer with the reason; one
that kills the worker is found by its stage, left out, and the others are looked at again.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from benchax.artifacts import normalized
from benchax.artifacts.cost import cost
from benchax.artifacts.memory_plan import memory_plan
from benchax.case import Case
from benchax.environment import capture, jax_facts
from benchax.errors import BenchaxError, NotMeasured
from benchax.executors.isolated import limit
from benchax.executors.jobs import Job
from benchax.executors.pool import Pool
from benchax.experiments import errors as error_of
from benchax.experiments.base import Observation
from benchax.experiments.functions import Converted, plain
from benchax.measuring import memory, stages
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.inputs import make_inputs, signature
from benchax.measuring.paired import without_cache
from benchax.measuring.program import program_of
from benchax.measuring.timers.base import Subject
from benchax.model import Absent, Environment, Failure, Memory, Options
from benchax.numerics import tolerance
from benchax.results.experiment import Errors

ENTRY = "benchax.experiments.study:look_at_all"
REFERENCE = "run in float64"
_PRECISION = re.compile(r", operand_precision=\{[\w,]*\}")


@dataclass(frozen=True)
class StudySide:
    """What is looked at: a case under settings of JAX."""

    name: str
    case: Case
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    look: Callable[[str], Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class Study:
    """What came of it: of each side either what was seen or its failure."""

    seen: Mapping[str, Observation]
    failures: Mapping[str, Failure]
    environment: Environment | None


def study(pool: Pool, sides: Sequence[StudySide], options: Options, tell: Callable[[str], None]) -> Study:
    """Looks at all sides, the baseline first."""
    left, failures, no_reference = list(sides), dict[str, Failure](), ""
    while sides[0] in left:
        job = Job(
            ENTRY,
            (tuple(left), options.seed, no_reference),
            limits=lambda stage: limit(stage, options),
            memory_limit_bytes=options.memory_limit_bytes,
            name=f"the look at {left[0].case.id.label!r}",
        )
        ended = pool.run(job, lambda message: tell(message["stage"]))
        if ended.document is not None:
            return _read(ended.document, failures)
        failure = ended.failure or Failure("crashed", ended.stage, "the process gave no answer")
        if ended.stage == REFERENCE:
            no_reference = f"the run in float64 failed ({failure.kind.replace('_', ' ')}: {failure.message})"
            continue
        guilty = next((side for side in left if ended.stage == f"look of {side.name}"), sides[0])
        failures[guilty.name] = failure
        left.remove(guilty)
    return Study({}, failures, None)


def _read(document: Mapping[str, Any], failures: dict[str, Failure]) -> Study:
    seen: dict[str, Observation] = {}
    for name, answer in document["sides"].items():
        if "failure" in answer:
            failures[name] = Failure(**answer["failure"])
        else:
            seen[name] = _as_seen(answer)
    environment = replace(capture(with_jax=False), **document["environment"])
    return Study(seen, failures, environment)


def _as_seen(answer: dict[str, Any]) -> Observation:
    return Observation(
        **answer
        | {
            "plan": Memory(**answer["plan"]),
            "errors": Errors(**answer["errors"]) if answer["errors"] else None,
            "absent": tuple(Absent(**absent) for absent in answer["absent"]),
        }
    )


# ---- in the worker ----------------------------------------------------------------------------------------------


def look_at_all(
    argument: tuple[tuple[StudySide, ...], int, str], say: Callable[..., None]
) -> tuple[dict[str, Any], list[Any]]:
    """A failure of the first side, the baseline, is the end."""
    sides, seed, no_reference = argument
    found: dict[str, Any] = {}
    with warnings.catch_warnings(), without_cache():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")  # told by the plan
        reference = _Reference(no_reference)
        if not no_reference:
            say(REFERENCE)
            reference.make(sides[0].case, seed)
        for side in sides:
            say(f"look of {side.name}")
            try:
                with under(side.settings):
                    found[side.name] = dataclasses.asdict(look(side, seed, reference))
            except (Exception, SystemExit) as error:
                found[side.name] = {"failure": dataclasses.asdict(diagnose(error, "look"))}
                if side is sides[0]:
                    break
    return {"sides": found, "environment": jax_facts()}, []


@contextmanager
def under(settings: Mapping[str, Any]) -> Iterator[None]:
    """With these settings of JAX, for a while; also what a worker that starts meanwhile is given."""
    before = {name: getattr(jax.config, name) for name in settings}
    try:
        for name, value in settings.items():
            jax.config.update(name, value)
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def look(side: StudySide, seed: int, reference: _Reference) -> Observation:
    inputs = make_inputs(side.case, seed)
    program = program_of(side.case, inputs)
    built = stages.build(program, inputs, lambda stage: None)
    absent: list[Absent] = []
    subject = Subject(program, inputs, None, built.static, built.donates)
    subject = replace(subject, outputs=subject.outcome())
    hlo = (built.compiled.as_text() or "") if built.compiled else ""
    counted = cost(built.compiled, hlo) if built.compiled else None
    stablehlo = built.lowered.as_text() if built.lowered and normalized.elides_constants(hlo) else ""
    return Observation(
        signature=inputs.signature,
        build_s=sum(built.seconds.values()) if "compile" in built.seconds else None,
        digest=_digest(hlo, stablehlo),
        plan=memory_plan(built.compiled, hlo_text=hlo) if built.compiled else Memory(),
        flops=counted.flops if counted else None,
        outputs=signature((subject.outputs,), {}, ()),
        errors=_or_absent(absent, "errors", lambda: reference.errors(subject.outputs)),
        bound=max((tolerance(leaf.dtype) for leaf in error_of.leaves(subject.outputs).values()), default=0.0),
        observed_bytes=_or_absent(absent, "observed_bytes", lambda: _observed_bytes(subject)),
        absent=tuple(absent),
        facts=dict(side.look(hlo)) if side.look else {},
    )


def _digest(hlo: str, stablehlo: str) -> str:
    """XLA:CPU multiplies in the precision of the operands whatever is asked for (jax 0.6 to 0.10.2): there the mark
    alone makes no other program."""
    if jax.default_backend() == "cpu":
        hlo = _PRECISION.sub("", hlo)
    return normalized.digest(hlo, stablehlo=stablehlo) if hlo else ""


def _or_absent(absent: list[Absent], what: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except NotMeasured as error:
        absent.append(Absent(what, error.problem))
        return None


def _observed_bytes(subject: Subject) -> int:
    if jax.default_backend() != "cpu":
        raise NotMeasured("an accelerator's mark tells only the first call of a process")
    # Copies for a donating function are made before the reading begins.
    calls = iter([subject.ready() for _ in range(memory.CALLS + 1)])
    return memory.observed_rise(lambda: next(calls)())


class _Reference:
    """What outputs are compared with: those in float64; where `why` says that there are none, the baseline's."""

    def __init__(self, why: str) -> None:
        self.float64: list[np.ndarray] | None = None
        self.baseline: list[np.ndarray] | None = None
        self.why = why

    def errors(self, outputs: Any) -> Errors:
        """The first call is about the baseline. Raises `NotMeasured` where there is nothing to compare with."""
        if self.float64 is not None:
            return error_of.errors(outputs, self.float64, "float64")
        if self.baseline is not None:
            return error_of.errors(outputs, self.baseline, "baseline")
        self.baseline = error_of.on_host(outputs)
        raise NotMeasured(self.why)

    def make(self, case: Case, seed: int) -> None:
        try:
            self.float64 = _in_float64(case, seed)
        except Exception as error:  # whatever the function has to say to float64; the rows say so
            first = (str(error).splitlines() or [""])[0]
            kind = "" if isinstance(error, BenchaxError) else f"{type(error).__name__}: "
            self.why = f"the run in float64 failed ({kind}{first})"


def _in_float64(case: Case, seed: int) -> list[np.ndarray]:
    unjitted = replace(plain(case, seed), jit=True, donate=())
    given = make_inputs(unjitted, seed)  # before the switch, which would make other data of a factory's
    fixed = replace(unjitted, inputs=lambda: (given.args, given.kwargs))
    with under({"jax_enable_x64": True}):
        wide = replace(fixed, inputs=Converted(fixed, seed, "float64"))
        inputs = make_inputs(wide, seed)
        return error_of.on_host(program_of(wide).call(*inputs.args, **inputs.kwargs))
