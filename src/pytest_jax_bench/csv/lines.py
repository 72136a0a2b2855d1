"""The CSV file of a test: its columns, its header, one row as a line, and one line as a row.

One form is written, in which texts are words (`text.py`). Its last column `end` holds one dot: a line that was cut off
while it was written lacks it. `parse_0_5_0` reads the lines of pytest-jax-bench 0.5.0, which that version may also have
added to a file of ours.

Milliseconds, NaN and -1 for what was not measured are of this format; the rest of benchax has seconds and None.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from benchax.errors import UPGRADE, FormatError, UsageError, one_of
from pytest_jax_bench.csv.text import encode_parameters, one_line, unword, word

FORMAT = 2
MAGIC = "# pytest-jax-bench"
END = "."

Kind = Literal["int", "float", "text"]

_INT, _FLOAT = 11, 22  # characters: an int64 rarely needs more, and 22 is the longest repr of a float above 1e-9
_COLUMNS: tuple[tuple[str, Kind, int], ...] = (
    ("run_id", "int", _INT),
    ("commit", "text", 11),
    ("commit_run", "int", _INT),
    ("tag", "text", 11),
    ("parameters", "text", 15),
    ("compile_ms", "float", _FLOAT),
    ("jit_mean_ms", "float", _FLOAT),
    ("jit_std_ms", "float", _FLOAT),
    ("eager_mean_ms", "float", _FLOAT),
    ("eager_std_ms", "float", _FLOAT),
    ("jit_peak_bytes", "int", _INT),
    ("jit_constants_bytes", "int", _INT),
    ("jit_temporary_bytes", "int", _INT),
    ("eager_peak_bytes", "int", _INT),
    ("jit_rounds", "int", _INT),
    ("jit_warmup", "int", _INT),
    ("eager_rounds", "int", _INT),
    ("eager_warmup", "int", _INT),
    ("jit_median_ms", "float", _FLOAT),
    ("jit_low_ms", "float", _FLOAT),
    ("jit_high_ms", "float", _FLOAT),
    ("eager_median_ms", "float", _FLOAT),
    ("eager_low_ms", "float", _FLOAT),
    ("eager_high_ms", "float", _FLOAT),
    ("jit_min_ms", "float", _FLOAT),
    ("eager_min_ms", "float", _FLOAT),
    ("jit_loops", "int", _INT),
    ("timer", "text", 11),
    ("first_run_ms", "float", _FLOAT),
    ("status", "text", 11),
    ("message", "text", 11),
    ("created", "text", 32),
    ("session", "text", 32),
    ("environment", "text", 16),
    ("jax", "text", 11),
)
KINDS: dict[str, Kind] = {name: kind for name, kind, _ in _COLUMNS}
COLUMNS = tuple(KINDS)
"""The names of the columns, in order: in the array that `files.read` returns, and in the file."""
MISSING: dict[Kind, Any] = {"int": -1, "float": float("nan"), "text": ""}

CURRENT = (*COLUMNS, "end")
"""The columns of a file that is written."""
OLD_18 = COLUMNS[:18]
"""The columns of pytest-jax-bench 0.5.0."""
OLD_17 = tuple(name for name in OLD_18 if name != "parameters")
"""The columns in its documentation."""
_WIDTHS = (*(width for *_, width in _COLUMNS), len("(36)"))
_GREATEST = 2**63 - 1


# ---- header -----------------------------------------------------------------------------------------------------


def header(facts: Mapping[str, str]) -> list[str]:
    """The lines above the rows. `facts` are created, test_nodeid, backend, device and "First commit"."""
    named = [f"# {name}: {one_line(text)}" for name, text in facts.items() if name not in _NOT_FACTS]
    listed = [f"# {f'({i})':>4} {name}" for i, name in enumerate(CURRENT, 1)]
    numbers = "".join(f" {f'({i})':>{width}}" for i, width in enumerate(_WIDTHS, 1))
    return [
        MAGIC,
        *named,
        f"# format: {FORMAT}",
        '# texts: without blanks, with %20 for a blank and so on as in a URL; "" is the empty text',
        "# missing: nan in a time, -1 in a number of bytes or calls",
        *listed,
        f"#{numbers[1:]}",
    ]


_LISTED = re.compile(r"#\s*\(\d+\)\s+([^\W\d]\w*)\s*")
_FACT = re.compile(r"# ([^:()]+): (.*)")
_NOT_FACTS = ("format", "texts", "missing")


def form_of(comments: Sequence[str], where: str) -> tuple[str, ...] | None:
    """Returns the columns below a header, or None if the header doesn't list them all.

    Raises:
        FormatError: a newer benchax wrote it.
    """
    version = facts_of(comments).get("format", "1")
    if not version.isdigit() or int(version) > FORMAT:
        raise FormatError(f"{where} has format {version!r}; this benchax reads up to {FORMAT}", hint=UPGRADE)
    columns = tuple(match[1] for match in map(_LISTED.fullmatch, comments) if match)
    return columns if columns in (CURRENT, OLD_18, OLD_17) else None


def facts_of(comments: Sequence[str]) -> dict[str, str]:
    """The named lines of a header: created, test_nodeid, …"""
    found = {match[1]: match[2] for match in map(_FACT.fullmatch, comments) if match}
    return found if found.get("format", "1") == "1" else {name: unword(text) for name, text in found.items()}


BEGUN_BY_0_5 = {"begun by": "pytest-jax-bench 0.5.0 or earlier"}
"""The addition to the header of a file that is rewritten."""


def is_of_0_5(comments: Sequence[str]) -> bool:
    """Was this file begun by pytest-jax-bench, under the name that it chose?"""
    facts = facts_of(comments)
    return "format" not in facts or facts.items() >= BEGUN_BY_0_5.items()


def notes_of(comments: Sequence[str]) -> list[str]:
    """The lines of a header that somebody else wrote."""
    ours = re.compile(rf"{MAGIC}|{_FACT.pattern}|{_LISTED.pattern}|#\s*\(1\)\s+\(2\).*|\s*")
    return [f"#{one_line(text[1:])}" for text in comments if not ours.fullmatch(text)]


# ---- a row as a line --------------------------------------------------------------------------------------------


def complete(row: Mapping[str, Any]) -> dict[str, Any]:
    """All columns, as plain Python values; what `row` does not give, or gives as None, is marked as missing.

    Raises:
        UsageError: there is no such column, or a value is of another kind.
    """
    for unknown in row.keys() - KINDS.keys():
        raise UsageError(f"the CSV file has no column {unknown!r}", one_of(COLUMNS, unknown))
    return {name: _plain(name, kind, row.get(name)) for name, kind in KINDS.items()}


def line(values: Mapping[str, Any]) -> str:
    """The row that `complete` made, aligned, without a line break. `parse` gives back exactly these values."""
    words = [*(_WRITE[kind](values[name]) for name, kind in KINDS.items()), END]
    return "".join(f" {text:>{width}}" for text, width in zip(words, _WIDTHS, strict=True))


def _plain(name: str, kind: Kind, value: Any) -> Any:
    if value is None:
        return MISSING[kind]
    if name == "parameters" and isinstance(value, Mapping):
        return encode_parameters(value)  # pyright: ignore[reportUnknownArgumentType]
    try:
        return _PLAIN[kind](value)
    except (TypeError, ValueError):
        raise UsageError(f"column {name!r} of the CSV file cannot hold {value!r}", f"a value of kind {kind}") from None


def _int(value: Any) -> int:
    # A compiler that says 2**64 - 1 bytes must not cost the row.
    return max(-_GREATEST, min(operator.index(value), _GREATEST))


def _text(value: Any) -> str:
    # str of a str subclass may be something else: an enum prints as its name.
    return str.__str__(value) if isinstance(value, str) else str(value)


_PLAIN: dict[Kind, Callable[[Any], Any]] = {"int": _int, "float": float, "text": _text}
_WRITE: dict[Kind, Callable[[Any], str]] = {"int": str, "float": repr, "text": word}


# ---- a line as a row --------------------------------------------------------------------------------------------


def parse(text: str, form: tuple[str, ...] | None) -> dict[str, Any] | None:
    """The values of a line; columns that it does not have are missing. None: the line is damaged.

    Args:
        form: the columns of the file; None where the header was lost, and the number of columns tells.
    """
    words = text.split()
    if len(words) == len(CURRENT) and words[-1] == END:
        return _values(CURRENT, words, unword)
    return parse_0_5_0(text, form)


def parse_0_5_0(text: str, form: tuple[str, ...] | None) -> dict[str, Any] | None:
    """The values of a line of pytest-jax-bench 0.5.0, in which the tag and the parameters can have blanks.

    In a file of ours, its columns must be 11 characters wide, as that version writes them. Ours are wider, so a line of
    ours that was cut off is not taken for one.
    """
    words = words_of(text)
    columns = OLD_17 if form == OLD_17 or (form is None and len(words) == len(OLD_17)) else OLD_18
    if len(words) > len(columns) and (match := _BLANKS_INSIDE.fullmatch(text)):
        *first, middle, rest = match.groups()
        named = [middle.strip()]
        if columns == OLD_18:
            # None, or name-value,name-value, both aligned to the right.
            split = re.fullmatch(r"(.*) {8}(None)", middle) or re.fullmatch(r"(.*?) +([^\W\d]\w*-.*)", middle)
            named = [split[1].strip(), split[2]] if split else []
        words = [*first, *named, *rest.split()]
    is_aligned = "".join(f" {each:>{_INT}}" for each in words) == text.rstrip("\r")
    if len(words) != len(columns) or (form == CURRENT and not is_aligned):
        return None
    return _values(columns, words, str)


_BLANKS_INSIDE = re.compile(r"\s*(\S+)\s+(\S+)\s+(\S+) (.*?)((?:\s+\S+){13})\s*")


def _values(columns: Sequence[str], words: Sequence[str], read_text: Callable[[str], str]) -> dict[str, Any] | None:
    read: dict[Kind, Callable[[str], Any]] = {"int": _read_int, "float": float, "text": read_text}
    found = dict(zip(columns, words, strict=True))
    try:
        return {name: read[kind](found[name]) if name in found else MISSING[kind] for name, kind in KINDS.items()}
    except ValueError:
        return None


def words_of(line: str) -> list[str]:
    """This is not `line.split()`, which knows many more blanks: a tag of 0.5.0 can contain them."""
    return [text for text in re.split(r"[ \t\r]+", line) if text]


def is_whole(text: str, form: tuple[str, ...] | None) -> bool:
    """Is this line complete, although no line break ends it?

    In our form `end` tells, in that of 0.5.0 the alignment: the last of its columns is 11 characters wide.
    """
    is_ended = text.split()[-1:] == [END] or re.fullmatch(r"\s+\S+", text.rstrip()[-12:]) is not None
    return is_ended and parse(text, form) is not None


def numbers_of(text: str) -> tuple[int, str, int, str] | None:
    """(run_id, commit, commit_run, session) of a line, in a fifth of the time of `parse`; None where it is no row."""
    words = text.split()
    if len(words) < len(OLD_17) or not (words[0].isdecimal() and words[2].isdecimal()):
        return None
    return int(words[0]), unword(words[1]), int(words[2]), unword(words[-4]) if words[-1] == END else ""


def _read_int(text: str) -> int:
    value = int(text)
    if not -_GREATEST - 1 <= value <= _GREATEST:  # what an int64 holds, so that NumPy reads the same
        raise ValueError(text)
    return value
