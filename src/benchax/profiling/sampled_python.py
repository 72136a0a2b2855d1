"""The stack samples of a program's own Python: its lines, what they wait for, and whether they are on a processor.

A piece of Python is the time between two calls of JAX. A piece that is too short for a sample gets the lines of other
pieces between the same two calls. These are the same lines of the loop. If no such piece has a sample, its time is
unseen.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from benchax.profiling.coverage import Coverage
from benchax.profiling.host_thread import HostThread, StackSamples
from benchax.profiling.runs import PS
from benchax.profiling.stack_samples import SampledFrame
from benchax.profiling.step_layers import LAYERS, StepLayers
from benchax.protobuf import Ints
from benchax.results.steps import PartKind, PartLine

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
