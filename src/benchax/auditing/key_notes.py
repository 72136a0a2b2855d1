"""Notes which random keys a program uses up outside of jit, and where.

Told of each call of a function of `jax.random` by `host_calls.py`.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections import Counter
from types import FrameType
from typing import Any, NamedTuple

import jax
from jax.core import Tracer

from benchax.source_files import is_in_package, owner_of
from benchax.watching.frames import user_line

DRAW_NOTHING = ("fold_in", "key_data", "wrap_key_data", "clone", "key_impl")
"""Functions of `jax.random` after which a key may be used again."""
OF_LOOP = 5
"""Uses of one key inside of one line's calls of a package: so many show that the line runs again and again."""
MOST_KEYS = 1000
"""Keys that are held, so that no other array takes their number; they are small."""


class _KeyUse(NamedTuple):
    """One place where a random key is used up."""

    by: str
    where: str
    inside: frozenset[tuple[str, int]] | None
    """Of a package's use: the user's lines on the stack, which is inside of them. None: the user's own use."""


class KeyNotes:
    """What was seen of all keys so far."""

    def __init__(self) -> None:
        self._keys: dict[int, tuple[Any, Counter[_KeyUse]]] = {}

    def asdict(self) -> list[list[list[Any]]]:
        """Of each key that the user uses twice: [function, file:line, how often] of each place."""
        return [
            [[use.by, use.where, n] for use, n in uses.items()]
            for _, uses in self._keys.values()
            if uses.total() > 1 and _is_users(uses)
        ]

    def note(self, by: str, key: Any) -> None:
        if isinstance(key, jax.Array) and not isinstance(key, Tracer) and len(self._keys) < MOST_KEYS:
            inside = _own_lines(sys._getframe(1)) if is_in_package(sys._getframe(1)) else None
            self._keys.setdefault(id(key), (key, Counter()))[1][_KeyUse(by, user_line() or "", inside)] += 1


def users_of_keys() -> list[str]:
    """Functions of `jax.random` whose first argument is a key that they use up."""
    found: list[str] = []
    for name, function in vars(jax.random).items():
        if callable(function) and not name.startswith("_") and name not in DRAW_NOTHING:
            with contextlib.suppress(TypeError, ValueError):
                if next(iter(inspect.signature(function).parameters), "") == "key":
                    found.append(name)
    return found


def _own_lines(frame: FrameType | None) -> frozenset[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    while frame is not None:
        if owner_of(frame.f_code.co_filename) == "user":
            found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return frozenset(found)


def _is_users(uses: Counter[_KeyUse]) -> bool:
    """Does the user use this key twice? What a package does inside of one call, with a key that it was given once, no
    line of the user's can change."""
    inside = [use.inside for use in uses if use.inside is not None]
    is_one_call = len(inside) == len(uses) and all(a <= b or b <= a for a in inside for b in inside)
    return not is_one_call or uses.total() >= OF_LOOP
