"""Refuses a function whose call runs nothing: a coroutine function or a generator function.

Such a call returns an object that does the work later, so its time is the time to make that object. The function tells
which kind it is (`refuse_function`), except behind a plain function that only returns the object (`refuse_result`).

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

import jax

from benchax.case import name_of
from benchax.errors import UsageError
from benchax.source_files import owner_of

_WITHOUT_JIT = "pass a plain function that runs it, and measure that one without jit (jit=False, --no-jit): "


@dataclass(frozen=True)
class Unrun:
    """A kind of function whose call runs nothing."""

    name: str
    """With its article."""
    made: type
    """The type of a call's return value."""
    is_one: Callable[[Any], bool]
    """Tells whether a function is of this kind."""
    advice: str
    """The object to pass instead of the function {f}."""

    def advise(self, name: str = "f") -> str:
        return self.advice.replace("{f}", name if name.isidentifier() else "f")


KINDS = (
    Unrun(
        "a coroutine",
        CoroutineType,
        inspect.iscoroutinefunction,
        _WITHOUT_JIT + "lambda x: asyncio.run({f}(x))",
    ),
    Unrun(
        "a generator",
        GeneratorType,
        inspect.isgeneratorfunction,
        "pass a plain function that runs it: lambda x: list({f}(x))",
    ),
    Unrun(
        "an async generator",
        AsyncGeneratorType,
        inspect.isasyncgenfunction,
        _WITHOUT_JIT + "lambda x: asyncio.run(collect(x)), with async def collect(x): return [y async for y in {f}(x)]",
    ),
)
_TYPE_IN_ERROR = re.compile("type (?:<class )?'(coroutine|generator|async_generator)'")
"""As JAX 0.6 to 0.12 names the type of a result that it can't take."""
_EXPECTED = "a function that does its work when it's called"


def refuse_function(fn: Any) -> None:
    """Raises UsageError if `fn` is of one of these kinds, also inside a partial, a method, a callable object, or a
    wrapper of JAX."""
    name = name_of(fn)
    while _is_wrapper_of_jax(fn):
        fn = fn.__wrapped__
    for kind in KINDS:
        if kind.is_one(fn) or kind.is_one(getattr(fn, "__call__", None)):  # noqa: B004  # a callable object's method
            problem = f"{name} is {kind.name} function: calling it doesn't run its body"
            raise UsageError(problem, _EXPECTED, kind.advise(name))


def _is_wrapper_of_jax(fn: Any) -> bool:
    """Other decorators, such as one that runs an event loop, can do the work of the functions that they wrap."""
    file = getattr(getattr(fn, "__code__", None), "co_filename", "")
    return hasattr(fn, "__wrapped__") and (hasattr(fn, "lower") or owner_of(file) in ("jax", "benchax"))


def refuse_result(result: Any) -> Any:
    """Returns `result`. Raises UsageError if the call has made an object that does its work later."""
    made = tuple(kind.made for kind in KINDS)
    for leaf in jax.tree.leaves(result, is_leaf=lambda value: isinstance(value, made)):
        for kind in KINDS:
            if isinstance(leaf, kind.made):
                _close(leaf)
                problem = f"the call returns {kind.name} of {leaf.__qualname__}: its body hasn't run"
                raise UsageError(problem, _EXPECTED, kind.advise(leaf.__name__))
    return result


def advise(error: BaseException) -> str:
    """Says what to pass instead, if JAX raised `error` because a jitted function returned such an object."""
    named = _TYPE_IN_ERROR.search(str(error))
    kind = next((kind for kind in KINDS if named and named[1] == kind.made.__name__), None)
    if kind is None:
        return ""
    link: BaseException | None = error
    while link is not None:
        for frame, _ in traceback.walk_tb(link.__traceback__):
            for value in list(frame.f_locals.values()):
                _close(value)
        link = link.__cause__ or link.__context__
    return kind.advise()


def _close(value: Any) -> None:
    """Python would warn of a coroutine that was never awaited."""
    if isinstance(value, CoroutineType):
        value.close()
