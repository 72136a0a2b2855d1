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
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

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
    return any(p.name == name for p in _parameters(fn) or ())


def positions(given: Iterable[int | str] | int | str, what: str) -> tuple[int | str, ...]:
    """`given` as a tuple of positions and names."""
    listed = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    for one in listed:
        if isinstance(one, bool) or not isinstance(one, int | str):
            raise UsageError(f"{what}={given!r} holds {one!r}", "positions and names of arguments, such as (0, 'axis')")
    return listed


def positional_names(fn: Callable[..., Any], count: int = 0) -> list[str]:
    """The names of its positional parameters. Builtins and compiled functions have no signature, so they have none.

    Args:
        count: the number of arguments by position in a call. Arguments behind `*xs` are xs[0], xs[1], …
    """
    parameters = _parameters(fn) or ()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
    return [*names, *(f"{name}[{i}]" for name in rest for i in range(count - len(names)))]


def _parameters(fn: Callable[..., Any]) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return None


def check_places(fn: Callable[..., Any], places: Iterable[int | str], what: str) -> None:
    """Raises UsageError where `fn` has no argument at one of these positions, or of one of these names."""
    parameters = _parameters(fn)
    if parameters is None:
        return
    kinds, by_place = {p.kind for p in parameters}, positional_names(fn)
    names = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    for place in places:
        is_there = (
            inspect.Parameter.VAR_POSITIONAL in kinds or -len(by_place) <= place < len(by_place)
            if isinstance(place, int)
            else inspect.Parameter.VAR_KEYWORD in kinds or place in names
        )
        if not is_there:
            raise UsageError(
                f"{what}={place!r} isn't an argument of the function",
                f"positions or names of its arguments: {', '.join(f'{i} ({n})' for i, n in enumerate(by_place))}"
                if by_place
                else "a function with arguments",
            )


class _Guard:
    """Checks the calls of one verb."""

    def __init__(self, verb: Callable[..., Any], is_set_in_project: bool, yields: Sequence[str]) -> None:
        self.verb, self.by, self.is_set_in_project, self.yields = verb, verb.__name__, is_set_in_project, yields
        self.signature = inspect.signature(verb)
        kinds = {p.name: p.kind for p in self.signature.parameters.values()}
        by_name = [name for name, kind in kinds.items() if kind is inspect.Parameter.KEYWORD_ONLY]
        self.options = (*by_name, *(n for n, kind in kinds.items() if kind is inspect.Parameter.POSITIONAL_OR_KEYWORD))
        self.passes_on = inspect.Parameter.VAR_KEYWORD in kinds.values()
        """Does the verb take keywords for the user's function?"""

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        unknown = {name: value for name, value in kwargs.items() if name not in self.options}
        if unknown and not self.passes_on:
            name, value = next(iter(unknown.items()))
            raise UsageError(f"{name}={value!r} isn't an option of {self.by}", one_of(self.options, name))
        bound = self._bind(args, kwargs)
        if self.passes_on:
            theirs = _functions(args[0] if args else kwargs.get("fn", kwargs.get("functions")))
            for name, value in kwargs.items():
                is_theirs = any(takes(fn, name) for fn in theirs)
                if name in unknown and not is_theirs:
                    self._refuse_slip(name, value)
                elif name not in (*unknown, *self.yields) and value is not None and is_theirs:
                    self._refuse_ambiguous(name, value)
        checked = [name for name in self.options if name in bound and name not in self.yields]
        check_kinds(self.verb, {name: bound[name] for name in checked})

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
            parameters = [p for p in self.signature.parameters.values() if p.kind is not p.KEYWORD_ONLY]
            positional = ", ".join(f"{stars.get(p.kind, '')}{p.name}" for p in parameters)
            expected = f"{self.by}({positional}), and options by name"
            raise UsageError(f"{self.by} is called with {error}", expected) from None

    def _refuse_ambiguous(self, name: str, value: Any) -> None:
        in_project = "; for benchax: set the option in [tool.benchax]" if self.is_set_in_project else ""
        raise UsageError(
            f"{name}={value!r} is both an option of {self.by} and an argument of the function",
            "an unambiguous call",
            f"{_for_function(name)}{in_project}",
        )

    def _refuse_slip(self, name: str, value: Any) -> None:
        """Raises for what is known elsewhere, or is nearly an option; anything else is an argument of the function."""
        problem = f"{name}={value!r} isn't an option of {self.by}"
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
            problem = f"{problem}, and the function has no argument of that name"
            raise UsageError(problem, f"{near[0]}=", _for_function(name))


def _functions(given: Any) -> list[Callable[..., Any]]:
    """The user's functions in the first argument of a verb. Empty if the argument has another form; a later check
    reports that.
    """
    listed = given.values() if isinstance(given, Mapping) else given if isinstance(given, list | tuple) else [given]
    return [fn for fn in cast("Iterable[Any]", listed) if callable(fn)]


def _for_function(name: str) -> str:
    return f"for the function: functools.partial(f, {name}=...)"


# ---- kinds -----------------------------------------------------------------------------------------------------------
#
# Checks a value against the annotation of its parameter. The check is lenient: it accepts a text for a number
# (`500ms`), a number for a truth value, and a NumPy scalar for a Python one. The code that reads a value checks its
# content. An unknown annotation accepts everything.

_NUMBERS = str | numbers.Real
_KINDS: dict[Any, tuple[str, Any]] = {
    str: ("a text", str),
    bool: ("True or False", _NUMBERS),
    int: ("a whole number", _NUMBERS),
    float: ("a number", _NUMBERS),
    types.NoneType: ("None", types.NoneType),
    os.PathLike: ("a path", str | os.PathLike),
    Path: ("a path", str | os.PathLike),
    dict: ("a dict", Mapping),
    collections.abc.Mapping: ("a dict", Mapping),
    collections.abc.Callable: ("a function", collections.abc.Callable),
}
"""Annotation → how a message calls such values, and the types that pass for it."""
_OPEN: tuple[object, ...] = (Any, inspect.Parameter.empty)
"""Any value passes for them."""
_FEW = 100
"""The number of members of a collection that are checked."""


class Kind(NamedTuple):
    """A kind of value, which an annotation permits."""

    words: str
    fits: Callable[[Any], bool]


def check_kinds(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raises UsageError where one of `arguments`, by names of parameters, is of a kind that its annotation excludes."""
    kinds = _kinds_of(function)
    for name, value in arguments.items():
        if name in kinds and not kinds[name].fits(value):
            raise UsageError(f"option {name!r} in the call cannot be {quote(value)}", kinds[name].words)


@functools.cache
def _kinds_of(function: Callable[..., Any]) -> dict[str, Kind]:
    """The kinds of the parameters whose annotations can be read at run time."""
    found: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            try:
                found |= typing.get_type_hints(holder, getattr(inspect.unwrap(function), "__globals__", {}))
            except (NameError, TypeError):  # of a type that is imported for the type checker only
                continue
    # Whoever calls a function has better words about what isn't one.
    callables = {name for name, hint in found.items() if typing.get_origin(hint) is collections.abc.Callable}
    return {name: _read_kind(hint) for name, hint in found.items() if name not in callables}


def _read_kind(hint: Any) -> Kind:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    kind = origin or hint
    if kind in (typing.Union, types.UnionType):
        kinds = [_read_kind(part) for part in parts]
        *words, last = dict.fromkeys(one.words for one in kinds)
        return Kind(f"{', '.join(words)} or {last}" if words else last, lambda v: any(one.fits(v) for one in kinds))
    if kind is typing.Literal:
        kinds = [_read_kind(type(part)) for part in parts]
        return Kind(" or ".join(map(repr, parts)), lambda v: any(one.fits(v) for one in kinds))
    if kind in _KINDS:
        words, accepted = _KINDS[kind]
        return Kind(
            words, lambda v: isinstance(v, accepted) or (accepted is _NUMBERS and getattr(v, "ndim", None) == 0)
        )
    if origin is not None and issubclass(origin, Iterable):
        words = f"a list of {_KINDS[parts[0]][0].removeprefix('a ')}s" if parts and parts[0] in _KINDS else "a list"
        return Kind(words, lambda v: _fits_collection(v, origin, parts))
    # A value cannot be asked for some protocols.
    if not isinstance(kind, type) or kind in _OPEN or getattr(kind, "_is_protocol", False):
        return Kind(str(hint), lambda v: True)
    return Kind(kind.__name__, lambda v: isinstance(v, kind))


def _fits_collection(value: Any, origin: type, parts: tuple[Any, ...]) -> bool:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable) or getattr(value, "ndim", 0) > 0:
        return isinstance(value, str) and parts[:1] == (str,)
    if isinstance(value, list | tuple | set | frozenset) and parts and origin is not tuple:
        return all(map(_read_kind(parts[0]).fits, [*value][:_FEW]))  # pyright: ignore[reportUnknownArgumentType]
    return True


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
