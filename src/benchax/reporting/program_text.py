"""Text of programs for reading: what is long is folded, what is noise is left out.

Folded means: a line says how much is not shown. With `full` the text is what JAX and XLA print, to the last character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from benchax.reporting.document import Code, Outline, OutlineColumn, OutlineEntry
from benchax.results.inspection import HloOperation, HloOperations, Stage
from benchax.units import plural, size

NESTED_LINES = 40
"""The most lines of one nested body."""
HEAD_LINES, TAIL_LINES = 250, 20
"""The first and last lines that are shown of the whole text."""
LINE_CHARACTERS = 400
OUTER_INDENT = 4
"""The indent of the outermost equations and operations, in jaxprs and in StableHLO."""

_HEX = re.compile(r'dense<"0x([0-9A-Fa-f]{64,})">')
_LIST = re.compile(r"dense<\[[^<>]{200,}\]>")
_TABLES = re.compile(r"^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:.+\n)*\n?", re.MULTILINE)
_BLANK = re.compile(r"\n{3,}")
_FRAME = re.compile(r" ?stack_frame_id=\d+| ?metadata=\{\},?")


def program_text(stage: Stage, text: str, full: bool = False, title: str = "") -> Code:
    """The text of a stage, folded unless it is wanted in full."""
    if full:
        return Code(stage, text.rstrip("\n"), title)
    if stage == "hlo":
        text = _FRAME.sub("", _BLANK.sub("\n\n", _TABLES.sub("", text)))
    lines = _without_long_constants(text).rstrip("\n").splitlines()
    is_nested = _in_inner_computation if stage == "hlo" else _is_indented
    return Code(stage, "\n".join(_cut_lines(list(_fold(lines, is_nested(lines))))), title)


def diff_text(unified: str, full: bool = False) -> Code:
    lines = unified.splitlines()
    return Code("diff", unified if full else "\n".join(_cut_lines([_truncate(line) for line in lines])))


def _without_long_constants(text: str) -> str:
    text = _HEX.sub(lambda m: f'dense<"0x{m[1][:16]}… {size(len(m[1]) // 2)}">', text)
    return _LIST.sub(lambda m: f"{m[0][:60]}… {len(m[0])} characters]>", text)


def _is_indented(lines: list[str]) -> Iterator[bool]:
    for line in lines:
        yield len(line) - len(line.lstrip(" ")) > OUTER_INDENT


def _in_inner_computation(lines: list[str]) -> Iterator[bool]:
    """Is a line of HLO in the body of a computation that is not the entry?"""
    in_entry = False
    for line in lines:
        if line and not line[0].isspace():
            in_entry = line.startswith("ENTRY")
        yield line.startswith(" ") and not in_entry


def _fold(lines: list[str], nested: Iterable[bool]) -> Iterator[str]:
    """Bodies of more than `NESTED_LINES` lines without what is beyond; long lines without their ends."""
    for is_inner, group in groupby(zip(lines, nested, strict=True), lambda pair: pair[1]):
        run = [_truncate(line) for line, _ in group]
        if not is_inner or len(run) <= NESTED_LINES + 2:  # a line that says "2 lines" would spare none
            yield from run
            continue
        yield from run[:NESTED_LINES]
        indent = run[NESTED_LINES][: len(run[NESTED_LINES]) - len(run[NESTED_LINES].lstrip(" "))]
        yield f"{indent}… {len(run) - NESTED_LINES} lines; --full shows them"


def _cut_lines(lines: list[str]) -> list[str]:
    if len(lines) <= HEAD_LINES + TAIL_LINES + 1:
        return lines
    left_out = len(lines) - HEAD_LINES - TAIL_LINES
    return [*lines[:HEAD_LINES], f"… {left_out} lines; --full shows them", *lines[-TAIL_LINES:]]


def _truncate(line: str) -> str:
    if len(line) <= LINE_CHARACTERS:
        return line
    return f"{line[:LINE_CHARACTERS]}… {len(line) - LINE_CHARACTERS} characters"


COLUMNS = (OutlineColumn("operations", "flop"), OutlineColumn("transcendentals"), OutlineColumn("bytes", "bytes"))
CAPTION = "the optimised program: boxes with all that is inside"
NOTE = (
    "Numbers are for one call, by our own count: bodies of loops times their trip counts. A fusion is where its result "
    "belongs, with all that was fused into it; the bytes are its own. Parameters, constants, tuples and bitcasts do no "
    "work and are left out. A branch counts as if it were taken."
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
    left_out = f" {plural(found.left_out, 'operation')} more, the deepest ones, are not listed." * bool(found.left_out)
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
