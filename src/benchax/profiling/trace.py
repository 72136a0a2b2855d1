"""A trace becomes a table: operations by self time, devices by busy and idle time, runs by device time.

`operations.py` finds the calls, `programs.py` says where each comes from, `runs.py` and `communication.py` add them up,
`host.py` reads steps and the compiler; here they are put together. A trace without operations gives no empty table: a
remark says what is there instead, and what to do.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

import numpy as np

from benchax.profiling import communication, host, remarks
from benchax.profiling.communication import Exchange, exchange
from benchax.profiling.events import read
from benchax.profiling.intervals import Hole, holes
from benchax.profiling.operations import KEEP, Operations, module_of, operations
from benchax.profiling.programs import CompiledModule, ModuleInstruction, programs
from benchax.profiling.runs import PS, runs_by_device
from benchax.results.profile import Device, Gap, Op, Profile

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
    said = exchange(found, known)
    devices = tuple(_device(found, said, i) for i in range(len(found.devices)))
    compile_s, passes = host.compile_passes(space)
    dropped = remarks.remark_dropped(space)
    return Profile(
        title=title,
        backend=found.devices[0].split(":")[0] if found.devices else "",
        ops=_ops(found, known),
        devices=devices,
        runs=runs_by_device(space, found, known),
        steps=host.steps(space),
        passes=passes,
        compile_s=compile_s,
        n_events=space.n_events,
        is_truncated=bool(dropped),
        remarks=(
            *dropped,
            *remarks.of(space, found, known, options or {}),
            *(communication.remarks(found, said, devices) if known else ()),
        ),
    )


def _ops(found: Operations, known: Mapping[int, CompiledModule]) -> tuple[Op, ...]:
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
    found: Operations,
    known: Mapping[int, CompiledModule],
    at: int,
    calls: int,
    total: int | None,
    own: int,
    everything: int,
) -> Op:
    name = found.word(int(found.name[at]))
    line = _instruction(found, known, at, name)
    return Op(
        name=name,
        module=module_of(found, known, at),
        category=found.word(int(found.category[at])) or (line.opcode if line else ""),
        calls=calls,
        total_s=None if total is None else total / PS,
        self_s=own / PS,
        share=own / everything,
        scope=(line.scope or None) if line else None,
        source=(line.source or None) if line else None,
        hlo=line.hlo if line else None,
        shape=line.shape if line else None,
    )


def _instruction(
    found: Operations, known: Mapping[int, CompiledModule], at: int, name: str
) -> ModuleInstruction | None:
    program = known.get(int(found.program[at]))
    return program.instructions.get(name) if program else None


def _device(found: Operations, said: Exchange, index: int) -> Device:
    mine = np.flatnonzero((found.device == index) & (found.depth == 0))
    # A communication is under way, and the device not idle, between its two halves as well.
    start, end = said.begin_ps[mine], found.end_ps[mine]
    between = holes(start, end)
    idle = sum(hole.end - hole.start for hole in between)
    span = int(end.max() - start.min())
    longest = heapq.nlargest(GAPS, between, key=lambda hole: hole.end - hole.start)
    gaps = tuple(_gap(found, mine, hole) for hole in longest)
    exchanged = communication.of_device(found, said, index)
    return Device(found.devices[index], (span - idle) / PS, idle / PS, gaps, *exchanged)


def _gap(found: Operations, mine: np.ndarray, hole: Hole) -> Gap:
    before, after = (found.word(int(found.name[mine[i]])) for i in (hole.before, hole.after))
    return Gap(hole.start / PS, (hole.end - hole.start) / PS, before, after)
