"""How long a device communicated with others, and how much of that time nothing else hid.

*Communication* is the time in which some collective was in progress on the device: the union of their intervals. An
asynchronous collective is in progress from the start of its `-start` to the end of its `-done`. This time is an upper
bound, because the data might have arrived before an operation waited for it. On GPU only the `-start` is in the trace,
as the kernel that communicates. *Exposed* is the part of the communication in which no other operation of the device
was in progress. It is the exposed communication of Rashidi et al. (ISCA 2021). Holistic Trace Analysis computes the
same: it subtracts the overlap.

On CPU, the marker that ends an operation of several threads is late. It comes after the work that the same thread began
next, and that work can be the collective that waited for the operation. For example, a product "ran" 1.9 ms longer (jax
0.10.2). So on CPU, benchax counts the exposed time twice, with the earliest and the latest end of each operation. It
reports the time if the two agree.

Waiting for other devices counts: a device that reaches a collective early communicates until the last device has
reached it, too. An operation with others inside it, such as a loop, does not count as work. A fusion with a collective
inside counts as a collective; `send` and `recv`, which can also communicate with the host, do not. The CPU path was
tried on traces of jax 0.10.2. The GPU and TPU paths follow the source of XLA, and were tried on made-up traces only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from benchax.model import Remark
from benchax.profiling.compiled_modules import CompiledModule, ModuleInstruction
from benchax.profiling.operations import Flags, Operations
from benchax.profiling.spans import group_rows, unite
from benchax.program.work import OPCODES
from benchax.protobuf import Ints
from benchax.results.profile import Device

PS = 1e12
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


def exchange(found: Operations, known: Mapping[int, CompiledModule]) -> Exchange:
    """Which operations communicate, and since when."""
    first, group = group_rows(found.program, found.module, found.name)
    roles = [_role_of(found, known, at) for at in first.tolist()]
    kind = np.array([role.kind for role in roles], "U7")[group] if roles else np.zeros(0, "U7")
    begin, is_lost = _join_halves(found, kind, lambda at: roles[group[at]].start)
    return Exchange(kind != "unknown", np.isin(kind, ("whole", "start", "done")), is_lost, begin)


def of_device(found: Operations, said: Exchange, index: int) -> tuple[float | None, float | None]:
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
    # A loop that others ran inside of is as long as they are, and would seem to hide what nothing hid.
    is_leaf = found.self_ps == found.end_ps - found.start_ps
    others = mine & ~said.is_collective & is_leaf
    spoken_ps = _covered_ps(said, found.end_ps, spoken)
    least = _exposed_ps(said, found.end_ps, spoken, others)
    most = _exposed_ps(said, np.where(others, found.handed_ps, found.end_ps), spoken, others)
    return spoken_ps / PS, least / PS if most - least <= MOST_DOUBT * spoken_ps else None


def _exposed_ps(said: Exchange, end: Ints, spoken: Flags, others: Flags) -> int:
    return _covered_ps(said, end, spoken | others) - _covered_ps(said, end, others)


def remarks(found: Operations, said: Exchange, devices: Sequence[Device]) -> Iterator[Remark]:
    """Where communication is not known, or only as a lower bound, or not what hid it."""
    if unknown := int((~said.is_known).sum()):
        names = ", ".join(found.devices[i] for i in np.unique(found.device[~said.is_known]).tolist())
        yield Remark(
            "no-communication",
            "warning",
            f"communication is not known on {names}: of {unknown} of {len(found)} calls the trace does not hold the "
            "program",
        )
    if lost := int(said.is_lost.sum()):
        text = f"of {lost} asynchronous communications the trace holds the beginning or the end only: "
        yield Remark("half-communications", "warning", text + "communication took at least what is counted here")
    if doubtful := ", ".join(d.name for d in devices if d.communication_s is not None and d.exposed_s is None):
        text = f"what ran beside the communication of {doubtful} is not known: XLA:CPU says late when an operation of "
        yield Remark("exposed-unknown", "info", text + "several threads has ended")


def _covered_ps(said: Exchange, end: Ints, chosen: Flags) -> int:
    return unite(said.begin_ps[chosen], end[chosen]).length


def _role_of(found: Operations, known: Mapping[int, CompiledModule], at: int) -> Role:
    name = found.word(int(found.name[at]))
    program = known.get(int(found.program[at]))
    instruction = program.instructions.get(name) if program else None
    if program and instruction:
        return role(program, instruction)
    is_copy = found.module[at] < 0 and name.startswith(COPIES)
    return Role("none" if is_copy else "unknown")


def role(program: CompiledModule, one: ModuleInstruction) -> Role:
    """By its opcode; of a wrapper (`fusion`, `async-start`), by what is inside."""
    kind, _, half = one.opcode.rpartition("-")
    if one.opcode in OPCODES or (one.opcode == "fusion" and _holds_collective(program, one)):
        return Role("whole")
    if half == "start" and (kind in OPCODES or _holds_collective(program, one)):
        return Role("start", one.name)
    if half in ("done", "update"):
        before = program.instructions.get(_first_operand(one))
        begun = role(program, before) if before else Role("none")
        if begun.start or kind in OPCODES:
            return Role("done" if half == "done" else "whole", begun.start)
    return Role("none")


def _holds_collective(program: CompiledModule, one: ModuleInstruction) -> bool:
    return any(program.instructions[name].opcode in OPCODES for name in program.inside(one))


def _first_operand(one: ModuleInstruction) -> str:
    return one.hlo.partition(f" {one.opcode}(%")[2].partition(")")[0].partition(",")[0]


def _join_halves(found: Operations, kind: np.ndarray, start_of: Callable[[int], str]) -> tuple[Ints, Flags]:
    """(when each began, which of the halves lack the other one)."""
    begin, lost = found.start_ps.copy(), list[int]()
    begun: dict[tuple[int, int, int, str], int] = {}
    for at in np.flatnonzero((kind == "start") | (kind == "done")).tolist():
        # By run as well: the same instruction starts once in each, and runs of one program may overlap.
        key = int(found.device[at]), int(found.program[at]), int(found.run[at]), start_of(at)
        other = begun.pop(key, None)
        if kind[at] == "start":
            begun[key] = at
            lost += [] if other is None else [other]  # started twice: the end of the first one is missing
        elif other is None:
            lost.append(at)
        else:
            begin[at] = found.start_ps[other]
    is_lost = np.zeros(len(found), np.bool_)
    is_lost[[*lost, *begun.values()]] = True
    # Where no end of any kind is in the trace, as on GPU, the beginnings are whole kernels.
    return begin, is_lost & np.isin(found.device, found.device[kind == "done"])
