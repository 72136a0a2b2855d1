"""An optimised program as an outline: its operations folded by named scope, inside loops, branches, calls and fusions.

Operations inside a loop or a fusion are folded by the scopes that the loop itself is not in. A box of very many
operations without scopes is folded by line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from benchax.reporting.outline import Outline, OutlineColumn, OutlineEntry
from benchax.results.operations import HloOperation, HloOperations
from benchax.units import plural

COLUMNS = (OutlineColumn("operations", "flop"), OutlineColumn("transcendentals"), OutlineColumn("bytes", "bytes"))
CAPTION = "the optimised program: boxes with all that is inside"
NOTE = (
    "Of one call, by our own count: bodies of loops times their trip counts. A fusion stands where its result belongs, "
    "with all that was fused into it; the bytes are its own. Parameters, constants, tuples and bitcasts do no work and "
    "are left out. Of a branch: what it does where it is taken."
)
KINDS = {"while": "loop", "call": "call", "async-start": "call"}
COMPILER = "(the compiler's own)"
T = TypeVar("T")
MOST_PLAIN = 24
"""Operations side by side are folded by line if there are more of them than this."""
_LAYOUT = re.compile(r"(\[[^\]]*\])\{[^}]*\}|/\*.*?\*/")
_ARRAY = re.compile(r"[a-z]\w*\[[^\]]*\]")


def make_outline(found: HloOperations) -> Outline:
    folder = _Folder(found.listed)
    left_out = f" {plural(found.left_out, 'operation')} more, which stand deepest, are not listed." * bool(
        found.left_out
    )
    return Outline(CAPTION, COLUMNS, folder.fold_inside(None), NOTE + left_out)


class _Folder:
    def __init__(self, listed: Sequence[HloOperation]) -> None:
        self.listed = listed
        self.inside: dict[int | None, dict[str, list[int]]] = {}
        for number, one in enumerate(listed):
            self.inside.setdefault(one.inside, {}).setdefault(one.part, []).append(number)

    def fold_inside(self, holder: int | None) -> tuple[OutlineEntry, ...]:
        """Returns the operations inside an operation: its body, its branches, or its fused operations."""
        around = "" if holder is None else self.listed[holder].scope
        by_part = self.inside.get(holder, {})
        folded = {part: self.fold(self.place(numbers, around)) for part, numbers in by_part.items()}
        if len(folded) < 2:
            return next(iter(folded.values()), ())
        # The body first: a condition is small, and stands before it in the text.
        parts = sorted(folded, key=lambda part: part == "condition")
        return tuple(self.group(part, "", by_part[part], folded[part]) for part in parts)

    def place(self, numbers: Sequence[int], around: str) -> list[tuple[int, str]]:
        """(number, its scope inside of `around`, or the whole of another one)"""
        scopes = ((number, self.listed[number].scope) for number in numbers)
        return [(n, "" if scope == around else scope.removeprefix(f"{around}/")) for n, scope in scopes]

    def fold(self, placed: Sequence[tuple[int, str]]) -> tuple[OutlineEntry, ...]:
        """Folds operations by the first step of their scopes, in the order of the first operation of each."""
        by_step = _group(placed, lambda one: one[1].partition("/")[0])
        made = list(self.fold_plain([number for number, _ in by_step.pop("", [])]))
        for step, members in by_step.items():
            numbers = [number for number, _ in members]
            inner = self.fold([(number, scope.partition("/")[2]) for number, scope in members])
            made.append((numbers[0], self.group(step, "scope", numbers, inner)))
        return tuple(entry for _, entry in sorted(made, key=lambda pair: pair[0]))

    def fold_plain(self, numbers: Sequence[int]) -> Iterable[tuple[int, OutlineEntry]]:
        """(place of the first, entry)"""
        lines = _group(numbers, lambda number: self.listed[number].source)
        if len(numbers) <= MOST_PLAIN or len(lines) < 2:
            yield from ((number, self.entry(number)) for number in numbers)
            return
        for line, members in lines.items():
            entries = tuple(map(self.entry, members))
            is_alone = len(members) == 1
            yield members[0], entries[0] if is_alone else self.group(line or COMPILER, "line", members, entries)

    def group(self, name: str, kind: str, members: Sequence[int], parts: tuple[OutlineEntry, ...]) -> OutlineEntry:
        values = zip(*(_values(self.listed[member]) for member in members), strict=True)
        detail = plural(len(members), "operation")
        return OutlineEntry(name, kind, tuple(map(_add, values)), detail, parts=parts)

    def entry(self, number: int) -> OutlineEntry:
        one = self.listed[number]
        detail = " · ".join(text for text in (_describe_shape(one.shape), one.remark) if text)
        kind = KINDS.get(one.opcode, one.opcode)
        parts = self.fold_inside(number)
        return OutlineEntry(one.name, kind, _values(one), detail, one.source, parts, number, one.reads)


def _values(one: HloOperation) -> tuple[float | None, ...]:
    return one.flops, one.transcendentals, one.bytes_accessed


def _add(values: Sequence[float | None]) -> float | None:
    """A sum with a hole in it is no sum."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _group(listed: Sequence[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for one in listed:
        found.setdefault(key(one), []).append(one)
    return found


def _describe_shape(shape: str) -> str:
    """Without layout; a tuple as the number of its arrays."""
    plain = _LAYOUT.sub(r"\1", shape)
    return plural(len(_ARRAY.findall(plain)), "array") if plain.startswith("(") else plain
