"""Checks a value against a parameter's type annotation.

The check is lenient. A text is allowed for a number (`500ms`), a number for a truth value, a NumPy scalar for a Python
one. The code that reads a value checks its content. An annotation that is not understood allows everything.
"""

from __future__ import annotations

import collections.abc
import inspect
import numbers
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from benchax.errors import UsageError

_WORDS: dict[Any, str] = {
    str: "a text", bool: "True or False", int: "a whole number", float: "a number", types.NoneType: "None",
}  # fmt: skip
_FEW = 100
"""The number of members of a collection that are checked."""


def check_kinds(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raises UsageError where one of `arguments`, by names of parameters, is of a kind that its annotation excludes."""
    for name, value in arguments.items():
        hint = hints_of(function).get(name, Any)
        is_function = typing.get_origin(hint) is collections.abc.Callable  # who calls it has better words
        if not is_function and not fits(value, hint):
            raise UsageError(f"option {name!r} in the call cannot be {shorten(value)}", describe(hint))


@cache
def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of the parameters that can be read at run time."""
    found: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            try:
                found |= typing.get_type_hints(holder, getattr(inspect.unwrap(function), "__globals__", {}))
            except (NameError, TypeError):  # of a type that is imported for the type checker only
                continue
    return found


def fits(value: Any, hint: Any) -> bool:
    if hint is Any or hint is inspect.Parameter.empty:
        return True
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin is typing.Literal:
        return any(fits(value, type(part)) for part in parts)
    if origin is not None:
        return _fits_generic(value, origin, parts)
    return _fits_plain(value, hint)


def _fits_generic(value: Any, origin: Any, parts: tuple[Any, ...]) -> bool:
    if origin is collections.abc.Callable:
        return callable(value)
    if not isinstance(origin, type):
        return True
    if issubclass(origin, Mapping):
        return isinstance(value, Mapping)
    if origin is os.PathLike:
        return isinstance(value, os.PathLike)
    if not issubclass(origin, Iterable):
        return True
    if isinstance(value, str | bytes) or not isinstance(value, Iterable) or _is_array(value):
        return isinstance(value, str) and parts[:1] == (str,)
    if isinstance(value, list | tuple | set | frozenset) and parts and origin is not tuple:
        return all(fits(each, parts[0]) for each in [*value][:_FEW])  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return True


def _fits_plain(value: Any, hint: Any) -> bool:
    if hint in (bool, int, float):
        return getattr(value, "ndim", None) == 0 or isinstance(value, str | numbers.Real)
    if not isinstance(hint, type):
        return hint is not None or value is None
    if issubclass(hint, Path):
        return isinstance(value, str | os.PathLike)
    try:
        return isinstance(value, hint)
    except TypeError:  # a protocol that cannot be asked
        return True


def _is_array(value: Any) -> bool:
    return getattr(value, "ndim", 0) > 0


def shorten(value: Any) -> str:
    """Returns `repr` of the value, cut to one line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text):,} characters)"


def describe(hint: Any) -> str:
    """A text, several texts, or None."""
    parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    words = list(dict.fromkeys(map(_describe_one, parts)))
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _describe_one(hint: Any) -> str:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return " or ".join(map(repr, parts))
    if origin is collections.abc.Callable:
        return "a function"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "a dict"
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return f"a list of {describe(parts[0]).removeprefix('a ')}s" if parts and parts[0] in _WORDS else "a list"
    if (isinstance(hint, type) and issubclass(hint, Path)) or origin is os.PathLike:
        return "a path"
    return _WORDS.get(hint, getattr(hint, "__name__", str(hint)))


def check_text(text: Any, what: str) -> str:
    """`text`, if it is one that can be stored. Raises `UsageError` otherwise."""
    if not isinstance(text, str):
        raise UsageError(f"{what} {text!r} is a {type(text).__name__}", "a text")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{what} {text!r} is not valid Unicode (it holds a lone surrogate)", "any Unicode text"
        ) from None
    return text
