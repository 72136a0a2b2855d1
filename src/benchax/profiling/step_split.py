"""Splits the steps of a trace: where the time of a training loop goes.

At each moment the topmost layer counts: a device at work, a compilation, a transfer,
or JAX's own work. Each layer takes the time that the layers above it leave. Time without a layer is the program's own
Python, which the samples of the stack split further. The parts are added up over the steady steps, the first one, and
the slowest.

A piece of Python is the time between two calls of JAX. A piece that is too short for a sample gets the lines of other
pieces between the same two calls. These are the same lines of the loop. If no such piece has a sample, its time is
unseen.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from benchax.grouping import group_by
from benchax.profiling.events import Coverage, Space, unite, unite_all
from benchax.profiling.host_thread import (
    OURS,
    HostThread,
    SampledFrame,
    StackSamples,
    program_name,
    read_compile_marks,
    read_host_thread,
    read_samples,
    user_line,
)
from benchax.profiling.operations import PS, Operations, on_busiest_device
from benchax.protobuf import Ints
from benchax.repeating import LEAST_CALLS, goes_on, once_a_round
from benchax.results.profile import (
    OneStep,
    PartKind,
    PartLine,
    ProgramsPerStep,
    Run,
    Step,
    StepMark,
    StepPart,
    StepSplit,
)

# Finds the steps of a training loop in a trace, and where each begins.
#
# The program's own marks come first: `jax.profiler.StepTraceAnnotation`. Without them, a step is a call of one program.
# Among the programs that are called repeatedly, it is the one that takes most of the time. A loop can call that program
# several times per round (eager operations, accumulated gradients). Then a step is the round: the calls are a sequence
# that repeats, and the call with a unique history in it begins the step.
#
# If the loop runs ahead of the device, the device's runs of that program begin the steps, because they show when it
# works.
#
# Code that sets a program up repeats, too: `jnp.zeros` three times is three calls of one program, a second apart. So a
# device must do the same work in most steps. All steps together must hold a good part of its work in the recording.

SAME_INSIDE, SAME_IN_ALL = 1 / 3, 0.1
"""The work that most steps share must be at least these shares of a device's work in all steps, and in the recording.
In a test of 109 third-party programs, loops had 0.58 and 0.1 or more. Code that only set them up had 0.26, or 0.09, and
less."""
MOST_TRIED = 8
"""Programs that may begin the steps."""

LEFT_WAITING = 3
"""If the device has not begun this many calls when the recording ends, the loop runs ahead. This holds even if the
program waited for the first steps, such as the one that compiles."""


@dataclass(frozen=True, eq=False)
class StepBounds:
    """Where steps begin; each ends where the next one begins, and the last one is not whole."""

    mark: StepMark
    name: str
    begin_ps: Ints
    programs: tuple[ProgramsPerStep, ...] = ()


def find_steps(space: Space, host: HostThread, runs: Sequence[Run]) -> StepBounds:
    """Returns the steps; `mark` is "none" if nothing repeats."""
    marked = read_annotations(space)
    # Use the name with the most steps, because a program may also mark its evaluation.
    for name, count in Counter(step.name for step in marked).most_common(1):
        if count >= LEAST_CALLS:
            begin = np.array([round(step.start_s * PS) for step in marked if step.name == name], np.int64)
            return StepBounds("annotation", name, begin, _programs(_count_calls(host, begin), begin))
    found = islice(chain(_of_calls(host, runs), _of_runs(runs)), MOST_TRIED)
    name, begin = next((one for one in found if _do_the_same(one[1], runs)), ("", np.zeros(0, np.int64)))
    if not name:
        return StepBounds("none", "", begin)
    # If the loop runs ahead, calls between two steps of the device belong to later steps.
    is_of_device = len(begin) > 0 and not np.isin(begin, host.call_start).any()
    counts = dict(busiest_programs(runs, begin[0], begin[-1])) if is_of_device else _count_calls(host, begin)
    return StepBounds("program", name, begin, _programs(counts, begin))


def _do_the_same(begin: Ints, runs: Sequence[Run]) -> bool:
    """Are these the steps of a loop, by what a device did in them? Yes, where its runs are not known, as on GPU."""
    # The recording can end after the device has begun only one or two of many calls.
    if len(begin) < LEAST_CALLS or not runs:
        return len(begin) >= LEAST_CALLS
    if len(begin) > LEAST_CALLS:
        begin = begin[1:]  # the first step has what sets a loop up
    mine = on_busiest_device(runs)
    step = np.searchsorted(begin, [int(run.start_s * PS) for run in mine], side="right") - 1
    n_steps = len(begin) - 1
    inside, modules = (step >= 0) & (step < n_steps), np.array([run.module for run in mine])
    often = Counter(module for module, _ in set(zip(modules[inside].tolist(), step[inside].tolist(), strict=True)))
    is_usual = np.isin(modules, [module for module, n in often.items() if n > n_steps / 2])
    worked = np.array([run.device_s for run in mine])
    same = float(worked[inside & is_usual].sum())
    # The first run of a program can take a hundred times as long as the next ones, and says nothing about the loop.
    others = worked[~(is_usual & (step < 0))]
    return same >= SAME_INSIDE * float(worked[inside].sum()) and same >= SAME_IN_ALL * float(others.sum())


def read_annotations(space: Space) -> list[Step]:
    """Returns the steps that the program marked with `jax.profiler.StepTraceAnnotation`, in order."""
    number, has_number = space.number("step_num")
    _, is_root = space.number("_r")
    found = [
        Step(space.name_of(at), int(number[at]), int(space.start_ps[at]) / PS, int(space.duration_ps[at]) / PS)
        for at in np.flatnonzero(has_number & is_root & space.is_host).tolist()
    ]
    return sorted(found, key=lambda step: step.start_s)


def _of_calls(host: HostThread, runs: Sequence[Run]) -> Iterator[tuple[str, Ints]]:
    """(program, where its steps begin), those that most of the time goes into first."""
    count = np.bincount(host.call_name, minlength=len(host.names))
    repeating = [i for i in range(len(host.names)) if count[i] >= LEAST_CALLS]
    cost = {i: _usual_ps(host, i, runs) * int(count[i]) for i in repeating}
    end = int(host.call_end.max(initial=0))
    going_on = {i: goes_on(host.call_start[host.call_name == i], int(host.call_start[0]), end) for i in repeating}
    for anchor in sorted(repeating, key=lambda i: (not going_on[i], -cost[i])):
        at, name = np.flatnonzero(host.call_name == anchor), program_name(host.names[anchor])
        begin = _at_device(name, host.call_start[at], runs)
        chosen = np.isin(at, once_a_round(host.call_name, at))
        # If a loop runs ahead, the device can have begun fewer steps than were called.
        yield name, begin[chosen[: len(begin)]]


def _usual_ps(host: HostThread, call: int, runs: Sequence[Run]) -> float:
    """Returns the usual time of a call on the host and on devices. The first calls compile."""
    own = float(np.quantile((host.call_end - host.call_start)[host.call_name == call], 0.25))
    module = program_name(host.names[call])
    device = [run.device_s * PS for run in runs if run.module == module]
    return own + (float(np.median(device)) if device else 0.0)


def _of_runs(runs: Sequence[Run]) -> Iterator[tuple[str, Ints]]:
    """By what a device ran: programs that were compiled ahead of time leave no call with a name."""
    for name, count in busiest_programs(runs):
        if count >= LEAST_CALLS:
            yield name, _starts(name, runs)


def busiest_programs(
    runs: Sequence[Run], begin_ps: float = -math.inf, end_ps: float = math.inf
) -> list[tuple[str, int]]:
    """(program, how often it began between the two times), on the device that works most, the busiest one first."""
    spent, count = Counter[str](), Counter[str]()
    for run in on_busiest_device(runs):
        if begin_ps <= run.start_s * PS < end_ps:
            spent[run.module] += int(run.device_s * PS)
            count[run.module] += 1
    return [(name, count[name]) for name, _ in spent.most_common()]


def _at_device(name: str, begin: Ints, runs: Sequence[Run]) -> Ints:
    """The beginnings on the device, where most runs begin only after the next step has been begun."""
    starts = _starts(name, runs)
    # A program may end before its last runs, and the recording may start after the first calls.
    starts = starts[max(0, len(starts) - len(begin)) :]
    if len(starts) and len(begin) - len(starts) >= LEFT_WAITING:
        return starts
    if len(starts) < LEAST_CALLS:
        return begin
    return starts if np.mean(starts[:-1] > begin[1 : len(starts)]) > 0.5 else begin


def _starts(name: str, runs: Sequence[Run]) -> Ints:
    first = next((run.device for run in runs if run.module == name), "")
    return np.sort(np.array([int(r.start_s * PS) for r in runs if r.module == name and r.device == first], np.int64))


def _count_calls(host: HostThread, begin: Ints) -> dict[str, int]:
    inside = (host.call_start >= begin[0]) & (host.call_start < begin[-1])
    counts = np.bincount(host.call_name[inside], minlength=len(host.names))
    return {program_name(host.names[i]): n for i, n in enumerate(counts.tolist()) if n}


def _programs(counts: Mapping[str, int], begin: Ints) -> tuple[ProgramsPerStep, ...]:
    found = [ProgramsPerStep(name, n / (len(begin) - 1)) for name, n in counts.items()]
    return tuple(sorted(found, key=lambda one: -one.per_step))


StackOf = Mapping[str, tuple[SampledFrame, ...]]
"""The name of a program → the stack on which it was compiled last."""
LAYERS: tuple[PartKind, ...] = ("device", "compile", "transfer", "dispatch")
"""Topmost first."""
PARTS: tuple[PartKind, ...] = (*LAYERS, "input", "python", "waiting", "unknown", "unseen")
LEAST_STEPS = 3
"""Beginnings of steps: the first step is one, and a steady one."""
MOST_PS = np.iinfo(np.int64).max
LEAST_SAMPLES = 3
"""A line that was seen less often inside a single step is not told as its reason."""


def split(operations: Operations, runs: Sequence[Run]) -> StepSplit | None:
    """The split; None where the trace holds neither a call of a program nor a sample of the stack."""
    space = operations.space
    marks = list(read_compile_marks(space))
    stack_of = {mark.program: mark.stack for mark in marks if mark.kind == "compile" and mark.stack}
    host, samples = read_host_thread(space, marks), read_samples(space)
    if not len(operations) and len(samples.time_ps) < LEAST_SAMPLES:
        return None
    bounds = find_steps(space, host, runs)
    layers = stack_layers(operations, host)
    begin, end, warm_up = _steady(bounds, layers, operations, host, samples)
    lengths = layers.lengths(begin, end)
    anchor = stack_of.get(bounds.name, ())
    seen = sample_python(samples, layers, host, begin, end, anchor, busy_in_python(samples, lengths, begin, end))
    # A wait for a program or transfer that was requested but has not begun is a wait for JAX's threads.
    is_waiting = seen.kinds == "waiting"
    seen.kinds[is_waiting & pending(host, runs).holds(samples.time_ps)] = "dispatch"
    seen.kinds[is_waiting & host.queued.holds(samples.time_ps)] = "transfer"
    may_be_in_call = np.isin(seen.kinds, ("python", "waiting", "dispatch"))
    seen.kinds[may_be_in_call & in_calls_not_held(operations, samples)] = "unknown"
    parts = _parts(lengths, layers, samples, seen, begin, end, host, stack_of)
    hottest, share = _hottest(operations, begin, end)
    return StepSplit(
        mark=bounds.mark,
        name=bounds.name,
        lengths_s=tuple(((end - begin) / PS).tolist()),
        parts=parts,
        called_at=user_line(anchor) if bounds.mark == "program" else "",
        first=_one(0, layers.lengths(bounds.begin_ps[:1], bounds.begin_ps[1:2])[:, 0], lengths.mean(axis=1))
        if warm_up
        else None,
        warm_up=warm_up,
        slowest=_slowest(warm_up, begin, end, layers, lengths, samples, host),
        programs=bounds.programs,
        first_compile_s=sum(mark.elapsed_us for mark in marks if mark.is_before) / 1e6 if marks else None,
        compiling_steps=int((lengths[LAYERS.index("compile")] > 0).sum()) if bounds.mark != "none" else 0,
        samples=int(((samples.time_ps >= begin[0]) & (samples.time_ps < end[-1])).sum()),
        sampler_share=samples.cost_share,
        events_per_step=space.count_events(int(begin[0]), int(end[-1])) / len(begin),
        hottest=hottest,
        hottest_share=share,
    )


def in_calls_not_held(found: Operations, samples: StackSamples) -> NDArray[np.bool_]:
    """Finds the samples that can be of a call that is not in the trace: the work of the device is unknown then.

    On CPU the trace has only events that begin and end in it. A loop of small operations is one event since jax 0.11,
    and runs in the thread that called. So a call that lasts beyond the recording looks like a line of Python. There the
    stack stays the same up to the end of the recording, or from its beginning on, without any event of JAX.
    """
    nothing = np.zeros(len(samples.time_ps), np.bool_)
    if not len(nothing) or any(plane.name.startswith("/device:") for plane in found.space.planes):
        return nothing
    at = found.space.find(lambda name: not name.startswith(OURS))
    begin = found.space.start_ps[at].min(initial=MOST_PS)
    end = found.space.end_ps[at].max(initial=found.end_ps.max(initial=-1))
    # Python's own modules do not call compiled programs. Nor does code that a sample found between two iterations.
    may = [bool(stack) and stack[0].owner != "python" and not stack[0].is_jumping for stack in samples.stacks]
    may_call = np.array(may)[samples.stack]
    lead = np.logical_and.accumulate(samples.stack == samples.stack[0])
    trail = np.logical_and.accumulate(samples.stack[::-1] == samples.stack[-1])[::-1]
    return may_call & ((lead & (samples.time_ps < begin)) | (trail & (samples.time_ps > end)))


def _steady(
    bounds: StepBounds, layers: StepLayers, found: Operations, host: HostThread, samples: StackSamples
) -> tuple[Ints, Ints, int]:
    """(beginnings, ends, how many steps before them are left out)."""
    begin = bounds.begin_ps
    if len(begin) < LEAST_STEPS:
        # Use the samples of the whole recording: with steps of minutes, it contains little else.
        first = [int(times.min()) for times in (found.start_ps, host.call_start, samples.time_ps) if len(times)]
        last = [int(times.max()) for times in (found.end_ps, samples.time_ps) if len(times)]
        return np.array([min(first)]), np.array([max(last)]), 0
    compiling = layers.lengths(begin[:-1], begin[1:])[LAYERS.index("compile")] > 0
    # The first step, and the following ones that compile again: the loop is settling. If all steps compile, that is its
    # normal state.
    settled = np.flatnonzero(~compiling[1:])
    warm_up = 1 + int(settled[0]) if len(settled) and settled[0] < len(compiling) / 2 else 1
    return begin[warm_up:-1], begin[warm_up + 1 :], warm_up


# ---- layers -----------------------------------------------------------------------------------------------------

_COPY = "Memcpy"
"""Begins what CUPTI calls the device time of a transfer: MemcpyH2D."""


@dataclass(frozen=True, eq=False)
class StepLayers:
    """The topmost layer at each time."""

    united: tuple[Coverage, ...]
    """The time of each layer together with the layers above it."""
    own: tuple[Coverage, ...]

    def lengths(self, begin: Ints, end: Ints) -> NDArray[np.int64]:
        """A row for each layer, and one for what no layer covers; a column for each stretch."""
        reached = [np.zeros(len(begin), np.int64), *(one.length_between(begin, end) for one in self.united)]
        return np.diff(np.stack([*reached, end - begin]), axis=0)

    def at(self, times: Ints) -> NDArray[np.int64]:
        """Which layer is topmost at each moment; `len(LAYERS)` for none."""
        found = np.full(len(times), len(self.own))
        for i in reversed(range(len(self.own))):
            found[self.own[i].holds(times)] = i
        return found


def stack_layers(found: Operations, host: HostThread) -> StepLayers:
    first, kind = found.kinds
    is_copy = np.array([found.name_of(at).startswith(_COPY) for at in first.tolist()], np.bool_)[kind] & (
        found.module == 0
    )
    work = unite(found.start_ps[~is_copy], found.end_ps[~is_copy])
    copies = unite(found.start_ps[is_copy], found.end_ps[is_copy])
    own = (work, host.compiles, unite_all(host.transfers, copies), host.jax)
    return StepLayers(tuple(itertools.accumulate(own, unite_all)), own)


def pending(host: HostThread, runs: Sequence[Run]) -> Coverage:
    """When programs had been called and were not yet done on the first device: calls and runs in their order."""
    by_module = group_by((run for run in runs if run.device == runs[0].device), lambda run: run.module)
    starts, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for i, name in enumerate(host.names):
        called, mine = host.call_end[host.call_name == i], by_module.get(program_name(name), [])
        both = min(len(called), len(mine))
        starts.append(called[len(called) - both :])
        ended = [int((run.start_s + run.device_s) * PS) for run in mine[len(mine) - both :]]
        ends.append(np.array(ended, np.int64))
    return unite(np.concatenate(starts), np.concatenate(ends))


# ---- parts ------------------------------------------------------------------------------------------------------


def _parts(
    lengths: NDArray[np.int64],
    layers: StepLayers,
    samples: StackSamples,
    seen: SampledPython,
    begin: Ints,
    end: Ints,
    host: HostThread,
    stack_of: StackOf,
) -> tuple[StepPart, ...]:
    whole = float((end - begin).sum())
    is_steady = (samples.time_ps >= begin[0]) & (samples.time_ps < end[-1]) & (samples.late_ps <= LATE_PS)
    top = layers.at(samples.time_ps)
    weight_ps, kinds = seen.weight_ps.copy(), np.where(seen.weight_ps > 0, seen.kinds, "")
    for i, kind in enumerate(LAYERS):
        chosen = is_steady & (top == i)
        kinds[chosen], weight_ps[chosen] = kind, lengths[i].sum() / max(1, chosen.sum())
    found: list[StepPart] = []
    for i, kind in enumerate(PARTS):
        spent = float(seen.weight_ps[kinds == kind].sum())
        spent += float(lengths[i].sum()) if kind in LAYERS else seen.unseen_ps if kind == "unseen" else 0.0
        if spent:
            compiled = _compiled_at(host, stack_of, begin, end, spent / whole) if kind == "compile" else ()
            lines = compiled or list_lines(samples, np.flatnonzero(kinds == kind), seen, weight_ps, spent / whole)
            found.append(StepPart(kind, spent / len(begin) / PS, spent / whole, lines))
    return tuple(sorted(found, key=lambda part: -part.share))


def _compiled_at(host: HostThread, stack_of: StackOf, begin: Ints, end: Ints, share: float) -> tuple[PartLine, ...]:
    """Where the functions are called that were compiled again."""
    spent = Counter[str]()
    for name, start, stop in zip(host.call_name.tolist(), host.call_start, host.call_end, strict=True):
        if begin[0] <= start < end[-1] and host.compiles.holds(np.array([(start + stop) // 2]))[0]:
            spent[program_name(host.names[name])] += int(stop - start)
    own = {name: next((f for f in stack_of.get(name, ()) if f.owner == "user"), None) for name in spent}
    return tuple(
        PartLine(frame.place, frame.function, share * amount / spent.total(), name)
        for name, amount in spent.most_common(MOST_LINES)
        if (frame := own[name]) is not None
    )


def _hottest(found: Operations, begin: Ints, end: Ints) -> tuple[str, float]:
    """Returns (line, its share of the devices' work in the steady steps, including work without a known line)."""
    first, kind = found.kinds
    chosen = (found.start_ps >= begin[0]) & (found.start_ps < end[-1])
    spent = Counter[str]()
    for at, own in zip(first.tolist(), np.bincount(kind[chosen], found.self_ps[chosen], len(first)), strict=True):
        program, line = found.instruction(at)
        spent[program.user_line(line) if program and line else ""] += int(own)
    name = max((line for line in spent if line), key=lambda one: spent[one], default="")
    return (name, spent[name] / spent.total()) if name and spent.total() else ("", 0.0)


# ---- single steps -----------------------------------------------------------------------------------------------

_KINDS: tuple[PartKind, ...] = (*LAYERS, "unseen")


def _one(index: int, mine: NDArray[np.int64], usual: NDArray[np.float64]) -> OneStep:
    more = mine - usual
    at = int(more.argmax())
    parts: tuple[tuple[PartKind, float], ...] = tuple((k, int(mine[i]) / PS) for i, k in enumerate(_KINDS) if mine[i])
    return OneStep(index, int(mine.sum()) / PS, parts, _KINDS[at], float(more[at]) / PS)


def _slowest(
    warm_up: int,
    begin: Ints,
    end: Ints,
    layers: StepLayers,
    lengths: NDArray[np.int64],
    samples: StackSamples,
    host: HostThread,
) -> OneStep | None:
    if len(begin) < LEAST_STEPS:
        return None
    at = int((end - begin).argmax())
    usual = np.median(lengths, axis=1)
    found = _one(at + warm_up, lengths[:, at], usual)
    inside = (samples.time_ps >= begin[at]) & (samples.time_ps < end[at])
    inside &= layers.at(samples.time_ps) == _KINDS.index(found.more or "unseen")
    lines = Counter(user_line(samples.stacks[i]) for i in samples.stack[inside].tolist())
    where, often = (lines.most_common(1) or [("", 0)])[0]
    others = _only_called_in(host, begin, end, at) if found.more in ("device", "dispatch") else ()
    return replace(found, where=where if often >= LEAST_SAMPLES else "", others=others)


def _only_called_in(host: HostThread, begin: Ints, end: Ints, at: int) -> tuple[ProgramsPerStep, ...]:
    """Programs that were called in this step, and in most others not: an evaluation between two steps of training."""
    step = np.searchsorted(begin, host.call_start, side="right") - 1
    inside = (step >= 0) & (host.call_start < end[-1])
    calls = [np.bincount(step[inside & (host.call_name == i)], minlength=len(begin)) for i in range(len(host.names))]
    found = [
        ProgramsPerStep(program_name(name), int(count[at]))
        for name, count in zip(host.names, calls, strict=True)
        if count[at] and np.median(count) == 0
    ]
    return tuple(sorted(found, key=lambda one: -one.per_step))


# ---- samples of the program's own Python ------------------------------------------------------------------------

MOST_LINES = 5
"""A limit of the display."""
ON_PROCESSOR = 0.5
"""A thread that had the processor for less than this share of the time was waiting."""
LATE_PS = int(0.002 * PS)
"""A sample that comes later than this may be of another piece of the program than the one in which it was due."""
MOST_PIECES = 8
"""Up to this many pieces of Python between the same two calls are distinguished."""
LOADERS = ("queue.py", "connection.py", "selectors.py", "socket.py", "dataloader.py", "prefetch.py")
"""Files in which a thread that is off the processor waits for input."""


@dataclass(frozen=True, eq=False)
class SampledPython:
    """The samples of the program's own Python: their shares of it, and the time that each represents."""

    weight_ps: NDArray[np.float64]
    """How much of the Python inside the steps each sample stands for."""
    kinds: NDArray[np.str_]
    """A `PartKind` each."""
    on_processor: NDArray[np.float64]
    """The share of the time since the previous sample. NaN if that time is not in one piece of Python."""
    unseen_ps: float


def sample_python(
    samples: StackSamples,
    layers: StepLayers,
    host: HostThread,
    begin: Ints,
    end: Ints,
    anchor: tuple[SampledFrame, ...],
    on_average: float,
) -> SampledPython:
    """Spreads the Python of the steps over the samples in it, piece by piece.

    Args:
        on_average: the average share on the processor, for lines without two samples that show it.
    """
    pieces = layers.united[-1].gaps(int(begin[0]), int(end[-1]))
    if not len(pieces):
        count = len(samples.time_ps)
        return SampledPython(np.zeros(count), np.full(count, "unseen", "U8"), np.full(count, np.nan), 0.0)
    same_place, same_calls = _between(pieces, host)
    size = pieces.end - pieces.start
    due_ps = samples.time_ps - np.minimum(samples.late_ps, LATE_PS)
    usable = pieces.holds(samples.time_ps) & (pieces.index(samples.time_ps) == pieces.index(due_ps))
    usable &= samples.late_ps <= np.maximum(LATE_PS, size[np.maximum(pieces.index(samples.time_ps), 0)])
    at = pieces.index(samples.time_ps)[usable]
    in_piece = np.bincount(at, minlength=len(pieces))
    per_ps, is_reached = _spread(size, in_piece, same_place)
    # The device's work splits the Python time between two calls differently in each step.
    more_per_ps, is_reached_at_all = _spread(np.where(is_reached, 0, size), in_piece, same_calls, size)
    weight = np.zeros(len(samples.time_ps))
    weight[usable] = size[at] / in_piece[at] * (per_ps + more_per_ps)[at]
    unseen = float(size[~is_reached & ~is_reached_at_all].sum())
    piece = np.where(usable, pieces.index(samples.time_ps), -1)
    is_known = (piece >= 0) & (samples.cpu_us >= 0) & (piece == np.concatenate([[-1], piece[:-1]]))
    on_processor = np.where(is_known, np.minimum(1.0, samples.cpu_us / np.maximum(samples.since_us, 1)), np.nan)
    return SampledPython(weight, _kinds(samples, on_processor, anchor, on_average), on_processor, unseen)


def _spread(
    size: Ints, in_piece: Ints, key: Ints, of_sampled: Ints | None = None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(how much of `size` a picosecond of a sampled piece stands for, has the key of each piece any sample)."""
    total = np.bincount(key, size)
    is_sampled = in_piece > 0
    sampled = np.bincount(key[is_sampled], (size if of_sampled is None else of_sampled)[is_sampled], len(total))
    return (total / np.maximum(sampled, 1))[key], (sampled > 0)[key]


def _between(pieces: Coverage, host: HostThread) -> tuple[Ints, Ints]:
    """Returns two numbers for each piece of Python: its position between two calls, and the pair of calls around it."""
    before = np.searchsorted(host.call_end, pieces.start, side="right") - 1
    after = np.searchsorted(host.call_start, pieces.end, side="left")
    # Behind the last call, and before the first one, is the end of this.
    name = np.concatenate([host.call_name, [len(host.names)]])
    # Several pieces are between the same two calls, such as before and after a wait. Their place distinguishes them.
    is_first = np.concatenate([[True], before[1:] != before[:-1]])
    slot = np.arange(len(pieces)) - np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    both = name[before] * (len(host.names) + 1) + name[after]
    _, numbers = np.unique(both, return_inverse=True)
    return numbers * MOST_PIECES + np.minimum(slot, MOST_PIECES - 1), numbers


def _kinds(
    samples: StackSamples, on_processor: NDArray[np.float64], anchor: tuple[SampledFrame, ...], on_average: float
) -> NDArray[np.str_]:
    """Returns the kind of each sample's stretch of Python."""
    known = np.flatnonzero(~np.isnan(on_processor))
    count = np.bincount(samples.stack[known], minlength=len(samples.stacks))
    total = np.bincount(samples.stack[known], on_processor[known], len(samples.stacks))
    shares = np.where(count, total / np.maximum(count, 1), on_average).tolist()
    outer = [frame for frame in anchor if frame.owner == "user"] if anchor else _common(samples.stacks)
    kind_of = [_kind(stack, share, outer) for stack, share in zip(samples.stacks, shares, strict=True)]
    return np.array(kind_of, "U8")[samples.stack]


def _kind(stack: Sequence[SampledFrame], on_processor: float, anchor: Sequence[SampledFrame]) -> PartKind:
    """`anchor`: the user's frames around the loop."""
    if not stack:
        return "unseen"
    is_waiting = on_processor < ON_PROCESSOR  # of NaN, not known, it is not
    library = list(itertools.takewhile(lambda frame: frame.owner != "user", stack))
    if any(frame.owner == "jax" for frame in library):
        return "dispatch"
    own = [frame for frame in stack if frame.owner == "user"]
    shared = _shared(own, anchor)
    # Include the frame that begins the steps: `step(w, next(batches))` is one line.
    inner = own[: len(own) - shared]
    is_same_line = 0 < shared == len(anchor)
    loop = [*inner[-1:], *(own[len(own) - shared :][:1] if is_same_line else ())]
    is_loading = any(frame.is_iterating for frame in inner) or any(frame.file.endswith(LOADERS) for frame in library)
    if any(frame.is_iterating for frame in loop) or (is_waiting and is_loading):
        return "input"
    return "waiting" if is_waiting else "python"


def _shared(own: Sequence[SampledFrame], anchor: Sequence[SampledFrame]) -> int:
    """Counts the frames, from the outermost on, that are at the same call as when a step begins.

    The loop's own frame does not count: its line differs.
    """
    pairs = zip(reversed(own), reversed(anchor), strict=False)
    return len(list(itertools.takewhile(lambda pair: pair[0][:3] == pair[1][:3], pairs)))  # file, line, function


def _common(stacks: Sequence[tuple[SampledFrame, ...]]) -> list[SampledFrame]:
    """Where it is not known where a step begins: the calls that all samples share."""
    own = [frames for stack in stacks if (frames := [frame for frame in stack if frame.owner == "user"])]
    least = own[0] if own else []
    for other in own[1:]:
        least = least[len(least) - _shared(other, least) :]
    return least


def list_lines(
    samples: StackSamples, chosen: Ints, seen: SampledPython, weight: NDArray[np.float64], share: float
) -> tuple[PartLine, ...]:
    """The user's lines of these samples, which stand for `share` of a step."""
    own = [_own_line(stack) for stack in samples.stacks]
    groups = group_by(chosen.tolist(), lambda i: own[samples.stack[i]][:2])
    groups.pop(("", ""), None)
    spent = Counter({key: float(weight[at].sum()) for key, at in groups.items()})
    found: list[PartLine] = []
    for (source, function), amount in spent.most_common(MOST_LINES):
        at = groups[source, function]
        called = Counter(own[samples.stack[i]][2] for i in at)
        del called[""]
        used = seen.on_processor[at]
        used = used[~np.isnan(used)]
        within = called.most_common(1)[0][0] if called else ""
        on_processor = float(used.mean()) if len(used) else None
        found.append(PartLine(source, function, share * amount / spent.total(), within, len(at), on_processor))
    return tuple(found)


def _own_line(stack: tuple[SampledFrame, ...]) -> tuple[str, str, str]:
    """(the user's innermost line, its function, what that has called). Without such a line they are empty."""
    own = next((i for i, frame in enumerate(stack) if frame.owner == "user"), None)
    if own is None:
        return "", "", ""
    called = f"{stack[own - 1].place} {stack[own - 1].function}" if own else ""
    return stack[own].place, stack[own].function, called


def busy_in_python(samples: StackSamples, lengths: NDArray[np.int64], begin: Ints, end: Ints) -> float:
    """Returns the share of the program's own Python in which the thread was on the processor. It is NaN if unknown.

    The function takes the thread's processor time in the steps and subtracts JAX's own work. It assumes that JAX's own
    work is always on the processor.
    """
    inside = (samples.time_ps >= begin[0]) & (samples.time_ps < end[-1]) & (samples.cpu_us >= 0)
    since = float(samples.since_us[inside].sum())
    python = float(lengths[-1].sum())
    if not since or not python:
        return math.nan
    used = float(samples.cpu_us[inside].sum()) / since * float(lengths.sum())
    of_jax = float(lengths[LAYERS.index("compile")].sum() + lengths[LAYERS.index("dispatch")].sum())
    return min(1.0, max(0.0, used - of_jax) / python)
