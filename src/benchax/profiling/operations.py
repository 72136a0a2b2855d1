"""Finds the operations of compiled programs among the events of a trace: one row per call of an operation.

On CPU, operations are on the threads of the host, in events that have the stat `hlo_op`. This holds whether the program
ran on the calling thread or in the pool. On GPU, they are on the streams of `/device:GPU:N`. On TPU, they are on the
line `XLA Ops` of `/device:TPU:N`. The CPU path was tried on traces of jax 0.10.2, the GPU path on traces of an H100
with jax 0.11.2. The TPU path follows the source of XLA, and was tried on made-up traces only.

If XLA:CPU hands an operation to other threads, the marker "end: <operation>" shows when it ends. Its own event ends
when the hand-over is complete. For example, a product of matrices of 870 µs showed 250 µs without its marker (jax
0.10.2).

Operations are nested: a `while` lasts as long as everything that runs inside it. `self_ps` excludes the inner
operations, and `depth` is the level of nesting. `events.self_times` computes the nesting on demand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from benchax.errors import NotMeasured
from benchax.model import Remark
from benchax.profiling.events import Flags, Space, group_rows, number_rows, programs, self_times, unite
from benchax.program import hlo
from benchax.program.hlo import Instruction, Module
from benchax.program.work import OPCODES
from benchax.protobuf import Ints
from benchax.results import profile
from benchax.results.profile import Device

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


@dataclass(frozen=True, eq=False)
class Operations:
    """Columns of one length, by device and start. Texts are indices into `space.texts`; 0 is a missing one."""

    space: Space = field(repr=False)
    devices: tuple[str, ...]
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
    """Index into `space.lines`."""

    def __len__(self) -> int:
        return len(self.name)

    def name_of(self, at: int) -> str:
        return self.space.texts[self.name[at]]

    @cached_property
    def known(self) -> dict[int, Module]:
        """The programs that the trace has. They say what is inside what."""
        return programs(self.space)

    @cached_property
    def kinds(self) -> tuple[Ints, Ints]:
        """(the first call of each operation of each program, the operation of each call)."""
        return group_rows(self.program, self.module, self.name)

    def instruction(self, at: int) -> tuple[Module | None, Instruction | None]:
        """Returns the program and the line of it that a call belongs to, as far as they are known."""
        program = self.known.get(int(self.program[at]))
        return program, program.by_name.get(self.name_of(at)) if program else None

    def module_of(self, at: int) -> str:
        """The program that an operation belongs to: jit_f. Empty: not known."""
        program, _ = self.instruction(at)
        return self.space.texts[self.module[at]] or (program.name if program else "")

    @property
    def self_ps(self) -> Ints:
        return self._nested[0]

    @property
    def depth(self) -> Ints:
        return self._nested[1]

    @cached_property
    def _nested(self) -> tuple[Ints, Ints]:
        # This takes longer than everything else here, and callers that only need runs do without it.
        own, depth = self.end_ps - self.start_ps, np.zeros(len(self), np.int64)
        is_known = np.isin(self.program, list(self.known))
        by_program = number_rows(self.device, self.program, np.where(self.has_run, self.run, 0))
        by_thread = self.thread * len(self.devices) + self.device  # nothing is inside what another device does
        for chosen, group in ((is_known, by_program), (~is_known, by_thread)):
            # Stable, so that each group stays sorted by start.
            at = np.flatnonzero(chosen)[np.argsort(group[chosen], kind="stable")]
            columns = group[at].tolist(), self.start_ps[at].tolist(), self.end_ps[at].tolist()
            if chosen is not is_known:
                own[at], depth[at] = self_times(*columns)
            elif len(at):
                names, numbers = self.name[at].tolist(), self.program[at].tolist()
                inside = [self._insides[number].get(name) for number, name in zip(numbers, names, strict=True)]
                own[at], depth[at] = self_times(*columns, names, inside)
        return own, depth

    @cached_property
    def _insides(self) -> dict[int, dict[int, frozenset[int]]]:
        """Program → operation → operations inside it; names as in `name`."""
        codes = {self.name_of(at): int(self.name[at]) for at in self.kinds[0].tolist()}
        return {
            number: {
                codes[name]: frozenset(codes[inner] for inner in names_inside(program, one) if inner in codes)
                for name, one in program.by_name.items()
                if name in codes and program.called_computations(one)
            }
            for number, program in self.known.items()
        }


def operations(space: Space, tpu_line: str = TPU_OPERATIONS) -> Operations:
    """All of them; no rows where the trace has none.

    Args:
        space: the trace.
        tpu_line: with `TPU_RUNS`, a row of a TPU is a whole run.
    """
    devices: dict[str, int] = {}
    device, name = np.full(len(space), -1), space.text("hlo_op")
    for number in np.unique(space.line).tolist():
        plane, line = space.lines[number]
        on_device = _DEVICE.fullmatch(plane)
        if on_device and (line == tpu_line if on_device[1] == "TPU" else line.startswith("Stream")):
            # A copy or kernel without an HLO operation is still device time.
            device[space.line == number] = devices.setdefault(f"{on_device[1].lower()}:{on_device[2]}", len(devices))
    is_of_cpu = space.is_host & (name > 0)
    ordinals, _ = space.number("device_ordinal")
    for ordinal in np.unique(ordinals[is_of_cpu]).tolist():
        device[is_of_cpu & (ordinals == ordinal)] = devices.setdefault(f"cpu:{ordinal}", len(devices))
    at = np.flatnonzero(device >= 0)
    end_ps, is_ended, is_open = _find_ends(space, at)
    # Sort by device, start, and descending end, so that an event comes before those inside it that begin at the same
    # time.
    order = np.lexsort((-end_ps, space.start_ps[at], device[at]))
    at = at[order]
    (program, has_program), (run, has_run) = space.number("program_id"), space.number("run_id")
    return Operations(
        space,
        tuple(devices),
        device[at],
        np.where(name > 0, name, space.name)[at],
        space.text("hlo_module")[at],
        space.text("hlo_category")[at],
        np.where(has_program, program, -1)[at],
        run[at],
        has_run[at],
        is_ended[order],
        is_open[order],
        space.start_ps[at],
        end_ps[order],
        space.end_ps[at],
        space.line[at],
    )


def names_inside(program: Module, one: Instruction) -> set[str]:
    """Names of the instructions that it runs, at any depth."""
    return {each.name for where in program.inside(one) for each in where.instructions}


def _find_ends(space: Space, at: Ints) -> tuple[Ints, Flags, Flags]:
    """(when each event really ended, does the trace say so?, does the event lack the marker that would?)"""
    end, is_of_device = space.end_ps[at], ~space.is_host[at]
    (number, has_number), (ended, is_end) = space.number("_p"), space.number("_c")
    number, has_number = number[at], has_number[at] & ~is_of_device
    marks = space.find(lambda name: name.startswith(END))
    marks = marks[is_end[marks]]
    marks = marks[np.argsort(ended[marks], kind="stable")]
    if not len(marks):  # of a JAX that writes no markers, or of one operation that has lost its own
        return end, is_of_device, has_number
    mark = marks[np.minimum(np.searchsorted(ended[marks], number), len(marks) - 1)]
    is_marked = has_number & (ended[mark] == number)
    end = np.where(is_marked, np.maximum(end, space.start_ps[mark]), end)
    return end, is_of_device | is_marked, has_number & ~is_marked


# How long each run of a compiled program kept its device busy, out of a trace.
#
# A run is the union of its operations' intervals, on whatever threads they ran. So nothing counts twice: neither the
# body of a loop inside the loop, nor simultaneous work of several threads. `operations` finds where operations begin
# and end. The last markers of a recording can be missing, because XLA writes them after it notifies the caller. Then
# the run is not whole. On TPU a run is the event of its module. The TPU rule comes from documents and was not tried.

STATS = ("hlo_op", "run_id", "_p", "_c")
"""The stats of the events that `device_runs` needs: `events.read(xspace, keep=STATS)`."""
PS = 1e12


class ProgramRun(NamedTuple):
    """One run of one compiled program."""

    start_ps: int
    """Since the trace began."""
    busy_s: float
    outer: int
    """Operations that began when no other of this run was under way."""
    inner: int
    """The other calls: in loops, or concurrent with others."""
    is_whole: bool = True
    """Is it known of each of its operations when it ended?"""


def device_runs(space: Space) -> list[ProgramRun]:
    """The runs of a trace in the order of their starts, over all programs; on several devices one run is one.

    Raises:
        NotMeasured: an operation cannot be assigned to a run.
    """
    found = operations(space, TPU_RUNS)
    if not found.has_run.all():
        raise NotMeasured("the trace does not say which run an operation belongs to")
    return [run for _, run in _unite(found, found.run)]


def runs_by_device(found: Operations) -> tuple[profile.Run, ...]:
    """Each execution of each program on each device, in the order in which they began.

    Empty where the trace does not say which run an operation belongs to, as on GPU.
    """
    if any(device.startswith("tpu") for device in found.devices):
        found = operations(found.space, TPU_RUNS)
    return tuple(
        profile.Run(
            # The run of a TPU is called jit_f(123).
            found.module_of(first) or found.name_of(first).partition("(")[0],
            found.devices[int(found.device[first])],
            int(found.run[first]),
            run.start_ps / PS,
            run.busy_s,
        )
        for first, run in _unite(found, found.run, found.program, found.device)
    )


def on_busiest_device(runs: Sequence[profile.Run]) -> list[profile.Run]:
    """The runs on the device that works most; a program may set up on the first one, and train on another."""
    spent = Counter[str]()
    for run in runs:
        spent[run.device] += round(run.device_s * PS)
    name = max(spent, key=lambda one: spent[one], default="")
    return [run for run in runs if run.device == name]


def _unite(found: Operations, *keys: Ints) -> list[tuple[int, ProgramRun]]:
    """(its first operation, run) for each group of operations that agree in all `keys`, in the order of their starts.

    Those that belong to no run are left out.
    """
    chosen = np.flatnonzero(found.has_run)
    if not len(chosen):
        return []
    group = number_rows(*(key[chosen] for key in keys))
    order = np.lexsort((found.start_ps[chosen], group))
    at, group = chosen[order], group[order]
    begin = np.flatnonzero(np.diff(group, prepend=-1))
    start = found.start_ps[at]
    latest = _latest(found.end_ps[at], group)
    before = np.concatenate([start[:1], latest[:-1]])
    before[begin] = start[begin]
    # An event that begins before all earlier ones have ended runs inside or next to one of them. Recording such an
    # event takes a different time.
    outer = np.add.reduceat((start >= before).astype(np.int64), begin)
    busy_ps = np.add.reduceat(latest - np.maximum(start, before), begin)
    inner = np.diff(begin, append=len(at)) - outer
    columns = (start[begin], busy_ps / PS, outer, inner, np.logical_and.reduceat(found.is_ended[at], begin))
    runs = [ProgramRun(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    return sorted(zip(at[begin].tolist(), runs, strict=True), key=lambda each: each[1].start_ps)


def _latest(end: Ints, group: Ints) -> Ints:
    """Returns the latest end so far, separately for each group."""
    order = np.argsort(end)
    rank = np.empty(len(end), np.int64)
    rank[order] = np.arange(len(end))
    # Ranks instead of picoseconds: times the number of groups these would leave an int64.
    return end[order][np.maximum.accumulate(group * len(end) + rank) % len(end)]


# How long a device communicated with others, and how much of that time nothing else hid.
#
# *Communication* is the time in which some collective was in progress on the device: the union of their intervals. An
# asynchronous collective is in progress from the start of its `-start` to the end of its `-done`. This time is an upper
# bound, because the data might have arrived before an operation waited for it. On GPU only the `-start` is in the
# trace, as the kernel that communicates. *Exposed* is the part of the communication in which no other operation of the
# device was in progress. It is the exposed communication of Rashidi et al. (ISCA 2021). Holistic Trace Analysis
# computes the same: it subtracts the overlap.
#
# On CPU, the marker that ends an operation of several threads is late. It comes after the work that the same thread
# began next, and that work can be the collective that waited for the operation. For example, a product "ran" 1.9 ms
# longer (jax 0.10.2). So on CPU, benchax counts the exposed time twice, with the earliest and the latest end of each
# operation. It reports the time if the two agree.
#
# Waiting for other devices counts: a device that reaches a collective early communicates until the last device has
# reached it, too. An operation with others inside it, such as a loop, does not count as work. A fusion with a
# collective inside counts as a collective; `send` and `recv`, which can also communicate with the host, do not. The CPU
# path was tried on traces of jax 0.10.2. The GPU and TPU paths follow the source of XLA, and were tried on made-up
# traces only.

MOST_DOUBT = 0.01
"""The two counts of the exposed time can differ by up to this share of the communication."""
COPIES = ("Memcpy", "Memset")
"""CUPTI's names for device time that belongs to no operation of a program."""


class Role(NamedTuple):
    """The role of an operation in a communication."""

    kind: Literal["unknown", "none", "whole", "start", "done"]
    start: str = ""
    """The name of the start, for a start and a done. Empty: the program does not say which, as behind a loop."""


@dataclass(frozen=True, eq=False)
class Exchange:
    """A column each for the rows of `Operations`."""

    is_known: Flags
    """The trace holds the program, so that it is known whether it is a collective."""
    is_collective: Flags
    is_lost: Flags
    """It is one half of an asynchronous collective whose other half is not in the trace."""
    begin_ps: Ints
    """When it began; of a `-done`, when its `-start` did."""


def exchange(found: Operations) -> Exchange:
    """Which operations communicate, and since when."""
    first, group = found.kinds
    roles = [_role_of(found, at) for at in first.tolist()]
    kind = np.array([role.kind for role in roles], "U7")[group]
    begin_ps, lost = found.start_ps.copy(), list[int]()
    begun: dict[tuple[int, int, int, str], int] = {}
    for at in np.flatnonzero((kind == "start") | (kind == "done")).tolist():
        # Match by run, too: the same instruction starts once in each run, and runs of one program may overlap.
        key = int(found.device[at]), int(found.program[at]), int(found.run[at]), roles[group[at]].start
        other = begun.pop(key, None)
        if kind[at] == "start":
            begun[key] = at
            lost += [] if other is None else [other]  # started twice: the end of the first one is missing
        elif other is None:
            lost.append(at)
        else:
            begin_ps[at] = found.start_ps[other]
    is_lost = np.zeros(len(found), np.bool_)
    is_lost[[*lost, *begun.values()]] = True
    # If the trace has no ends at all, as on GPU, the starts are whole kernels.
    is_lost &= np.isin(found.device, found.device[kind == "done"])
    return Exchange(kind != "unknown", np.isin(kind, ("whole", "start", "done")), is_lost, begin_ps)


def communication_of(found: Operations, said: Exchange, index: int) -> tuple[float | None, float | None]:
    """Returns (seconds of communication, how much of it is exposed).

    Returns None for both if the role of some operation is unknown, and for the second if it is unknown what ran at the
    same time.
    """
    mine = found.device == index
    if not said.is_known[mine].all():
        return None, None
    spoken = mine & said.is_collective
    if not spoken.any():
        return 0.0, 0.0
    # A loop is as long as the operations inside it, and would seem to hide communication that nothing hides.
    is_leaf = found.self_ps == found.end_ps - found.start_ps
    others = mine & ~said.is_collective & is_leaf
    ends = found.end_ps, np.where(others, found.handed_ps, found.end_ps)
    both, rest = ([_covered_ps(said, end, chosen) for end in ends] for chosen in (spoken | others, others))
    least, most = both[0] - rest[0], both[1] - rest[1]
    spoken_ps = _covered_ps(said, found.end_ps, spoken)
    return spoken_ps / PS, least / PS if most - least <= MOST_DOUBT * spoken_ps else None


def remark_communication(found: Operations, said: Exchange, devices: Sequence[Device]) -> Iterator[Remark]:
    """Where communication is not known, or only as a lower bound, or not what hid it."""
    if unknown := int((~said.is_known).sum()):
        names = ", ".join(found.devices[i] for i in np.unique(found.device[~said.is_known]))
        yield Remark(
            "no-communication",
            "warning",
            f"communication is not known on {names}: of {unknown} of {len(found)} calls the trace does not hold the "
            "program",
        )
    if lost := int(said.is_lost.sum()):
        yield Remark(
            "half-communications",
            "warning",
            f"of {lost} asynchronous communications the trace holds the beginning or the end only: communication took "
            "at least what is counted here",
        )
    if doubtful := ", ".join(d.name for d in devices if d.communication_s is not None and d.exposed_s is None):
        yield Remark(
            "exposed-unknown",
            "info",
            f"it is not known what ran during the communication of {doubtful}: XLA:CPU says late when an operation of "
            "several threads has ended",
        )


def _covered_ps(said: Exchange, end: Ints, chosen: Flags) -> int:
    return unite(said.begin_ps[chosen], end[chosen]).length


def _role_of(found: Operations, at: int) -> Role:
    program, line = found.instruction(at)
    if program and line:
        return role(program, line)
    name = found.name_of(at)
    # XLA prints an asynchronous operation without the computation that it wraps, whose names begin with an opcode.
    if program and name.partition(".")[0] in OPCODES:
        return Role("whole")
    is_copy = found.module[at] == 0 and name.startswith(COPIES)
    return Role("none" if is_copy else "unknown")


def role(program: Module, one: Instruction) -> Role:
    """By its opcode; of a wrapper (`fusion`, `async-start`), by what is inside."""
    kind, _, half = one.opcode.rpartition("-")
    holds_collective = any(program.by_name[name].opcode in OPCODES for name in names_inside(program, one))
    if one.opcode in OPCODES or (one.opcode == "fusion" and holds_collective):
        return Role("whole")
    if half == "start" and (kind in OPCODES or holds_collective):
        return Role("start", one.name)
    if half in ("done", "update"):
        operands = [program.by_name[name] for name in hlo.operand_names(one) if name in program.by_name]
        begun = role(program, operands[0]) if operands else Role("none")
        if begun.start or kind in OPCODES:
            return Role("done" if half == "done" else "whole", begun.start)
    return Role("none")
