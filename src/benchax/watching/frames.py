"""Which call does JAX compile for? Read from the stack of the thread that compiles, while it compiles.

The events of `jax.monitoring` carry only a name. The function and its arguments are in the frames of `jax/_src/pjit.py`
that wait for the program: reading them costs nothing on a warm call, which has no such frames.

These frames are private to JAX, and only this module knows them. Tried on jax 0.6.2 to 0.12.0.1. If a frame or a local
is missing, the call is known by the event's name alone, and its reason is "not known".
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from types import CodeType, FrameType
from typing import Any

import jax
import jax.monitoring

from benchax.source_files import outward, owner_of

_PJIT = str(Path("jax", "_src", "pjit.py"))
_COMPILED_CALLS = str(Path("benchax", "watching", "transfers.py"))
"""Where calls of programs that were compiled by hand are seen, by a function `call_compiled`."""
_WRAPPERS = {
    (str(Path("equinox", "_jit.py")), "_call"): lambda found: found["jit_wrapper"].__wrapped__,
    (str(Path("flax", "nnx", "transforms", "compilation.py")), "__call__"): lambda found: found["self"].fun,
    (str(Path("flax", "nnx", "transforms", "compilation.py")), "lower"): lambda found: found["self"].fun,
    (str(Path("jax", "_src", "pmap.py")), "wrapped"): lambda found: _mapped_function(found["infer_params"]),
}
"""Library functions that pass other arguments to `jax.jit` than the user passed to them, by file and name. Each has a
way to reach the user's function from its locals. The user's arguments are `args` and `kwargs` (equinox 0.13.8, flax
0.12.8, and pmap of jax 0.12)."""
_SETTINGS = (
    "donate_argnums",
    "donate_argnames",
    "static_argnums",
    "static_argnames",
    "in_shardings_leaves",
    "out_shardings_leaves",
    "keep_unused",
    "device",
    "backend",
    "compiler_options_kvs",
)
"""The parts of the arguments of `jax.jit` that lead to another program."""


@dataclass(frozen=True)
class JaxCall:
    """The call that JAX works for. Holds the user's arrays: it must not outlive the event."""

    fun: Any
    """None: it was not visible, or it does not exist."""
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    settings: Mapping[str, Any]
    where: str | None
    """file:line of the user's line."""
    is_nested: bool
    """Inside the trace of another jitted function."""
    is_seen: bool = True
    """False: nothing is known of it but the name in the event."""
    user: UserCall | None = None
    """The user's call, if a library is between it and `jax.jit`."""

    @property
    def own(self) -> Any:
        """The user's function, under a library's wrapper if there is one."""
        return self.user.fun if self.user else self.fun

    @property
    def static(self) -> tuple[int | str, ...]:
        """Its static arguments, by position and by name."""
        count, positions = len(self.args), self.settings.get("static_argnums") or ()
        # JAX takes negative ones, counted from the end.
        known = (i % count for i in positions if -count <= i < count)
        return (*known, *(self.settings.get("static_argnames") or ()))


@dataclass(frozen=True)
class UserCall:
    """A call of what `equinox.filter_jit` or `flax.nnx.jit` made of a user's function. Holds the user's arrays."""

    fun: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    numbers_are_static: bool = True
    """Does the library compile for each value of a Python number, as equinox does?"""


_compiled: weakref.WeakKeyDictionary[Any, JaxCall] = weakref.WeakKeyDictionary()
"""The call of each program that was compiled by hand, without its arrays."""


def note_compiled(compiled: Any, call: JaxCall) -> None:
    """`compiled`, a `jax.stages.Compiled`, was made for this call, which holds no arrays: its own calls are calls of
    that function."""
    # It takes no static arguments: positions are not those of the function.
    settings = {name: value for name, value in call.settings.items() if not name.startswith("static_")}
    _compiled[compiled] = replace(call, settings=settings)


def without_arrays(call: JaxCall) -> JaxCall:
    """Returns the parts of the call that can be kept."""
    user = call.user and replace(call.user, args=(), kwargs={})
    return replace(call, args=(), kwargs={}, user=user)


def function_of(compiled: Any) -> Any:
    """Returns the function of a compiled program, or None if no record of it exists."""
    call = _compiled.get(compiled)
    return call and call.fun


def calling() -> JaxCall:
    """The innermost jitted call on this thread's stack."""
    # Don't use `inspect.stack()`, which reads files for the text of every line.
    stack = list(outward(sys._getframe(1)))
    jitted = [frame for frame in stack if _is_jitted_call(frame)]
    # A program that no call of the user requested directly, such as a backward pass, is known only by its name.
    jitted = jitted or [frame for frame in stack if _is_in_pjit(frame.f_code, "call_impl_cache_miss")][:1]
    if not jitted:
        return JaxCall(None, (), {}, {}, _user_line(stack), False, is_seen=False)
    frame = jitted[0]
    outer = stack[stack.index(frame) :]
    is_nested = any(other.f_code.co_name == "cache_miss" for other in jitted[1:])
    noted = _noted(frame)
    user = _user_call(outer) if noted is None else noted.user
    return JaxCall(*_locals(frame, noted), _user_line(outer), is_nested, user=user)


def compiling() -> Any:
    """Returns the closed jaxpr that is being compiled below this call on the stack, as from a listener. Returns None if
    it is not visible, as for a program that was lowered by hand."""
    for frame in outward(sys._getframe(1)):
        if frame.f_code.co_filename.endswith(_PJIT):
            jaxpr = frame.f_locals.get("jaxpr")
            return jaxpr if hasattr(jaxpr, "jaxpr") and hasattr(jaxpr, "consts") else None
    return None


def user_line() -> str | None:
    """Returns file:line of the nearest line of the user's own files on this thread's stack, or of a library's if there
    is no such line."""
    return _user_line(list(outward(sys._getframe(1))))


def _user_call(stack: list[FrameType]) -> UserCall | None:
    """Returns the call of a library's wrapper right around a jitted call. Returns None if there is no such call, or it
    is unlike those we know."""
    for frame in stack:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if owner_of(file) == "user":
            return None
        reach = next((f for (end, known), f in _WRAPPERS.items() if name == known and file.endswith(end)), None)
        if reach is not None:
            with contextlib.suppress(Exception):
                found = frame.f_locals
                is_static = Path(file).parts[-2:] == ("equinox", "_jit.py")
                return UserCall(reach(found), found["args"], found["kwargs"], is_static)
    return None


def _mapped_function(infer_params: Any) -> Any:
    """The function that `jax.pmap` was given, from the closure of its helper."""
    cells = dict(zip(infer_params.__code__.co_freevars, infer_params.__closure__, strict=True))
    return cells["wrapped_fun"].cell_contents.f


def is_wrapper(code: CodeType) -> bool:
    """Is this a library's function around `jax.jit`, so that the call behind it is the user's?"""
    return any(code.co_name == name and code.co_filename.endswith(end) for end, name in _WRAPPERS)


def _is_jitted_call(frame: FrameType) -> bool:
    # JAX's C++ code calls `cache_miss` if its fast path has no program for a call. The others are `.trace()` and
    # `.lower()`.
    return _noted(frame) is not None or _is_in_pjit(frame.f_code, "cache_miss", "jit_trace", "jit_lower")


def _is_in_pjit(code: CodeType, *names: str) -> bool:
    return code.co_name in names and code.co_filename.endswith(_PJIT)


def _noted(frame: FrameType) -> JaxCall | None:
    """Where the frame calls a program that was compiled by hand: what that was compiled for, if it is known."""
    code = frame.f_code
    is_call = code.co_name == "call_compiled" and code.co_filename.endswith(_COMPILED_CALLS)
    return _compiled.get(frame.f_locals["compiled"]) if is_call else None


def _locals(
    frame: FrameType, noted: JaxCall | None
) -> tuple[Any, tuple[Any, ...], Mapping[str, Any], Mapping[str, Any]]:
    # Names of local variables in JAX's functions, which JAX does not guarantee. Two of them belong to another JAX
    # version.
    found = frame.f_locals
    if noted is not None:
        return noted.fun, found["args"], found["kwargs"], noted.settings
    jitted = found.get("jit_func")
    fun = found.get("fun", getattr(jitted, "_fun", None))
    info = found.get("jit_info", getattr(jitted, "_jit_info", None))
    settings = {name: getattr(info, name) for name in _SETTINGS if hasattr(info, name)}
    return fun, found.get("args", ()), found.get("kwargs", {}), settings


def _user_line(stack: list[FrameType]) -> str | None:
    """Returns the nearest line of the user's own files, or of a library if there is no such line."""
    owners = [(owner_of(frame.f_code.co_filename), frame) for frame in stack]
    own = [frame for owner, frame in owners if owner == "user"]
    others = [frame for owner, frame in owners if owner not in ("jax", "benchax")]
    nearest = next((f for f in (*own, *others) if not f.f_code.co_filename.startswith("<frozen")), None)
    return None if nearest is None else place(nearest.f_code.co_filename, nearest.f_lineno)


def place(file: str, line: int) -> str:
    """train.py:31; relative where it lies below the current directory."""
    with contextlib.suppress(OSError):  # the current directory was deleted
        file = _near(file, os.getcwd())  # noqa: PTH109  # `Path.cwd()` takes several times as long
    return f"{file}:{line}"


@functools.lru_cache(maxsize=1000)
def _near(file: str, folder: str) -> str:
    """Kept, since it is asked at each call of a program while calls are counted, and takes several microseconds."""
    near = os.path.relpath(file, folder)
    return file if near.startswith(os.pardir) else near


def is_of_jax(fun: Any) -> bool:
    """Is this one of JAX's own jitted functions, such as jnp.sin, called eagerly; not the user's `jax.jit(jnp.sin)`?"""
    module = getattr(fun, "__module__", None)
    if not (isinstance(module, str) and module.split(".")[0] == "jax") or hasattr(fun, "_fun") or hasattr(fun, "lower"):
        return False
    # JAX's modules contain their jitted functions, so only eager calls reach the plain ones. `jax.jit(jnp.ones)`, of a
    # plain function, is the user's. Only JAX jits its private functions.
    name = getattr(fun, "__name__", "")
    return name.startswith("_") or getattr(sys.modules.get(module), name, None) is not fun


def can_tell_earlier_calls() -> bool:
    # jax 0.8.3 has a cache of that name, which its jit does not fill: each call would look like the first one.
    return (
        jax.__version_info__ >= (0, 10)
        and hasattr(_trace_cache(), "cache_keys")
        and hasattr(jax.monitoring, "unregister_scalar_listener")
    )


def _trace_cache() -> Any:
    return getattr(jax._src.interpreters.partial_eval, "trace_to_jaxpr", None)  # noqa: TID251  # pyright: ignore


def earlier_calls(fun: Any) -> list[tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]] | None:
    """(args, kwargs, configuration) of each call for which JAX holds a trace of `fun`: abstract values for arrays.

    So a recompile can be compared with what was called before the watch began. None where this JAX does not tell
    (tried: 0.10.2, 0.11.2 and 0.12.0.1 do, 0.6.2, 0.8.0 and 0.8.3 do not).
    """
    if not can_tell_earlier_calls():
        return None
    keys = _trace_cache().cache_keys()
    return [(*avals.unflatten(), _named_context(context)) for ref, context, (avals, *_), _ in keys if ref() is fun]


def has_traced_nothing() -> bool:
    """Has JAX traced no function yet, in this process? False if this JAX does not tell."""
    return can_tell_earlier_calls() and not list(_trace_cache().cache_keys())


def configuration() -> dict[str, Any]:
    """The configuration that JAX makes another program for; empty where this JAX has no names for it (before 0.10)."""
    context = getattr(jax._src.config, "trace_context", None)  # noqa: TID251  # pyright: ignore
    if context is None:
        return {}
    named = _named_context(context())
    return named or {name: getattr(jax.config, name) for name in _CONFIG if hasattr(jax.config, name)}


_CONFIG = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_device",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_threefry_partitionable",
    "jax_default_prng_impl",
)
"""Asked by name where JAX does not name its context."""


def _named_context(values: tuple[Any, ...]) -> dict[str, Any]:
    names = getattr(jax._src.config, "trace_context_names", None)  # noqa: TID251  # pyright: ignore
    listed = names() if names else ()
    return dict(zip(listed, values, strict=True)) if len(listed) == len(values) else {}


# ---- programs that are compiled by hand -------------------------------------------------------------------------
#
# JAX reports `jax.jit(f).lower(...).compile()` by its name alone. Its `jax.stages.Compiled` knows neither the function
# nor the arguments of the lowering. Both are on the stack while `lower` runs. Methods of the public `jax.stages.Traced`
# and `jax.stages.Lowered` are wrapped during that time. Lowerings of a `Traced` from before are not seen.

Lowering = Callable[[JaxCall, Any], Callable[[float], None]]
"""Receives a call of `lower` and the closed jaxpr that it made. Returns a function that receives the seconds of the
compilation."""


@contextlib.contextmanager
def watch_lowering(hear: Lowering) -> Iterator[None]:
    """Watches all threads, inside the block. Only one block at a time is possible."""
    traced_class: Any = jax.stages.Traced
    lowered_class: Any = jax.stages.Lowered
    lower, compile_it = traced_class.lower, lowered_class.compile
    lowered_for: weakref.WeakKeyDictionary[Any, tuple[JaxCall, Any]] = weakref.WeakKeyDictionary()

    @functools.wraps(lower)
    def lower_and_note(traced: Any, *args: Any, **kwargs: Any) -> Any:
        lowered = lower(traced, *args, **kwargs)
        with contextlib.suppress(Exception):  # it would surface in the user's call; then this one is not looked at
            call = calling()
            if call.fun is not None and not call.is_nested and not is_of_jax(call.fun):
                lowered_for[lowered] = without_arrays(call), hear(call, traced.jaxpr)
        return lowered

    @functools.wraps(compile_it)
    def compile_and_note(lowered: Any, *args: Any, **kwargs: Any) -> Any:
        begun = perf_counter()
        compiled = compile_it(lowered, *args, **kwargs)
        with contextlib.suppress(Exception):  # as above; a KeyError for one that was lowered elsewhere
            call, tell = lowered_for[lowered]
            note_compiled(compiled, call)
            tell(perf_counter() - begun)
        return compiled

    traced_class.lower, lowered_class.compile = lower_and_note, compile_and_note
    try:
        yield
    finally:
        traced_class.lower, lowered_class.compile = lower, compile_it
