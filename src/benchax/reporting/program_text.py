"""Text of programs for reading: what is long is folded, what is noise is left out.

Folded means: a line says how much is not shown. With `full` the text is what JAX and XLA print, to the last character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from benchax.reporting.document import Code
from benchax.results.difference import Stage
from benchax.units import size

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
    run: list[str] = []
    for line, is_nested in zip(lines, nested, strict=True):
        if is_nested:
            run.append(_truncate(line))
            continue
        yield from _show_run(run)
        run = []
        yield _truncate(line)
    yield from _show_run(run)


def _show_run(run: list[str]) -> Iterator[str]:
    if len(run) <= NESTED_LINES + 2:  # a line that says "2 lines" would spare none
        yield from run
        return
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
