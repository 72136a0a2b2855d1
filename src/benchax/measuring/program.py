"""One interface for everything that can be measured: plain functions, jitted ones, `Compiled`s, wrappers with a jit.

A `CallableProgram` says how to call it, how to call it eagerly, and how to build it stage by stage. It decides nothing
about time. The contents of JAX's caches matter here: they are global and keyed on the function object. So a plain
function is wrapped in a new one, which is not cached. A jitted function drops its own cache (`clear_cache`, which
leaves other functions' compiled programs alone). Inner jits and jnp's own jaxprs stay warm; only a fresh process starts
without them.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Literal

import jax

from benchax.case import Case
from benchax.errors import NotMeasured, UsageError, text_of
from benchax.measuring.inputs import Inputs, is_plain
from benchax.measuring.state import holds_objects
from benchax.source_files import owner_of
from benchax.static_leaves import hide, hide_all, reveal
from benchax.wrappers import name_of, under_partials, without_jit

# ---- unrun -----------------------------------------------------------------------------------------------------------
#
# Refuses a function whose call runs nothing: a coroutine function or a generator function.
#
# Such a call returns an object that does the work later, so its time is the time to make that object. The function
# tells which kind it is (`refuse_function`), except behind a plain function that only returns the object
# (`refuse_result`).


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


def advise_on_unrun(error: BaseException) -> str:
    """Says what to pass instead, if JAX raised `error` because a jitted function returned such an object."""
    named = _TYPE_IN_ERROR.search(text_of(error))
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


Kind = Literal["plain", "jit", "compiled", "wrapper", "eager"]


_EXAMPLES = ("demo", "workloads")
"""Files of functions like a user's, whose lines are wanted."""


def _keep_our_lines_out() -> None:
    """Programs name the line of the user that asked for an operation, never one of the wrappers around his function.

    Not a public interface (tried on jax 0.6.2 to 0.12.0.1). Without it our own file is named for functions of JAX.
    """
    try:
        from jax._src.source_info_util import register_exclusion  # noqa: PLC0415, TID251
    except ImportError:
        return
    register_exclusion("<string>")  # how a worker was started
    for part in Path(__file__).parents[1].iterdir():
        if part.stem not in _EXAMPLES:
            register_exclusion(str(part))


_keep_our_lines_out()


@dataclass(frozen=True)
class CallableProgram:
    """The function to measure.

    `call` is the function that the user's code would call. `eager` is the eager function; None if it is not available.
    `inner` is traceable inside another jit; None if it is not.
    """

    kind: Kind
    call: Callable[..., Any]
    eager: Callable[..., Any] | None
    inner: Callable[..., Any] | None
    was_jitted: bool = True
    """Was the function jitted when it was given to us?"""
    jitted_by: str = "jax.jit"
    """What a function that was not is measured under."""
    hide: Callable[[Any], Any] = lambda tree: tree
    """Hides the leaves of its results that are not arrays; those of its arguments too if it is `hide_all`."""


def program_of(case: Case, inputs: Inputs | None = None) -> CallableProgram:
    """Tells the five kinds apart, by documented attributes only.

    Args:
        inputs: what it is called with. A plain function of objects of Flax NNX is jitted by `flax.nnx.jit`, as their
            users do: `jax.jit` takes them for trees of arrays, and what is changed in place is lost.

    Raises:
        UsageError: a call of the function runs nothing (`Unrun`).
    """
    fn = case.fn
    refuse_function(fn)
    eager, was_jitted = without_jit(fn), hasattr(under_partials(fn), "lower")
    if not case.jit:
        return CallableProgram("eager", fn, fn, None, was_jitted)
    if isinstance(fn, jax.stages.Compiled):
        return CallableProgram("compiled", fn, None, None)
    if not is_plain(case):
        kind = "jit" if hasattr(fn, "trace") else "wrapper"
        program = CallableProgram(kind, fn, None if eager is fn else without_jit(eager), fn)
        is_filtered = type(fn).__module__.partition(".")[0] == "equinox"
        return replace(program, hide=hide_all) if is_filtered else program
    if inputs is not None and holds_objects((inputs.args, inputs.kwargs)):
        call = _jitted(case, sys.modules["flax.nnx"].jit)
        kind = "jit" if hasattr(call, "trace") else "wrapper"
        return CallableProgram(kind, call, eager, fn, was_jitted, "flax.nnx.jit", hide)
    return CallableProgram("plain", _jitted(case), eager, fn, was_jitted, hide=hide)


def _jitted(case: Case, jit: Callable[..., Any] = jax.jit) -> Callable[..., Any]:
    """`jit` of a new function object, so that nothing is served from JAX's caches."""
    fn = case.fn

    def fresh(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = reveal((args, kwargs))
        return hide(refuse_result(fn(*args, **kwargs)))

    # Copies the signature, which JAX needs to match static names with positions, and the name, which compile events
    # show. A partial or callable object has no __name__.
    functools.update_wrapper(fresh, fn)
    fresh.__name__ = case.id.name if case.id.name.isidentifier() else "benchmark"
    return _jit(fresh, case, jit)


def program_that_ran(case: Case) -> CallableProgram:
    """The same for a function that this process has jitted and called: JAX looks up its programs, and builds none."""
    return CallableProgram("plain", _jit(case.fn, case), case.fn, case.fn)


def _jit(fn: Callable[..., Any], case: Case, jit: Callable[..., Any] = jax.jit) -> Callable[..., Any]:
    # None instead of an empty list: only then does JAX derive positions from names.
    return jit(
        fn,
        static_argnums=[p for p in case.static if isinstance(p, int)] or None,
        static_argnames=[p for p in case.static if isinstance(p, str)] or None,
        donate_argnums=[p for p in case.donate if isinstance(p, int)] or None,
        donate_argnames=[p for p in case.donate if isinstance(p, str)] or None,
    )


def forget(program: CallableProgram) -> None:
    """Makes the next build of this program, and of no other, start from nothing, where JAX lets us."""
    if program.kind == "jit" and hasattr(program.call, "clear_cache"):
        program.call.clear_cache()


_BUILT: dict[Kind, str] = {
    "compiled": "it was given as a Compiled, which is built already",
    "eager": "it is measured eagerly, operation by operation",
}
"""Why a program of this kind has no stages."""


def trace(program: CallableProgram, args: tuple[Any, ...], kwargs: dict[str, Any]) -> jax.stages.Traced:
    """Raises `NotMeasured` if there is no separate step of tracing."""
    if program.kind in ("plain", "jit"):
        return program.call.trace(*args, **kwargs)
    why = "this wrapper has no .trace(); its tracing is inside the time to lower"
    raise NotMeasured(_BUILT.get(program.kind, why))


def lower(program: CallableProgram, traced: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`traced.lower()`, or the wrapper's own `lower`, which then contains the tracing."""
    if traced is not None:
        return traced.lower()
    if program.kind in _BUILT:
        raise NotMeasured(_BUILT[program.kind])
    return program.call.lower(*args, **kwargs)


@contextmanager
def as_reason(what: str) -> Iterator[None]:
    """Makes any error of the block a reason why something is not measured: `what`, and what was raised."""
    try:
        yield
    except NotMeasured:
        raise
    except Exception as error:
        raise NotMeasured(f"{what} ({type(error).__name__}: {first_line(error)})") from error


def first_line(error: BaseException) -> str:
    return (text_of(error).splitlines() or [""])[0][:200]


def unwrapped(stage: Any, kind: type) -> Any:
    """Returns the `jax.stages` object inside a wrapper's own object (equinox, flax); None if it has no such object."""
    if stage is None or isinstance(stage, kind):
        return stage
    # flax calls it stage.compiled and uses slots; equinox keeps it under another name.
    candidates = [getattr(stage, kind.__name__.lower(), None), *getattr(stage, "__dict__", {}).values()]
    return next((value for value in candidates if isinstance(value, kind)), None)
