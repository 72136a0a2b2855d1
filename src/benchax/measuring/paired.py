"""Times versions of a case side by side, in one process: the unit is a round, one sample of each in random order.

    block:  new buffers, shared by all versions → every other version built again → warm up → rounds

Disturbances (the machine's speed, neighbors, the core, the buffers) are the same for all samples of a round, so they
divide out. Chance effects of buffers, executables and processes remain. Each block and each process draws them again,
so that the spread shows them (`stats/verdicts.py`).

A version that allocates 100 MiB leaves the caches of the next version in a different state. So the first block of each
process ends with a few samples of each version in a row, for comparison with the rounds (`alone_s`).

Each sample also has the processor time of all threads of the process, read outside of the wall interval. It is a second
measure if waiting for a core hides the first (`comparing/judging.py`).

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter_ns, process_time_ns
from typing import TypeVar

import jax
import numpy as np

from benchax.case import Case
from benchax.environment import jax_facts
from benchax.json_values import Json
from benchax.machine import noise
from benchax.machine.noise import paused_gc
from benchax.measuring import stages
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.jax_settings import share_programs, without_cache
from benchax.measuring.prepare import Prepared, prepare
from benchax.measuring.program import CallableProgram
from benchax.measuring.sampling import warm_up
from benchax.measuring.sides import BuildableVersion, PairedRequest, Unfit, are_one, guarded, make_versions
from benchax.measuring.state import data_of
from benchax.measuring.timers import wall
from benchax.measuring.timers.base import PreparedTimer, Subject
from benchax.model import Failure, Memory, Noise, Numerics
from benchax.numerics import compare, describe_nonfinite
from benchax.program.compiled import cost, memory_plan
from benchax.watching.compiles import watch_compiles

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


@dataclass
class SideFacts:
    """The facts that a process has found out about one version."""

    is_program: bool = False
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


def take_blocks(request: PairedRequest, say: Callable[..., None]) -> PairedAnswer:
    """Runs the versions; a version that fails ends it, and the answer says only that."""
    try:
        with without_cache(), paused_gc():
            return _take(request, say)
    except Unfit as unfit:
        return PairedAnswer(failure=diagnose(unfit.cause, unfit.stage), failed_side=unfit.side)


def _take(request: PairedRequest, say: Callable[..., None]) -> PairedAnswer:
    say("inputs")
    versions, why = make_versions(request)
    facts = [SideFacts(v.is_program, v.sha256, v.work) for v in versions]
    answer = PairedAnswer(
        facts,
        signature=versions[0].inputs.signature,
        not_exported=why,
        environment=Json(jax_facts()),
        is_same_program=True,
    )
    if request.skips_equal and are_one(versions):
        return answer
    begun = noise.start()
    work = _PairedWork(request, say, versions, facts, random.Random(request.order_seed))
    wall_ns, cpu_ns = np.stack([work.take_block(block) for block in range(request.blocks)], axis=1)
    if request.compares_outputs:
        _compare_outputs(work.subjects, facts)
    for i, subject in work.subjects.items():  # last of all: it calls the user's Python once more
        if subject.program.kind == "eager":
            facts[i].operations = _operations(subject)
    seen = noise.finish(begun)
    return replace(
        answer, iterations=work.iterations, wall_ns=wall_ns, cpu_ns=cpu_ns, noise=seen, is_same_program=False
    )


@dataclass
class _PairedWork:
    """The state that a block leaves to the next one."""

    request: PairedRequest
    say: Callable[..., None]
    versions: list[BuildableVersion]
    facts: list[SideFacts]
    rng: random.Random
    subjects: dict[int, Subject] = field(default_factory=dict[int, Subject])
    iterations: int = 0
    """Calls in a sample; found in the first block, and then the same in all."""
    call_ns: int = 0
    build_ns: int = 0
    """The time of the last builds."""
    padding: np.ndarray | None = None
    """Kept until there is another one: buffers would be laid where one that is let go has been."""

    def take_block(self, block: int) -> np.ndarray:
        """int64[2, round, side]: wall, processor."""
        gc.collect(1)  # of all objects of JAX it would take 20 ms
        self.versions, self.padding = _renewed(self.versions, self.rng)
        due = self._build_due(block) if self.build_ns < REBUILD_NS else []
        self.subjects = {i: replace(self.subjects[i], inputs=v.own_inputs) for i, v in enumerate(self.versions)}
        self.say("warm-up", again=True)
        timers = [_ready(i, subject, i in due) for i, subject in self.subjects.items()]
        if not self.iterations:
            self.iterations, self.call_ns = calibrated(timers)
        self.say("rounds", again=True)
        count = rounds(len(timers), max(self.call_ns * self.iterations, SAMPLE_NS), self.request.patience)
        wakes = self.call_ns < WAKING_NS
        taken = _rounds(timers, self.subjects, self.iterations, count, wakes, self.rng, self.facts)
        if block == 0:
            self._take_alone(timers, taken[0], wakes)
        return taken

    def _take_alone(self, timers: Sequence[PreparedTimer], rounds_ns: np.ndarray, wakes: bool) -> None:
        for i, timer in enumerate(timers):
            alone_ns = float(np.median(rounds_ns[:, i]))
            if alone_ns < LONG_NS:
                count = int(min(ALONE, max(2, ALONE_NS // alone_ns)))
                readings = [self._sample_alone(i, timer, wakes) for _ in range(count)]
                alone_ns = median(readings[max(1, count // 4) :])
            self.facts[i].alone_s = alone_ns / self.iterations / 1e9

    def _sample_alone(self, i: int, timer: PreparedTimer, wakes: bool) -> int:
        if wakes:
            jax.block_until_ready(self.subjects[i].call())
        return timer.sample(self.iterations)

    def _build_due(self, block: int) -> list[int]:
        begun, due = perf_counter_ns(), _due(block, len(self.versions), self.rng)
        for i in due:
            self.say(f"build of {self.versions[i].label}", again=True)
            self.subjects[i] = _build_shared(self.request, i, self.versions[i], self.facts[i])
        self.build_ns = perf_counter_ns() - begun
        return due


# ---- a block ----------------------------------------------------------------------------------------------------


def _renewed(versions: Sequence[BuildableVersion], rng: random.Random) -> tuple[list[BuildableVersion], np.ndarray]:
    """Returns the versions on new buffers, behind a padding of random size, so that the addresses differ. Equal inputs
    stay shared.
    """
    padding = np.ones(rng.randrange(1, PADDING_BYTES), np.uint8)
    # By identity: sides that were given one set of buffers get one new set. With two, the luck of where buffers lie
    # would be on one side only.
    calls = {id(v.inputs.args): v.inputs.renewed() for v in {id(v.inputs.args): v for v in versions}.values()}
    renewed = [
        replace(v.inputs, args=args, kwargs=kwargs) for v in versions for args, kwargs in [calls[id(v.inputs.args)]]
    ]
    return [replace(v, inputs=inputs) for v, inputs in zip(versions, renewed, strict=True)], padding


def _due(block: int, count: int, rng: random.Random) -> list[int]:
    """Which versions are built for this block: all at first, then every other one. So the executables that meet are
    others in each block, for two thirds of the builds."""
    due = [i for i in range(count) if block == 0 or (i + block) % 2 == 0]
    return rng.sample(due, len(due))


def _build_shared(request: PairedRequest, i: int, version: BuildableVersion, facts: SideFacts) -> Subject:
    # Each side has a folder, so that the first build of each is a real one, also where both are one program.
    folder = request.programs and str(Path(request.programs, str(i)))
    with share_programs(folder) if folder else nullcontext():
        return guarded(i, "build", lambda: build(Prepared(version.make(), version.own_inputs), facts))


def build(prepared: Prepared, facts: SideFacts) -> Subject:
    """Builds it and calls it once; `facts` gets the times, and at the first build what the compiler planned."""
    built = prepared.built
    # A build that was read from the shared folder says nothing of what compiling takes.
    if built.cache != "hit":
        facts.builds.append(built.seconds)
        if built.compiled is not None and facts.plan is None:
            counted = cost(built.compiled, prepared.hlo)
            facts.plan = memory_plan(built.compiled, hlo_text=prepared.hlo)
            facts.flops, facts.inline_flops = counted.flops if counted else None, prepared.inline_flops
    subject = prepared.call_first().subject
    # The text tells whether outputs can be fed back; to print it takes as long as a short build.
    return replace(subject, hlo=prepared.hlo) if subject.donates else subject


def _operations(subject: Subject) -> int | None:
    """The maximum number of programs that an eager call runs: its operations. A call of a jitted function counts as
    one. None if it cannot be traced."""
    call = subject.program.call
    traced = CallableProgram("plain", jax.jit(lambda *args, **kwargs: call(*args, **kwargs)), None, None)
    try:
        found = stages.trace_only(traced, subject.inputs).traced
        return None if found is None else len(found.jaxpr.eqns)
    except Exception:  # what runs eagerly need not be traceable
        return None


def _ready(i: int, subject: Subject, is_new: bool) -> PreparedTimer:
    """Returns a warm timer. A timer of the block before only needs one call, to meet its new buffers."""
    guarded(i, "warm-up", lambda: warm_up(subject.ready, WARMUP_S) if is_new else subject.outcome())
    return wall.prepare(subject)


def calibrated(timers: Sequence[PreparedTimer]) -> tuple[int, int]:
    """(calls in a sample of any side, so that the fastest takes SAMPLE_NS; nanoseconds of the slowest's call)."""
    each = [_call_ns(timer) for timer in timers]
    most = min(timer.most_iterations for timer in timers)
    return max(1, min(most, round(SAMPLE_NS / min(each)))), round(max(each))


def _call_ns(timer: PreparedTimer) -> float:
    n = 1
    while (reading := timer.sample(n)) < SAMPLE_NS / 2 and n < timer.most_iterations:
        n *= 2
    # Far beyond the target one call makes a sample, whatever further readings would say, and they are dear.
    if reading > 10 * SAMPLE_NS:
        return reading / n
    return min(reading, *(timer.sample(n) for _ in range(CALIBRATIONS - 1))) / n


def rounds(sides: int, sample_ns: int, patience: int) -> int:
    """The number of rounds of a block, if a sample takes `sample_ns`."""
    fitting = patience * BLOCK_NS // (sides * sample_ns)
    return max(LEAST_ROUNDS, min(patience * MOST_ROUNDS, fitting))


def take_rounds(
    samplers: Sequence[Callable[[], T]], rng: random.Random, goes_on: Callable[[int], bool]
) -> list[list[T]]:
    """Takes a reading of each in every round, in random order: the readings of each.

    Args:
        goes_on: is there another round, after so many?
    """
    taken: list[list[T]] = [[] for _ in samplers]
    places = list(range(len(samplers)))
    while goes_on(len(taken[0])):
        # Drawn anew in each round: in a fixed order one side would always come behind the same other one, and find its
        # caches.
        rng.shuffle(places)
        for i in places:
            taken[i].append(samplers[i]())
    return taken


def _rounds(
    timers: Sequence[PreparedTimer],
    subjects: Mapping[int, Subject],
    iterations: int,
    count: int,
    wakes: bool,
    rng: random.Random,
    facts: Sequence[SideFacts],
) -> np.ndarray:
    """int64[2, round, side]: wall time, and processor time of all threads. `facts` gets what was compiled in them."""

    def sample(i: int) -> tuple[int, int]:
        if wakes:
            jax.block_until_ready(subjects[i].call())
        compiled, before_ns = log.compiles, process_time_ns()
        wall_ns = timers[i].sample(iterations)
        processor_ns = process_time_ns() - before_ns
        facts[i].compiles += log.compiles - compiled
        return wall_ns, processor_ns

    with watch_compiles() as log:
        taken = take_rounds([partial(sample, i) for i in range(len(timers))], rng, lambda taken: taken < count)
    return np.array(taken, np.int64).transpose(2, 1, 0)


def _compare_outputs(subjects: Mapping[int, Subject], facts: Sequence[SideFacts]) -> None:
    """Compares outputs with the outputs of the first version. Compares leaves, because an exported program knows no
    other structure.
    """
    first = tuple(jax.tree.leaves(subjects[0].outputs))
    for i, subject in subjects.items():
        note_result(facts[i], subject)
        leaves = tuple(jax.tree.leaves(subject.outputs))
        if i and (first or leaves):
            facts[i].agreement = compare(leaves, first, against="baseline")


def note_result(facts: SideFacts, subject: Subject) -> None:
    """Describes a result by itself, without the other versions."""
    facts.returns_nothing = not jax.tree.leaves(subject.outputs)
    facts.nonfinite = describe_nonfinite(subject.outputs)


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

    subject: Subject
    timer: PreparedTimer
    facts: SideFacts
    iterations: int
    """Calls in a sample, so that it takes `SAMPLE_NS`."""
    call_ns: int

    def sample(self, iterations: int) -> int:
        """Returns the nanoseconds of this many calls."""
        with watch_compiles() as log:
            if self.call_ns < WAKING_NS:
                jax.block_until_ready(self.subject.call())
            compiled, ns = log.compiles, self.timer.sample(iterations)
            self.facts.compiles += log.compiles - compiled
        return ns

    @property
    def outputs(self) -> list[np.ndarray]:
        """The leaves as they travel: a typed key is its data."""
        return [np.asarray(data_of(leaf)) for leaf in jax.tree.leaves(self.subject.outputs)]

    def agreement(self, baseline: Sequence[np.ndarray]) -> Numerics:
        """How far its outputs are from the leaves that the baseline gave."""
        return compare(tuple(self.outputs), tuple(baseline), against="baseline")


def imported_jax() -> str:
    """Returns the version that the module itself says: what is installed may not be what was found first."""
    return jax.__version__


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
    facts = SideFacts()
    subject = build(prepared, facts)
    note_result(facts, subject)
    enter("warm-up")
    warm_up(subject.ready, WARMUP_S)
    timer = wall.prepare(subject)
    iterations, call_ns = calibrated([timer])
    return Turns(subject, timer, facts, iterations, call_ns)
