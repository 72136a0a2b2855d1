"""Static arguments as `jax.jit` has them, by number or by name: taken out of a call, and put back while tracing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from benchax.errors import UsageError
from benchax.keywords import check_places
from benchax.kinds import shorten

Given = tuple[tuple[int | str, Any], ...]
"""Numbers or names of static arguments of a call, with their values; hashable."""


@dataclass(frozen=True)
class StaticArguments:
    """Which arguments are static: each by number and by name, as far as these are known."""

    which: frozenset[int | str]

    def apart(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], Given]:
        """Arguments with None for the static ones, named arguments without them, and those.

        Raises:
            UsageError: a static argument is not hashable.
        """
        if not self.which:
            return args, kwargs, ()
        numbers = {n % len(args) for n in self.which if isinstance(n, int) and -len(args) <= n < len(args)}
        names = {name for name in kwargs if name in self.which}
        given: Given = (*((n, args[n]) for n in sorted(numbers)), *((name, kwargs[name]) for name in sorted(names)))
        for key, value in given:
            if not _is_hashable(value):
                raise UsageError(
                    f"the static argument {key!r} is {value!r}, a {type(value).__name__}",
                    "something hashable, by which compiled programs can be told apart",
                )
        # None in their places, so that the others keep theirs.
        rest = tuple(None if n in numbers else arg for n, arg in enumerate(args))
        return rest, {name: value for name, value in kwargs.items() if name not in names}, given


def static_arguments(f: Callable[..., Any], *given: int | str | Iterable[int | str] | None) -> StaticArguments:
    """Static arguments of `f`, which may be passed by place or by name, as far as its signature says.

    Args:
        given: positions and names, each one or several.

    Raises:
        UsageError: `f` has no such argument.
    """
    which: set[int | str] = set()
    for each in given:
        several = () if each is None else each
        places = [each] if isinstance(several, str) or not isinstance(several, Iterable) else list(several)
        if not all(isinstance(place, int | str) for place in places):
            raise UsageError(f"static={shorten(each)} is no argument of the function", "positions or names of them")
        which.update(place for place in places if isinstance(place, int | str))
    check_places(f, which, "static")
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return StaticArguments(frozenset(which))
    by_place = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for number, name in enumerate(by_place):
        if {number, number - len(by_place), name} & which:
            which |= {number, name}
    return StaticArguments(frozenset(which))


def together(args: Iterable[Any], kwargs: dict[str, Any], given: Given) -> tuple[list[Any], dict[str, Any]]:
    """All arguments again."""
    values = dict(given)
    named = {name: value for name, value in values.items() if isinstance(name, str)}
    return [values.get(n, arg) for n, arg in enumerate(args)], {**kwargs, **named}


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True
