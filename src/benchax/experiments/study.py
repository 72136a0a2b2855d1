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
from functools import cached_property, partial
from time import perf_counter_ns
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from benchax.case import Case
from benchax.environment import capture, jax_facts
from benchax.errors import BenchaxError, NotMeasured
from benchax.experiments.functions import change_arrays, converted, is_float, plain
from benchax.json_values import Json
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.inputs import make_inputs, signature
from benchax.measuring.jax_settings import without_cache
from benchax.measuring.memory import observed_bytes
from benchax.measuring.prepare import Prepared, prepare
from benchax.measuring.stages import BuiltProgram
from benchax.measuring.state import is_key
from benchax.model import Absent, Environment, Failure, Memory, Options
from benchax.numerics import as_doubles, compare, tolerance
from benchax.program import normalized
from benchax.program.cost import cost
from benchax.program.jaxpr import every_equation
from benchax.program.memory import memory_plan
from benchax.results.experiment import Errors
from benchax.watching.watch import watch
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
        found = [_leaf(as_doubles(a).ravel(), as_doubles(b).ravel()) for a, b in zip(ours, reference, strict=True)]
    largest = [each.largest for each in found if each.largest is not None]
    relative = np.concatenate([each.relative for each in found])
    return Errors(
        against,
        max_rel=max(largest, default=None),
        median_rel=float(np.median(relative)) if relative.size else None,
        overflows=sum(each.overflows for each in found),
        nans=sum(each.nans for each in found),
        worst=max(zip(leaves(outputs), found, strict=True), key=lambda pair: pair[1].badness)[0],
    )


class _LeafErrors(NamedTuple):
    largest: float | None
    relative: np.ndarray
    """Each element's."""
    overflows: int
    nans: int

    @property
    def badness(self) -> tuple[int, float]:
        return self.overflows + self.nans, self.largest or 0.0


def _leaf(a: np.ndarray, b: np.ndarray) -> _LeafErrors:
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
    overflows, nans = (int((test(a) & ~test(b)).sum()) for test in (np.isinf, np.isnan))
    return _LeafErrors(largest, each, overflows, nans)


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
    """The result of a study: for each side that was reached, either its observation or its failure."""

    seen: dict[str, Observation]
    failures: dict[str, Failure]
    jax: Json | None = None
    """As `environment.jax_facts` has it."""

    @cached_property
    def environment(self) -> Environment | None:
        return None if self.jax is None else replace(capture(with_jax=False), **self.jax)


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
            return replace(found, failures=failures | found.failures)
        # The run in float64 took the worker with it: the sides are looked at again, without it.
        if found.stage == REFERENCE:
            no_reference = f"the run in float64 failed ({found.kind.replace('_', ' ')}: {found.message})"
            continue
        # A worker that dies outside of any look, as at its start, is laid to the baseline: that ends the loop.
        guilty = next((side for side in left if found.stage == f"check of {side.name}"), sides[0])
        failures[guilty.name] = found
        left.remove(guilty)
    return Study({}, failures)


# ---- in the worker ----------------------------------------------------------------------------------------------


@task
def look_at_all(argument: tuple[tuple[StudySide, ...], int, str], say: Say) -> Study:
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
    return Study(seen, failures, Json(jax_facts()))


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
    """The reference of outputs: the function's in float64, or the baseline's if `why` gives a reason."""

    def __init__(self, why: str) -> None:
        self.why = why
        self.expected: list[np.ndarray] | None = None
        self.against: Literal["float64", "baseline"] = "float64"
        self._draws: frozenset[int] | None = None
        """The random bits that the reference draws."""
        self._run: Callable[[str], list[np.ndarray]] | None = None
        self._rounding: dict[str, float | None] = {}
        self._is_unused = True

    def make(self, case: Case, seed: int) -> None:
        """Runs the function in float64."""
        try:
            run, self._draws = _float64_run(case, seed)
            self.expected, self._run = run(""), run
        except Exception as error:  # whatever the function has to say to float64; the rows say so
            first = (str(error).splitlines() or [""])[0]
            kind = "" if isinstance(error, BenchaxError) else f"{type(error).__name__}: "
            self.why = f"the run in float64 failed ({kind}{first})"

    def rounding_error(self, dtype: str) -> float | None:
        """The largest relative error that rounding the inputs makes in float64; None where it cannot be had."""
        if self._run is None or self.expected is None:
            return None
        if dtype not in self._rounding:
            # The reference as arrays of one structure: the same function made both.
            self._rounding[dtype] = measure_errors(self._run(dtype), self.expected, "float64").max_rel
        return self._rounding[dtype]

    def errors(self, outputs: Any, draws: frozenset[int] | None) -> Errors:
        """The first call is about the baseline. Raises `NotMeasured` if there is nothing to compare with."""
        # What cannot be traced, such as a loop of Python's, is compared: its numbers are looked at for what they are.
        draws_others = None not in (draws, self._draws) and draws != self._draws
        if self._is_unused and draws_others and self.expected is not None:
            self.expected = self._run = None
            self.why = "in float64 it draws other random numbers"
        self._is_unused = False
        if self.expected is None:
            self.expected, self.against, self._draws = to_host(outputs), "baseline", draws
            raise NotMeasured(self.why)
        if draws_others:
            raise NotMeasured("it draws other random numbers than what it would be compared with")
        return measure_errors(outputs, self.expected, self.against)


def random_draws(built: BuiltProgram) -> frozenset[int] | None:
    """How many bits wide the random numbers are that a program draws: of other bits, as for float64 or bf16, JAX makes
    other numbers. None where its trace cannot be reached."""
    if built.traced is None:
        return None
    drawn = (each for each in every_equation(built.traced.jaxpr) if each.primitive.name == "random_bits")
    return frozenset(each.params["bit_width"] for each in drawn)


def _float64_run(case: Case, seed: int) -> tuple[Callable[[str], list[np.ndarray]], frozenset[int] | None]:
    """Returns (a function that gives the outputs of a run in float64, the random bits that the run draws). If the
    function gets a dtype, it first rounds the inputs to that dtype."""
    unjitted = replace(plain(case, seed), jit=True, donate=())
    made = make_inputs(unjitted, seed)  # before the switch, which would make other data of a factory's
    fixed = replace(unjitted, inputs=lambda: (made.args, made.kwargs))
    with under({"jax_enable_x64": True}):
        wide = prepare(replace(fixed, inputs=partial(converted, fixed, seed, "float64")), seed)
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


# ---- how many programs a jitted function needs for a list of calls -------------------------------------------------
#
# In a worker, where the function is new. Each call is made twice: what the first takes beyond the second is lost to
# tracing, lowering and compiling. Outputs of all ways to make a call are compared with those of the first way.


@dataclass(frozen=True)
class CountedCall:
    """One call, as it went."""

    programs: int
    """That XLA was asked for, eager operations apart."""
    lost_s: float
    """The extra time of the first call, compared with a second one."""
    flops: float | None
    """By XLA's estimate; None: it does not say, or the program has loops, whose bodies it counts once."""
    disagreement: str = ""
    """With the first way's outputs, in a sentence."""


@dataclass(frozen=True)
class Counted:
    """Calls of one function, or the reason why it has none."""

    calls: tuple[CountedCall, ...] = ()
    failure: Failure | None = None

    @property
    def programs(self) -> int:
        return sum(call.programs for call in self.calls)

    @property
    def lost_s(self) -> float:
        """In the calls that needed a program."""
        return sum(call.lost_s for call in self.calls if call.programs)

    @property
    def disagreement(self) -> str:
        return next((call.disagreement for call in self.calls if call.disagreement), "")


def count_ways(
    pool: Pool, ways: Mapping[str, Sequence[Case]], options: Options, tell: Callable[[str], None]
) -> dict[str, Counted]:
    """By way; the cases of one are calls of one jitted function, in order. The first way gives the right outputs."""
    name = next(iter(ways.values()))[0].id.label
    counted = pool.call(
        count_all,
        ({way: tuple(cases) for way, cases in ways.items()}, options.seed),
        limits_of(options),
        name=f"the calls of {name!r}",
        on_message=lambda message: tell(message["stage"]),
    )
    return {way: Counted(failure=counted) for way in ways} if isinstance(counted, Failure) else counted


@task
def count_all(argument: tuple[dict[str, tuple[Case, ...]], int], say: Say) -> dict[str, Counted]:
    ways, seed = argument
    found: dict[str, Counted] = {}
    right: list[Any] = []
    with without_cache():
        for way, cases in ways.items():
            say(f"calls, {way}")
            outputs: list[Any] = []
            try:
                # Its programs are what is counted: none of them is forgotten on the way.
                first = replace(prepare(cases[0], seed), forgets=False)
                calls = [_count_call(first.on_inputs_of(case, seed), outputs, right) for case in cases]
                found[way] = Counted(tuple(calls))
            except (Exception, SystemExit) as error:
                found[way] = Counted(failure=diagnose(error, "calls"))
            else:
                right = right or outputs
    return found


def _count_call(prepared: Prepared, outputs: list[Any], right: Sequence[Any]) -> CountedCall:
    program, inputs = prepared.program, prepared.inputs

    def call() -> tuple[Any, float]:
        begun = perf_counter_ns()
        result = jax.block_until_ready(program.call(*inputs.args, **inputs.kwargs))
        return result, (perf_counter_ns() - begun) / 1e9

    with watch() as watched:
        result, first_s = call()
    # The same call again, warm: what the first took beyond it was tracing, lowering and compiling.
    _, again_s = call()
    outputs.append(result)
    # What JAX compiles for operations outside of jit, and inside of another program, is none of the function's own.
    programs = sum(not c.is_eager and not c.is_nested for c in watched.compiles)
    compiled = prepared.built.compiled if programs else None
    found = cost(compiled, prepared.hlo) if compiled else None
    flops = None if found is None or found.has_loops else found.flops
    wrong = ""
    if right:
        expected = right[len(outputs) - 1]
        wrong = compare(_crop(result, expected), expected, against="baseline").why
    return CountedCall(programs, max(0.0, first_s - again_s), flops, wrong)


def _crop(result: Any, right: Any) -> Any:
    """The part of each array that the right result has too: the rest is padding."""
    if jax.tree.structure(result) != jax.tree.structure(right):
        return result

    def part(leaf: Any, wanted: Any) -> Any:
        fits = getattr(leaf, "ndim", 0) == getattr(wanted, "ndim", 0)
        return leaf[tuple(slice(0, n) for n in wanted.shape)] if fits and getattr(leaf, "ndim", 0) else leaf

    return jax.tree.map(part, result, right)
