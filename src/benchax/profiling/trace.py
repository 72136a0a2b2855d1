"""A trace becomes a table: operations by self time, devices by busy and idle time, runs by device time.

`operations.py` finds the calls, `programs.py` says where each comes from, `host.py` reads steps and the compiler; here
they are put together. A trace without operations gives no empty table: a remark says what is there instead, and what
to do.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

import numpy as np

from benchax.profiling import host, remarks
from benchax.profiling.events import read
from benchax.profiling.intervals import Hole, holes, unions
from benchax.profiling.operations import KEEP, Operations, operations
from benchax.profiling.programs import Instruction, Program, programs
from benchax.results.profile import Device, Gap, Op, Profile, Run

PS = 1e12
GAPS = 5
"""So many of the longest are kept per device."""


def profile_of(xspace: bytes, *, title: str = "", options: Mapping[str, object] | None = None) -> Profile:
    """Reads a trace.

    Args:
        xspace: the bytes of `<host>.xplane.pb`.
        title: what was profiled.
        options: those of the recording, for the explanation where it is empty.

    Raises:
        FormatError: not a trace, or one that was cut.
    """
    space = read(xspace, KEEP)
    known = programs(space)
    found = operations(space, known)
    compile_s, passes = host.compile_passes(space)
    dropped = remarks.dropped(space)
    return Profile(
        title=title,
        backend=found.devices[0].split(":")[0] if found.devices else "",
        ops=_ops(found, known),
        devices=tuple(_device(found, i) for i in range(len(found.devices))),
        runs=runs(found, known),
        steps=host.steps(space),
        passes=passes,
        compile_s=compile_s,
        n_events=space.n_events,
        is_truncated=bool(dropped),
        remarks=(*dropped, *remarks.of(space, found, known, options or {})),
    )


def runs(found: Operations, known: Mapping[int, Program]) -> tuple[Run, ...]:
    """Each execution of each program on each device, in the order in which they began.

    Empty where the trace does not say which run an operation belongs to, as on GPU.
    """
    chosen = np.flatnonzero((found.depth == 0) & found.has_run)
    chosen = chosen[np.argsort(found.start_ps[chosen], kind="stable")]
    keys = np.stack([found.device[chosen], found.program[chosen], found.run[chosen]], axis=1)
    first: dict[int, int] = {}
    _, group = np.unique(keys, axis=0, return_inverse=True)
    groups: list[int] = group.reshape(-1).tolist()
    for index, g in zip(chosen.tolist(), groups, strict=True):
        first.setdefault(g, index)
    lengths = unions(groups, found.start_ps[chosen].tolist(), found.end_ps[chosen].tolist())
    return tuple(
        Run(
            _module(found, known, first[g]),
            found.devices[int(found.device[first[g]])],
            int(found.run[first[g]]),
            begin / PS,
            length / PS,
        )
        for g, (begin, length) in lengths.items()
    )


def _ops(found: Operations, known: Mapping[int, Program]) -> tuple[Op, ...]:
    """Grouped by program and name, most self time first."""
    if not len(found):
        return ()
    keys = np.stack([found.program, found.module, found.name], axis=1)
    _, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    calls = np.bincount(group)
    total = _sums(group, found.end_ps - found.start_ps, len(first))
    own = _sums(group, found.self_ps, len(first))
    everything = max(int(own.sum()), 1)
    is_open = np.bincount(group, found.is_open) > 0
    ops = [
        _op(found, known, int(first[g]), int(calls[g]), None if is_open[g] else int(total[g]), int(own[g]), everything)
        for g in range(len(first))
    ]
    return tuple(sorted(ops, key=lambda op: (-op.self_s, op.module, op.name)))


def _sums(group: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """Exact: `np.bincount` with weights would add floats."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, group, values)
    return sums


def _op(
    found: Operations, known: Mapping[int, Program], at: int, calls: int, total: int | None, own: int, everything: int
) -> Op:
    name = _word(found.texts, int(found.name[at]))
    line = _instruction(found, known, at, name)
    return Op(
        name=name,
        module=_module(found, known, at),
        category=_word(found.texts, int(found.category[at])) or (line.opcode if line else ""),
        calls=calls,
        total_s=None if total is None else total / PS,
        self_s=own / PS,
        share=own / everything,
        scope=(line.scope or None) if line else None,
        source=(line.source or None) if line else None,
        hlo=line.hlo if line else None,
        shape=line.shape if line else None,
    )


def _instruction(found: Operations, known: Mapping[int, Program], at: int, name: str) -> Instruction | None:
    program = known.get(int(found.program[at]))
    return program.instructions.get(name) if program else None


def _module(found: Operations, known: Mapping[int, Program], at: int) -> str:
    program = known.get(int(found.program[at]))
    return _word(found.texts, int(found.module[at])) or (program.name if program else "")


def _word(texts: Sequence[str], code: int) -> str:
    return texts[code] if code >= 0 else ""


def _device(found: Operations, index: int) -> Device:
    mine = np.flatnonzero((found.device == index) & (found.depth == 0))
    start, end = found.start_ps[mine], found.end_ps[mine]
    between = holes(start, end)
    idle = sum(hole.end - hole.start for hole in between)
    span = int(end.max() - start.min())
    longest = heapq.nlargest(GAPS, between, key=lambda hole: hole.end - hole.start)
    gaps = tuple(_gap(found, mine, hole) for hole in longest)
    return Device(found.devices[index], (span - idle) / PS, idle / PS, gaps)


def _gap(found: Operations, mine: np.ndarray, hole: Hole) -> Gap:
    before, after = (_word(found.texts, int(found.name[mine[i]])) for i in (hole.before, hole.after))
    return Gap(hole.start / PS, (hole.end - hole.start) / PS, before, after)
