"""Notes what a program does by name around its calls: puts data on devices, and waits for results.

`jax.device_put`, `jnp.asarray`, `jnp.array`, `jax.block_until_ready`, the methods `block_until_ready` and `item` of
arrays, `np.asarray` and `np.array` of arrays of JAX, the functions of `jax.random` that use up a key, and
`jax.config.update` are wrapped as soon as JAX is imported, and noted for the whole run by the user's line: some
microseconds for each. What they do while JAX traces is not counted. `ArrayImpl` is
private to JAX; where it is another one, waits by its methods are not seen, and `sees_methods` says so.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from time import perf_counter
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.auditing.key_notes import KeyNotes, users_of_keys
from benchax.auditing.lost_digits import LostDigitsNotes
from benchax.auditing.put_notes import PutNotes
from benchax.auditing.wait_notes import WaitNotes
from benchax.auditing.wide_arrays import WideArrays
from benchax.source_files import is_in_package, owner_of
from benchax.watching.frames import user_line

DEBUGGING = {
    "jax_debug_nans": "each call waits for its outputs and looks through them, in Python",
    "jax_debug_infs": "each call waits for its outputs and looks through them, in Python",
    "jax_disable_jit": "nothing is compiled",
    "jax_disable_most_optimizations": "programs are compiled without most optimizations",
    "jax_check_tracer_leaks": "each trace is searched for what it leaks, and none is kept",
    "jax_enable_checks": "JAX checks each trace against its own rules",
}
"""Settings of JAX for looking for mistakes, and what each costs."""
PUTS = ((jax, "device_put"), (jnp, "asarray"), (jnp, "array"))
METHODS = ("block_until_ready", "item")
READERS = ("asarray", "array")
"""Functions of NumPy that wait for an array of JAX and read it."""


class HostCalls:
    """Wraps JAX's functions from now on, until `close`.

    Args:
        on_read: told of the user's line that reads an array by name, as `x.item()` does.
    """

    def __init__(self, on_read: Callable[[str | None], None] = lambda where: None) -> None:
        self._on_read = on_read
        self.puts, self.waits, self.keys = PutNotes(), WaitNotes(), KeyNotes()
        self.settings: dict[str, str] = {}
        """Of `DEBUGGING`: the line that has set each last."""
        self.sees_methods = True
        self.wide, self.lost = WideArrays(), LostDigitsNotes()
        self._busy = threading.local()
        self._undo = contextlib.ExitStack()
        for owner, name in PUTS:
            self._wrap(owner, name, self._put)
        self._wrap(jax, "block_until_ready", self._wait)
        self._wrap(jax.config, "update", self._configure)
        for name in users_of_keys():
            self._wrap(jax.random, name, self._draw)
        try:
            array_type = _array_type()
            for name in METHODS:
                self._wrap(array_type, name, self._wait)
            # Numba knows functions of NumPy by themselves: it would not compile what calls another.
            for name in READERS if "numba" not in sys.modules else ():
                self._wrap(np, name, self._wait, only=array_type)
        except (AttributeError, ImportError, TypeError):
            self.sees_methods = False

    def close(self) -> None:
        self._undo.close()

    def asdict(self) -> dict[str, Any]:
        return {
            **self.puts.asdict(),
            "settings": {name: self.settings.get(name, "") for name in DEBUGGING if _is_on(name)},
            "waits": self.waits.asdict(),
            "sees_methods": self.sees_methods,
            "keys": self.keys.asdict(),
        }

    def _wrap(self, owner: Any, name: str, around: Callable[..., Any], only: type | None = None) -> None:
        """`only`: calls whose first argument is of this type."""
        function = getattr(owner, name)
        by = name if owner in (jax, jnp, jax.random) else f"np.{name}" if owner is np else f".{name}"

        # Methods of a compiled class have no qualified name.
        assigned = [a for a in functools.WRAPPER_ASSIGNMENTS if isinstance(getattr(function, a, None), str)]

        @functools.wraps(function, assigned)
        def call(*args: Any, **kwargs: Any) -> Any:
            if only is not None and not (args and type(args[0]) is only and _is_outside_jax(sys._getframe(1))):
                return function(*args, **kwargs)
            # One of them calls another; only what the user called is noted.
            is_inner = getattr(self._busy, "inside", False)
            # What a package does in its own lines nobody can change; a key that it was given is the user's.
            if is_inner or (around != self._draw and is_in_package(sys._getframe(1))):
                return function(*args, **kwargs)
            self._busy.inside = True
            try:
                return around(by, function, args, kwargs)
            finally:
                self._busy.inside = False

        setattr(owner, name, call)
        self._undo.callback(setattr, owner, name, function)

    def _put(self, by: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        begun = perf_counter()
        found = function(*args, **kwargs)
        elapsed_s = perf_counter() - begun
        with contextlib.suppress(Exception):  # whatever it is, it must not fail the user's call
            if by != "device_put":
                self.wide.note(args, kwargs, found)
            self.puts.note(by, args[0], found, elapsed_s)
            self.lost.note_put(args[0], found)
        return found

    def _configure(self, by: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            name = args[0] if args else kwargs["name"]
            if name in DEBUGGING:
                self.settings[name] = user_line() or ""
        return function(*args, **kwargs)

    def _draw(self, by: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            self.keys.note(by, args[0] if args else kwargs["key"])
        return function(*args, **kwargs)

    def _wait(self, by: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        begun = perf_counter()
        found = function(*args, **kwargs)
        ended = perf_counter()
        with contextlib.suppress(Exception):
            self.waits.note(by, begun, ended)
            if "block_until_ready" not in by:
                self._on_read(user_line())
        return found


def _is_outside_jax(frame: FrameType) -> bool:
    return owner_of(frame.f_code.co_filename) != "jax"


def _is_on(setting: str) -> bool:
    return bool(getattr(jax.config, setting, False))


def _array_type() -> Any:
    from jax._src.array import ArrayImpl  # noqa: PLC0415, TID251  # the class of arrays, which JAX names nowhere else

    return ArrayImpl
