"""Converts dataclasses to JSON and back by their annotations, for documents and for messages between processes.

Annotated types are enforced in both directions. `Any` allows all values (parameters, settings of JAX). There, str,
bool, int, float, None, tuples of these and Opaque come back as they were. A list comes back as a tuple, a NumPy or JAX
scalar as the Python one, and anything else as an Opaque. This loses a type, but keeps the row. Values that JSON cannot
express are an object with one key:

    {"$float": "nan"}              also "inf", "-inf"
    {"$int": "0x..."}              integers beyond 64 bits; many readers of JSON cut them
    {"$opaque": [type, text]}      Opaque
"""

from __future__ import annotations

import dataclasses
import math
import operator
import re
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple, NewType, Union, cast

from benchax.errors import FormatError
from benchax.model import Opaque
from benchax.printable import quote

Json = NewType("Json", dict[str, Any])
"""A document that is JSON as it stands; nothing of it is looked at."""


def encode_value(value: Any, hint: Any) -> Any:
    """`value` as `json.dumps` takes it, by the annotation `hint`: any dataclass, and what these are made of. For
    messages between processes of one benchax; without a version.

    Raises:
        TypeError: it holds something that its annotation does not allow.
    """
    return converter(hint).encode(value)


def decode_value(document: object, hint: Any, problem: str = "a message is damaged", path: str = "") -> Any:
    """Inverse of `encode_value`.

    Args:
        problem: what is wrong if the document cannot be read.
        path: of this part within its document.

    Raises:
        FormatError: the document is not what `encode_value` makes of such a value.
    """
    try:
        return converter(hint).decode(document)
    except Mismatch as mismatch:
        mismatch.path = path + mismatch.path
        raise FormatError(f"{problem}: {mismatch}", mismatch.expected) from mismatch


# ---- by annotation ----------------------------------------------------------------------------------------------


class Converter(NamedTuple):
    """Functions that write and read values of one annotation. `decode` accepts everything that `encode` allows."""

    encode: Callable[[Any], Any]
    """Raises TypeError."""
    decode: Callable[[Any], Any]
    """Raises Mismatch."""
    plain: frozenset[type] = frozenset()
    """Types of values that stand for themselves in a document: `decode` would return them as they are."""


class Mismatch(Exception):
    """`found` has appeared instead of `expected`; `path` is completed on the way up."""

    def __init__(self, found: object, expected: str) -> None:
        self.found, self.expected, self.path = found, expected, ""

    def __str__(self) -> str:
        return f"{self.path.removeprefix('.') or 'it'} is {quote(self.found)}"


@cache
def converter(hint: Any) -> Converter:
    """Built once per annotation: reading the hints of a class takes longer than converting an object of it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if origin is Literal:
        return _scalar(arguments.__contains__, f"one of: {', '.join(map(str, arguments))}")
    if dataclasses.is_dataclass(hint):
        return _dataclass(cast(type, hint))
    if origin in (Union, types.UnionType):
        return _optional(arguments)
    if origin is tuple:
        return _sequence(arguments)
    if origin is list:
        return _sequence((*arguments, ...), list)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(arguments[1])
    if isinstance(hint, type):  # arrays, bytes: who writes the document knows what to do with them
        return _left(hint)
    raise TypeError(f"benchax.json_values has no rule for the annotation {hint}; add one to the others")


def _dataclass(cls: type) -> Converter:
    hints = typing.get_type_hints(cls)
    stored = [f for f in dataclasses.fields(cls) if not f.metadata.get("is_stored_apart")]
    fields = [(f.name, converter(hints[f.name]), _default(f)) for f in stored]
    decoders = {name: (converter.plain, converter.decode) for name, converter, _ in fields}
    required = [name for name, _, default in fields if default is _REQUIRED]

    def encode(value: Any) -> dict[str, Any]:
        document: dict[str, Any] = {}
        for name, converter, default in fields:
            item = getattr(value, name)
            # The types too, because True == 1 == 1.0.
            if type(item) is type(default) and item == default:
                continue
            try:
                document[name] = converter.encode(item)
            except TypeError as error:
                raise TypeError(f"{cls.__name__}.{name}: {error}") from error
        return document

    def decode(json_value: Any) -> Any:
        document = _checked(json_value, dict, "an object")
        values: dict[str, Any] = {}
        name = ""
        try:
            for name, item in document.items():
                if name in decoders:
                    plain, decode_item = decoders[name]
                    values[name] = item if type(item) in plain else decode_item(item)
        except Mismatch as mismatch:
            mismatch.path = f".{name}{mismatch.path}"
            raise
        for name in required:
            if name not in values:
                raise Mismatch(document, f"an object with {name!r}")
        return cls(**values)

    return Converter(encode, decode, frozenset({cls}))


_REQUIRED = object()


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return _REQUIRED if field.default is dataclasses.MISSING else field.default


def _sequence(hints: tuple[Any, ...], make: Callable[..., Any] = tuple) -> Converter:
    """One value for each of `hints`; any number of the first one if `...` follows it.

    Args:
        make: list if the class says list: the type of attributes that are filled step by step.
    """
    items, is_repeated = [converter(hint) for hint in hints if hint is not ...], hints[-1] is ...

    def items_of(values: Any) -> list[Converter]:
        return items * len(values) if is_repeated else items

    def encode(values: Any) -> list[Any]:
        # Ten thousand readings need no look at each. A NaN or an infinity spoils the sum.
        if hints[0] is float and is_repeated and set(map(type, values)) <= {float} and math.isfinite(sum(values)):
            return list(values)
        return [item.encode(v) for item, v in zip(items_of(values), values, strict=True)]

    def decode(json_value: Any) -> Any:
        values = _checked(json_value, list, "an array")
        if hints[0] is float and is_repeated and set(map(type, values)) <= {float}:
            return make(values)
        if len(items_of(values)) != len(values):
            raise Mismatch(values, f"an array of {len(items)}")
        return make(
            _decode_at(f"[{i}]", item, v) for i, (item, v) in enumerate(zip(items_of(values), values, strict=True))
        )

    return Converter(encode, decode)


def _left(kind: type) -> Converter:
    expected = f"an object of the type {kind.__name__}"
    return Converter(lambda value: value, lambda json_value: _checked(json_value, kind, expected))


def _mapping(hint: Any) -> Converter:
    key, item = converter(str), converter(hint)
    return Converter(
        lambda mapping: {key.encode(k): item.encode(v) for k, v in mapping.items()},
        lambda json_value: {
            k: _decode_at(f"[{k!r}]", item, v) for k, v in _checked(json_value, dict, "an object").items()
        },
    )


def _optional(hints: tuple[Any, ...]) -> Converter:
    (hint,) = (h for h in hints if h is not type(None))
    encode, decode, plain = converter(hint)
    return Converter(
        lambda value: None if value is None else encode(value),
        lambda json_value: None if json_value is None else decode(json_value),
        plain | {types.NoneType},
    )


def _decode_at(step: str, converter: Converter, json_value: Any) -> Any:
    try:
        return converter.decode(json_value)
    except Mismatch as mismatch:
        mismatch.path = step + mismatch.path
        raise


def _checked(json_value: Any, kind: type, expected: str) -> Any:
    if not isinstance(json_value, kind):
        raise Mismatch(json_value, expected)
    return json_value


# ---- scalars ----------------------------------------------------------------------------------------------------

_EXACT = frozenset({str, bool, int, float, type(None)})
_HEXADECIMAL = re.compile("-?0x[0-9a-f]+")


def _scalar(is_permitted: Callable[[Any], bool], expected: str, plain: tuple[type, ...] = ()) -> Converter:
    def encode(value: Any) -> Any:
        found = _python_scalar(value)
        if not is_permitted(found):
            raise TypeError(f"{quote(value)} is not {expected}")
        return _encode_any(found)

    def decode(json_value: Any) -> Any:
        value = _decode_any(json_value)
        if not is_permitted(value):
            raise Mismatch(json_value, expected)
        return value

    return Converter(encode, decode, frozenset(plain))


def _python_scalar(value: Any) -> Any:
    """np.float64(0.5), np.bool_(True), jnp.int32(3) as the Python scalar; subclasses of str, int, float as these."""
    if type(value) in _EXACT:
        return value
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return operator.index(value)
    return float(value) if isinstance(value, float) else value


def _encode_any(value: Any) -> Any:
    plain = _python_scalar(value)
    if type(plain) is int and plain.bit_length() > 63:
        return {"$int": hex(plain)}
    if type(plain) is float and not math.isfinite(plain):
        return {"$float": repr(plain)}
    if type(plain) in _EXACT:
        return plain
    if isinstance(plain, tuple | list):
        return [_encode_any(v) for v in cast("tuple[Any, ...]", plain)]
    opaque = plain if isinstance(plain, Opaque) else Opaque(type(value).__name__, repr(value))
    return {"$opaque": [opaque.type, opaque.text]}


def _decode_any(json_value: Any) -> Any:
    if type(json_value) in _EXACT:
        return json_value
    if isinstance(json_value, list):
        return tuple(_decode_any(v) for v in cast("list[Any]", json_value))
    match json_value:
        case {"$float": "nan" | "inf" | "-inf" as text}:
            return float(text)
        case {"$int": str(text)} if _HEXADECIMAL.fullmatch(text):
            return int(text, 16)
        case {"$opaque": [str(kind), str(text)]}:
            return Opaque(kind, text)
        case _:
            raise Mismatch(json_value, 'an object with one of "$float", "$int", "$opaque"')


# An int is welcome where a float is expected and stays an int; a bool is welcome as neither.
_SCALARS: dict[Any, Converter] = {
    Any: Converter(_encode_any, _decode_any),
    Json: _left(dict),
    types.NoneType: _scalar((None,).__contains__, "one of: None"),
    **{
        kinds[0]: _scalar(
            lambda value, kinds=kinds: type(value) in kinds, f"a value of type {kinds[0].__name__}", kinds
        )
        for kinds in ((str,), (bool,), (int,), (float, int))
    },
}
"""By annotation."""
