"""Finds the operations of compiled programs among the events of a trace: one row per call of an operation.

On CPU, operations are on the threads of the host, in events that have the stat `hlo_op`. This holds whether the program
ran on the calling thread or in the pool. On GPU, they are on the streams of `/device:GPU:N`. On TPU, they are on the
line `XLA Ops` of `/device:TPU:N`. The CPU path was tried on traces of jax 0.10.2, the GPU path on traces of an H100
with jax 0.11.2. The TPU path follows the source of XLA, and was tried on made-up traces only.

If XLA:CPU hands an operation to other threads, the marker "end: <operation>" shows when it ends. Its own event ends
when the hand-over is complete. For example, a product of matrices of 870 µs showed 250 µs without its marker (jax
0.10.2).

Operations are nested: a `while` lasts as long as everything that runs inside it. `self_ps` excludes the inner
operations, and `depth` is the level of nesting. `spans.py` computes the nesting on demand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from benchax.profiling.compiled_modules import CompiledModule
from benchax.profiling.events import HOST, Plane, Space, TraceLine
from benchax.profiling.spans import number_rows, self_times, self_times_by_program
from benchax.protobuf import Ints

KEEP = (
    *("hlo_op", "hlo_module", "hlo_category", "program_id", "run_id", "device_ordinal", "step_num"),
    *("_r", "_p", "_c"),  # a step; what begins something, and what ends it
    *("late_us", "cpu_us", "since_us", "used_us", "wall_us"),  # of samples of the stack
    *("elapsed_us", "before"),  # of what JAX compiled
)
"""Stats of events that the reading of a trace needs."""
END = "end: "
TPU_OPERATIONS, TPU_RUNS = "XLA Ops", "XLA Modules"
"""Lines of a TPU: of operations, and of whole runs of programs."""
_DEVICE = re.compile(r"/device:(GPU|TPU):(\d+)")
_NONE = -1
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Operations:
    """Columns of one length, by device, thread and start. Texts are indices into `texts`, or -1 for a missing text."""

    devices: tuple[str, ...]
    texts: Sequence[str]
    device: Ints
    """Index into `devices`."""
    name: Ints
    module: Ints
    category: Ints
    program: Ints
    """Program id; -1 where the trace does not say."""
    run: Ints
    has_run: Flags
    is_ended: Flags
    """The trace says when it ended: on CPU its marker does."""
    is_open: Flags
    """Its end is not in the trace, so it took at least the recorded time. A CPU operation that was not handed over is
    neither ended nor open."""
    start_ps: Ints
    end_ps: Ints
    """With its marker, which XLA:CPU writes late: behind what the same thread has begun as soon as this was done."""
    handed_ps: Ints
    """When its own event ended: the end, but of an operation that was handed to other threads, which ended between
    this and `end_ps`."""
    thread: Ints
    insides: Mapping[int, Mapping[int, frozenset[int]]] = field(repr=False)
    """Program → operation → operations inside it, names as indices into `texts`; the programs that are known."""

    def __len__(self) -> int:
        return len(self.name)

    def word(self, code: int) -> str:
        return self.texts[code] if code >= 0 else ""

    @property
    def self_ps(self) -> Ints:
        return self._nested[0]

    @property
    def depth(self) -> Ints:
        return self._nested[1]

    @cached_property
    def _nested(self) -> tuple[Ints, Ints]:
        # Takes longer than all else here, and whoever asks for runs only does not need it.
        own, depth = self.end_ps - self.start_ps, np.zeros(len(self), np.int64)
        is_known = np.isin(self.program, list(self.insides))
        run = np.where(self.has_run, self.run, 0)
        by_program = number_rows(self.device, self.program, run)
        by_thread = self.thread * len(self.devices) + self.device  # nothing is inside what another device does
        for chosen, group in ((is_known, by_program), (~is_known, by_thread)):
            # Stable: what is sorted by start stays so within each group.
            at = np.flatnonzero(chosen)[np.argsort(group[chosen], kind="stable")]
            columns = group[at].tolist(), self.start_ps[at].tolist(), self.end_ps[at].tolist()
            if chosen is not is_known:
                own[at], depth[at] = self_times(*columns)
            elif len(at):
                names, programs = self.name[at].tolist(), self.program[at].tolist()
                own[at], depth[at] = self_times_by_program(*columns, names, programs, self.insides)
        return own, depth


def operations(space: Space, known: Mapping[int, CompiledModule], tpu_line: str = TPU_OPERATIONS) -> Operations:
    """All of them; no rows where the trace has none.

    Args:
        space: the trace.
        known: the programs that it carries, which say what is inside what.
        tpu_line: with `TPU_RUNS`, a row of a TPU is a whole run.
    """
    devices: list[str] = []
    ends = _ends(space)
    columns = [
        np.concatenate([found, np.full((1, found.shape[1]), thread)])
        for thread, (plane, line) in enumerate((plane, line) for plane in space.planes for line in plane.lines)
        if (found := _of_line(plane, line, devices, ends, tpu_line)).shape[1]
    ]
    rows = np.concatenate(columns, axis=1) if columns else np.zeros((13, 0), np.int64)
    # By device, start, and end backwards: what begins together with something inside of it comes before that.
    rows = rows[:, np.lexsort((-rows[10], rows[9], rows[0]))]
    device, name, module, category, program, run, has_run, is_ended, is_open, start, end, handed, thread = rows
    return Operations(
        devices=tuple(devices),
        texts=space.texts,
        device=device,
        name=name,
        module=module,
        category=category,
        program=program,
        run=run,
        has_run=has_run > 0,
        is_ended=is_ended > 0,
        is_open=is_open > 0,
        start_ps=start,
        end_ps=end,
        handed_ps=handed,
        thread=thread,
        insides=_insides(space, known),
    )


def module_of(found: Operations, known: Mapping[int, CompiledModule], at: int) -> str:
    """The program that an operation belongs to: jit_f. Empty: not known."""
    program = known.get(int(found.program[at]))
    return found.word(int(found.module[at])) or (program.name if program else "")


def _ends(space: Space) -> tuple[Ints, Ints]:
    """(ids, sorted; times) of the markers that end an operation."""
    ids, times = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for line in space.host_lines:
        number, has_number = line.number("_c")
        at = line.find(lambda name: name.startswith(END))
        at = at[has_number[at]]
        ids.append(number[at])
        times.append(line.start_ps[at])
    every = np.concatenate(ids)
    order = np.argsort(every, kind="stable")
    return every[order], np.concatenate(times)[order]


def _insides(space: Space, known: Mapping[int, CompiledModule]) -> dict[int, dict[int, frozenset[int]]]:
    """Program id → operation → operations inside it, names as indices into `space.texts`."""
    codes = {text: code for code, text in enumerate(space.texts)}
    return {
        number: {
            codes[name]: frozenset(codes[inner] for inner in program.inside(one) if inner in codes)
            for name, one in program.instructions.items()
            if one.called and name in codes
        }
        for number, program in known.items()
    }


def _of_line(
    plane: Plane, line: TraceLine, devices: list[str], ends: tuple[Ints, Ints], tpu_line: str
) -> NDArray[np.int64]:
    """Rows device, name, module, category, program, run, has_run, is_ended, is_open, start, end, handed of the
    operations of one line."""
    nothing = np.zeros((12, 0), np.int64)
    on_device = _DEVICE.fullmatch(plane.name)
    if not len(line) or not (on_device or plane.name == HOST):
        return nothing
    if on_device and not _is_of_operations(on_device[1], line.name, tpu_line):
        return nothing
    name = line.text("hlo_op")
    chosen = name != _NONE
    end = line.start_ps + line.duration_ps
    is_ended, is_open = np.ones(len(line), np.bool_), np.zeros(len(line), np.bool_)
    if on_device:
        # A copy or a kernel that belongs to no operation of HLO is device time all the same.
        name, chosen = np.where(chosen, name, _names(plane, line)), np.ones(len(line), np.bool_)
        device = np.full(len(line), _index(devices, f"{on_device[1].lower()}:{on_device[2]}"))
    else:
        device = _cpu_devices(line, chosen, devices)
        end, is_ended, is_open = _pair_ends(line, end, ends)
    program, has_program = line.number("program_id")
    run, has_run = line.number("run_id")
    columns = [
        device,
        name,
        line.text("hlo_module"),
        line.text("hlo_category"),
        np.where(has_program, program, _NONE),
        run,
        has_run.astype(np.int64),
        is_ended.astype(np.int64),
        is_open.astype(np.int64),
        line.start_ps,
        end,
        line.start_ps + line.duration_ps,
    ]
    return np.stack([column[chosen] for column in columns])


def _pair_ends(line: TraceLine, end: Ints, ends: tuple[Ints, Ints]) -> tuple[Ints, Flags, Flags]:
    """(when each event really ended, which ones have a marker that says so, which ones lack theirs)."""
    ids, times = ends
    number, has_number = line.number("_p")
    if not len(ids):  # of a JAX that writes no markers, or of one operation that has lost its own
        return end, np.zeros(len(end), np.bool_), has_number
    at = np.minimum(np.searchsorted(ids, number), len(ids) - 1)
    is_marked = has_number & (ids[at] == number)
    return np.where(is_marked, np.maximum(end, times[at]), end), is_marked, has_number & ~is_marked


def _is_of_operations(kind: str, line: str, tpu_line: str) -> bool:
    return line == tpu_line if kind == "TPU" else line.startswith("Stream")


def _cpu_devices(line: TraceLine, chosen: NDArray[np.bool_], devices: list[str]) -> Ints:
    ordinal, _ = line.number("device_ordinal")
    found = np.zeros(len(line), np.int64)
    for number in np.unique(ordinal[chosen]):
        found[ordinal == number] = _index(devices, f"cpu:{number}")
    return found


def _names(plane: Plane, line: TraceLine) -> Ints:
    """Returns the names of events as texts. It uses the short name if there is one: on TPU the other is a whole line of
    HLO."""
    different, where = np.unique(line.name_id, return_inverse=True)
    words = [plane.display_names.get(int(i)) or plane.names.get(int(i), "") for i in different]
    codes = {text: code for code, text in enumerate(line.texts)}
    for word in words:
        if word not in codes:
            codes[word] = len(line.texts)
            line.texts.append(word)
    return np.array([codes[word] for word in words], np.int64)[where]


def _index(listed: list[str], name: str) -> int:
    if name not in listed:
        listed.append(name)
    return listed.index(name)
