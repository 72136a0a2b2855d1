"""Splits the steps of a trace: where the time of a training loop goes.

`step_bounds.py` finds the steps. At each moment the topmost layer counts: a device at work, a compilation, a transfer,
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
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from benchax.profiling.events import Space
from benchax.profiling.host_thread import HostThread, StackSamples, read_host_thread, read_samples
from benchax.profiling.marks import SampledFrame, program_name, read_compile_marks, user_line
from benchax.profiling.operations import Operations
from benchax.profiling.runs import PS
from benchax.profiling.spans import Coverage, unite, unite_all
from benchax.profiling.step_bounds import StepBounds, find_steps
from benchax.protobuf import Ints
from benchax.results.profile import OneStep, PartKind, PartLine, ProgramsPerStep, Run, StepPart, StepSplit

StackOf = Mapping[str, tuple[SampledFrame, ...]]
"""The name of a program → the stack on which it was compiled last."""
LAYERS: tuple[PartKind, ...] = ("device", "compile", "transfer", "dispatch")
"""Topmost first."""
LEAST_STEPS = 3
"""Beginnings of steps: the first step is one, and a steady one."""
LEAST_SAMPLES = 3
"""A line that was seen less often inside a single step is not told as its reason."""


def split(space: Space, operations: Operations, runs: Sequence[Run], sources: Sequence[str] = ()) -> StepSplit | None:
    """The split; None where the trace holds neither a call of a program nor a sample of the stack.

    Args:
        space: the trace.
        operations: all of them.
        runs: of all programs.
        sources: the line of the program of each operation, empty where it has none; none at all: not known.
    """
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
    # Who waits for a program, or a transfer, that was asked for and has not begun waits for JAX's threads.
    is_queued = host.queued.holds(samples.time_ps).tolist()
    is_pending = pending(host, runs).holds(samples.time_ps).tolist()
    told = [
        kind if kind != "waiting" else "transfer" if queued else "dispatch" if late else kind
        for kind, queued, late in zip(seen.kinds, is_queued, is_pending, strict=bool(seen.kinds))
    ]
    seen = replace(seen, kinds=told)
    parts = _parts(lengths, layers, samples, seen, begin, end, host, stack_of)
    hottest, share = _hottest(operations, sources, begin, end)
    return StepSplit(
        mark=bounds.mark,
        name=bounds.name,
        lengths_s=tuple(((end - begin) / PS).tolist()),
        parts=parts,
        called_at=user_line(anchor) if bounds.mark == "program" else "",
        first=_first(bounds, layers, lengths) if warm_up else None,
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


def _steady(
    bounds: StepBounds, layers: StepLayers, found: Operations, host: HostThread, samples: StackSamples
) -> tuple[Ints, Ints, int]:
    """(beginnings, ends, how many steps before them are left out)."""
    begin = bounds.begin_ps
    if len(begin) < LEAST_STEPS:
        # With the samples, all of the recording: of steps that take minutes it holds little else.
        first = [int(times.min()) for times in (found.start_ps, host.call_start, samples.time_ps) if len(times)]
        last = [int(times.max()) for times in (found.end_ps, samples.time_ps) if len(times)]
        return np.array([min(first)]), np.array([max(last)]), 0
    compiling = layers.lengths(begin[:-1], begin[1:])[LAYERS.index("compile")] > 0
    # The first step, and those behind it that compile again: it settles. Where all do, that is how this loop is.
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
    codes = [i for i, text in enumerate(found.texts) if text.startswith(_COPY)]
    is_copy = np.isin(found.name, codes) & (found.module < 0)
    work = unite(found.start_ps[~is_copy], found.end_ps[~is_copy])
    copies = unite(found.start_ps[is_copy], found.end_ps[is_copy])
    own = (work, host.compiles, unite_all(host.transfers, copies), host.jax)
    return StepLayers(tuple(itertools.accumulate(own, unite_all)), own)


def pending(host: HostThread, runs: Sequence[Run]) -> Coverage:
    """When programs had been called and were not yet done on the first device: calls and runs in their order."""
    starts, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    by_module: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.device == runs[0].device:
            by_module[run.module].append(run)
    for i, name in enumerate(host.names):
        called = host.call_end[host.call_name == i]
        mine = by_module.get(program_name(name), [])
        both = min(len(called), len(mine))
        if both:
            starts.append(called[-both:])
            ends.append(np.array([int((run.start_s + run.device_s) * PS) for run in mine[-both:]], np.int64))
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
    count, whole = len(begin), float((end - begin).sum())
    sums: dict[PartKind, float] = {kind: float(lengths[i].sum()) for i, kind in enumerate(LAYERS)}
    lines: dict[PartKind, tuple[PartLine, ...]] = {}
    is_steady = (samples.time_ps >= begin[0]) & (samples.time_ps < end[-1])
    top = layers.at(samples.time_ps)
    for i, kind in enumerate(LAYERS):
        chosen = np.flatnonzero(is_steady & (top == i) & (samples.late_ps <= LATE_PS))
        lines[kind] = list_lines(samples, chosen, seen, np.ones(len(samples.time_ps)), sums[kind] / whole)
    python: list[int] = np.flatnonzero(seen.weight_ps > 0).tolist()
    for kind in ("input", "python", "waiting", "transfer", "dispatch", "unseen"):
        chosen = np.array([i for i in python if seen.kinds[i] == kind], np.int64)
        spent = float(seen.weight_ps[chosen].sum())
        sums[kind] = sums.get(kind, 0.0) + spent
        if kind not in LAYERS:
            lines[kind] = list_lines(samples, chosen, seen, seen.weight_ps, spent / whole)
    sums["unseen"] += seen.unseen_ps
    if sums["compile"] and (compiled := _compiled_at(host, stack_of, begin, end, sums["compile"] / whole)):
        lines["compile"] = compiled
    found = [
        StepPart(kind, spent / count / PS, spent / whole, lines.get(kind, ())) for kind, spent in sums.items() if spent
    ]
    return tuple(sorted(found, key=lambda part: -part.share))


def _compiled_at(host: HostThread, stack_of: StackOf, begin: Ints, end: Ints, share: float) -> tuple[PartLine, ...]:
    """Where the functions are called that were compiled again."""
    spent = Counter[str]()
    for name, start, stop in zip(host.call_name.tolist(), host.call_start, host.call_end, strict=True):
        if begin[0] <= start < end[-1] and host.compiles.holds(np.array([(start + stop) // 2]))[0]:
            spent[program_name(host.names[name])] += int(stop - start)
    whole = sum(spent.values())
    found: list[PartLine] = []
    for name, amount in spent.most_common(MOST_LINES):
        own = next((frame for frame in stack_of.get(name, ()) if frame.owner == "user"), None)
        if own is not None:
            found.append(PartLine(own.place, own.function, share * amount / whole, name))
    return tuple(found)


def _hottest(found: Operations, sources: Sequence[str], begin: Ints, end: Ints) -> tuple[str, float]:
    """Returns (line, its share of the devices' work in the steady steps, including work without a known line)."""
    if not sources:
        return "", 0.0
    spent = Counter[str]()
    own = found.self_ps
    for i in np.flatnonzero((found.start_ps >= begin[0]) & (found.start_ps < end[-1])).tolist():
        spent[sources[i]] += int(own[i])
    everything = sum(spent.values())
    name = max((line for line in spent if line), key=lambda one: spent[one], default="")
    return (name, spent[name] / everything) if name and everything else ("", 0.0)


# ---- single steps -----------------------------------------------------------------------------------------------

_KINDS: tuple[PartKind, ...] = (*LAYERS, "unseen")


def _first(bounds: StepBounds, layers: StepLayers, steady: NDArray[np.int64]) -> OneStep:
    begin, end = bounds.begin_ps[:1], bounds.begin_ps[1:2]
    return _one(0, layers.lengths(begin, end)[:, 0], steady.mean(axis=1))


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
    layer = _KINDS.index(found.more or "unseen")
    lines = Counter[str]()
    for i in np.flatnonzero(inside & (layers.at(samples.time_ps) == layer)).tolist():
        lines[user_line(samples.stacks[int(samples.stack[i])])] += 1
    where, often = (lines.most_common(1) or [("", 0)])[0]
    others = _only_called_in(host, begin, end, at) if found.more in ("device", "dispatch") else ()
    return replace(found, where=where if often >= LEAST_SAMPLES else "", others=others)


def _only_called_in(host: HostThread, begin: Ints, end: Ints, at: int) -> tuple[ProgramsPerStep, ...]:
    """Programs that were called in this step, and in most others not: an evaluation between two steps of training."""
    found: list[ProgramsPerStep] = []
    step = np.searchsorted(begin, host.call_start, side="right") - 1
    inside = (step >= 0) & (host.call_start < end[-1])
    for i, name in enumerate(host.names):
        calls = np.bincount(step[inside & (host.call_name == i)], minlength=len(begin))
        if calls[at] and np.median(calls) == 0:
            found.append(ProgramsPerStep(program_name(name), int(calls[at])))
    return tuple(sorted(found, key=lambda one: -one.per_step))


# ---- samples of the program's own Python ------------------------------------------------------------------------

MOST_LINES = 5
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
    kinds: list[PartKind]
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
        return SampledPython(np.zeros(len(samples.time_ps)), [], np.full(len(samples.time_ps), np.nan), 0.0)
    same_place, same_calls = _between(pieces, host)
    size = pieces.end - pieces.start
    due_ps = samples.time_ps - np.minimum(samples.late_ps, LATE_PS)
    usable = pieces.holds(samples.time_ps) & (pieces.index(samples.time_ps) == pieces.index(due_ps))
    usable &= samples.late_ps <= np.maximum(LATE_PS, size[np.maximum(pieces.index(samples.time_ps), 0)])
    at = pieces.index(samples.time_ps)[usable]
    in_piece = np.bincount(at, minlength=len(pieces))
    per_ps, is_reached = _spread(size, in_piece, same_place)
    # How the device's work cuts the Python between two calls differs from step to step.
    more_per_ps, is_reached_at_all = _spread(np.where(is_reached, 0, size), in_piece, same_calls, size)
    weight = np.zeros(len(samples.time_ps))
    weight[usable] = size[at] / in_piece[at] * (per_ps + more_per_ps)[at]
    unseen = float(size[~is_reached & ~is_reached_at_all].sum())
    piece = np.where(usable, pieces.index(samples.time_ps), -1)
    on_processor = _on_processor(samples, piece)
    return SampledPython(weight, _kinds(samples, on_processor, anchor, on_average), on_processor, unseen)


def _on_processor(samples: StackSamples, piece: Ints) -> NDArray[np.float64]:
    is_known = (piece >= 0) & (samples.cpu_us >= 0) & (piece == np.concatenate([[-1], piece[:-1]]))
    return np.where(is_known, np.minimum(1.0, samples.cpu_us / np.maximum(samples.since_us, 1)), np.nan)


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
    name = np.concatenate([host.call_name, [len(host.names)]])
    is_end = after >= len(host.call_name)
    names = name[np.maximum(before, 0)], np.where(is_end, len(host.names), name[np.minimum(after, len(name) - 1)])
    # Several pieces lie between the same two calls, as before and behind a wait: told apart by their place.
    slot = np.zeros(len(pieces), np.int64)
    same = np.concatenate([[False], before[1:] == before[:-1]])
    for i in np.flatnonzero(same).tolist():
        slot[i] = slot[i - 1] + 1
    both = names[0] * (len(host.names) + 1) + names[1]
    _, numbers = np.unique(both, return_inverse=True)
    return numbers * MOST_PIECES + np.minimum(slot, MOST_PIECES - 1), numbers


def _kinds(
    samples: StackSamples, on_processor: NDArray[np.float64], anchor: tuple[SampledFrame, ...], on_average: float
) -> list[PartKind]:
    """Returns the kind of each sample's stretch of Python."""
    by_stack: dict[int, list[float]] = defaultdict(list)
    for i in np.flatnonzero(~np.isnan(on_processor)).tolist():
        by_stack[int(samples.stack[i])].append(float(on_processor[i]))
    outer = anchor or _common(samples.stacks)
    kind_of = [
        _kind(stack, mean(by_stack[i]) if i in by_stack else on_average, outer)
        for i, stack in enumerate(samples.stacks)
    ]
    return [kind_of[i] for i in samples.stack.tolist()]


def _kind(stack: tuple[SampledFrame, ...], on_processor: float, anchor: tuple[SampledFrame, ...]) -> PartKind:
    if not stack:
        return "unseen"
    is_waiting = on_processor < ON_PROCESSOR  # of NaN, not known, it is not
    library = list(itertools.takewhile(lambda frame: frame.owner != "user", stack))
    if any(frame.owner == "jax" for frame in library):
        return "dispatch"
    own = [frame for frame in stack if frame.owner == "user"]
    shared = _shared(own, anchor)
    # With the frame that begins the steps: `step(w, next(batches))` is one line.
    inner = own[: len(own) - shared]
    is_same_line = 0 < shared == sum(frame.owner == "user" for frame in anchor)
    loop = [*inner[-1:], *(own[len(own) - shared :][:1] if is_same_line else ())]
    if any(frame.is_iterating for frame in loop) or (is_waiting and any(frame.is_iterating for frame in inner)):
        return "input"
    if is_waiting:
        return "input" if any(frame.file.endswith(LOADERS) for frame in library) else "waiting"
    return "python"


def _shared(own: Sequence[SampledFrame], anchor: Sequence[SampledFrame]) -> int:
    """Counts the frames, from the outermost on, that are at the same call as when a step begins.

    The loop's own frame does not count: its line differs.
    """
    theirs = [frame for frame in anchor if frame.owner == "user"]
    same = 0
    for mine, other in zip(reversed(own), reversed(theirs), strict=False):
        if (mine.file, mine.line, mine.function) != (other.file, other.line, other.function):
            break
        same += 1
    return same


def _common(stacks: Sequence[tuple[SampledFrame, ...]]) -> tuple[SampledFrame, ...]:
    """Where it is not known where a step begins: the calls that all samples share."""
    own = [[frame for frame in stack if frame.owner == "user"] for stack in stacks]
    own = [frames for frames in own if frames]
    if not own:
        return ()
    least = own[0]
    for other in own[1:]:
        same = _shared(other, least)
        least = least[len(least) - same :]
    return tuple(least)


def list_lines(
    samples: StackSamples, chosen: Ints, seen: SampledPython, weight: NDArray[np.float64], share: float
) -> tuple[PartLine, ...]:
    """The user's lines of these samples, which stand for `share` of a step."""
    spent, often = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    within: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    used: dict[tuple[str, str], list[float]] = defaultdict(list)
    for i in chosen.tolist():
        stack = samples.stacks[int(samples.stack[i])]
        own = next((frame for frame in stack if frame.owner == "user"), None)
        if own is None:
            continue
        key = own.place, own.function
        spent[key] += float(weight[i])  # pyright: ignore[reportArgumentType]
        often[key] += 1
        if stack[0] is not own:
            called = stack[stack.index(own) - 1]
            within[key][f"{called.place} {called.function}"] += 1
        if not np.isnan(seen.on_processor[i]):
            used[key].append(float(seen.on_processor[i]))
    everything = sum(spent.values())
    return tuple(
        PartLine(
            source,
            function,
            float(share * amount / everything),
            within[source, function].most_common(1)[0][0] if within[source, function] else "",
            often[source, function],
            mean(used[source, function]) if used[source, function] else None,
        )
        for (source, function), amount in spent.most_common(MOST_LINES)
    )


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
