"""Times versions of a case side by side, in one process: the unit is a round, one sample of each in random order.

    block:  new buffers, shared by all versions → every other version built again → warm up → rounds

Disturbances (the machine's speed, neighbors, the core, the buffers) are the same for all samples of a round, so they
divide out. Chance effects of buffers, executables and processes remain. Each block and each process draws them again,
so that the spread shows them (`stats/verdicts.py`).

A version that allocates 100 MiB leaves the caches of the next version in a different state. So the first block of each
process ends with a few samples of each version in a row, for comparison with the rounds (`alone_s`).

Each sample also has the processor time of all threads of the process, read outside of the wall interval. It is a second
measure if waiting for a core hides the first (`comparing/judging.py`).

If all sides are cases, they run as they are. If one is an exported program, the others are exported too: then only the
programs differ. Later processes use the exports of earlier ones (`PairedRequest.programs`).

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import gc
import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter_ns, process_time_ns
from typing import Any, TypeVar

import jax
import numpy as np

from benchax.case import Case
from benchax.environment import jax_facts
from benchax.errors import NotMeasured, UsageError
from benchax.json_values import Json
from benchax.machine import noise
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.exported import ImportedProgram, exported, is_same_program, leaves_of
from benchax.measuring.inputs import Inputs, amounts_of, fit, make_inputs, make_like, signature, static_arguments
from benchax.measuring.jax_settings import share_programs, without_cache
from benchax.measuring.prepare import Prepared, prepare
from benchax.measuring.program import CallableProgram, program_of
from benchax.measuring.sampling import warm_up
from benchax.measuring.timers import wall
from benchax.measuring.timers.base import PreparedTimer, Subject
from benchax.model import Failure, Memory, Noise, Numerics
from benchax.numerics import compare, describe_nonfinite
from benchax.program.compiled import memory_plan
from benchax.static_leaves import data_of
from benchax.watching.compiles import watch_compiles
from benchax.whole_files import write_whole

T = TypeVar("T")

SAMPLE_NS = 100_000
"""Samples between 50 and 200 µs mostly fall between preemptions; longer ones know 3 to 40 times less per second."""
CALIBRATIONS = 5
WARMUP_S = 0.2
WAKING_NS = 1_000_000
"""Calls shorter than this are preceded by an untimed one, which wakes threads and refills caches."""
MOST_ROUNDS = 25
LEAST_ROUNDS = 6
BLOCK_NS = 150_000_000
"""The rounds of a block take about as long at most, between the two limits of their number."""
REBUILD_NS = 2_000_000_000
"""Versions that take longer to build are built once in a process."""
PADDING_BYTES = 2**20
ALONE, ALONE_NS = 8, 16_000_000
"""The most samples of a version in a row, and the most nanoseconds for them. The first quarter still finds the caches
of another version, and does not count: after 100 MiB of a rival, calls of 320 µs take 650, 450, and then 320."""
LONG_NS = 100_000_000
"""For longer samples the state of the caches doesn't matter, and two more of them would cost a tenth of the time."""


@dataclass(frozen=True)
class Side:
    """One version: a case, or the exported program of one."""

    label: str
    case: Case | None = None
    program: bytes | None = None
    leaves: tuple[Any, ...] | None = None
    """The inputs of a program: arrays of JAX and numbers, in the order of `exported.leaves_of`."""
    has_own_inputs: bool = False
    """Does the case take its own inputs, and not the first case's? This counts only if all sides are cases."""


@dataclass(frozen=True)
class PairedRequest:
    """The request to one process."""

    sides: tuple[Side, ...]
    """The baseline first. The first case gives the inputs of all sides, except those with `has_own_inputs`. Without
    cases, the first side that has leaves gives them. Without both, they are random data, of the shapes that the first
    program wants."""
    blocks: int = 3
    seed: int = 0
    """The seed of the data, equal in all processes."""
    order_seed: int = 0
    """The seed of the order of things, another one in each process."""
    patience: int = 1
    """Times as many rounds, in as much more time."""
    skips_equal: bool = False
    """Programs that are one are not timed."""
    compares_outputs: bool = True
    """Are the outputs compared with the baseline's? Once is enough: all processes run the same on the same data."""
    programs: str | None = None
    """Folder of the programs and executables of this case. Earlier compilations are read from there. This takes 20 ms
    instead of 50 to 200, and the executable is as fast within 1 %. Only new compilations count as build times."""


@dataclass
class SideFacts:
    """The facts that a process has found out about one version."""

    sha256: str | None = None
    """The digest of the program that ran; None if the function itself ran."""
    work: Mapping[str, float] = field(default_factory=dict[str, float])
    """The work of one call, as its author states it."""
    builds: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    """The seconds of each step, for each build that compiled."""
    compiles: int = 0
    """Programs that were compiled while it was timed."""
    plan: Memory | None = None
    """The compiler's, of the first build; None if it has none."""
    flops: float | None = None
    """The FLOPs of a call; None if they can't be counted."""
    inline_flops: float | None = None
    operations: int | None = None
    """Of an eager call that can be traced."""
    agreement: Numerics | None = None
    """With the outputs of the baseline."""
    returns_nothing: bool = False
    nonfinite: str = ""
    alone_s: float | None = None
    """Seconds of a call that follows calls of the same version."""


@dataclass(frozen=True)
class PairedAnswer:
    """The readings of one process that ran versions side by side, or of two processes that alternated."""

    sides: list[SideFacts] = field(default_factory=list[SideFacts])
    iterations: int = 1
    """Calls in a sample."""
    wall_ns: np.ndarray | None = None
    """int64[block, round, side]"""
    cpu_ns: np.ndarray | None = None
    """As `wall_ns`, of processor time; None if it was not read."""
    signature: str = ""
    noise: Noise = field(default_factory=Noise)
    not_exported: list[str | None] = field(default_factory=list[str | None])
    """For each side, why it ran unchanged next to an exported program."""
    environment: Json = field(default_factory=lambda: Json({}))
    is_same_program: bool = False
    """The sides are one program, and so there are no samples."""
    failure: Failure | None = None
    failed_side: int = 0


class VersionFailed(Exception):
    """A side that cannot be run; `cause` says why."""

    def __init__(self, side: int, cause: BaseException, stage: str) -> None:
        super().__init__(side, cause, stage)
        self.side, self.cause, self.stage = side, cause, stage


def attributing_failure(side: int, stage: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (Exception, SystemExit) as error:
        raise VersionFailed(side, error, stage) from error


# ---- versions --------------------------------------------------------------------------------------------------------
#
# The versions in a form that can be built: functions on shared inputs, or programs.


@dataclass
class BuildableVersion:
    """A side, ready to be built, and what has been made of it."""

    label: str
    make: Callable[[], CallableProgram]
    inputs: Inputs
    facts: SideFacts = field(default_factory=SideFacts)
    content: bytes | None = None
    """The bytes of a program."""
    case: Case | None = None
    """Runs as it is."""
    subject: Subject = field(init=False)
    """The last build, on the inputs of the last block."""
    timer: PreparedTimer = field(init=False)
    """The timer of the last block."""

    @property
    def own_inputs(self) -> Inputs:
        """`inputs`, which the versions share, as this one takes them."""
        return self.inputs if self.case is None else _fit_inputs(self.case, self.inputs)

    def build(self) -> None:
        """Builds it and calls it once; `facts` gets the times, and at the first build what the compiler planned."""
        prepared, facts = Prepared(self.make(), self.own_inputs), self.facts
        built = prepared.built
        # A build that came from the shared folder does not show the time to compile.
        if built.cache != "hit":
            facts.builds.append(built.seconds)
            if built.compiled is not None and facts.plan is None:
                facts.plan = memory_plan(built.compiled, hlo_text=prepared.hlo)
                facts.inline_flops = prepared.inline_flops
                with suppress(NotMeasured):
                    facts.flops = prepared.count_operations()
        subject = prepared.call_first().subject
        # The text shows whether outputs can be fed back. Printing it takes as long as a short build.
        self.subject = replace(subject, hlo=prepared.hlo) if subject.donates else subject

    def warm_up(self, is_new: bool) -> None:
        """Samples after this are calls on `inputs`. A version that was warm before only needs one call, to meet its new
        buffers.
        """
        self.subject = replace(self.subject, inputs=self.own_inputs)
        if is_new:
            warm_up(self.subject.ready, WARMUP_S)
        else:
            self.subject.outcome()
        self.timer = wall.prepare(self.subject)

    def sample(self, iterations: int, wakes: bool) -> tuple[int, int]:
        """(wall, processor) nanoseconds of this many calls; `facts` gets what was compiled in them.

        Args:
            wakes: an untimed call comes before them, which wakes threads and refills caches.
        """
        with watch_compiles() as log:
            if wakes:
                jax.block_until_ready(self.subject.call())
            compiled, before_ns = log.compiles, process_time_ns()
            wall_ns = self.timer.sample(iterations)
            processor_ns = process_time_ns() - before_ns
            self.facts.compiles += log.compiles - compiled
        return wall_ns, processor_ns

    def note_result(self) -> None:
        """Describes its result by itself, without the other versions."""
        self.facts.returns_nothing = not jax.tree.leaves(self.subject.outputs)
        self.facts.nonfinite = describe_nonfinite(self.subject.outputs)


def make_versions(request: PairedRequest) -> tuple[list[BuildableVersion], list[str | None]]:
    """Returns the sides as versions, and per side why it runs natively next to a program."""
    cases = {i: side.case for i, side in enumerate(request.sides) if side.case is not None}
    if not cases:
        inputs = _inputs_of_programs(request)
        return [_imported(i, side.label, side.program, inputs) for i, side in enumerate(request.sides)], [None]
    giver = min(cases)

    def make(i: int) -> Inputs:
        return attributing_failure(i, "inputs", lambda: make_inputs(cases[i], request.seed))

    inputs = make(giver)
    if len(cases) == len(request.sides):
        own = [make(i) if side.has_own_inputs else inputs for i, side in enumerate(request.sides)]
        return [native(side.label, cases[i], own[i]) for i, side in enumerate(request.sides)], [None]
    subjects = {
        i: attributing_failure(i, "build", lambda i=i, case=case: _to_export(case, inputs, _program_file(request, i)))
        for i, case in cases.items()
    }
    leaves = attributing_failure(giver, "inputs", lambda: leaves_of(subjects[giver]))
    versions: list[BuildableVersion] = []
    why: list[str | None] = [None for _ in request.sides]
    for i, side in enumerate(request.sides):
        try:
            content = _export(subjects[i], _program_file(request, i)) if i in cases else side.program
            versions.append(_imported(i, side.label, content, leaves))
            if i in cases:
                versions[i].facts.work = _work(cases[i], subjects[i].inputs)
        except NotMeasured as error:
            versions.append(native(side.label, cases[i], subjects[i].inputs))
            why[i] = error.problem
    return versions, why


def _fit_inputs(case: Case, inputs: Inputs) -> Inputs:
    static = static_arguments(case, inputs.args, inputs.kwargs)
    args, kwargs = fit(case, (inputs.args, inputs.kwargs), static)
    return replace(inputs, args=args, kwargs=kwargs, static=static)


def native(label: str, case: Case, inputs: Inputs) -> BuildableVersion:
    # Versions with the same inputs share one tuple. It shows `_renew_inputs` that they share their buffers.
    return BuildableVersion(
        label, lambda: program_of(case, inputs), inputs, SideFacts(work=_work(case, inputs)), case=case
    )


def _work(case: Case, inputs: Inputs) -> Mapping[str, float]:
    try:
        return amounts_of(case, inputs)
    except NotMeasured:  # a comparison is of times; why there are no amounts, the rows say
        return {}


def _inputs_of_programs(request: PairedRequest) -> Inputs:
    leaves = next((side.leaves for side in request.sides if side.leaves is not None), None)
    if leaves is None:
        rng = np.random.default_rng(request.seed)
        specs = attributing_failure(0, "import", lambda: ImportedProgram(request.sides[0].program or b"").specs)
        leaves = tuple(make_like(spec, rng) for spec in specs)
    return Inputs(leaves, {}, (), signature(leaves, {}, ()))


def _program_file(request: PairedRequest, i: int) -> Path | None:
    """Where the program of a case is kept for the processes that follow."""
    return Path(request.programs, f"{i}.exported") if request.programs else None


def _to_export(case: Case, inputs: Inputs, file: Path | None) -> Subject:
    """Traced, unless an earlier process has exported it: tracing and exporting take 50 ms and more in each process."""
    given = _fit_inputs(case, inputs)
    prepared = Prepared(program_of(case, given), given)
    if file and file.exists():
        static, _, _ = file.read_bytes().partition(b"\n")
        return Subject(prepared.program, given, None, tuple(json.loads(static)))
    return prepared.trace().subject


def _export(subject: Subject, file: Path | None) -> bytes:
    """The program, from the file if it is there. Raises NotMeasured where it cannot be exported."""
    if file and file.exists():
        return file.read_bytes().partition(b"\n")[2]
    content = exported(subject).content or b""
    if file:
        with suppress(OSError):  # no room: the next process exports it too
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, json.dumps(subject.static).encode() + b"\n" + content)
    return content


def _imported(i: int, label: str, content: bytes | None, leaves: Inputs) -> BuildableVersion:
    content = content or b""
    found = attributing_failure(i, "import", lambda: ImportedProgram(content))
    attributing_failure(i, "inputs", lambda: _check_inputs(found, leaves))
    facts = SideFacts(hashlib.sha256(content).hexdigest())
    return BuildableVersion(label, found.program, leaves, facts, content)


def _check_inputs(found: ImportedProgram, leaves: Inputs) -> None:
    given = [jax.numpy.asarray(leaf) if not hasattr(leaf, "dtype") else leaf for leaf in leaves.args]
    wanted = signature(found.specs, {}, ())
    if [(a.shape, a.dtype) for a in given] != [(s.shape, s.dtype) for s in found.specs]:
        raise UsageError(f"the inputs are {leaves.signature}, and this version takes {wanted}")


def are_one(versions: Sequence[BuildableVersion]) -> bool:
    """Are all of them programs, and the same program? The Python code of a function is in no program."""
    first, *others = (version.content for version in versions)
    return first is not None and all(each is not None and is_same_program(first, each) for each in others)


# ---- blocks ----------------------------------------------------------------------------------------------------------


def take_blocks(request: PairedRequest, say: Callable[..., None]) -> PairedAnswer:
    """Runs the versions; a version that fails ends it, and the answer says only that."""
    try:
        with without_cache(), noise.paused_gc():
            return _take(request, say)
    except VersionFailed as failed:
        return PairedAnswer(failure=diagnose(failed.cause, failed.stage), failed_side=failed.side)


def _take(request: PairedRequest, say: Callable[..., None]) -> PairedAnswer:
    say("inputs")
    versions, why = make_versions(request)
    answer = PairedAnswer(
        [version.facts for version in versions],
        signature=versions[0].inputs.signature,
        not_exported=why,
        environment=Json(jax_facts()),
        is_same_program=True,
    )
    if request.skips_equal and are_one(versions):
        return answer
    begun, rng, taken = noise.start(), random.Random(request.order_seed), list[np.ndarray]()
    iterations = call_ns = build_ns = 0
    for block in range(request.blocks):
        gc.collect(1)  # of all objects of JAX it would take 20 ms
        # A padding of random size makes the addresses differ. It is kept until there is another one: buffers would be
        # laid where one that is let go has been.
        _padding = np.ones(rng.randrange(1, PADDING_BYTES), np.uint8)
        _renew_inputs(versions)
        # All at first, then every other one. So the executables that meet are others in each block, for two thirds of
        # the builds.
        due = [i for i in range(len(versions)) if block == 0 or ((i + block) % 2 == 0 and build_ns < REBUILD_NS)]
        build_ns = _build(request, versions, rng.sample(due, len(due)), say) if due else build_ns
        say("warm-up", again=True)
        for i, version in enumerate(versions):
            attributing_failure(i, "warm-up", partial(version.warm_up, i in due))
        if not iterations:
            iterations, call_ns = calibrated([version.timer for version in versions])
        say("rounds", again=True)
        count = rounds(len(versions), max(call_ns * iterations, SAMPLE_NS), request.patience)
        samplers = [partial(version.sample, iterations, call_ns < WAKING_NS) for version in versions]
        # int64[2, round, side]: wall, processor
        taken.append(np.array([take_round(samplers, rng) for _ in range(count)], np.int64).transpose(2, 0, 1))
        if block == 0:
            for version, sampler, rounds_ns in zip(versions, samplers, taken[0][0].T, strict=True):
                version.facts.alone_s = _take_alone(sampler, float(np.median(rounds_ns))) / iterations / 1e9
    if request.compares_outputs:
        _compare_outputs(versions)
    for version in versions:  # last of all: it calls the user's Python once more
        if version.subject.program.kind == "eager":
            version.facts.operations = _operations(version.subject)
    wall_ns, cpu_ns = np.stack(taken, axis=1)
    seen = noise.finish(begun)
    return replace(answer, iterations=iterations, wall_ns=wall_ns, cpu_ns=cpu_ns, noise=seen, is_same_program=False)


def _renew_inputs(versions: Sequence[BuildableVersion]) -> None:
    """Puts the versions on new buffers. Equal inputs stay shared."""
    # Compare by identity: sides that shared one set of buffers get one new set. With two sets, the luck of memory
    # addresses would affect one side only. Without arguments, Python has one tuple for all, but no dict.
    calls = {key: inputs.renewed() for key, inputs in {id(v.inputs.kwargs): v.inputs for v in versions}.items()}
    for version in versions:
        args, kwargs = calls[id(version.inputs.kwargs)]
        version.inputs = replace(version.inputs, args=args, kwargs=kwargs)


def _build(
    request: PairedRequest, versions: Sequence[BuildableVersion], due: Sequence[int], say: Callable[..., None]
) -> int:
    """Builds these versions, in this order; returns the nanoseconds."""
    begun = perf_counter_ns()
    for i in due:
        say(f"build of {versions[i].label}", again=True)
        # Each side has its own folder, so that its first build is a real one, even if both are the same program.
        folder = request.programs and str(Path(request.programs, str(i)))
        with share_programs(folder) if folder else nullcontext():
            attributing_failure(i, "build", versions[i].build)
    return perf_counter_ns() - begun


def _take_alone(sampler: Callable[[], tuple[int, int]], in_rounds_ns: float) -> float:
    """The nanoseconds of a sample that follows others of the same version; in rounds it takes `in_rounds_ns`."""
    if in_rounds_ns >= LONG_NS:
        return in_rounds_ns
    count = int(min(ALONE, max(2, ALONE_NS // in_rounds_ns)))
    readings = [sampler()[0] for _ in range(count)]
    return median(readings[max(1, count // 4) :])


def _operations(subject: Subject) -> int | None:
    """The maximum number of programs that an eager call runs: its operations. A call of a jitted function counts as
    one. None if it cannot be traced."""
    call = subject.program.call
    args, kwargs = subject.inputs.renewed(copy=False)
    try:
        return len(jax.jit(lambda *args, **kwargs: call(*args, **kwargs)).trace(*args, **kwargs).jaxpr.eqns)
    except Exception:  # what runs eagerly need not be traceable
        return None


def calibrated(timers: Sequence[PreparedTimer]) -> tuple[int, int]:
    """(calls in a sample of any side, so that the fastest takes SAMPLE_NS; nanoseconds of the slowest's call)."""
    each = [_call_ns(timer) for timer in timers]
    most = min(timer.most_iterations for timer in timers)
    return max(1, min(most, round(SAMPLE_NS / min(each)))), round(max(each))


def _call_ns(timer: PreparedTimer) -> float:
    n = 1
    while (reading := timer.sample(n)) < SAMPLE_NS / 2 and n < timer.most_iterations:
        n *= 2
    # Far above the target, one call is a sample, whatever further readings would show: such calls are expensive.
    if reading > 10 * SAMPLE_NS:
        return reading / n
    return min(reading, *(timer.sample(n) for _ in range(CALIBRATIONS - 1))) / n


def rounds(sides: int, sample_ns: int, patience: int) -> int:
    """The number of rounds of a block, if a sample takes `sample_ns`."""
    fitting = patience * BLOCK_NS // (sides * sample_ns)
    return max(LEAST_ROUNDS, min(patience * MOST_ROUNDS, fitting))


def take_round(samplers: Sequence[Callable[[], T]], rng: random.Random) -> list[T]:
    """A reading of each, taken in random order."""
    # Draw a new order in each round: in a fixed order, one side would always follow the same other side and inherit its
    # caches.
    order = rng.sample(range(len(samplers)), len(samplers))
    taken = {i: samplers[i]() for i in order}
    return [taken[i] for i in range(len(samplers))]


def _compare_outputs(versions: Sequence[BuildableVersion]) -> None:
    """Compares outputs with the outputs of the first version. Compares leaves, because an exported program knows no
    other structure.
    """
    first = tuple(jax.tree.leaves(versions[0].subject.outputs))
    for i, version in enumerate(versions):
        version.note_result()
        leaves = tuple(jax.tree.leaves(version.subject.outputs))
        if i and (first or leaves):
            version.facts.agreement = compare(leaves, first, against="baseline")


# ---- turns -----------------------------------------------------------------------------------------------------------
#
# A case that is built once and then sampled on request, for two processes that alternate on one core.
#
# A sample is the same as above: calls back to back, with a wait for each. An untimed call before them wakes
# threads and refills the caches, which the other process has used in between. Buffers and executable stay: another pair
# of processes has others.


@dataclass(frozen=True)
class Turns:
    """A case, warm."""

    version: BuildableVersion
    iterations: int
    """Calls in a sample, so that it takes `SAMPLE_NS`."""
    call_ns: int

    def sample(self, iterations: int) -> int:
        """Returns the nanoseconds of this many calls."""
        return self.version.sample(iterations, self.call_ns < WAKING_NS)[0]

    @property
    def outputs(self) -> list[np.ndarray]:
        """The leaves as they travel: a typed key is its data."""
        return [np.asarray(data_of(leaf)) for leaf in jax.tree.leaves(self.version.subject.outputs)]


def prepare_turns(case: Case, seed: int, enter: Callable[[str], None]) -> Turns:
    """Makes the inputs, builds, warms up, and finds how many calls a sample has.

    Args:
        seed: of the data made from specs.
        enter: called with the name of each stage before it begins.

    Raises:
        whatever the case raises.
    """
    enter("inputs")
    prepared = prepare(case, seed)
    enter("build")  # one word for all of its steps: a limit of time is one for them together, as beside other versions
    version = BuildableVersion(case.id.label, lambda: prepared.program, prepared.inputs)
    version.build()
    version.note_result()
    enter("warm-up")
    version.warm_up(is_new=True)
    iterations, call_ns = calibrated([version.timer])
    return Turns(version, iterations, call_ns)
