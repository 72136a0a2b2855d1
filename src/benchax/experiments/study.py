"""Looks at every side once, in a worker: builds it, runs it, observes its memory, compares it with a float64 run.

Nothing here compares times; comparisons come from pairs (`paired_runs/session.py`). The reference is the function
itself, jitted, with every float of its inputs widened to 64 bits. A side that fails is an answer with the reason. If a
side kills the worker, benchax finds it by its stage, omits it, and looks at the others again.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from benchax.case import Case
from benchax.environment import capture, jax_facts
from benchax.errors import BenchaxError, NotMeasured
from benchax.experiments.functions import Converted, change_arrays, is_float, plain
from benchax.json_values import Json
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.inputs import make_inputs, signature
from benchax.measuring.jax_settings import without_cache
from benchax.measuring.memory import observed_bytes
from benchax.measuring.prepare import prepare
from benchax.measuring.stages import BuiltProgram
from benchax.measuring.state import is_key
from benchax.model import Absent, Environment, Failure, Memory, Options
from benchax.numerics import tolerance
from benchax.program import normalized
from benchax.program.cost import cost
from benchax.program.jaxpr import equations
from benchax.program.memory import memory_plan
from benchax.results.experiment import Errors
from benchax.workers.call_limits import limits_of
from benchax.workers.pool import Pool
from benchax.workers.task import Say, task

# Computes the errors of outputs against a reference: the largest and the median relative error, overflows, and NaNs.
#
# The largest error is norm-wise (the difference over the largest magnitude of its leaf), as in `numerics.py`. For the
# median, each element has its own magnitude. In leaves with more than 4 million elements, every k-th one counts.

MOST_IN_MEDIAN = 2**22
NUMBERS = jax.Array | np.ndarray | np.generic | int | float | complex


def leaves(tree: Any) -> dict[str, Any]:
    """Returns arrays and numbers, by path. It omits typed keys, and other content of modules, such as functions:
    wrappers like `equinox.filter_jit` return it unchanged."""
    found = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in found if isinstance(leaf, NUMBERS) and not is_key(leaf)}


def to_host(tree: Any) -> list[np.ndarray]:
    """The leaves, computed and copied."""
    return [np.asarray(leaf) for leaf in leaves(jax.block_until_ready(tree)).values()]


def measure_errors(outputs: Any, reference: list[np.ndarray], against: Literal["float64", "baseline"]) -> Errors:
    """How far `outputs` are from `reference`, over all leaves.

    Raises:
        NotMeasured: there is nothing to compare, or the outputs are built differently.
    """
    ours = to_host(outputs)
    if [a.shape for a in ours] != [b.shape for b in reference]:
        raise NotMeasured(f"its outputs have other shapes than those in {against}")
    if not ours:
        raise NotMeasured("it returns no numbers")
    with np.errstate(all="ignore"):  # overflow and NaN are what is looked for
        found = [_leaf(_doubles(a), _doubles(b)) for a, b in zip(ours, reference, strict=True)]
    largest = [worst for worst, *_ in found if worst is not None]
    relative = np.concatenate([each for _, each, *_ in found])
    return Errors(
        against,
        max_rel=max(largest, default=None),
        median_rel=float(np.median(relative)) if relative.size else None,
        overflows=sum(overflows for *_, overflows, _ in found),
        nans=sum(nans for *_, nans in found),
        worst=max(zip(leaves(outputs), found, strict=True), key=lambda pair: _badness(*pair[1]))[0],
    )


def _badness(worst: float | None, relative: np.ndarray, overflows: int, nans: int) -> tuple[int, float]:
    return overflows + nans, worst or 0.0


def _leaf(a: np.ndarray, b: np.ndarray) -> tuple[float | None, np.ndarray, int, int]:
    """(largest relative error, each element's, overflows, NaNs)"""
    finite = np.isfinite(a) & np.isfinite(b)
    distance = np.abs(np.where(finite, a - b, 0.0))
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    worst = float(distance.max(initial=0.0))
    scale = scale or worst  # a reference of zeros: all of the output is error
    # Where nothing is finite on both sides there is no number, not one of zero.
    largest = None if b.size and not finite.any() else worst / scale if worst else 0.0
    step = max(1, a.size // MOST_IN_MEDIAN)
    counted = finite[::step] & (b[::step] != 0)
    each = distance[::step][counted] / np.abs(b[::step][counted])
    overflows = int((np.isinf(a) & ~np.isinf(b)).sum())
    return largest, each, overflows, int((np.isnan(a) & ~np.isnan(b)).sum())


def _doubles(x: np.ndarray) -> np.ndarray:
    """Flat; a complex number as its two parts."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return np.stack([np.real(x), np.imag(x)]).ravel().astype(np.float64)
    return x.ravel().astype(np.float64)


REFERENCE = "run in float64"
_PRECISION = re.compile(r", operand_precision=\{[\w,]*\}")


@dataclass(frozen=True)
class StudySide:
    """One side of the study: a case under settings of JAX."""

    name: str
    case: Case
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rounds_to: str = ""
    """The dtype in which it computes; empty: as the function does."""


@dataclass(frozen=True)
class Observation:
    """One side, as the worker that built it saw it. Plain data: it has come from another process."""

    signature: str
    """The inputs as specs."""
    build_s: float | None
    """Trace, lower and compile; None for what is not compiled."""
    digest: str
    """Equal for equal programs; empty if there is no program."""
    plan: Memory
    """The compiler's."""
    flops: float | None
    outputs: str
    """As specs: f32[8]."""
    errors: Errors | None
    bound: float
    """Relative error that the type of the outputs permits (`numerics.tolerance`)."""
    observed_bytes: int | None
    absent: tuple[Absent, ...] = ()
    rounding_rel: float | None = None
    """The largest relative error of a run in float64 whose inputs were rounded to the dtype in which the side computes:
    what no way to compute in it can be expected to do better. None: it computes as the function does."""

    def is_same_program(self, other: Observation) -> bool:
        """Returns whether it was compiled to the same program, for the same inputs. False if there is no program to
        compare."""
        return bool(self.digest) and (self.digest, self.signature) == (other.digest, other.signature)


@dataclass(frozen=True)
class Study:
    """The result of a study: for each side either its observation or its failure."""

    seen: Mapping[str, Observation]
    failures: Mapping[str, Failure]
    environment: Environment | None


def study(pool: Pool, sides: Sequence[StudySide], options: Options, tell: Callable[[str], None]) -> Study:
    """Looks at all sides, the baseline first."""
    left, failures, no_reference = list(sides), dict[str, Failure](), ""
    while sides[0] in left:
        found = pool.call(
            look_at_all,
            (tuple(left), options.seed, no_reference),
            limits_of(options),
            name=f"the look at {left[0].case.id.label!r}",
            on_message=lambda message: tell(message["stage"]),
        )
        if not isinstance(found, Failure):
            environment = replace(capture(with_jax=False), **found.jax)
            return Study(found.seen, failures | found.failures, environment)
        # The run in float64 took the worker with it: the sides are looked at again, without it.
        if found.stage == REFERENCE:
            no_reference = f"the run in float64 failed ({found.kind.replace('_', ' ')}: {found.message})"
            continue
        # A worker that dies outside of any look, as at its start, is laid to the baseline: that ends the loop.
        guilty = next((side for side in left if found.stage == f"check of {side.name}"), sides[0])
        failures[guilty.name] = found
        left.remove(guilty)
    return Study({}, failures, None)


# ---- in the worker ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StudyAnswer:
    """A worker's answer: for each side that it reached, an observation or a failure."""

    seen: dict[str, Observation]
    failures: dict[str, Failure]
    jax: Json
    """As `environment.jax_facts` has it."""


@task
def look_at_all(argument: tuple[tuple[StudySide, ...], int, str], say: Say) -> StudyAnswer:
    """A failure of the first side, the baseline, is the end."""
    sides, seed, no_reference = argument
    seen, failures = dict[str, Observation](), dict[str, Failure]()
    # `build_s` is a compilation, not a reading of what the persistent cache has kept.
    with warnings.catch_warnings(), without_cache():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")  # told by the plan
        reference = _Reference(no_reference)
        if not no_reference:
            say(REFERENCE)
            reference.make(sides[0].case, seed)
        for side in sides:
            say(f"check of {side.name}")
            try:
                with under(side.settings):
                    seen[side.name] = look(side, seed, reference)
            except (Exception, SystemExit) as error:
                failures[side.name] = diagnose(error, "check")
                # Without the baseline there is nothing that the others could be beside.
                if side is sides[0]:
                    break
    return StudyAnswer(seen, failures, Json(jax_facts()))


@contextmanager
def under(settings: Mapping[str, Any]) -> Iterator[None]:
    """With these settings of JAX, for a while: for what is made in this process, such as inputs in float64."""
    before = {name: getattr(jax.config, name) for name in settings}
    try:
        for name, value in settings.items():
            jax.config.update(name, value)
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def look(side: StudySide, seed: int, reference: _Reference) -> Observation:
    prepared = prepare(side.case, seed)
    built, subject, hlo = prepared.built, prepared.call_first().subject, prepared.hlo
    absent: list[Absent] = []
    counted = cost(built.compiled, hlo) if built.compiled else None
    # XLA's text shows large constants as {...}: by it alone, programs that differ in their values would be one.
    stablehlo = built.lowered.as_text() if built.lowered and normalized.elides_constants(hlo) else ""
    return Observation(
        signature=subject.inputs.signature,
        build_s=sum(built.seconds.values()) if "compile" in built.seconds else None,
        digest=_digest(hlo, stablehlo),
        plan=memory_plan(built.compiled, hlo_text=hlo) if built.compiled else Memory(),
        flops=counted.flops if counted else None,
        outputs=signature((subject.outputs,), {}, ()),
        errors=_or_absent(absent, "errors", lambda: reference.errors(subject.outputs, random_draws(built))),
        bound=max((tolerance(leaf.dtype) for leaf in leaves(subject.outputs).values()), default=0.0),
        observed_bytes=_or_absent(absent, "observed_bytes", lambda: observed_bytes(subject)),
        absent=tuple(absent),
        rounding_rel=reference.rounding_error(side.rounds_to) if side.rounds_to else None,
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


class _Reference:
    """The reference of outputs: the outputs in float64, or the baseline's if `why` explains that there are no float64
    outputs."""

    def __init__(self, why: str) -> None:
        self.float64: list[np.ndarray] | None = None
        self.baseline: list[np.ndarray] | None = None
        self.why = why
        self._draws: frozenset[int] | None = None
        """The random bits that the reference draws."""
        self._run: Callable[[str], list[np.ndarray]] | None = None
        self._rounding: dict[str, float | None] = {}

    def rounding_error(self, dtype: str) -> float | None:
        """The largest relative error that rounding the inputs makes in float64; None where it cannot be had."""
        if self._run is None or self.float64 is None:
            return None
        if dtype not in self._rounding:
            # The reference as arrays of one structure: the same function made both.
            found = measure_errors(self._run(dtype), self.float64, "float64")
            self._rounding[dtype] = found.max_rel
        return self._rounding[dtype]

    def errors(self, outputs: Any, draws: frozenset[int] | None) -> Errors:
        """The first call is about the baseline. Raises `NotMeasured` if there is nothing to compare with."""
        if self.baseline is None and self.float64 is not None and self._draws_others(draws):
            self.float64 = self._run = None
            self.why = "in float64 it draws other random numbers"
        if (self.baseline is not None or self.float64 is not None) and self._draws_others(draws):
            raise NotMeasured("it draws other random numbers than what it would be compared with")
        if self.float64 is not None:
            return measure_errors(outputs, self.float64, "float64")
        if self.baseline is not None:
            return measure_errors(outputs, self.baseline, "baseline")
        self.baseline, self._draws = to_host(outputs), draws
        raise NotMeasured(self.why)

    def _draws_others(self, draws: frozenset[int] | None) -> bool:
        # What cannot be traced, such as a loop of Python's, is compared: its numbers are looked at for what they are.
        return draws is not None and self._draws is not None and draws != self._draws

    def make(self, case: Case, seed: int) -> None:
        try:
            self._run, self._draws = _float64_run(case, seed)
            self.float64 = self._run("")
        except Exception as error:  # whatever the function has to say to float64; the rows say so
            first = (str(error).splitlines() or [""])[0]
            kind = "" if isinstance(error, BenchaxError) else f"{type(error).__name__}: "
            self.why = f"the run in float64 failed ({kind}{first})"


def random_draws(built: BuiltProgram) -> frozenset[int] | None:
    """How many bits wide the random numbers are that a program draws: of other bits, as for float64 or bf16, JAX makes
    other numbers. None where its trace cannot be reached."""
    if built.traced is None:
        return None
    drawn = (each.equation for each in equations(built.traced.jaxpr) if each.equation.primitive.name == "random_bits")
    return frozenset(one.params["bit_width"] for one in drawn)


def _float64_run(case: Case, seed: int) -> tuple[Callable[[str], list[np.ndarray]], frozenset[int] | None]:
    """Returns (a function that gives the outputs of a run in float64, the random bits that the run draws). If the
    function gets a dtype, it first rounds the inputs to that dtype."""
    unjitted = replace(plain(case, seed), jit=True, donate=())
    made = make_inputs(unjitted, seed)  # before the switch, which would make other data of a factory's
    fixed = replace(unjitted, inputs=lambda: (made.args, made.kwargs))
    with under({"jax_enable_x64": True}):
        wide = prepare(replace(fixed, inputs=Converted(fixed, seed, "float64")), seed)
        draws = random_draws(wide.built)

    def run(rounds_to: str) -> list[np.ndarray]:
        with under({"jax_enable_x64": True}):
            args, kwargs = wide.inputs.args, wide.inputs.kwargs
            if rounds_to:
                args, kwargs = change_arrays(wide.inputs, lambda _, leaf: _round(leaf, rounds_to))
            return to_host(wide.program.call(*args, **kwargs))

    return run, draws


def _round(leaf: Any, dtype: str) -> Any:
    return leaf.astype(dtype).astype(leaf.dtype) if is_float(leaf) else leaf
