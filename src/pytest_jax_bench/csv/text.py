"""Any text as one word of a CSV file, and the parameters of a test as one text.

A word has no blank. So the columns of a file can be aligned for the eye, and any tool that splits at blanks can split
them (awk, numpy, pandas). Characters that cannot be in a word are percent-encoded as in a URL: "two words" is
two%20words.

Parameters read n-128,name-alpha, as pytest-jax-bench 0.5.0 wrote them. Equal texts mean equal parameters. A value that
would look like another one, or would break the text, is written as JSON, such as n-"128" or shape-[2,3].
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from benchax.case import param_value
from benchax.codec import decode_params, encode_params
from benchax.model import Opaque

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


# ---- parameters -------------------------------------------------------------------------------------------------


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
    if value is None or type(value) is bool or (type(value) is int and abs(value) < 2**63):
        return str(value)
    if type(value) is float and math.isfinite(value):
        return repr(value)
    if type(value) is str and is_bare(value):
        return value
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
