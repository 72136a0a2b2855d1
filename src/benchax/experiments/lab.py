"""Where variants are measured.

A lab has all that measures: the worker that looks at each side once and counts programs, pairs of cases,
and pairs of fresh processes. A variant is handed one, and so is whatever else compares; tests hand in
one with results made by hand. How what was measured is judged says `variant.py`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from time import monotonic
from typing import Any, Literal, TypeAlias

import jax
import numpy as np

from benchax.case import Case
from benchax.checkouts.launch import Launch
from benchax.comparing.sequential import Effort
from benchax.environment import capture, jax_facts
from benchax.errors import BenchaxError, NotMeasured
from benchax.experiments.functions import change_arrays, converted, is_float, plain
from benchax.grouping import group_by
from benchax.json_values import Json
from benchax.machine.noise import timed
from benchax.measuring import purity
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.inputs import make_inputs, signature
from benchax.measuring.jax_settings import with_settings, without_cache
from benchax.measuring.memory import observed_bytes
from benchax.measuring.paired import Side
from benchax.measuring.prepare import Prepared, prepare
from benchax.measuring.program import first_line
from benchax.measuring.timers.base import Subject
from benchax.model import Absent, Comparison, Environment, Failure, Measurement, Memory, Options, Version
from benchax.numerics import as_doubles, compare, tolerance
from benchax.options import with_options
from benchax.paired_runs import session
from benchax.paired_runs.paired_run import PairedRun
from benchax.paired_runs.process_pairs import compare_launches
from benchax.program.compiled import memory_plan
from benchax.program.hlo import digest, elides_constants
from benchax.program.jaxpr import every_equation
from benchax.progress import Listener, ProgressEvent, quiet
from benchax.results.experiment import Errors, Facts
from benchax.static_leaves import is_key
from benchax.watching.watch import watch
from benchax.workers import pickling
from benchax.workers.executors import Isolated
from benchax.workers.pool import Pool, shared_pool
from benchax.workers.task import A, Failed, R, Say, Task, limits_of

BASELINE = "baseline"


@dataclass(frozen=True)
class Condition:
    """The conditions at the start of a process."""

    label: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of JAX, on top of those of this program."""
    environ: Mapping[str, str] = field(default_factory=dict[str, str])


USUAL = Condition("as usual")
LEAST_LEFT_S = 1e-3
"""A measurement that has begun takes its first group of processes even with this little time left."""


@dataclass(frozen=True)
class Pair:
    """Two cases whose run times are compared: `other` against `one`."""

    name: str
    one_label: str
    one: Case
    other_label: str
    other: Case
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def as_run(self, options: Options) -> PairedRun:
        """To be run side by side."""
        has_own_inputs = self.other.inputs is not self.one.inputs
        other = Side(self.other_label, self.other, has_own_inputs=has_own_inputs)
        versions = Version(self.one_label), Version(self.other_label)
        # Its name contains the variant, which progress shows.
        case_id = replace(self.one.id, variant=self.name)
        return PairedRun(case_id, (Side(self.one_label, self.one), other), versions, options)


@dataclass
class WorkerLab:
    """Measures for variants, in worker processes."""

    options: Options
    """Limits, and the seed."""
    effort: Effort = field(default_factory=Effort)
    """How long to go on with comparisons."""
    report: Listener = quiet
    begun_s: float = field(default_factory=monotonic)
    has_studied: bool = False
    """Has it looked at anything? The first look is had whatever the limit."""
    begins_late: bool = True
    """Do comparisons take their first group of processes even when no time is left?"""

    def tell(self, text: str) -> None:
        """Receives the progress in words."""
        self.report(ProgressEvent(text, left_s=self._left_s, is_most=True))

    def study(self, sides: Mapping[str, ChangedCase], condition: Condition | None = None) -> Study:
        """Builds and runs every side once, in a worker; the first is the baseline.

        Args:
            condition: what the worker is to be born with; None: any that is warm.
        """
        if self.has_studied:
            self._refuse_late()
        self.has_studied = True
        # Facts are found here, and may hold what cannot travel.
        left = {name: replace(side, facts=always()) for name, side in sides.items()}
        first, failures, no_reference = next(iter(left)), dict[str, Failure](), ""
        with _pool_under(condition) as pool:
            while first in left:
                found = pool.call(
                    look_at_all,
                    (left, self.options.seed, no_reference),
                    limits_of(self.options),
                    name=f"the look at {left[first].case.id.label!r}",
                    on_message=lambda message: self.tell(message["stage"]),
                )
                if not isinstance(found, Failure):
                    return replace(found, failures=failures | found.failures)
                # The run in float64 killed the worker: look at the sides again without it.
                if found.stage == REFERENCE:
                    no_reference = f"the run in float64 failed ({found.kind.replace('_', ' ')}: {found.message})"
                    continue
                # If a worker dies outside of any look, as at its start, blame the baseline. That ends the loop.
                guilty = next((name for name in left if found.stage == f"check of {name}"), first)
                failures[guilty] = found
                del left[guilty]
        return Study({}, failures)

    def time_pairs(self, pairs: Sequence[Pair], looks: tuple[int, ...] | None = None) -> dict[str, Comparison]:
        """Compares the run times of each pair in fresh processes, and returns the comparisons by name.

        Args:
            looks: the numbers of processes after which to look; None: the numbers of `effort`.
        """
        if looks is not None:  # of a variant that measures by itself, for which another limit would begin
            self._refuse_late()
        found: dict[str, Comparison] = {}
        # JAX settings apply to a whole process, which all pairs of a session share.
        for settings, group in group_by(pairs, lambda pair: tuple(sorted(pair.settings.items()))).items():
            left_s = 0.0 if self._left_s == LEAST_LEFT_S and not self.begins_late else self._left_s
            effort = replace(self.effort, looks=looks or self.effort.looks, max_time_s=left_s)
            with session.fresh_processes(dict(settings)) as start:
                runs = [pair.as_run(self.options) for pair in group]
                settled = session.compare_runs(runs, effort, self.report, start)
            for pair, comparisons in zip(group, settled, strict=True):
                found[pair.name] = next(c for c in comparisons if c.metric == "run")
        return found

    def count_programs(self, ways: Mapping[str, Sequence[Case]]) -> dict[str, Counted]:
        """How many programs a jitted function needs for a list of calls, for each way to make them, in a worker. The
        first way gives the right outputs."""
        argument = {way: tuple(cases) for way, cases in ways.items()}, self.options.seed
        name = f"the calls of {next(iter(ways.values()))[0].id.label!r}"
        return self.call_alone(count_all, argument, name=name, condition=None)

    def time_processes(self, case: Case, conditions: tuple[Condition, Condition]) -> Comparison:
        """The comparison of run times under two conditions that a process is born with, in pairs of new processes.

        Raises:
            whatever pickling raises for a case that cannot travel.
        """
        self._refuse_late()
        options = with_options(case.options, {"seed": self.options.seed})
        content = pickling.dumps(replace(case, options=options))
        one, other = (Launch(Version(each.label), environ=each.environ, settings=each.settings) for each in conditions)
        found = compare_launches((one, other), content, self._left_s, self.report)
        return next(c for c in found if c.metric == "run")

    def measure_alone(self, case: Case, condition: Condition, options: Options) -> Measurement:
        """A measurement in a new process that is born under that condition."""
        self._refuse_late()
        with _pool_under(condition) as pool:
            return Isolated(pool=pool).run(case, options, run_id="", progress=lambda stage, share: None)

    def call_alone(
        self,
        task: Task[A, R],
        argument: A,
        *,
        name: str,
        condition: Condition | None = USUAL,
        tells_stages: bool = True,
    ) -> R:
        """Returns the result of a task for its argument in a new process.

        Args:
            name: name of the object to send, for the message if sending fails.
            condition: what the process is to be born with; None: any that is warm.
            tells_stages: False: the caller has reported the progress.

        Raises:
            Failed: the task failed, or its process did.
        """
        self._refuse_late()
        tell = self.tell if tells_stages else lambda text: None
        with _pool_under(condition) as pool:
            found = pool.call(
                task, argument, limits_of(self.options), name=name, on_message=lambda message: tell(message["stage"])
            )
        if isinstance(found, Failure):
            raise Failed(found)
        return found

    @property
    def _left_s(self) -> float | None:
        """Returns the rest of the limit, which all measurements of this lab share, or None if there is no limit."""
        limit_s = self.effort.max_time_s
        return None if limit_s is None else max(LEAST_LEFT_S, limit_s - (monotonic() - self.begun_s))

    def _refuse_late(self) -> None:
        if self._left_s == LEAST_LEFT_S:
            raise NotMeasured(f"the {self.effort.max_time_s:g} s were used up (--max-time)")


def _pool_under(condition: Condition | None) -> AbstractContextManager[Pool]:
    if condition is None:
        return nullcontext(shared_pool())
    # Its keeper is a new interpreter, and each job is a fork of it in which JAX has done nothing yet.
    return Pool(warm=False, reuse=False, environ=condition.environ, jax_config=condition.settings)


# ---- the look at every side, once, in a worker: it is built, run, and compared with a run in float64 -----------------
#
# No times are compared here. The reference is the function itself, jitted, with every float of its inputs widened to
# 64 bits. A side that fails is an answer with the reason. If a side kills the worker, benchax finds it by its stage,
# omits it, and looks at the others again.


# Computes the errors of outputs against a reference: the largest and the median relative error, overflows, and NaNs.
#
# The largest error is norm-wise (the difference over the largest magnitude of its leaf), as in `numerics.py`. For the
# median, each element has its own magnitude. In leaves with more than 4 million elements, every k-th one counts.

MOST_IN_MEDIAN = 2**22
"""Errors: 32 MiB of float64."""
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
    largest, relative, overflows, nans = zip(*found, strict=True)
    each = np.concatenate(relative)
    badness = [(inf + nan, worst or 0.0) for worst, _, inf, nan in found]
    return Errors(
        against,
        max_rel=max((one for one in largest if one is not None), default=None),
        median_rel=float(np.median(each)) if each.size else None,
        overflows=sum(overflows),
        nans=sum(nans),
        worst=max(zip(leaves(outputs), badness, strict=True), key=lambda pair: pair[1])[0],
    )


def _leaf(a: np.ndarray, b: np.ndarray) -> tuple[float | None, np.ndarray, int, int]:
    """Returns (the largest error, the error of each element, overflows, NaNs)."""
    finite = np.isfinite(a) & np.isfinite(b)
    distance = np.abs(np.where(finite, a - b, 0.0))
    worst = float(distance.max(initial=0.0))
    # Of a reference of zeros, all of the output is error.
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0)) or worst
    # If no element is finite on both sides, there is no number, not zero.
    largest = None if b.size and not finite.any() else worst / scale if worst else 0.0
    step = max(1, a.size // MOST_IN_MEDIAN)
    counted = finite[::step] & (b[::step] != 0)
    each = distance[::step][counted] / np.abs(b[::step][counted])
    overflows, nans = (int((test(a) & ~test(b)).sum()) for test in (np.isinf, np.isnan))
    return largest, each, overflows, nans


REFERENCE = "run in float64"
_PRECISION = re.compile(r", operand_precision=\{[\w,]*\}")


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


FactsOf: TypeAlias = Callable[[Observation, Observation, Comparison | None], Facts]


def always(*facts: tuple[str, str]) -> FactsOf:
    """The same facts, whatever is seen."""
    return lambda before, now, comparison: facts


@dataclass(frozen=True)
class ChangedCase:
    """A case to look at: the function as it is, or one that does the same in another way."""

    case: Case
    """With the inputs of the original (the same `inputs` object), or its own."""
    tolerance: float | None = None
    """Permitted relative error; None: the tolerance of the outputs' own dtype (`numerics.tolerance`)."""
    facts: FactsOf = field(default_factory=always)
    """Extra facts, given the baseline, this variant, and the comparison of their run times if there is one."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of JAX under which both sides run, as jax_enable_x64."""
    rounds_to: str = ""
    """The dtype in which it computes, if that is another one: its errors may be what rounding to it makes."""
    title: str = ""
    """Describes it in the row; empty until it is compared."""


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


# ---- in the worker ----------------------------------------------------------------------------------------------


def look_at_all(argument: tuple[dict[str, ChangedCase], int, str], say: Say) -> Study:
    """A failure of the first side, the baseline, is the end."""
    sides, seed, no_reference = argument
    seen, failures, reference = dict[str, Observation](), dict[str, Failure](), None
    # `build_s` is the time of a real compilation, not of a hit in the persistent cache.
    with warnings.catch_warnings(), without_cache():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")  # told by the plan
        for name, side in sides.items():
            check = f"check of {name}"
            say(check)
            try:
                with with_settings(side.settings):
                    prepared = prepare(side.case, seed)
                    subject, draws = prepared.call_first().subject, random_draws(prepared.built)
                    if reference is None:
                        if not no_reference:
                            say(REFERENCE)
                        reference = make_reference(side.case, seed, prepared, subject, draws, no_reference)
                        say(check, again=True)
                    seen[name] = look(side, prepared, subject, reference, draws)
            except (Exception, SystemExit) as error:
                failures[name] = diagnose(error, "check")
                if not seen:  # without the baseline, there is nothing to compare the others with
                    break
    return Study(seen, failures, Json(jax_facts()))


def look(
    side: ChangedCase, prepared: Prepared, subject: Subject, reference: Reference, draws: frozenset[int] | None
) -> Observation:
    built, hlo = prepared.built, prepared.hlo
    absent: list[Absent] = []
    # XLA's text abbreviates large constants as {...}, so programs with different values can have the same text.
    stablehlo = built.lowered.as_text() if built.lowered and elides_constants(hlo) else ""
    return Observation(
        signature=subject.inputs.signature,
        build_s=sum(built.seconds.values()) if "compile" in built.seconds else None,
        digest=_digest(hlo, stablehlo),
        plan=memory_plan(built.compiled, hlo_text=hlo) if built.compiled else Memory(),
        flops=_or_absent(absent, "flops", built.count_operations),
        outputs=signature((subject.outputs,), {}, ()),
        errors=_or_absent(absent, "errors", lambda: reference.errors(subject.outputs, draws)),
        bound=max(map(tolerance, map(jax.numpy.result_type, leaves(subject.outputs).values())), default=0.0),
        observed_bytes=_or_absent(absent, "observed_bytes", lambda: observed_bytes(subject)),
        absent=tuple(absent),
        rounding_rel=reference.rounding_error(side.rounds_to) if side.rounds_to else None,
    )


def _digest(hlo: str, stablehlo: str) -> str:
    """XLA:CPU multiplies in the precision of the operands whatever is asked for (jax 0.6 to 0.10.2): there the mark
    alone makes no other program."""
    if jax.default_backend() == "cpu":
        hlo = _PRECISION.sub("", hlo)
    return digest(hlo, stablehlo=stablehlo) if hlo else ""


def _or_absent(absent: list[Absent], what: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except NotMeasured as error:
        absent.append(Absent(what, error.problem))
        return None


@dataclass(frozen=True)
class Reference:
    """The expected outputs: from a run in float64, or the baseline's outputs if `why` gives a reason."""

    expected: list[np.ndarray]
    draws: frozenset[int] | None
    """The random bits that it draws."""
    run: Callable[[str], list[np.ndarray]] | None = None
    """Gives its outputs with inputs that were rounded to a dtype first."""
    why: str = ""
    baseline: Any = None
    """The outputs of the baseline, if they are the reference: they are not compared with themselves."""
    impure: str = ""
    """How two traces of the baseline differ: then no other run is a reference for it."""

    def rounding_error(self, dtype: str) -> float | None:
        """The largest relative error that rounding the inputs makes in float64; None where it cannot be had."""
        # The reference as arrays of one structure: the same function made both.
        return measure_errors(self.run(dtype), self.expected, "float64").max_rel if self.run and self.expected else None

    def errors(self, outputs: Any, draws: frozenset[int] | None) -> Errors:
        """Raises `NotMeasured` if there is nothing to compare with."""
        if self.impure:
            raise NotMeasured(f"two traces of the function differ: {self.impure}")
        if self.why and outputs is self.baseline:
            raise NotMeasured(self.why)
        if draw_others(draws, self.draws):
            raise NotMeasured("it draws different random numbers than its baseline")
        return measure_errors(outputs, self.expected, "baseline" if self.why else "float64")


def make_reference(
    case: Case, seed: int, prepared: Prepared, subject: Subject, draws: frozenset[int] | None, why: str
) -> Reference:
    """Runs the baseline in float64. If that fails, or makes other random numbers, its own outputs are the reference.

    Args:
        prepared, subject, draws: of the baseline as it is.
        why: do not run it, for this reason.

    Raises:
        UsageError: traced values are left in a global, a closure or an object.
    """
    with suppress(NotMeasured):  # it can't be traced again, or takes long to trace
        found = purity.check(subject, prepared, case.id.name, prepared.surroundings.put_back)
        if found.difference:
            return Reference([], draws, impure=found.difference)
    try:
        if not why:
            run, wide_draws = _float64_run(case, seed)
            expected = run("")
            if not draw_others(draws, wide_draws):
                return Reference(expected, wide_draws, run)
            why = "in float64 it draws different random numbers"
    except Exception as error:  # whatever the function has to say to float64; the rows say so
        kind = "" if isinstance(error, BenchaxError) else f"{type(error).__name__}: "
        why = f"the run in float64 failed ({kind}{first_line(error)})"
    return Reference(to_host(subject.outputs), draws, why=why, baseline=subject.outputs)


def random_draws(built: Prepared) -> frozenset[int] | None:
    """How many bits wide the random numbers are that a program draws: of other bits, as for float64 or bf16, JAX makes
    other numbers. None where its trace cannot be reached."""
    if built.traced is None:
        return None
    drawn = (each for each in every_equation(built.traced.jaxpr) if each.primitive.name == "random_bits")
    return frozenset(each.params["bit_width"] for each in drawn)


def draw_others(one: frozenset[int] | None, other: frozenset[int] | None) -> bool:
    """A function that cannot be traced, such as one with a Python loop over values, is compared all the same."""
    return None not in (one, other) and one != other


def _float64_run(case: Case, seed: int) -> tuple[Callable[[str], list[np.ndarray]], frozenset[int] | None]:
    """Returns (a function that gives the outputs of a run in float64, the random bits that the run draws). If the
    function gets a dtype, it first rounds the inputs to that dtype."""
    unjitted = replace(plain(case, seed), jit=True, donate=())
    made = make_inputs(unjitted, seed)  # before the switch, which would make other data of a factory's
    fixed = replace(unjitted, inputs=lambda: (made.args, made.kwargs))
    with with_settings({"jax_enable_x64": True}):
        wide = prepare(replace(fixed, inputs=partial(converted, fixed, seed, "float64")), seed)
        draws = random_draws(wide.built)

    @cache  # several variants compute in one dtype
    def run(rounds_to: str) -> list[np.ndarray]:
        with with_settings({"jax_enable_x64": True}):
            args, kwargs = wide.inputs.args, wide.inputs.kwargs
            if rounds_to:
                args, kwargs = change_arrays(
                    wide.inputs, lambda _, leaf: leaf.astype(rounds_to).astype(leaf.dtype) if is_float(leaf) else leaf
                )
            return to_host(wide.program.call(*args, **kwargs))

    return run, draws


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
    """None: it needed no program, or some of its operations can't be counted."""
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


def count_all(argument: tuple[dict[str, tuple[Case, ...]], int], say: Say) -> dict[str, Counted]:
    ways, seed = argument
    found: dict[str, Counted] = {}
    right: list[Any] = []
    with without_cache():
        for way, cases in ways.items():
            say(f"calls, {way}")
            try:
                # These programs are counted, so keep them all.
                first = replace(prepare(cases[0], seed), forgets=False)
                calls = [_count_call(first.on_inputs_of(case, seed), right[i : i + 1]) for i, case in enumerate(cases)]
                found[way] = Counted(tuple(call for call, _ in calls))
                right = right or [outputs for _, outputs in calls]
            except (Exception, SystemExit) as error:
                found[way] = Counted(failure=diagnose(error, "calls"))
    return found


def _count_call(prepared: Prepared, right: Sequence[Any]) -> tuple[CountedCall, Any]:
    """Returns (the call, its outputs). `right`: the outputs that are expected, if they are known."""
    call = prepared.program.call
    # A call can take the buffers of its arguments, so each has its own.
    (args, kwargs), (args_again, kwargs_again) = (prepared.inputs.renewed() for _ in range(2))
    with watch() as watched:
        result, first_s = timed(lambda: jax.block_until_ready(call(*args, **kwargs)))
    # Repeat the call warm: the first one's additional time was tracing, lowering, and compiling.
    _, again_s = timed(lambda: jax.block_until_ready(call(*args_again, **kwargs_again)))
    # Programs for operations outside of jit, or inside another program, do not belong to the function.
    programs = sum(not c.is_eager and not c.is_nested for c in watched.compiles)
    flops = _or_absent([], "flops", prepared.count_operations) if programs else None
    wrong = "".join(compare(_crop(result, expected), expected, against="baseline").why for expected in right)
    return CountedCall(programs, max(0.0, first_s - again_s), flops, wrong), result


def _crop(result: Any, right: Any) -> Any:
    """The part of each array that the right result has too: the rest is padding."""
    if jax.tree.structure(result) != jax.tree.structure(right):
        return result

    def part(leaf: Any, wanted: Any) -> Any:
        fits = getattr(leaf, "ndim", 0) == getattr(wanted, "ndim", 0)
        return leaf[tuple(slice(0, n) for n in wanted.shape)] if fits and getattr(leaf, "ndim", 0) else leaf

    return jax.tree.map(part, result, right)
