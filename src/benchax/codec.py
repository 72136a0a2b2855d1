"""Measurement to JSON and back, without loss. The only place that knows the format of a document.

Used for the document column of the database and the exports. A document is strict JSON in ASCII: one object,
`{"benchax": FORMAT, "case": {...}, ...}`, whose keys are the names of the fields of `model`. A field that equals
its default is left out. How values are written is in `json_values.py`; answers of workers are made of these as well.
"""

from __future__ import annotations

import json
import marshal
import types
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, NoReturn, TypeVar, cast, get_type_hints

from benchax.errors import UPGRADE, FormatError
from benchax.json_values import converter, decode_value
from benchax.model import Comparison, Environment, Measurement
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
    # Cut out before the text is parsed. Only the arrays of the last block, and an environment, end like this.
    head, _, rest = text.partition(',"blocks":[')
    where, date, rest = rest.partition("]}]")[2].partition('},"compared_at":"')
    is_apart = where.startswith(_ENVIRONMENT)
    document: dict[str, Any] = load(head + date[1:] + rest if is_apart else head + where + date + rest)
    _check_version(document)
    if is_apart:
        document["environment"] = _share_environment(where[len(_ENVIRONMENT) - 1 :] + "}")
    for name in _SHARED.keys() & document.keys():
        document[name] = _share(name, marshal.dumps(document[name], 2))
    return _convert(document, Comparison)


_ENVIRONMENT = ',"environment":{'


@lru_cache(maxsize=4096)
def _share_environment(text: str) -> Environment:
    return _convert(load(text), Environment, path=".environment")


@lru_cache(maxsize=8192)
def _share(name: str, marshalled: bytes) -> Any:
    """Decodes what many comparisons have in common: a site of them takes a sixth longer without it."""
    return _convert(marshal.loads(marshalled), _SHARED[name], path=f".{name}")


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
_SHARED = {name: get_type_hints(Comparison)[name] for name in ("case", "baseline", "candidate")}
