"""The trip counts of an optimised program's loops, read from its text. No JAX.

XLA writes a trip count that it could prove into the loop itself, `backend_config={..."known_trip_count":{"n":"10"}}`.
benchax understands other loops, too, if they count. Then the condition compares one element of the carry with a
constant. The element begins at a constant and grows by a constant in each iteration. For any other loop the number is
None: never 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from benchax.program import hlo_module
from benchax.program.hlo import Instruction
from benchax.program.hlo_module import Computation, Module
from benchax.results.inspection import Loop

_KNOWN = re.compile(r'"?known_trip_count"?:\s*\{\s*"?n"?:\s*"?(\d+)"?')
_NUMBER = re.compile(r"\(\s*(-?\d+)\s*\)")
_PASSES_ON = ("copy", "bitcast")
# With the number on the left the comparison reads the other way round.
_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}


class LoopScalar(NamedTuple):
    """The value of a scalar: a number, or element `index` of the carry plus a number; see `_value`."""

    index: int | None
    number: int


def find_loops(module: Module) -> tuple[Loop, ...]:
    """Every `while` that the entry computation reaches, each once, outer ones before those inside them."""
    found: dict[str, Loop] = {}
    if module.entry is not None:
        for instruction, where, inside in _whiles(module, module.entry, None):
            found.setdefault(instruction.name, _loop(module, where, instruction, inside))
    return tuple(found.values())


def _whiles(
    module: Module, computation: Computation, inside: str | None
) -> Iterator[tuple[Instruction, Computation, str | None]]:
    for each in computation.instructions:
        is_loop = each.opcode == "while"
        if is_loop:
            yield each, computation, inside
        for _, called in module.called_computations(each):
            yield from _whiles(module, called, each.name if is_loop else inside)


def _loop(module: Module, where: Computation, instruction: Instruction, inside: str | None) -> Loop:
    trips, trips_from = trip_count(module, where, instruction)
    return Loop(instruction.name, trips, trips_from, hlo_module.op_name(instruction), inside)


def trip_count(module: Module, where: Computation, loop: Instruction) -> tuple[int | None, str]:
    """Returns (trip count, where the number comes from), or (None, why the count is unknown).

    Args:
        where: the computation around the loop.
    """
    if known := _KNOWN.search(hlo_module.attributes(loop).get("backend_config", "")):
        return int(known[1]), "known_trip_count of the program"
    called = dict(module.called_computations(loop))
    if "condition" not in called or "body" not in called:
        return None, "its body and condition are not in the text"
    counted = _count_trips(module, where, loop, called["condition"], called["body"])
    if counted is None:
        return None, "its trip count is not in the text of the program"
    return counted, "its condition compares a counter with a constant"


def _count_trips(
    module: Module, where: Computation, loop: Instruction, condition: Computation, body: Computation
) -> int | None:
    limit = _limit(module, condition)
    if limit is None:
        return None
    index, direction, end = limit
    start = _start(where, loop, index)
    step = _step(module, body, index)
    return None if start is None or step is None else _trips_until(start, end, step, direction)


def _trips_until(start: int, end: int, step: int, direction: str) -> int | None:
    """How often `start`, `start + step`, ... fulfils the comparison before it does not."""
    if direction in ("GT", "GE"):
        # Counting down from 10 is counting up from -10.
        start, end, step = -start, -end, -step
    elif direction not in ("LT", "LE"):
        return None
    end += direction in ("LE", "GE")  # holds at the end, too
    if start >= end:
        return 0
    return -((start - end) // step) if step > 0 else None


def _limit(module: Module, condition: Computation) -> tuple[int, str, int] | None:
    """(index of the counter, comparison, constant) if that is all the condition asks."""
    root = condition.root
    if root is None:
        return None
    computation, operands = condition, condition.operands(root)
    given = [_value(condition, each, ()) for each in operands]
    if root.opcode == "fusion" and (called := module.called_computations(root)):
        computation = called[0][1]
        root = computation.root
        if root is None:
            return None
        given = [_value(computation, each, given) for each in computation.operands(root)]
    if root.opcode != "compare" or len(given) != 2:
        return None
    direction = hlo_module.attributes(root).get("direction", "")
    left, right = given
    if left is None or right is None:
        return None
    if left.index is None and right.index is not None:
        left, right, direction = right, left, _MIRRORED.get(direction, "")
    if left.index is None or right.index is not None:
        return None
    return left.index, direction, right.number - left.number


def _start(where: Computation, loop: Instruction, index: int) -> int | None:
    """The constant that the counter begins at."""
    carry = where.operands(loop)
    if len(carry) != 1 or carry[0].opcode != "tuple":
        return None
    elements = where.operands(carry[0])
    value = _value(where, elements[index], ()) if index < len(elements) else None
    return value.number if value is not None and value.index is None else None


def _step(module: Module, body: Computation, index: int) -> int | None:
    """The constant by which the body raises the counter."""
    root = body.root
    if root is None or root.opcode != "tuple":
        return None
    elements = body.operands(root)
    if index >= len(elements):
        return None
    new = elements[index]
    if new.opcode == "fusion" and (called := module.called_computations(new)):
        given = [_value(body, each, ()) for each in body.operands(new)]
        inner = called[0][1]
        value = _value(inner, inner.root, given) if inner.root is not None else None
    else:
        value = _value(body, new, ())
    return value.number if value is not None and value.index == index else None


def _value(
    computation: Computation, instruction: Instruction, given: tuple[()] | list[LoopScalar | None]
) -> LoopScalar | None:
    """A scalar as a number, or an element of the carry plus a number. None for everything else.

    Args:
        given: inside a fusion, what its parameters are; () where the only parameter is the carry.
    """
    opcode, operands = instruction.opcode, computation.operands(instruction)
    if opcode == "constant" and (number := _NUMBER.fullmatch(instruction.operands.strip())):
        return LoopScalar(None, int(number[1]))
    if opcode == "parameter" and given and (number := _NUMBER.fullmatch(instruction.operands.strip())):
        return given[int(number[1])] if int(number[1]) < len(given) else None
    if opcode == "get-tuple-element" and not given and operands and operands[0].opcode == "parameter":
        return LoopScalar(int(hlo_module.attributes(instruction)["index"]), 0)
    if opcode in _PASSES_ON and len(operands) == 1:
        return _value(computation, operands[0], given)
    if opcode in ("add", "subtract") and len(operands) == 2:
        left, right = (_value(computation, each, given) for each in operands)
        return _sum(left, right, 1 if opcode == "add" else -1)
    return None


def _sum(left: LoopScalar | None, right: LoopScalar | None, sign: int) -> LoopScalar | None:
    if left is None or right is None or (left.index is not None and right.index is not None):
        return None
    if sign < 0 and right.index is not None:
        return None
    return LoopScalar(left.index if left.index is not None else right.index, left.number + sign * right.number)
