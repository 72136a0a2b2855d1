"""Which functions of a program could be jitted as a whole: of what was noted of its eager operations.

A function is one that sends many operations in each of many calls, and that jit can take as it stands: it calls nothing
that is jitted already, does not go on by a value that it has read, and stores nothing outside of itself. Of those that
call one another it is the outermost one; but not one that does little else than to call another in a long loop, which
would be unrolled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

OFTEN = 5
"""Calls: then it is called in a loop."""
LEAST_EACH, MOST_EACH = 10, 5000
"""Operations in each call. Fewer are told by their lines; of more the program would take minutes to compile."""
NEARLY_ALL, LONG_LOOP = 0.8, 20
"""A function that sends this share of another one's operations, and is called so many times by each call of it."""
MANY_IN_PACKAGE = 1000
"""Operations of the user's function that a package calls: fewer it may send to look what that function is like."""


@dataclass
class EagerFunction:
    """One that could be jitted."""

    call: Mapping[str, Any]
    """Where it is called, and what is known of it: an `eager_calls.EagerCall` in plain data."""
    operations: int = 0
    lines: Counter[str] = field(default_factory=Counter[str])
    """Of the operations."""

    @property
    def each(self) -> int:
        """Operations in each call."""
        return round(self.operations / self.call["count"])


def functions_to_jit(noted: Mapping[str, Any], least: int) -> list[EagerFunction]:
    """Those of at least so many operations, most first.

    Args:
        noted: `EagerCalls.asdict`.
    """
    return _FunctionChoice(noted["calls"], noted["paths"], least).functions()


@dataclass(frozen=True)
class _FunctionChoice:
    calls: Sequence[Mapping[str, Any]]
    paths: Sequence[tuple[Sequence[int], str | None, int]]
    least: int

    @cached_property
    def operations(self) -> Counter[int]:
        """Below each call."""
        found = Counter[int]()
        for numbers, _, n in self.paths:
            found.update(dict.fromkeys(numbers, n))
        return found

    @cached_property
    def storing(self) -> set[int]:
        """Calls of functions that store, or call one that does."""
        found = set[int]()
        for numbers, *_ in self.paths:
            last = max((i for i, one in enumerate(numbers) if self._stores(one)), default=-1)
            found.update(numbers[: last + 1])
        return found

    def _stores(self, number: int) -> bool:
        return self.calls[number]["is_users"] and self.calls[number]["stores"]

    def functions(self) -> list[EagerFunction]:
        found: dict[tuple[str, str], EagerFunction] = {}
        for numbers, where, n in self.paths:
            if (chosen := self._choose(numbers)) is not None:
                call = self.calls[chosen]
                one = found.setdefault((call["where"], call["defined"]), EagerFunction(call))
                one.operations += n
                one.lines[where or ""] += n
        large = [one for one in found.values() if one.operations >= self.least]
        return sorted(large, key=lambda one: -one.operations)

    @cached_property
    def loops(self) -> set[int]:
        """Calls of functions that do little else than to call another one that could be jitted, in a long loop."""
        return {
            outer
            for numbers, *_ in self.paths
            for i, outer in enumerate(numbers)
            for inner in numbers[i + 1 :]
            if self._is_able(inner) and self._is_loop_over(outer, inner)
        }

    def _choose(self, numbers: Sequence[int]) -> int | None:
        return next((number for number in numbers if self._is_able(number) and number not in self.loops), None)

    def _is_able(self, number: int) -> bool:
        call, n = self.calls[number], self.operations[number]
        return (
            call["count"] >= OFTEN
            and LEAST_EACH <= n / call["count"] <= MOST_EACH
            and n >= (MANY_IN_PACKAGE if call["is_through_package"] else self.least)
            and not (call["jitted"] or call["acts_on_values"] or number in self.storing)
        )

    def _is_loop_over(self, outer: int, inner: int) -> bool:
        is_long = self.calls[inner]["count"] >= LONG_LOOP * self.calls[outer]["count"]
        return is_long and self.operations[inner] >= NEARLY_ALL * self.operations[outer]
