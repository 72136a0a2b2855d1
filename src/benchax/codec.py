"""Measurement to JSON and back, without loss. The only place that knows the format of a document.

Used for the document column of the database and the exports. A document is strict JSON in ASCII: one object,
`{"benchax": FORMAT, "case": {...}, ...}`, whose keys are the names of the fields of `model`. A field that equals
its default is left out. How values are written is in `json_values.py`; answers of workers are made of these as well.
"""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, NoReturn, TypeVar, cast, get_type_hints

from benchax.errors import UPGRADE, FormatError
from benchax.json_values import converter, decode_value
from benchax.model import Comparison, Measurement
from benchax.printable import quote

T = TypeVar("T")

FORMAT = 3
"""The version written. Every earlier version stays readable forever (tests/golden).

History of the format. Any field added, renamed or removed in `model` is a new version, with a line here. If the old
documents need it, `from_document` gets a step that rewrites them.

    1   2025-11   the first
    2   2026-11   work: the work of one call; nothing to rewrite
    3   2026-11   devices, ranks, options.nprocs: of several devices or processes; nothing to rewrite
"""

VERSION_KEY = "benchax"


class NewerFormat(FormatError):
    """A document was written by a newer benchax."""


def encode(result: Any, notes: Mapping[str, Any] = types.MappingProxyType({})) -> str:
    """A result as one line of strict JSON in ASCII: no NaN tokens, no raw newlines, whatever its texts contain.

    Args:
        result: a measurement, a comparison, or an inspection.
        notes: written in addition to the fields, under keys that no field has. `decode` ignores them.

    Raises:
        TypeError: a field holds something that its annotation in `model` does not allow.
    """
    return _dump(to_document(result) | dict(notes))


def decode(text: str) -> Measurement:
    """The measurement in a document that `encode` wrote, now or in an earlier version.

    Raises:
        FormatError: not JSON, not one of our documents, or from a newer benchax.
    """
    return from_document(load(text))


def decode_as(text: str, kind: type[T]) -> T:
    """As `decode`, for a result of another kind."""
    return _decoded(load(text), kind)


def load(text: str) -> Any:
    """The JSON of a document, which need not be one of ours. Raises `FormatError` if it is no JSON."""
    try:
        return _JSON.decode(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not a document of benchax: {quote(text)} ({error})", "one JSON object") from error


def to_document(result: Any) -> dict[str, Any]:
    """`result` as nested dicts, lists and scalars, ready for any writer of JSON. Raises as `encode` does."""
    return {VERSION_KEY: FORMAT, **converter(result.__class__).encode(result)}


def from_document(document: object) -> Measurement:
    """Inverse of `to_document`. Keys that no field has are ignored, so that other tools can add their own notes.

    Raises:
        FormatError: not a document of benchax, or from a newer benchax.
    """
    return _decoded(document, Measurement)


def _dump(document: Any) -> str:
    return json.dumps(document, allow_nan=False, separators=(",", ":"))


def _decoded(document: object, hint: Any) -> Any:
    _check_version(document)
    return _convert(document, hint)


_convert = partial(decode_value, problem="a document of benchax is damaged")


def decode_comparison(text: str, *, with_blocks: bool = True) -> Comparison:
    """The comparison in a document that `encode` wrote. Raises `FormatError` as `decode` does.

    Args:
        with_blocks: False leaves out the samples, which are most of a document and slow to decode.
    """
    if with_blocks:
        return decode_as(text, Comparison)
    # Cut before anything is parsed. No text has these marks inside, because its quotation marks are escaped. Only the
    # arrays of the last block end like this.
    head, _, rest = text.partition(',"candidate":')
    candidate, _, rest = rest.partition(',"verdict":')
    own, blocks, rest = rest.partition(',"blocks":[')
    own, _, rest = (own + rest.partition("]}]")[2] if blocks else own).partition(',"environment":{')
    where, date, rest = rest.partition('},"compared_at":')
    if not date:  # from another writer, or without an environment
        return dataclasses.replace(decode_as(text, Comparison), blocks=())
    document: dict[str, Any] = load(f'{{"verdict":{own},"compared_at":{rest}')
    for part in (f"{head}}}", f'{{"candidate":{candidate}}}', f'{{"environment":{{{where}}}}}'):
        document |= _decode_shared(part)
    _check_version(document)
    return _convert(document, Comparison)


@lru_cache(maxsize=8192)
def _decode_shared(text: str) -> dict[str, Any]:
    """Decodes fields that many comparisons have in common."""
    return {
        name: _convert(value, _HINTS[name], path=f".{name}") if name in _HINTS else value
        for name, value in load(text).items()
    }


def encode_params(params: tuple[tuple[str, Any], ...]) -> str:
    """The parameters of a case as JSON. Equal texts mean equal parameters: 1, 1.0, True and "1" differ."""
    return _dump(_PARAMS.encode(params))


def decode_params(text: str) -> tuple[tuple[str, Any], ...]:
    """Inverse of `encode_params`."""
    return _PARAMS.decode(json.loads(text)) if text != "[]" else ()


def _check_version(document: object) -> None:
    expected = f'an object with "{VERSION_KEY}": {FORMAT}'
    if not isinstance(document, dict):
        raise FormatError(f"not a document of benchax: {quote(document)}", expected)
    version = cast("dict[str, Any]", document).get(VERSION_KEY)
    if type(version) is not int or version < 1:
        found = f'"{VERSION_KEY}": {quote(version)}' if VERSION_KEY in document else quote(cast(object, document))
        raise FormatError(f"not a document of benchax: {found}", expected)
    if version > FORMAT:
        raise NewerFormat(
            f"a document was written by a newer benchax (format {version}; this one reads up to {FORMAT})",
            hint=UPGRADE,
        )


def _reject_constant(token: str) -> NoReturn:
    raise ValueError(f"{token} is not JSON")


_PARAMS = converter(tuple[tuple[str, Any], ...])
_JSON = json.JSONDecoder(parse_constant=_reject_constant)
_HINTS = get_type_hints(Comparison)
