"""Times versions of a case side by side, in one process: the unit is a round, one sample of each in random order.

    block:  new buffers, shared by all versions → every other version built anew → warm up → rounds

What spoils the comparison of two numbers (the machine's speed, neighbours, which core, which buffers) is the same for
all samples of a round and divides out. What is left, the luck of buffers, executables and processes, is renewed with
each block and each process, so that it shows in the spread (`stats/verdicts.py`).

Beside the wall time of each sample stands the processor time of all threads of the process, read outside of the wall
interval: a second witness where waiting for a core drowns the first (`comparing/judging.py`).

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Any

import jax
import numpy as np

from benchax.case import Case
from benchax.environment import jax_config, jax_facts
from benchax.errors import NotMeasured, UsageError
from benchax.measuring import stages
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.exported import ImportedProgram, exported, is_same_program, leaves_of
from benchax.measuring.inputs import Inputs, make_inputs, make_like, signature, static_arguments
from benchax.measuring.jax_settings import share_programs
from benchax.measuring.noise import paused_gc
from benchax.measuring.prepare import Prepared
from benchax.measuring.program import CallableProgram, program_of
from benchax.measuring.sampling import warm_up
from benchax.measuring.timers.base import PreparedTimer, Subject
from benchax.measuring.timers.wall import WallTimer
from benchax.numerics import compare
from benchax.program.cost import cost
from benchax.program.memory_plan import memory_plan

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


@dataclass(frozen=True)
class Side:
    """One version: a case, or the exported program of one."""

    label: str
    case: Case | None = None
    program: bytes | None = None
    leaves: tuple[Any, ...] | None = None
    """What a program is to be given: arrays of JAX and numbers, as `exported.leaves_of` has them."""


@dataclass(frozen=True)
class PairedRequest:
    """What one process is asked for."""

    sides: tuple[Side, ...]
    """The baseline first. The first case gives the inputs of all, without any the first side that has leaves; without
    these they are random data, of the shapes that the first program wants."""
    blocks: int = 3
    seed: int = 0
    """Of the data, equal in all processes."""
    order_seed: int = 0
    """Of the order of things, another one in each process."""
    patience: int = 1
    """Times as many rounds, in as much more time."""
    skips_equal: bool = False
    """Programs that are one are not timed."""
    compares_outputs: bool = True
    """Are the outputs compared with the baseline's? Once is enough: all processes run the same on the same data."""
    programs: str | None = None
    """Folder of the programs and executables of this case. What has been compiled before is read from there: 20 ms in
    place of 50 to 200 for as new an executable, as fast within 1 %. Only what was compiled is timed being built."""


class Unfit(Exception):
    """A side that cannot be run; `cause` says why."""

    def __init__(self, side: int, cause: BaseException, stage: str) -> None:
        super().__init__(str(cause))
        self.side, self.cause, self.stage = side, cause, stage


@dataclass
class BuildableVersion:
    """A side, ready to be built."""

    label: str
    make: Callable[[], CallableProgram]
    inputs: Inputs
    is_program: bool
    sha256: str | None = None
    content: bytes | None = None
    """Of a program."""


def take_blocks(request: PairedRequest, say: Callable[..., None]) -> tuple[dict[str, Any], list[np.ndarray]]:
    """(document, [nanoseconds of samples, and of the processor in them: int64[block, round, side] each]).

    The document holds `iterations` (calls in a sample), `signature`, `sides` (per side: is_program, sha256, builds,
    plan, flops, inline_flops, operations, agreement), `not_exported`, `is_same_program` (then there are no samples) and
    `failure` (with the side that failed; None if all ran).
    """
    try:
        with without_cache(), paused_gc():
            return _take(request, say)
    except Unfit as unfit:
        failure = diagnose(unfit.cause, unfit.stage)
        return {"failure": dataclasses.asdict(failure), "side": unfit.side}, []


@contextmanager
def without_cache() -> Iterator[None]:
    """A persistent cache would be filled by the first block, and later ones time looking things up."""
    was_on = jax_config(jax.config).get("jax_enable_compilation_cache", True)
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", was_on)


def _take(request: PairedRequest, say: Callable[..., None]) -> tuple[dict[str, Any], list[np.ndarray]]:
    say("inputs")
    rng = random.Random(request.order_seed)
    versions, why = _versions(request)
    facts: list[dict[str, Any]] = [{"is_program": v.is_program, "sha256": v.sha256, "builds": []} for v in versions]
    if request.skips_equal and _are_one(versions):
        nothing = np.zeros((0, 0, len(versions)), np.int64)
        return _document(versions, facts, why, 0, True), [nothing, nothing]
    blocks: list[np.ndarray] = []
    """int64[2, round, side] each: wall, processor."""
    iterations, call_ns, took_ns = 0, 0, 0
    subjects: dict[int, Subject] = {}
    for block in range(request.blocks):
        gc.collect(1)  # of all objects of JAX it would take 20 ms
        versions, _padding = _renewed(versions, rng)
        due: list[int] = []
        if took_ns < REBUILD_NS:
            begun, due = perf_counter_ns(), _due(block, len(versions), rng)
            for i in due:
                say(f"build of {versions[i].label}", again=True)
                subjects[i] = _build_shared(request, i, versions[i], facts[i])
            took_ns = perf_counter_ns() - begun
        subjects = {i: replace(subjects[i], inputs=version.inputs) for i, version in enumerate(versions)}
        say("warm-up", again=True)
        timers = [_ready(i, subject, i in due) for i, subject in subjects.items()]
        if not iterations:
            iterations, call_ns = calibrated(timers)
        say("rounds", again=True)
        count = rounds(len(timers), max(call_ns * iterations, SAMPLE_NS), request.patience)
        blocks.append(_rounds(timers, subjects, iterations, count, call_ns < WAKING_NS, rng))
    if request.compares_outputs:
        _compare_outputs(subjects, facts)
    for i, subject in subjects.items():  # last of all: it calls the user's Python once more
        if subject.program.kind == "eager":
            facts[i]["operations"] = _operations(subject)
    wall, processor = np.stack(blocks, axis=1)
    return _document(versions, facts, why, iterations, False), [wall, processor]


def _are_one(versions: Sequence[BuildableVersion]) -> bool:
    """Are all of them programs, and the same? What functions do in Python is in no program."""
    first, *others = (version.content for version in versions)
    return first is not None and all(each is not None and is_same_program(first, each) for each in others)


def _document(
    versions: Sequence[BuildableVersion],
    facts: list[dict[str, Any]],
    not_exported: list[str | None],
    iterations: int,
    is_same: bool,
) -> dict[str, Any]:
    return {
        "iterations": iterations,
        "signature": versions[0].inputs.signature,
        "sides": facts,
        "not_exported": not_exported,
        "is_same_program": is_same,
        "environment": jax_facts(),
        "failure": None,
    }


# ---- versions ---------------------------------------------------------------------------------------------------


def _versions(request: PairedRequest) -> tuple[list[BuildableVersion], list[str | None]]:
    """The sides as versions, and per side why it runs natively beside a program.

    Where all are cases they run as they are. Where one is a program, the others are exported too: then nothing but
    the programs differs.
    """
    giver = next((i for i, side in enumerate(request.sides) if side.case is not None), None)
    if giver is None:
        inputs = _inputs_of_programs(request)
        return [_imported(i, side.label, _content(side), inputs) for i, side in enumerate(request.sides)], [None]
    case = _case(request.sides[giver])
    inputs = _guarded(giver, "inputs", lambda: make_inputs(case, request.seed))
    if all(side.case is not None for side in request.sides):
        return [native(side, inputs) for side in request.sides], [None]
    cases = {
        i: _guarded(i, "build", lambda i=i, side=side: _exportable(side, inputs, _program_file(request, i)))
        for i, side in enumerate(request.sides)
        if side.case is not None
    }
    leaves = _guarded(giver, "inputs", lambda: leaves_of(cases[giver].subject))
    made = [_as_program(i, side, cases.get(i), leaves) for i, side in enumerate(request.sides)]
    return [version for version, _ in made], [why for _, why in made]


def _case(side: Side) -> Case:
    if side.case is None:
        raise UsageError(f"{side.label} has no function", "a case or a program")
    return side.case


def _content(side: Side) -> bytes:
    if side.program is None:
        raise UsageError(f"{side.label} has neither a function nor a program", "a case or a program")
    return side.program


def native(side: Side, inputs: Inputs) -> BuildableVersion:
    case = _case(side)
    # The same buffers for all: `_renewed` tells by the tuple.
    static = static_arguments(case, inputs.args, inputs.kwargs)
    given = replace(inputs, static=static)
    return BuildableVersion(side.label, lambda: program_of(case, given), given, False)


def _inputs_of_programs(request: PairedRequest) -> Inputs:
    leaves = next((side.leaves for side in request.sides if side.leaves is not None), None)
    if leaves is None:
        rng = np.random.default_rng(request.seed)
        specs = _guarded(0, "import", lambda: ImportedProgram(_content(request.sides[0])).specs)
        leaves = tuple(make_like(spec, rng) for spec in specs)
    return Inputs(leaves, {}, (), signature(leaves, {}, ()))


@dataclass(frozen=True)
class ExportableCase:
    """A case that is to run as a program."""

    subject: Subject
    file: Path | None
    """Where the program is kept for the processes that follow."""
    content: bytes | None = None
    """The program, where an earlier process has exported it."""

    def export(self) -> bytes:
        """The program. Raises NotMeasured where it cannot be exported."""
        if self.content is not None:
            return self.content
        content = exported(self.subject).content or b""
        if self.file:
            _retain(self.file, json.dumps(self.subject.static).encode() + b"\n" + content)
        return content


def _exportable(side: Side, inputs: Inputs, file: Path | None) -> ExportableCase:
    """Traced, unless an earlier process has exported it: tracing and exporting take 50 ms and more in each process."""
    program = program_of(_case(side), inputs)
    if file and file.exists():
        static, _, content = file.read_bytes().partition(b"\n")
        return ExportableCase(Subject(program, inputs, None, tuple(json.loads(static))), file, content)
    prepared = Prepared(program, replace(inputs, static=static_arguments(_case(side), inputs.args, inputs.kwargs)))
    try:
        return ExportableCase(prepared.subject_of(prepared.trace()), file)
    except NotMeasured:  # eager, or built already: it runs as it is, and `exported` says why
        return ExportableCase(prepared.subject_of(), file)


def _program_file(request: PairedRequest, i: int) -> Path | None:
    return Path(request.programs, f"{i}.exported") if request.programs else None


def _retain(file: Path, content: bytes) -> None:
    with suppress(OSError):  # no room: the next process exports it too
        file.parent.mkdir(parents=True, exist_ok=True)
        whole = file.with_suffix(".new")
        whole.write_bytes(content)
        whole.replace(file)  # a process that is killed while it writes leaves no half of one


def _as_program(i: int, side: Side, case: ExportableCase | None, leaves: Inputs) -> tuple[BuildableVersion, str | None]:
    """The version, and why it runs as it is where it cannot be exported."""
    if case is None:
        return _imported(i, side.label, _content(side), leaves), None
    try:
        return _imported(i, side.label, case.export(), leaves), None
    except NotMeasured as error:
        return native(side, case.subject.inputs), error.problem


def _imported(i: int, label: str, content: bytes, leaves: Inputs) -> BuildableVersion:
    found = _guarded(i, "import", lambda: ImportedProgram(content))
    _guarded(i, "inputs", lambda: _check_inputs(found, leaves))
    return BuildableVersion(label, found.program, leaves, True, hashlib.sha256(content).hexdigest(), content)


def _check_inputs(found: ImportedProgram, leaves: Inputs) -> None:
    given = [jax.numpy.asarray(leaf) if not hasattr(leaf, "dtype") else leaf for leaf in leaves.args]
    wanted = signature(found.specs, {}, ())
    if [(a.shape, a.dtype) for a in given] != [(s.shape, s.dtype) for s in found.specs]:
        raise UsageError(f"the inputs are {leaves.signature}, and this version takes {wanted}")


def _guarded(side: int, stage: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (Exception, SystemExit) as error:
        raise Unfit(side, error, stage) from error


# ---- a block ----------------------------------------------------------------------------------------------------


def _renewed(versions: Sequence[BuildableVersion], rng: random.Random) -> tuple[list[BuildableVersion], np.ndarray]:
    """On new buffers, behind a padding of random size so that they lie elsewhere; equal inputs stay shared."""
    padding = np.ones(rng.randrange(1, PADDING_BYTES), np.uint8)
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


def _build_shared(request: PairedRequest, i: int, version: BuildableVersion, facts: dict[str, Any]) -> Subject:
    # Each side has a folder, so that the first build of each is a real one, also where both are one program.
    folder = request.programs and str(Path(request.programs, str(i)))
    with share_programs(folder) if folder else nullcontext():
        return _guarded(i, "build", lambda: build(version, facts))


def build(version: BuildableVersion, facts: dict[str, Any]) -> Subject:
    prepared = Prepared(version.make(), version.inputs)
    built = prepared.built
    if built.cache != "hit":
        facts["builds"].append(built.seconds)
        if built.compiled is not None and "plan" not in facts:
            facts |= _planned(prepared, built.compiled)
    return prepared.call_first().subject


def _planned(prepared: Prepared, compiled: jax.stages.Compiled) -> dict[str, Any]:
    counted = cost(compiled, prepared.hlo)
    return {
        "plan": dataclasses.asdict(memory_plan(compiled, hlo_text=prepared.hlo)),
        "flops": counted.flops if counted else None,
        "inline_flops": prepared.inline_flops,
    }


def _operations(subject: Subject) -> int | None:
    """How many programs an eager call runs, at most: its operations, of which a call of a jitted function is one.
    None where it cannot be traced."""
    call = subject.program.call
    traced = CallableProgram("plain", jax.jit(lambda *args, **kwargs: call(*args, **kwargs)), None, None)
    try:
        found = stages.trace_only(traced, subject.inputs).traced
        return None if found is None else len(found.jaxpr.eqns)
    except Exception:  # what runs eagerly need not be traceable
        return None


def _ready(i: int, subject: Subject, is_new: bool) -> PreparedTimer:
    """Warm. What ran in the block before only has to meet its new buffers, which one call does."""
    _guarded(i, "warm-up", lambda: warm_up(subject.ready, WARMUP_S) if is_new else subject.outcome())
    return WallTimer().prepare(subject)


def calibrated(timers: Sequence[PreparedTimer]) -> tuple[int, int]:
    """(calls in a sample of any side, so that the fastest takes SAMPLE_NS; nanoseconds of the slowest's call)."""
    each = [_call_ns(timer) for timer in timers]
    most = min(timer.most_iterations for timer in timers)
    return max(1, min(most, round(SAMPLE_NS / min(each)))), round(max(each))


def _call_ns(timer: PreparedTimer) -> float:
    n = 1
    while (reading := timer.sample(n)) < SAMPLE_NS / 2 and n < timer.most_iterations:
        n *= 2
    if reading > 10 * SAMPLE_NS:
        return reading / n
    return min(reading, *(timer.sample(n) for _ in range(CALIBRATIONS - 1))) / n


def rounds(sides: int, sample_ns: int, patience: int) -> int:
    """So many of a block, where a sample takes so long."""
    fitting = patience * BLOCK_NS // (sides * sample_ns)
    return max(LEAST_ROUNDS, min(patience * MOST_ROUNDS, fitting))


def _rounds(
    timers: Sequence[PreparedTimer],
    subjects: Mapping[int, Subject],
    iterations: int,
    count: int,
    wakes: bool,
    rng: random.Random,
) -> np.ndarray:
    """int64[2, round, side]: wall time, and processor time of all threads."""
    taken = np.zeros((2, count, len(timers)), np.int64)
    places = list(range(len(timers)))
    for r in range(count):
        rng.shuffle(places)
        for i in places:
            if wakes:
                jax.block_until_ready(subjects[i].call())
            before_ns = process_time_ns()
            taken[0, r, i] = timers[i].sample(iterations)
            taken[1, r, i] = process_time_ns() - before_ns
    return taken


def _compare_outputs(subjects: Mapping[int, Subject], facts: list[dict[str, Any]]) -> None:
    """With those of the first. Of leaves: an exported program knows no other structure."""
    first = tuple(jax.tree.leaves(subjects[0].outputs))
    for i in range(1, len(subjects)):
        facts[i]["agreement"] = dataclasses.asdict(
            compare(tuple(jax.tree.leaves(subjects[i].outputs)), first, against="baseline")
        )
