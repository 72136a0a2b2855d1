"""Splits the steps of a trace: where the time of a training loop goes.

`step_bounds.py` finds the steps, `step_layers.py` says what is topmost when, and `sampled_python.py` what the rest is,
which is the program's own Python. Here they are added up: over the steady steps, the first one, and the slowest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchax.profiling.host_thread import (
    CompileMarks,
    HostThread,
    StackSamples,
    program_name,
    read_compile_marks,
    read_host_thread,
    read_samples,
)
from benchax.profiling.operations import Operations
from benchax.profiling.runs import PS
from benchax.profiling.sampled_python import (
    LATE_PS,
    MOST_LINES,
    SampledPython,
    busy_in_python,
    list_lines,
    sample_python,
)
from benchax.profiling.space import Space, count_events
from benchax.profiling.stack_samples import SampledFrame
from benchax.profiling.step_bounds import StepBounds, find_steps
from benchax.profiling.step_layers import LAYERS, StepLayers, pending, stack_layers
from benchax.protobuf import Ints
from benchax.results.profile import Run
from benchax.results.steps import OneStep, PartKind, PartLine, ProgramsPerStep, StepPart, StepSplit

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
    marks = read_compile_marks(space)
    host, samples = read_host_thread(space, marks), read_samples(space)
    if not len(operations) and len(samples.time_ps) < LEAST_SAMPLES:
        return None
    bounds = find_steps(space, host, runs)
    layers = stack_layers(operations, host)
    begin, end, warm_up = _steady(bounds, layers, operations, host, samples)
    lengths = layers.lengths(begin, end)
    anchor = marks.stack_of.get(bounds.name, ())
    seen = sample_python(samples, layers, host, begin, end, anchor, busy_in_python(samples, lengths, begin, end))
    # Who waits for a program, or a transfer, that was asked for and has not begun waits for JAX's threads.
    is_queued = host.queued.holds(samples.time_ps).tolist()
    is_pending = pending(host, runs).holds(samples.time_ps).tolist()
    told = [
        kind if kind != "waiting" else "transfer" if queued else "dispatch" if late else kind
        for kind, queued, late in zip(seen.kinds, is_queued, is_pending, strict=bool(seen.kinds))
    ]
    seen = replace(seen, kinds=told)
    parts = _parts(lengths, layers, samples, seen, begin, end, host, marks)
    hottest, share = _hottest(operations, sources, begin, end)
    return StepSplit(
        mark=bounds.mark,
        name=bounds.name,
        lengths_s=tuple(((end - begin) / PS).tolist()),
        parts=parts,
        called_at=_place(anchor) if bounds.mark == "program" else "",
        first=_first(bounds, layers, lengths) if warm_up else None,
        warm_up=warm_up,
        slowest=_slowest(warm_up, begin, end, layers, lengths, samples, host),
        programs=bounds.programs,
        first_compile_s=None if marks.before_us is None else marks.before_us / 1e6,
        compiling_steps=int((lengths[LAYERS.index("compile")] > 0).sum()) if bounds.mark != "none" else 0,
        samples=int(((samples.time_ps >= begin[0]) & (samples.time_ps < end[-1])).sum()),
        sampler_share=samples.cost_share,
        events_per_step=count_events(space, int(begin[0]), int(end[-1])) / len(begin),
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


# ---- parts ------------------------------------------------------------------------------------------------------


def _parts(
    lengths: NDArray[np.int64],
    layers: StepLayers,
    samples: StackSamples,
    seen: SampledPython,
    begin: Ints,
    end: Ints,
    host: HostThread,
    marks: CompileMarks,
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
    if sums["compile"] and (compiled := _compiled_at(host, marks, begin, end, sums["compile"] / whole)):
        lines["compile"] = compiled
    found = [
        StepPart(kind, spent / count / PS, spent / whole, lines.get(kind, ())) for kind, spent in sums.items() if spent
    ]
    return tuple(sorted(found, key=lambda part: -part.share))


def _compiled_at(host: HostThread, marks: CompileMarks, begin: Ints, end: Ints, share: float) -> tuple[PartLine, ...]:
    """Where the functions are called that were compiled again."""
    spent = Counter[str]()
    for name, start, stop in zip(host.call_name.tolist(), host.call_start, host.call_end, strict=True):
        if begin[0] <= start < end[-1] and host.compiles.holds(np.array([(start + stop) // 2]))[0]:
            spent[program_name(host.names[name])] += int(stop - start)
    whole = sum(spent.values())
    found: list[PartLine] = []
    for name, amount in spent.most_common(MOST_LINES):
        own = next((frame for frame in marks.stack_of.get(name, ()) if frame.owner == "user"), None)
        if own is not None:
            found.append(PartLine(own.place, own.function, share * amount / whole, name))
    return tuple(found)


def _place(stack: tuple[SampledFrame, ...]) -> str:
    return next((frame.place for frame in stack if frame.owner == "user"), "")


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
        lines[_place(samples.stacks[int(samples.stack[i])])] += 1
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
