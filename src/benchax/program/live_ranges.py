"""The time in which each value of a scheduled program is needed: from the instruction that makes it to the last reader.

The text of an optimised program is in the order in which its instructions run. Loops, calls and branches are laid out
before the instruction that starts them, as XLA does when it plans the memory (HloLiveRange). So one number gives the
time. A value that a loop carries is needed as long as some iteration might read it.

A value has many places. `tuple`, `get-tuple-element` and `bitcast` only pass it on. The first value of a loop is the
parameter of its body. The result of the body is that parameter again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from benchax.errors import NotAvailable
from benchax.program import hlo_module
from benchax.program.hlo import Instruction
from benchax.program.hlo_module import Computation, Module

Place = tuple[str, tuple[int, ...]]
"""(name of an instruction, which part of its result)"""


class LiveRange(NamedTuple):
    """The numbers of the first and of the last instruction that need a value."""

    first: int
    last: int
    places: frozenset[Place]
    readers: tuple[str, ...]
    """Names of the instructions that read it."""


class Call(NamedTuple):
    """Where a computation is started, and as what."""

    instruction: Instruction
    role: str
    """body, condition, to_apply, …"""


class Schedule:
    """The instructions of a program in the order in which they run.

    Raises:
        NotAvailable: the program is not scheduled, or its text does not tell how long values live.
    """

    def __init__(self, module: Module) -> None:
        if module.entry is None or "is_scheduled=true" not in module.header:
            raise NotAvailable("the text of the program is not in the order in which its instructions run")
        self.module, self.entry = module, module.entry
        self.order: list[Instruction] = []
        self.position: dict[str, int] = {}
        self.stands_in: dict[str, Computation] = {}
        self.calls: dict[str, Call] = {}
        self.users: dict[str, list[tuple[int, Instruction]]] = defaultdict(list)
        self._lay_out(module.entry)

    def live_range(self, place: Place) -> LiveRange:
        """From when to when what is made at `place` is needed.

        Raises:
            NotAvailable: there is no such instruction in the text.
        """
        if place[0] not in self.position:
            raise NotAvailable(
                f"the plan has a value of {place[0] or 'no name'}, which the program's text does not show"
            )
        places, readers, todo = set[Place](), dict[str, None](), [place]
        while todo:
            if (at := todo.pop()) in places:
                continue
            places.add(at)
            for reader, passed_on in self._uses(at):
                if reader:
                    readers[reader] = None
                todo += passed_on
        first = self.position[place[0]]
        last = max((self.position[name] for name in readers), default=first)
        return LiveRange(first, max(first, last), frozenset(places), tuple(readers))

    def _lay_out(self, computation: Computation) -> None:
        for each in computation.instructions:
            if each.opcode.endswith(("-start", "-done")):
                raise NotAvailable(
                    f"the program runs {each.name} beside others, and how long its buffers live is not read"
                )
            if each.opcode in ("while", "call", "conditional"):
                for role, inner in self.module.called_computations(each):
                    if inner.name in self.calls:
                        raise NotAvailable(f"the computation {inner.name} is started from two places")
                    self.calls[inner.name] = Call(each, role)
                    self._lay_out(inner)
            self.position[each.name] = len(self.order)
            self.order.append(each)
            self.stands_in[each.name] = computation
            for nth, operand in enumerate(computation.operands(each)):
                self.users[operand.name].append((nth, each))

    def _uses(self, place: Place) -> Iterator[tuple[str, list[Place]]]:
        """(name of an instruction that reads it, or nothing; the places to which it is passed on)"""
        name, index = place
        for nth, user in self.users[name]:
            yield self._use(nth, user, index)
        computation = self.stands_in[name]
        if computation.root is not None and computation.root.name == name:
            yield name, self._returned(computation, index)

    def _use(self, nth: int, user: Instruction, index: tuple[int, ...]) -> tuple[str, list[Place]]:
        """Returns how `user`, whose operand number `nth` it is, uses the part `index` of it."""
        match user.opcode:
            case "get-tuple-element" if index:
                is_meant = int(hlo_module.attributes(user)["index"]) == index[0]
                return "", [(user.name, index[1:])] if is_meant else []
            case "tuple":
                return "", [(user.name, (nth, *index))]
            case "bitcast" | "optimization-barrier":
                return user.name, [(user.name, index)]
            case "while":
                return "", [self._parameter(inner, 0, index) for _, inner in self.module.called_computations(user)]
            case "call":
                return "", [self._parameter(inner, nth, index) for _, inner in self.module.called_computations(user)]
            case "conditional" if nth > 0:
                branches = self.module.called_computations(user)
                return "", [self._parameter(branches[nth - 1][1], 0, index)]
            case _:
                return user.name, []

    def _parameter(self, computation: Computation, number: int, index: tuple[int, ...]) -> Place:
        parameters = (each for each in computation.instructions if each.opcode == "parameter")
        found = next((each for each in parameters if each.operands.strip("() ") == str(number)), None)
        if found is None:
            raise NotAvailable(f"the computation {computation.name} has no parameter {number}")
        return found.name, index

    def _returned(self, computation: Computation, index: tuple[int, ...]) -> list[Place]:
        """Where the result of a computation goes."""
        if computation is self.entry:
            return []
        call = self.calls[computation.name]
        if call.role == "condition":
            return []
        if call.role != "body":
            return [(call.instruction.name, index)]
        again = [self._parameter(inner, 0, index) for _, inner in self.module.called_computations(call.instruction)]
        return [(call.instruction.name, index), *again]
