"""Finds the jitted function in `lambda: jax.block_until_ready(jitted(x))`, with what it is called with.

Who comes from another tool writes the waiting into the function. Measured as it stands, such a function would be called
an eager run, without its compilation and its memory. It is taken for the jitted function inside only where it does
nothing else: one call, of a jitted function that a name or an argument leads to, waiting for it, and returning it or
nothing. That is read from the byte code; what the call is given is learnt by calling the function with a stand-in for
the jitted one.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

WAIT = "block_until_ready"
_MOVES = (
    "LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE", "LOAD_CONST", "LOAD_SMALL_INT", "LOAD_ATTR",
    "LOAD_METHOD", "STORE_FAST", "BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP", "DICT_MERGE",
    "RETURN", "POP_TOP", "RESUME", "COPY_FREE_VARS", "MAKE_CELL",
    "PUSH_NULL", "PRECALL", "KW_NAMES", "CALL", "NOP", "CACHE", "EXTENDED_ARG",
)  # fmt: skip
"""Beginnings of the names of instructions that compute nothing by themselves, in Python 3.11 to 3.14."""
_CALLS = ("CALL", "CALL_KW", "CALL_FUNCTION_EX")


@dataclass(frozen=True)
class InnerCall:
    """A jitted function, and what it is called with."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    is_returned: bool
    """Else the outer function returns nothing."""


def is_jitted(fn: Any) -> bool:
    """Has it stages, as what `jax.jit` and its like make? Functions of JAX itself have them too, and are operations."""
    return callable(fn) and callable(getattr(fn, "lower", None)) and not _is_operation(fn)


def _is_operation(fn: Any) -> bool:
    """Is it what JAX calls by this name? `jax.jit(jnp.sin)` bears the name too, and is the user's."""
    home, name = str(getattr(fn, "__module__", "")), str(getattr(fn, "__name__", ""))
    if home.partition(".")[0] not in ("jax", "builtins"):
        return False
    return home == "builtins" or getattr(sys.modules.get(home), name, None) is fn


def find_jitted_call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> InnerCall | None:
    """The one call that `fn(*args, **kwargs)` consists of; None where it does more, or that cannot be told."""
    while type(fn) is partial:
        args, kwargs, fn = (*fn.args, *args), {**fn.keywords, **kwargs}, fn.func
    if is_jitted(fn):
        return InnerCall(fn, args, dict(kwargs), True)
    # Calling a coroutine function runs nothing, and Python warns of what it returns.
    if not isinstance(fn, FunctionType) or inspect.iscoroutinefunction(fn) or not _only_calls(fn.__code__):
        return None
    calls: list[_StandIn] = []
    replaced = _with_stand_ins(fn, calls)
    given = [_StandIn(value, calls) if is_jitted(value) else value for value in args]
    named = {name: _StandIn(value, calls) if is_jitted(value) else value for name, value in kwargs.items()}
    if replaced is None and not any(isinstance(value, _StandIn) for value in (*given, *named.values())):
        return None
    try:
        # With stand-ins in place of jitted functions nothing is computed: what they are called with is all that is
        # asked.
        returned = (replaced or fn)(*given, **named)
    except Exception:  # whatever it is: the function itself is called next, and raises it where the user sees it
        return None
    if len(calls) != 1 or (returned is not None and returned is not calls[0].output):
        return None
    (call,) = calls
    if call.caller is not fn.__code__:
        return None  # it handed the jitted function on, to one that may do more than call it
    if _unpacks(fn.__code__) and not any(_is_same(call.args, one) for one in (args, *args, *kwargs.values())):
        return None  # f(*x) of an array takes it apart
    return InnerCall(call.fn, call.args, call.kwargs, returned is not None)


def _only_calls(code: CodeType) -> bool:
    """Is there nothing in it but one call, and waiting?"""
    found = list(dis.get_instructions(code))
    if not all(one.opname.startswith(_MOVES) for one in found):
        return False
    waits = sum(
        one.argval == WAIT for one in found if one.opname.startswith(("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL"))
    )
    calls = sum(one.opname in _CALLS for one in found)
    return calls - waits == 1


def _is_same(one: tuple[Any, ...], other: Any) -> bool:
    return isinstance(other, tuple | list) and list(map(id, one)) == list(map(id, other))


def _unpacks(code: CodeType) -> bool:
    return any(one.opname == "CALL_FUNCTION_EX" for one in dis.get_instructions(code))


@dataclass
class _Output:
    """What a stand-in returns. There is nothing to wait for."""

    def block_until_ready(self) -> _Output:
        return self


@dataclass
class _StandIn:
    """Takes the place of a jitted function, and computes nothing."""

    fn: Callable[..., Any]
    calls: list[_StandIn]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])
    output: _Output = field(default_factory=_Output)
    caller: CodeType | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> _Output:
        caller = sys._getframe(1).f_code
        self.calls.append(_StandIn(self.fn, self.calls, args, kwargs, caller=caller))
        return self.calls[-1].output


class _Module:
    """Takes the place of a module whose jitted functions are called by `module.name(...)`."""

    def __init__(self, module: ModuleType, calls: list[_StandIn]) -> None:
        self._module, self._calls = module, calls

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        return _StandIn(value, self._calls) if is_jitted(value) else value


def _with_stand_ins(fn: FunctionType, calls: list[_StandIn]) -> FunctionType | None:
    """The same function, for which jitted functions are stand-ins. None where no name leads to one."""
    reached = {name: fn.__globals__[name] for name in fn.__code__.co_names if name in fn.__globals__}
    replaced = {name: new for name, value in reached.items() if (new := _stand_in(value, calls)) is not None}
    cells = [_replace_cell(cell, calls) for cell in fn.__closure__ or ()]
    if not replaced and cells == list(fn.__closure__ or ()):
        return None
    # A function of its own with globals of its own: the user's module keeps its names, also for other threads.
    made = FunctionType(fn.__code__, {**fn.__globals__, **replaced}, fn.__name__, fn.__defaults__, tuple(cells))
    made.__kwdefaults__ = fn.__kwdefaults__
    return made


def _stand_in(value: Any, calls: list[_StandIn]) -> Any:
    if is_jitted(value):
        return _StandIn(value, calls)
    if isinstance(value, ModuleType) and value.__name__.partition(".")[0] != "jax":
        return _Module(value, calls)
    return None


def _replace_cell(cell: CellType, calls: list[_StandIn]) -> CellType:
    try:
        new = _stand_in(cell.cell_contents, calls)
    except ValueError:  # empty: the name has no value yet
        return cell
    return cell if new is None else CellType(new)
