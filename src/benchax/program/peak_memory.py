"""When the temporaries of a program need most memory, and their values: the compiler's plan, read along its schedule.

It needs two facts about each value: its bytes (`buffer_assignment.py`) and the time in which it is needed
(`live_ranges.py`). The two facts check one another. No two values that are needed at one time can have a byte in
common, unless one is passed on as the other. If this fails, one of the two facts is wrong, and benchax reports no peak.

An instruction can write its result over the last operand that it reads. Those bytes count once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from benchax.errors import NotAvailable
from benchax.program import hlo, hlo_module
from benchax.program.buffer_assignment import AssignedValue, Assignment
from benchax.program.hlo import Instruction
from benchax.program.hlo_module import Module
from benchax.program.live_ranges import LiveRange, Schedule
from benchax.program.source_tables import SourceTables
from benchax.results.memory import HeldValue, LiveValue, PeakMemory, Role, highest_of_stretches

MOST_STRETCHES = 200
"""A timeline is as long as a chart is wide."""


class Holding(NamedTuple):
    """Some bytes of an allocation, held from one instruction to another."""

    start: int
    end: int
    value: AssignedValue
    live: LiveRange


def peak_memory(plan: Assignment | None, hlo_text: str, module: Module) -> PeakMemory | None:
    """Returns the values that fill the memory at its peak, or None if the program has no temporaries.

    Raises:
        NotAvailable: the peak is unknown; the message gives the reason.
    """
    if plan is None:
        raise NotAvailable("the plan of the memory cannot be read: this JAX or backend does not hand it out")
    allocations = [each for each in plan if each.kind == "temporary"]
    schedule = Schedule(module)
    held = [list(_hold(_find_lives(each.values, schedule))) for each in allocations]
    holdings = [holding for each in held for holding in each]
    if not holdings:
        return None
    needed = _sum_over_time(holdings, len(schedule.order))
    planned, live = sum(each.size_bytes for each in allocations), max(needed)
    if live > planned:
        raise NotAvailable(f"{live} B are needed at once by the program's text, and the plan has {planned} B for them")
    position = needed.index(live)
    names = _Names(schedule, SourceTables(hlo_text))
    values = [names.live_value(each) for each in holdings if each.live.first <= position <= each.live.last]
    return PeakMemory(
        live_bytes=live,
        planned_bytes=planned,
        at=names.held_value(schedule.order[position]),
        position=position,
        instructions=len(schedule.order),
        values=tuple(sorted(values, key=lambda value: -value.size_bytes)),
        timeline=tuple(highest_of_stretches(needed, MOST_STRETCHES)),
    )


def _find_lives(values: Sequence[AssignedValue], schedule: Schedule) -> list[Holding]:
    """In the order in which they are made."""
    lives = [
        Holding(each.offset, each.offset + each.size_bytes, each, schedule.live_range((each.name, each.index)))
        for each in values
        if each.size_bytes
    ]
    return sorted(lives, key=lambda each: each.live.first)


def _hold(made: Sequence[Holding]) -> Iterator[Holding]:
    """Yields the same values, but no byte is held twice at a time. A value that is passed on is held once, and one that
    is overwritten ends before.

    Raises:
        NotAvailable: two unrelated values would hold a byte at the same time.
    """
    held: list[Holding] = []  # now, by place
    for each in made:
        i = bisect_left(held, each.start, key=attrgetter("end"))
        while i < len(held) and held[i].start < each.end:
            before = held.pop(i)
            if before.end <= each.start:  # of no bytes in common: it ends where this begins
                held.insert(i, before)
                i += 1
            elif before.live.last <= each.live.first:
                yield _shorten(before, each.live.first)
            elif before.live.places & each.live.places:
                each = _join(before, each)
            else:
                raise NotAvailable(
                    f"{before.value.name} and {each.value.name} have the same bytes in the plan, and by the program's "
                    "text both are needed at one time"
                )
        held.insert(bisect_left(held, each.start, key=attrgetter("start")), each)
    yield from held


def _shorten(holding: Holding, until: int) -> Holding:
    last = min(holding.live.last, until - 1)
    return holding._replace(live=holding.live._replace(last=max(holding.live.first, last)))


def _join(before: Holding, after: Holding) -> Holding:
    """The value that is known by both names; the first made it."""
    first, last = before.live.first, max(before.live.last, after.live.last)
    readers = tuple(dict.fromkeys((*before.live.readers, *after.live.readers)))
    live = LiveRange(first, last, before.live.places | after.live.places, readers)
    return Holding(min(before.start, after.start), max(before.end, after.end), before.value, live)


def _sum_over_time(holdings: Sequence[Holding], instructions: int) -> list[int]:
    """Bytes that are held, at each instruction."""
    changes = [0] * (instructions + 1)
    for each in holdings:
        changes[each.live.first] += each.end - each.start
        changes[each.live.last + 1] -= each.end - each.start
    return list(accumulate(changes[:-1]))


class _Names:
    """Says what instructions are, where they come from, and what becomes of their results."""

    def __init__(self, schedule: Schedule, sources: SourceTables) -> None:
        self.schedule, self.sources = schedule, sources

    def held_value(self, one: Instruction) -> HeldValue:
        """Describes a value. A value that the compiler added itself, such as a copy, has the origin of its operand."""
        spec = "" if one.shape.startswith("(") else one.shape.partition("{")[0]
        named = next((each for each in self._sources(one) if hlo_module.op_name(each)), one)
        size, line = hlo.shape_bytes(one.shape), self.sources.user_line(named)
        return HeldValue(size, one.name, spec, hlo_module.op_name(named), line)

    def live_value(self, holding: Holding) -> LiveValue:
        made = self.held_value(self._instruction(holding.value.name))
        size = holding.end - holding.start
        return LiveValue(size, made.name, made.spec, made.op_name, made.source, self._role(made.op_name, holding.live))

    def _sources(self, one: Instruction) -> Iterator[Instruction]:
        """Itself, and what its first operand is made of."""
        while one.name in self.schedule.stands_in:
            yield one
            operands = self.schedule.stands_in[one.name].operands(one)
            if not operands:
                return
            one = operands[0]

    def _instruction(self, name: str) -> Instruction:
        return self.schedule.order[self.schedule.position[name]]

    def _role(self, op_name: str, live: LiveRange) -> Role:
        """JAX names what it does on the way forward jvp(f), and on the way back transpose(jvp(f))."""
        if "rematted_computation" in op_name:
            return "recomputed"
        if "transpose(" in op_name:
            return "gradient"
        readers = (hlo_module.op_name(self._instruction(name)) for name in live.readers)
        is_kept = "jvp(" in op_name and any("transpose(" in reader for reader in readers)
        return "residual" if is_kept else "temporary"
