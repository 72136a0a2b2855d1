"""Keywords of a call: which are options of ours, and which are arguments of the user's function.

`bench(f, x, n=3)` passes `n` on to `f`. So a slip in an option (`max_time=3`) would silently go to `f`, and what both
know (`seed=3`) silently to one of them. Each verb refuses both, in one place and in the same words.
"""

from __future__ import annotations

import collections.abc
import difflib
import functools
import inspect
import numbers
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from benchax.errors import UsageError, one_of
from benchax.options import NAMES
from benchax.printable import quote

P = ParamSpec("P")
R = TypeVar("R")

NEARLY = 0.75
"""How alike a name and an option are that one is taken for a slip of the other (max_time and max_time_s: 0.89)."""
NAMES_OF_JIT = {
    "static_argnums": "static",
    "static_argnames": "static",
    "donate_argnums": "donate",
    "donate_argnames": "donate",
}
"""The names in JAX, and the names in benchax."""


def guard_keywords(
    *, is_set_in_project: bool = False, yields: Sequence[str] = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorates a verb: a call with a keyword that cannot be meant raises UsageError before anything is done.

    Args:
        is_set_in_project: do options that the verb does not take hold for it, where [tool.benchax] sets them?
        yields: options of the verb that are the function's, where it has an argument of that name.
    """

    def decorate(verb: Callable[P, R]) -> Callable[P, R]:
        guard = _Guard(verb, is_set_in_project, yields)

        @functools.wraps(verb)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            guard.check(args, kwargs)
            return verb(*args, **kwargs)

        return guarded

    return decorate


def takes(fn: Callable[..., Any], name: str) -> bool:
    """Does `fn` have a parameter of this name? Builtins have no signature, so they have no parameters here. `**kwargs`
    does not count.
    """
    try:
        return name in inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return False


def check_places(fn: Callable[..., Any], places: Iterable[int | str], what: str) -> None:
    """Raises UsageError where `fn` has no argument at one of these positions, or of one of these names."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return
    kinds = {p.kind for p in parameters}
    by_place = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    for place in places:
        is_there = (
            inspect.Parameter.VAR_POSITIONAL in kinds or -len(by_place) <= place < len(by_place)
            if isinstance(place, int)
            else inspect.Parameter.VAR_KEYWORD in kinds or place in names
        )
        if not is_there:
            raise UsageError(
                f"{what}={place!r} is no argument of the function",
                f"positions or names of its arguments: {', '.join(f'{i} ({n})' for i, n in enumerate(by_place))}"
                if by_place
                else "a function with arguments",
            )


@dataclass
class _Guard:
    verb: Callable[..., Any]
    is_set_in_project: bool
    yields: Sequence[str]
    signature: inspect.Signature = field(init=False)
    options: tuple[str, ...] = field(init=False)
    passes_on: bool = field(init=False)
    """Does the verb take keywords for the user's function?"""

    def __post_init__(self) -> None:
        self.signature = inspect.signature(self.verb)
        kinds = {p.name: p.kind for p in self.signature.parameters.values()}
        by_name = [name for name, kind in kinds.items() if kind is inspect.Parameter.KEYWORD_ONLY]
        either = [name for name, kind in kinds.items() if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        self.options = (*by_name, *either)
        self.passes_on = inspect.Parameter.VAR_KEYWORD in kinds.values()

    @property
    def by(self) -> str:
        return self.verb.__name__

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if not self.passes_on:
            self._refuse_unknown(kwargs)
        bound = self._bind(args, kwargs)
        if self.passes_on:
            self._refuse_keywords_of_both(args, kwargs)
        checked = [name for name in self.options if name in bound and name not in self.yields]
        check_kinds(self.verb, {name: bound[name] for name in checked})

    def _refuse_keywords_of_both(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        first = args[0] if args else next((kwargs[name] for name in ("fn", "functions") if name in kwargs), None)
        theirs = _functions(first)
        for name, value in kwargs.items():
            is_theirs = any(takes(fn, name) for fn in theirs)
            if name in self.yields and is_theirs:
                continue
            if name in self.options and value is not None and is_theirs:
                self._refuse_ambiguous(name, value)
            elif name not in self.options and not is_theirs:
                self._refuse_slip(name, value)

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
            parameters = [p for p in self.signature.parameters.values() if p.kind is not p.KEYWORD_ONLY]
            positional = [f"{stars.get(p.kind, '')}{p.name}" for p in parameters]
            expected = f"{self.by}({', '.join(positional)}), and options by name"
            raise UsageError(f"{self.by} is called with {error}", expected) from None

    def _refuse_unknown(self, kwargs: Mapping[str, Any]) -> None:
        for name, value in kwargs.items():
            if name not in self.options:
                raise UsageError(f"{name}={value!r} is no option of {self.by}", one_of(self.options, name))

    def _refuse_ambiguous(self, name: str, value: Any) -> None:
        in_project = "; for benchax: set the option in [tool.benchax]" if self.is_set_in_project else ""
        raise UsageError(
            f"{name}={value!r} is both an option of {self.by} and an argument of the function",
            "an unambiguous call",
            f"{_for_function(name)}{in_project}",
        )

    def _refuse_slip(self, name: str, value: Any) -> None:
        """Raises for what is known elsewhere, or is nearly an option; anything else is an argument of the function."""
        problem = f"{name}={value!r} is no option of {self.by}"
        meaning = NAMES_OF_JIT.get(name, name)
        if meaning in self.options and name in NAMES_OF_JIT:
            return
        if meaning in NAMES_OF_JIT.values():
            hint = f"{self.by}(jax.jit(f, {name}=...), ...); {_for_function(name)}"
            raise UsageError(problem, "a function that is jitted so already", hint)
        if name in NAMES:
            in_project = f"set {name} in [tool.benchax]; " if self.is_set_in_project else ""
            raise UsageError(problem, one_of(self.options, name), f"{in_project}{_for_function(name)}")
        if near := difflib.get_close_matches(name, self.options, 1, NEARLY):
            problem = f"{problem}, and no argument of the function by that name"
            raise UsageError(problem, f"{near[0]}=", _for_function(name))


def _functions(given: Any) -> list[Callable[..., Any]]:
    """The user's functions in the first argument of a verb. Empty if the argument has another form; a later check
    reports that.
    """
    listed: list[Any] = [given]
    if isinstance(given, Mapping):
        listed = list(cast("Mapping[Any, Any]", given).values())
    elif isinstance(given, list | tuple):
        listed = list(cast("Sequence[Any]", given))
    return [fn for fn in listed if callable(fn)]


def _for_function(name: str) -> str:
    return f"for the function: functools.partial(f, {name}=...)"


# ---- kinds -----------------------------------------------------------------------------------------------------------
#
# A value against the annotation of its parameter. The check is lenient: a text is allowed for a number (`500ms`), a
# number for a truth value, a NumPy scalar for a Python one. The code that reads a value checks its content. An
# annotation that is not understood allows everything.

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
            raise UsageError(f"option {name!r} in the call cannot be {quote(value)}", describe(hint))


@functools.cache
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
