"""Where variants are measured.

A lab has all that measures: the worker that looks at each side once and counts programs, pairs of cases,
and pairs of fresh processes. A variant is handed one, and so is whatever else compares; tests hand in
one with results made by hand. How what was measured is judged says `variant.py`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from time import monotonic, perf_counter_ns
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from benchax.case import Benchmark, Case
from benchax.checkouts.launch import Launch, Selection
from benchax.comparing.sequential import Effort
from benchax.environment import capture, jax_facts
from benchax.errors import BenchaxError, NotMeasured
from benchax.experiments.functions import (
    ByPosition,
    by_position,
    change_arrays,
    converted,
    every_argument,
    is_float,
    plain,
    positions_among,
    side_by_side,
)
from benchax.json_values import Json
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.inputs import make_inputs, signature
from benchax.measuring.jax_settings import apply_settings, jax_settings, with_settings, without_cache
from benchax.measuring.memory import observed_bytes
from benchax.measuring.paired import Side
from benchax.measuring.prepare import BuiltProgram, Prepared, prepare
from benchax.measuring.state import is_key
from benchax.model import Absent, Comparison, Environment, Failure, Measurement, Memory, Options, Version
from benchax.numerics import as_doubles, compare, tolerance
from benchax.options import with_options
from benchax.paired_runs import session
from benchax.paired_runs.paired_run import PairedRun
from benchax.paired_runs.process_pairs import compare_launches
from benchax.program.compiled import cost, memory_plan
from benchax.program.hlo import digest, elides_constants
from benchax.program.jaxpr import every_equation
from benchax.progress import Listener, ProgressEvent, quiet
from benchax.results.experiment import Errors
from benchax.watching.watch import watch
from benchax.workers import pickling
from benchax.workers.executors import Isolated
from benchax.workers.pool import Pool, shared_pool, spawned_pool
from benchax.workers.task import A, R, Say, Task, limits_of, task

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


class Failed(Exception):
    """A separate process failed at its task."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


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

    def study(self, sides: Sequence[StudySide], condition: Condition | None = None) -> Study:
        """Builds and runs every side once, in a worker; the first is the baseline.

        Args:
            condition: what the worker is to be born with; None: any that is warm.
        """
        if self.has_studied:
            self._refuse_late()
        self.has_studied = True
        left, failures, no_reference = list(sides), dict[str, Failure](), ""
        with _pool_under(condition) as pool:
            while sides[0] in left:
                found = pool.call(
                    look_at_all,
                    (tuple(left), self.options.seed, no_reference),
                    limits_of(self.options),
                    name=f"the look at {left[0].case.id.label!r}",
                    on_message=lambda message: self.tell(message["stage"]),
                )
                if not isinstance(found, Failure):
                    return replace(found, failures=failures | found.failures)
                # The run in float64 killed the worker: look at the sides again without it.
                if found.stage == REFERENCE:
                    no_reference = f"the run in float64 failed ({found.kind.replace('_', ' ')}: {found.message})"
                    continue
                # If a worker dies outside of any look, as at its start, blame the baseline. That ends the loop.
                guilty = next((side for side in left if found.stage == f"check of {side.name}"), sides[0])
                failures[guilty.name] = found
                left.remove(guilty)
        return Study({}, failures)

    def time_pairs(self, pairs: Sequence[Pair], looks: tuple[int, ...] | None = None) -> dict[str, Comparison]:
        """Compares the run times of each pair in fresh processes, and returns the comparisons by name.

        Args:
            looks: the numbers of processes after which to look; None: the numbers of `effort`.
        """
        if looks is not None:  # of a variant that measures by itself, for which another limit would begin
            self._refuse_late()
        left_s = 0.0 if self._left_s == LEAST_LEFT_S and not self.begins_late else self._left_s
        effort = replace(self.effort, looks=looks or self.effort.looks, max_time_s=left_s)
        return time_pairs(pairs, self.options, effort, self.report)

    def count_programs(self, ways: Mapping[str, Sequence[Case]]) -> dict[str, Counted]:
        """How many programs a jitted function needs for a list of calls, for each way to make them, in a worker. The
        first way gives the right outputs."""
        argument = {way: tuple(cases) for way, cases in ways.items()}, self.options.seed
        name = f"the calls of {next(iter(ways.values()))[0].id.label!r}"
        return self.call_alone(count_all, argument, name=name, condition=None)

    def time_processes(self, case: Case, conditions: tuple[Condition, Condition]) -> Comparison:
        """The comparison of run times under two conditions that a process is born with, in pairs of new processes."""
        self._refuse_late()
        found = pair_processes(case, conditions, self.options.seed, self._left_s, self.report)
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
    return nullcontext(shared_pool()) if condition is None else spawned_pool(condition.environ, condition.settings)


# ---- run times of pairs, compared as `benchax.compare` does it: one session for all that share settings -------------


@dataclass(frozen=True)
class Pair:
    """A pair; the comparison is of `other` against `one`."""

    name: str
    one_label: str
    one: Case
    other_label: str
    other: Case
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


def time_pairs(pairs: Sequence[Pair], options: Options, effort: Effort, report: Listener) -> dict[str, Comparison]:
    """The comparison of run times of each pair, by its name."""
    found: dict[str, Comparison] = {}
    paired_runs: dict[tuple[tuple[str, Any], ...], dict[str, PairedRun]] = {}
    for pair in pairs:
        # Its name contains the variant, which progress shows.
        case_id = replace(pair.one.id, variant=pair.name)
        versions = Version(pair.one_label), Version(pair.other_label)
        try:
            with with_settings(pair.settings):
                one, other = side_by_side(pair.one, pair.other, options.seed)
        except Exception as error:  # its inputs cannot be laid beside the others: a row says so
            failure = diagnose(error, "preparing")
            problem = error.problem if isinstance(error, BenchaxError) else failure.message
            found[pair.name] = Comparison(case_id, "run", *versions, "unclear", problem, failure=failure)
        else:
            sides = Side(pair.one_label, one), Side(pair.other_label, other)
            # JAX settings apply to a whole process, which all pairs of a session share.
            group = paired_runs.setdefault(tuple(sorted(pair.settings.items())), {})
            group[pair.name] = PairedRun(case_id, sides, versions, options)
    begun = monotonic()
    for settings, group in paired_runs.items():
        limit_s = effort.max_time_s
        left = effort if limit_s is None else replace(effort, max_time_s=limit_s - (monotonic() - begun))
        with session.fresh_processes(dict(settings)) as start:
            settled = session.compare_runs(list(group.values()), left, report, start)
        for name, comparisons in zip(group, settled, strict=True):
            found[name] = next(c for c in comparisons if c.metric == "run")
    return found


# ---- a case under two conditions that hold from the start of a process, in pairs of processes -----------------------
#
# Each condition gets a folder. It has the pickled case, and a benchmark file that sets the condition and revives the
# case. So `paired_runs/process_pairs.py` finds one case by one name in both folders.

FILE = "bench_revived.py"
_BENCH = """
from pathlib import Path
from benchax.experiments.lab import revive
benchmark = revive(Path(__file__).parent)
"""


def pair_processes(
    case: Case,
    conditions: tuple[Condition, Condition],
    seed: int,
    max_time_s: float | None,
    report: Listener,
) -> list[Comparison]:
    """The comparisons of the second condition with the first: run times, times to compile, what the compiler counts.

    Raises:
        NotAvailable: the function under a jit cannot be reached.
        whatever pickling raises for a case that cannot travel.
    """
    content = pickling.dumps(_as_benchmark(case, seed))
    with tempfile.TemporaryDirectory(prefix="benchax-pairs-") as folder:
        launches = [_launch(Path(folder) / str(i), each, content) for i, each in enumerate(conditions)]
        return compare_launches((launches[0], launches[1]), Selection((FILE,)), max_time_s, report)


def _as_benchmark(case: Case, seed: int) -> Benchmark:
    bare = plain(case, seed) if case.jit else case
    inputs = make_inputs(bare, seed)
    fn = ByPosition(bare.fn, tuple(every_argument(inputs))) if inputs.kwargs else bare.fn
    static, donate = (positions_among(bare, inputs, which, 0) for which in (bare.static, bare.donate))
    options = with_options(case.options, {"seed": seed})
    template = Case(fn, bare.inputs, case.id, static, donate, bare.jit, options)
    return Benchmark(template, lambda: by_position(bare.inputs)[0], {})


def _launch(folder: Path, condition: Condition, content: bytes) -> Launch:
    folder.mkdir()
    told = {
        "environ": dict(condition.environ),
        "settings": {**jax_settings(), **condition.settings},
        "folder": str(Path.cwd()),
        "paths": [path for path in sys.path if path],
    }
    (folder / "told.json").write_text(json.dumps(told), encoding="utf-8")
    (folder / "benchmark.pickle").write_bytes(content)
    (folder / FILE).write_text(_BENCH, encoding="utf-8")
    return Launch(Version(condition.label), folder=folder)


def revive(folder: Path) -> Benchmark:
    """In the process of a pair, before its backend starts: sets the condition, and gives the benchmark."""
    told = json.loads((folder / "told.json").read_text(encoding="utf-8"))
    # This comes first: XLA reads its flags once, when the backend starts.
    os.environ.update(told["environ"])
    content = (folder / "benchmark.pickle").read_bytes()
    os.chdir(told["folder"])  # where relative paths of the user's function start
    sys.path += [path for path in told["paths"] if path not in sys.path]
    apply_settings(told["settings"])
    return pickling.loads(content)


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
        worst=max(
            zip(leaves(outputs), found, strict=True),
            key=lambda pair: (pair[1].overflows + pair[1].nans, pair[1].largest or 0.0),
        )[0],
    )


class _LeafErrors(NamedTuple):
    largest: float | None
    relative: np.ndarray
    """Each element's."""
    overflows: int
    nans: int


def _leaf(a: np.ndarray, b: np.ndarray) -> _LeafErrors:
    finite = np.isfinite(a) & np.isfinite(b)
    distance = np.abs(np.where(finite, a - b, 0.0))
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    worst = float(distance.max(initial=0.0))
    scale = scale or worst  # a reference of zeros: all of the output is error
    # If no element is finite on both sides, there is no number, not zero.
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


# ---- in the worker ----------------------------------------------------------------------------------------------


@task
def look_at_all(argument: tuple[tuple[StudySide, ...], int, str], say: Say) -> Study:
    """A failure of the first side, the baseline, is the end."""
    sides, seed, no_reference = argument
    seen, failures = dict[str, Observation](), dict[str, Failure]()
    # `build_s` is the time of a real compilation, not of a hit in the persistent cache.
    with warnings.catch_warnings(), without_cache():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")  # told by the plan
        reference = _Reference(no_reference)
        if not no_reference:
            say(REFERENCE)
            reference.make(sides[0].case, seed)
        for side in sides:
            say(f"check of {side.name}")
            try:
                with with_settings(side.settings):
                    seen[side.name] = look(side, seed, reference)
            except (Exception, SystemExit) as error:
                failures[side.name] = diagnose(error, "check")
                # Without the baseline, there is nothing to compare the others with.
                if side is sides[0]:
                    break
    return Study(seen, failures, Json(jax_facts()))


def look(side: StudySide, seed: int, reference: _Reference) -> Observation:
    prepared = prepare(side.case, seed)
    built, subject, hlo = prepared.built, prepared.call_first().subject, prepared.hlo
    absent: list[Absent] = []
    counted = cost(built.compiled, hlo) if built.compiled else None
    # XLA's text abbreviates large constants as {...}, so programs with different values can have the same text.
    stablehlo = built.lowered.as_text() if built.lowered and elides_constants(hlo) else ""
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
    return digest(hlo, stablehlo=stablehlo) if hlo else ""


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
        # A function that cannot be traced, such as one with a Python loop over values, is compared all the same.
        draws_others = None not in (draws, self._draws) and draws != self._draws
        if self._is_unused and draws_others and self.expected is not None:
            self.expected = self._run = None
            self.why = "in float64 it draws different random numbers"
        self._is_unused = False
        if self.expected is None:
            self.expected, self.against, self._draws = to_host(outputs), "baseline", draws
            raise NotMeasured(self.why)
        if draws_others:
            raise NotMeasured("it draws different random numbers than its baseline")
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
    with with_settings({"jax_enable_x64": True}):
        wide = prepare(replace(fixed, inputs=partial(converted, fixed, seed, "float64")), seed)
        draws = random_draws(wide.built)

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
                # These programs are counted, so keep them all.
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
    # Repeat the call warm: the first one's additional time was tracing, lowering, and compiling.
    _, again_s = call()
    outputs.append(result)
    # Programs for operations outside of jit, or inside another program, do not belong to the function.
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
