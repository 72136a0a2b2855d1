"""The CSV file of a test: its columns, its header, one row as a line, and one line as a row.

One form is written, in which texts are words: a word has no blank. So the columns of a file can be aligned for the eye,
and any tool that splits at blanks can split them (awk, numpy, pandas). Characters that cannot be in a word are
percent-encoded as in a URL: "two words" is two%20words. The last column `end` holds one dot: a line that was cut off
while it was written lacks it. `parse_0_5_0` reads the lines of pytest-jax-bench 0.5.0, which that version may also have
added to a file of ours.

Milliseconds, NaN and -1 for what was not measured are of this format; the rest of benchax has seconds and None.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import unquote

from benchax.case import param_value
from benchax.codec import decode_params, encode_params
from benchax.errors import UPGRADE, FormatError, UsageError, one_of
from benchax.model import Opaque

FORMAT = 2
MAGIC = "# pytest-jax-bench"
END = "."

Kind = Literal["int", "float", "text"]

# An int64 rarely needs more than 11 characters, and 22 is the longest repr of a float above 1e-9.
_INT_WIDTH, _FLOAT_WIDTH = 11, 22
_COLUMNS: tuple[tuple[str, Kind, int], ...] = (
    ("run_id", "int", _INT_WIDTH),
    ("commit", "text", 11),
    ("commit_run", "int", _INT_WIDTH),
    ("tag", "text", 11),
    ("parameters", "text", 15),
    ("compile_ms", "float", _FLOAT_WIDTH),
    ("jit_mean_ms", "float", _FLOAT_WIDTH),
    ("jit_std_ms", "float", _FLOAT_WIDTH),
    ("eager_mean_ms", "float", _FLOAT_WIDTH),
    ("eager_std_ms", "float", _FLOAT_WIDTH),
    ("jit_peak_bytes", "int", _INT_WIDTH),
    ("jit_constants_bytes", "int", _INT_WIDTH),
    ("jit_temporary_bytes", "int", _INT_WIDTH),
    ("eager_peak_bytes", "int", _INT_WIDTH),
    ("jit_rounds", "int", _INT_WIDTH),
    ("jit_warmup", "int", _INT_WIDTH),
    ("eager_rounds", "int", _INT_WIDTH),
    ("eager_warmup", "int", _INT_WIDTH),
    ("jit_median_ms", "float", _FLOAT_WIDTH),
    ("jit_low_ms", "float", _FLOAT_WIDTH),
    ("jit_high_ms", "float", _FLOAT_WIDTH),
    ("eager_median_ms", "float", _FLOAT_WIDTH),
    ("eager_low_ms", "float", _FLOAT_WIDTH),
    ("eager_high_ms", "float", _FLOAT_WIDTH),
    ("jit_min_ms", "float", _FLOAT_WIDTH),
    ("eager_min_ms", "float", _FLOAT_WIDTH),
    ("jit_loops", "int", _INT_WIDTH),
    ("timer", "text", 11),
    ("first_run_ms", "float", _FLOAT_WIDTH),
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


# ---- words ------------------------------------------------------------------------------------------------------

EMPTY = '""'
"""The word for an empty text."""

_PLAIN = re.compile(r"[!$&-~][!\"$&-~]*")  # ASCII without blanks and without # and %
_INT = re.compile(r"[+-]?\d+")
_FLOAT = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_LITERALS: dict[str, bool | None] = {"true": True, "false": False, "null": None, "none": None}
_KEY = re.compile(r"[^\W\d]\w*-")
_OPAQUE = re.compile(r"@([^\W\d]\w*):(.*)", re.DOTALL)
_JSON = json.JSONDecoder()
# Python refuses to read longer integers (sys.set_int_max_str_digits).
_LONGEST_INT = 4000


def word(text: str) -> str:
    """`text` without blanks, control characters, # and %; the inverse is `unword`."""
    if _PLAIN.fullmatch(text):
        return text
    if not text:
        return EMPTY
    escaped = "".join(c if c.isprintable() and c not in " #%" else _percent(c) for c in text)
    # A leading quote opens a quotation for some readers, and would make one text look like the empty one.
    return f"%22{escaped[1:]}" if escaped[0] == '"' else escaped


def unword(text: str) -> str:
    """Inverse of `word`. A text that `word` cannot have written (an edit by hand) stays unchanged."""
    if text == EMPTY:
        return ""
    try:
        return unquote(text, errors="surrogatepass") if "%" in text else text
    except UnicodeDecodeError:
        return text


def one_line(text: str) -> str:
    """For a comment: the same without line breaks and other characters that cannot be seen. Undone by `unword`."""
    return "".join(c if c.isprintable() and c != "%" else _percent(c) for c in text)


def _percent(character: str) -> str:
    # surrogatepass: pytest hands on file names and parameters that are not valid Unicode.
    return "".join(f"%{byte:02X}" for byte in character.encode("utf-8", "surrogatepass"))


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
    version = facts_of(comments).get("format") or "1"
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
        return _CONVERT[kind](value)
    except (TypeError, ValueError):
        raise UsageError(f"column {name!r} of the CSV file cannot hold {value!r}", f"a value of kind {kind}") from None


def _int(value: Any) -> int:
    # A compiler that says 2**64 - 1 bytes must not cost the row.
    return max(-_GREATEST, min(operator.index(value), _GREATEST))


def _text(value: Any) -> str:
    # str of a str subclass may be something else: an enum prints as its name.
    return str.__str__(value) if isinstance(value, str) else str(value)


_CONVERT: dict[Kind, Callable[[Any], Any]] = {"int": _int, "float": float, "text": _text}
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
    is_aligned = "".join(f" {each:>{_INT_WIDTH}}" for each in words) == text.rstrip("\r")
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


def head_of(text: str) -> dict[str, Any] | None:
    """The columns by which runs are numbered and found, in a tenth of the time of `parse`, and the line itself. None:
    the line is no row in our form."""
    first, last = text.split(None, 4), text.rsplit(None, 7)
    if len(last) < 8 or last[-1] != END or not (first[0].isdecimal() and first[2].isdecimal()):
        return None
    texts = {"commit": first[1], "tag": first[3], "status": last[1], "session": last[4]}
    found = {name: unword(word) for name, word in texts.items()}
    return {"run_id": int(first[0]), "commit_run": int(first[2]), "line": text, **found}


def _read_int(text: str) -> int:
    value = int(text)
    if not -_GREATEST - 1 <= value <= _GREATEST:  # what an int64 holds, so that NumPy reads the same
        raise ValueError(text)
    return value


# ---- parameters -------------------------------------------------------------------------------------------------
#
# They read n-128,name-alpha, as pytest-jax-bench 0.5.0 wrote them. Equal texts mean equal parameters. A value that
# would look like another one, or would break the text, is written as JSON, such as n-"128" or shape-[2,3].


def encode_parameters(params: Mapping[str, Any]) -> str:
    """Encodes the parameters of a test as one text, "None" if it has no parameters. Two sets share a text only if they
    are equal. Their names are the names of arguments.

    Objects that JSON does not know are identified as in `case.param_value`. The name identifies functions and types, a
    digest of their bytes identifies arrays, and the repr identifies anything else.
    """
    return ",".join(f"{k}-{_value(v)}" for k, v in params.items()) or "None"


def decode_parameters(text: str) -> dict[str, Any]:
    """Inverse of `encode_parameters`; also reads what 0.5.0 wrote, with the types that it took the values for."""
    params: dict[str, Any] = {}
    at = 0
    while at < len(text) and text != "None":
        name, dash, _ = text[at:].partition("-")
        params[name], at = _read_value(text, at + len(name + dash))
    return params


def is_bare(text: str) -> bool:
    """Returns whether a text can be a value without quotes, and be read as the same text again."""
    return text.isprintable() and "," not in text and text[:1] not in ("", '"', "[", "{", "@") and _guess(text) == text


def _value(value: Any) -> str:
    if (
        value is None
        or type(value) is bool
        or (type(value) is int and abs(value) < 2**63)
        or (type(value) is float and math.isfinite(value))
        or (type(value) is str and is_bare(value))
    ):
        return str(value)
    stored = _to_stored(value)
    if isinstance(stored, Opaque) and is_bare(stored.text) and _OPAQUE.fullmatch(f"@{stored.type}:"):
        return f"@{stored.type}:{stored.text}"
    document = json.loads(encode_params((("", stored),)))[0][1]
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _to_stored(value: Any) -> Any:
    """As `param_value`, and texts that are not valid Unicode as well."""
    if isinstance(value, list | tuple):
        return tuple(_to_stored(v) for v in value)  # pyright: ignore[reportUnknownVariableType]
    return value if type(value) in (str, float) else param_value(value)


def _read_value(text: str, at: int) -> tuple[Any, int]:
    if text[at : at + 1] in ('"', "[", "{"):
        try:
            document, end = _JSON.raw_decode(text, at)
            if text[end : end + 1] in ("", ","):
                return decode_params(json.dumps([["", document]]))[0][1], end + 1
        except Exception:  # whatever is wrong with it, it is a text of 0.5.0 that only looks like JSON
            pass
    end = _end(text, at)
    opaque = _OPAQUE.fullmatch(text, at, end)
    return Opaque(*opaque.groups()) if opaque else _guess(text[at:end]), end + 1


def _end(text: str, at: int) -> int:
    """Where a value without quotes ends: at the comma before the next name. 0.5.0 wrote (1, 2) as it stands."""
    end = text.find(",", at)
    while end >= 0 and not (_KEY.match(text, end + 1)):
        end = text.find(",", end + 1)
    return end if end >= 0 else len(text)


def _guess(text: str) -> Any:
    """The type that 0.5.0 took a value for: int, float, bool, None, or the text itself."""
    bare = text.strip()
    if bare.lower() in _LITERALS:
        return _LITERALS[bare.lower()]
    if _INT.fullmatch(bare) and len(bare) < _LONGEST_INT:
        return int(bare)
    return float(bare) if _FLOAT.fullmatch(bare) else bare
