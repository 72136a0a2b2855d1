"""`Settings`: a program's own constants as a frozen class, each of which an environment variable may override.

    class Environment(benchax.Settings):
        n_x: list[int] = [4, 8, 16]
        timeout_seconds: float = 30

    env = Environment()     # N_X=32,64 TIMEOUT_SECONDS=2 python program.py

What a call gives wins over the environment, which wins over the default. The variable of a field is its name in
capitals, after the class's prefix: `class Environment(benchax.Settings, prefix="GRID_")` reads GRID_N_X. Types come
from the annotations: str, int, float, bool, list[...] and tuple[...] of these (separated by commas, or as JSON), and
`... | None` of any of them, for which the word "none" stands.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import math
import os
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Union, cast, dataclass_transform

from benchax.errors import UsageError

_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Settings:
    """Base of a class of a program's own constants, each of which an environment variable may override.

    Subclasses become frozen dataclasses whose fields are given by name. The variable of a field is its name in capitals
    after the class's prefix. Read are str, int, float, bool, lists and tuples of these ("4,8", or JSON), and "none"
    where the field may be None. What the call gives wins over the environment.

    Raises, when an object is made:
        UsageError: a variable that cannot be read as its field's type; the message names the variable.
        TypeError: a field without a default that neither the call nor the environment gives.

    Example:
        >>> class Environment(benchax.Settings, prefix="DEMO_"):
        ...     sizes: list[int] = [4, 8]
        >>> Environment(sizes=[16])  # or DEMO_SIZES=16 in the environment
        Environment(sizes=[16])
    """

    prefix: ClassVar[str] = ""

    def __init_subclass__(cls, prefix: str | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        if prefix is not None:
            cls.prefix = prefix
        for name in inspect.get_annotations(cls):  # its own; those of its bases have been made already
            _own_default(cls, name)
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        _read_environment_in_init(cls)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> dict[str, Any]:
        """The fields that `environ` has a variable for, with their values."""
        hints = typing.get_type_hints(cls)
        fields = dataclasses.fields(cast("Any", cls))
        variables = {f.name: (cls.prefix + f.name).upper() for f in fields}
        return {
            name: read(environ[variable], hints[name], variable)
            for name, variable in variables.items()
            if variable in environ
        }


def _own_default(cls: type, name: str) -> None:
    """A list as a default would be shared by all objects, and a dataclass refuses it: each object gets a copy."""
    default = vars(cls).get(name)
    if isinstance(default, list | dict | set):
        setattr(cls, name, dataclasses.field(default_factory=lambda: copy.deepcopy(default)))


def _read_environment_in_init(cls: Any) -> None:
    # Around the generated one: in `__post_init__` a value that was given looks like the default.
    generated: Callable[..., None] = cls.__init__

    def __init__(self: Any, **given: Any) -> None:
        generated(self, **(cls.from_environment(os.environ) | given))

    __init__.__doc__ = f"{cls.__name__}(name=value, ...): what is not given comes from the environment."
    cls.__init__ = __init__


def read(text: str, hint: Any, variable: str) -> Any:
    """`text` as a value of type `hint`.

    Raises:
        UsageError: it is not one; names `variable`.
        TypeError: there is no rule for `hint`.
    """
    try:
        return _reader(hint)(text)
    except ValueError:
        raise UsageError(
            f"the environment variable {variable} cannot be {text!r}",
            describe_type(hint),
            f"unset {variable}, or correct it",
        ) from None


def describe_type(hint: Any) -> str:
    """What a text must look like to be read as `hint`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return f"{' or '.join(describe_type(a) for a in arguments if a is not type(None))}, or the word none"
    if hint in (list, tuple) or origin in (list, tuple):
        item = arguments[0] if arguments else str
        count = f"{len(arguments)} " if origin is tuple and arguments and arguments[-1] is not ... else ""
        return f"{count}values separated by commas, each {describe_type(item)}"
    return {
        int: "a whole number",
        float: "a number",
        bool: f"one of: {', '.join(_WORDS)}",
        str: "a text",
    }.get(hint, str(hint))


def _reader(hint: Any) -> Callable[[str], Any]:
    """Raises ValueError from the reader, TypeError for a hint without a rule."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return _optional([a for a in arguments if a is not type(None)])
    if hint in (list, tuple):
        return _sequence(hint, (str, ...))
    if origin in (list, tuple):
        return _sequence(origin, arguments)
    if hint in _SCALARS:
        return _SCALARS[hint]
    raise TypeError(
        f"Settings has no rule for fields of type {hint}; "
        "it reads str, int, float, bool, lists and tuples of these, and any of them | None"
    )


def _optional(hints: list[Any]) -> Callable[[str], Any]:
    readers = [_reader(hint) for hint in hints]

    def read_optional(text: str) -> Any:
        if text.strip().lower() in ("none", "null", ""):
            return None
        for reader in readers[:-1]:
            try:
                return reader(text)
            except ValueError:
                continue
        return readers[-1](text)

    return read_optional


def _sequence(kind: type, arguments: tuple[Any, ...]) -> Callable[[str], Any]:
    is_fixed = kind is tuple and arguments[-1] is not ...
    readers = [_reader(hint) for hint in arguments if hint is not ...]

    def read_sequence(text: str) -> Any:
        parts = _parts(text)
        if is_fixed and len(parts) != len(readers):
            raise ValueError(text)
        return kind(readers[i if is_fixed else 0](part) for i, part in enumerate(parts))

    return read_sequence


def _parts(text: str) -> list[str]:
    """`4, 8` and `[4, 8]` alike; JSON where texts hold commas themselves."""
    if not text.strip().startswith("["):
        return [part.strip() for part in text.split(",")] if text.strip() else []
    found = json.loads(text)  # its error is a ValueError
    return [item if isinstance(item, str) else json.dumps(item) for item in found]


def _int(text: str) -> int:
    return int(text.strip())


def _float(text: str) -> float:
    value = float(text.strip())
    if math.isnan(value):  # not a setting that anything could be done with
        raise ValueError(text)
    return value


def _bool(text: str) -> bool:
    if (word := text.strip().lower()) not in _WORDS:
        raise ValueError(text)
    return _WORDS[word]


_SCALARS: dict[Any, Callable[[str], Any]] = {str: str, int: _int, float: _float, bool: _bool}
