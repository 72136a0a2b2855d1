"""What each function cost to trace, lower and compile, and which pass of XLA took longest.

From the marks that `program_recorder.py` leaves for each event of `jax.monitoring`, also for what was compiled before
the recording; passes are in the trace only for what was compiled while it was recorded. A pass belongs to the function
during whose compilation it ran; where two threads compile at once, to both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from benchax.errors import FormatError
from benchax.profiling.compiled_modules import CompiledModule
from benchax.profiling.host_thread import PS_PER_US, program_name
from benchax.profiling.operations import HOST
from benchax.profiling.program_size import program_size
from benchax.profiling.runs import PS
from benchax.profiling.space import Space, TraceLine
from benchax.profiling.spans import self_times
from benchax.profiling.stack_samples import COMPILED, decode
from benchax.results.profile import CompileCost

MOST_PASSES = 3


def compile_costs(space: Space, passes: set[str], known: Iterable[CompiledModule] = ()) -> tuple[CompileCost, ...]:
    """Most seconds first; empty where the trace has no marks.

    Args:
        passes: the names of XLA's passes, as `trace.compile_passes` found them.
        known: the programs that the trace carries.
    """
    modules: dict[str, list[CompiledModule]] = {}
    for module in known:
        modules.setdefault(program_name(module.name), []).append(module)
    plane = space.plane(HOST)
    lines = [line for line in plane.lines if len(line)] if plane else []
    spent: dict[str, Counter[str]] = {}
    calls, where = Counter[str](), dict[str, str]()
    spans: dict[str, list[tuple[int, int]]] = {}
    for line in lines:
        for kind, name, stack, elapsed_us, end_ps, is_before in _marks(line):
            spent.setdefault(name, Counter())[kind] += elapsed_us
            if kind == "compile":
                calls[name] += 1
                where[name] = _user_line(stack) or where.get(name, "")
                if not is_before:
                    spans.setdefault(name, []).append((end_ps - elapsed_us * PS_PER_US, end_ps))
    found = [
        CompileCost(
            name,
            where.get(name, ""),
            calls[name],
            kinds["trace"] / 1e6,
            kinds["lower"] / 1e6,
            kinds["compile"] / 1e6,
            _passes(lines, spans.get(name, []), passes),
            program_size(modules.get(name, ())),
        )
        for name, kinds in spent.items()
    ]
    return tuple(sorted(found, key=lambda one: -one.total_s))


def _marks(line: TraceLine) -> list[tuple[str, str, str, int, int, bool]]:
    names = {i: name.removeprefix(COMPILED) for i, name in line.names.items() if name.startswith(COMPILED)}
    at = np.flatnonzero(np.isin(line.name_id, list(names)))
    if not len(at):
        return []
    elapsed, before = line.number("elapsed_us")[0], line.number("before")[0]
    found: list[tuple[str, str, str, int, int, bool]] = []
    for i in at.tolist():
        kind, name, stack = [*names[int(line.name_id[i])].split(" ", 2), "", ""][:3]
        found.append((kind, program_name(name), stack, int(elapsed[i]), int(line.start_ps[i]), bool(before[i])))
    return found


def _user_line(stack: str) -> str:
    try:
        return next((frame.place for frame in decode(stack) if frame.owner == "user"), "")
    except FormatError:  # of another version
        return ""


def _passes(lines: list[TraceLine], spans: list[tuple[int, int]], passes: set[str]) -> tuple[tuple[str, float], ...]:
    """Those that took longest, without what ran inside of them."""
    lasted = Counter[str]()
    for line in lines if spans else []:
        ids = {i: short for i, name in line.names.items() if (short := name.partition(" (")[0]) in passes}
        at = np.flatnonzero(np.isin(line.name_id, list(ids)))
        start, length = line.start_ps[at], line.duration_ps[at]
        order = np.lexsort((-length, start))
        at, start, length = at[order], start[order], length[order]
        own, _ = self_times([0] * len(at), start.tolist(), (start + length).tolist())
        for begin, end in spans:
            first, last = np.searchsorted(start, [begin, end])
            for i in range(int(first), int(last)):
                lasted[ids[int(line.name_id[at[i]])]] += own[i]
    return tuple((name, ps / PS) for name, ps in lasted.most_common(MOST_PASSES))
