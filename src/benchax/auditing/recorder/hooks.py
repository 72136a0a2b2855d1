"""Logs a program's actions around its calls: it puts data on devices, waits, draws random numbers, changes settings.

The hooks wrap these functions for the whole run, at some microseconds for each call: `jax.device_put`, `jnp.asarray`,
`jnp.array`, `jax.block_until_ready`, the array methods `block_until_ready` and `item`, `np.asarray` and `np.array` of
JAX arrays, the functions of `jax.random` that use up a key, and `jax.config.update`. `ArrayImpl` is private to JAX. If
it is missing, waits by methods are not seen, and `sees_methods` says so.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
import weakref
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from benchax.auditing.recorder.log import Event, Log, look
from benchax.auditing.recorder.rounded import LostDigitsNotes, innermost
from benchax.source_files import is_in_package, owner_of
from benchax.specs import ArraySpec, spec_of
from benchax.watching.frames import user_line

DEBUGGING = {
    "jax_debug_nans": "each call waits for its outputs and searches them, in Python",
    "jax_debug_infs": "each call waits for its outputs and searches them, in Python",
    "jax_disable_jit": "nothing is compiled",
    "jax_disable_most_optimizations": "programs are compiled without most optimizations",
    "jax_check_tracer_leaks": "each trace is searched for leaks, and no trace is kept",
    "jax_enable_checks": "JAX checks each trace against its own rules",
}
"""JAX settings for finding mistakes, and what each costs."""
PUTS = ((jax, "device_put"), (jnp, "asarray"), (jnp, "array"))
METHODS = ("block_until_ready", "item")
READERS = ("asarray", "array")
"""NumPy functions that wait for a JAX array and read it."""
DRAW_NOTHING = ("fold_in", "key_data", "wrap_key_data", "clone", "key_impl")
"""Functions of `jax.random` after which a key may be used again."""
WIDE = ("float64", "complex128")
LEAST_BYTES = 1 << 10
"""Smaller arrays cost as much as any call, and are not looked at."""
SAMPLED = 4096
"""Elements that tell two contents of one array apart."""
WHOLE_TIMES = 8
"""How often a whole array is compared: afterwards, a sample has to do."""


class PutPlace(NamedTuple):
    """Where an array is put on a device."""

    instruction: int
    """Distinguishes the calls of one line, which can put several arrays there."""
    leaf: int
    """Position among the arrays of the call."""
    what: str
    """The spec: f32[8,128]."""


@dataclass
class PutNote:
    """The argument of a "put", and where it came from."""

    place: PutPlace
    is_repeat: bool
    """Has it the contents of the put before, at the same place?"""
    is_new_object: bool
    given: Any
    """The sharding it had; None for NumPy arrays."""
    made: Any
    """The sharding it has."""


class HostHooks:
    """Wraps JAX's functions from now on, until `close`."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.sees_methods = True
        self._lost = LostDigitsNotes(log)
        self._contents: dict[tuple[str, str, PutPlace], PutContents] = {}
        self._busy = threading.local()
        self._undo = contextlib.ExitStack()
        for owner, name in PUTS:
            self._wrap(owner, name, self._put)
        self._wrap(jax, "block_until_ready", self._wait)
        self._wrap(jax.config, "update", self._configure)
        for name in users_of_keys():
            self._wrap(jax.random, name, self._draw)
        try:
            # The class of arrays, which JAX names nowhere else.
            from jax._src.array import ArrayImpl as array_type  # noqa: PLC0415, TID251

            for name in METHODS:
                self._wrap(array_type, name, self._wait)
            # Numba knows functions of NumPy by themselves: it would not compile what calls another.
            for name in READERS if "numba" not in sys.modules else ():
                self._wrap(np, name, self._wait, only=array_type)
        except (AttributeError, ImportError, TypeError):
            self.sees_methods = False

    def close(self) -> None:
        self._undo.close()

    def _wrap(self, owner: Any, name: str, around: Callable[..., Any], only: type | None = None) -> None:
        """`only`: calls whose first argument is of this type."""
        function = getattr(owner, name)
        by = name if owner in (jax, jnp, jax.random) else f"np.{name}" if owner is np else f".{name}"
        # Methods of a compiled class have no qualified name.
        assigned = [a for a in functools.WRAPPER_ASSIGNMENTS if isinstance(getattr(function, a, None), str)]

        @functools.wraps(function, assigned)
        def call(*args: Any, **kwargs: Any) -> Any:
            is_one = only is None or (bool(args) and type(args[0]) is only)
            if not is_one or (only is not None and owner_of(sys._getframe(1).f_code.co_filename) == "jax"):
                return function(*args, **kwargs)
            # One of them calls another; only what you call counts. What a package does in its own lines you cannot
            # change, but a key that it was given is yours.
            is_inner = getattr(self._busy, "inside", False)
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
        ended = perf_counter()
        with contextlib.suppress(Exception):  # whatever it is, it must not fail the user's call
            if by != "device_put":
                self._note_wide(args, kwargs, found)
            if isinstance(args[0], list | tuple) and by != "device_put":
                self._note_list(by, args[0], found, begun, ended)
            else:
                self._note_put(by, args[0], found, begun, ended)
            self._lost.note_put(args[0], found)
        return found

    def _note_wide(self, args: Sequence[Any], kwargs: Any, found: Any) -> None:
        """With jax_enable_x64, `jnp.asarray(np.hanning(n))` is float64, also while JAX traces."""
        is_asked = len(args) > 1 or kwargs.get("dtype") is not None
        if is_asked or not isinstance(args[0], np.ndarray | list | tuple) or str(found.dtype) not in WIDE:
            return
        if found.shape and jax.config.read("jax_enable_x64") and (where := user_line()):
            self.log.add(Event("wide", str(ArraySpec(str(found.dtype), tuple(found.shape))), where))

    def _note_list(self, by: str, given: Any, found: Any, begun: float, ended: float) -> None:
        if isinstance(innermost(given), int | float | complex) and not isinstance(found, Tracer):
            self.log.add(Event("list", by, user_line() or "", begun, ended, size=found.size))

    def _note_put(self, by: str, given: Any, found: Any, begun: float, ended: float) -> None:
        leaves, made = jax.tree.leaves(given), jax.tree.leaves(found)
        if len(leaves) != len(made) or any(isinstance(leaf, Tracer) for leaf in made):
            return
        large = [i for i, leaf in enumerate(leaves) if getattr(leaf, "nbytes", 0) >= LEAST_BYTES]
        if not large:
            return
        stack = look(sys._getframe(1), self.log)
        for i in large if stack.where else ():
            place = PutPlace(stack.instruction, i, spec_of(leaves[i]))
            note = PutNote(place, False, False, getattr(leaves[i], "sharding", None), made[i].sharding)
            if isinstance(leaves[i], np.ndarray):
                last = self._contents.setdefault((by, stack.where, place), PutContents())
                note.is_new_object = not last.is_of(leaves[i])
                note.is_repeat = last.repeat(leaves[i])
            each_s = (ended - begun) / len(large)
            event = Event("put", by, stack.where, begun, begun + each_s, size=leaves[i].nbytes, note=note)
            event.reads, event.makes = self.log.ids((leaves[i],)), self.log.ids((made[i],))
            self.log.add(event)

    def _configure(self, by: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            name = args[0] if args else kwargs["name"]
            if name in DEBUGGING:
                self.log.add(Event("setting", name, user_line() or ""))
        return function(*args, **kwargs)

    def _draw(self, by: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            key = args[0] if args else kwargs["key"]
            if isinstance(key, jax.Array) and not isinstance(key, Tracer):
                stack = look(sys._getframe(1), self.log)
                event = Event("draw", by, stack.where, perf_counter(), reads=self.log.ids((key,)))
                event.caller, event.path = stack.caller, stack.path
                self.log.add(event)
        return function(*args, **kwargs)

    def _wait(self, by: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        begun = perf_counter()
        found = function(*args, **kwargs)
        ended = perf_counter()
        with contextlib.suppress(Exception):
            stack = look(sys._getframe(1), self.log)
            if stack.where:
                self.log.add(Event("wait", by, stack.where, begun, ended, path=stack.path))
        return found


class PutContents:
    """The contents of the last array at one place. Holds no array.

    The same object is recognized by a sample of its elements, since the program can overwrite it in place. For another
    object of the same shape a checksum of all of it is made too, but only a few times.
    """

    def __init__(self) -> None:
        self._last: weakref.ref[Any] | None = None
        self._sample: int | None = None
        self._whole: int | None = None
        self._times = 0

    def is_of(self, array: np.ndarray) -> bool:
        """Was it the same object?"""
        return self._last is not None and self._last() is array

    def repeat(self, array: np.ndarray) -> bool:
        """Remembers this array, and returns whether the last one had the same contents."""
        sample = zlib.crc32(np.ascontiguousarray(array.flat[:: max(1, array.size // SAMPLED)]).tobytes())
        is_same = sample == self._sample
        if not is_same:
            self._whole, self._times = None, 0
        elif not self.is_of(array) and array.size > SAMPLED and self._times < WHOLE_TIMES:
            is_same = self._is_whole_same(array)
        self._last, self._sample = weakref.ref(array), sample
        return is_same

    def _is_whole_same(self, array: np.ndarray) -> bool:
        # Of the first one only the sample is known.
        whole, before = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data), self._whole
        self._whole = whole
        self._times = self._times + 1 if whole == before else 0
        return whole == before


def users_of_keys() -> list[str]:
    """Functions of `jax.random` whose first argument is a key that they use up."""
    found: list[str] = []
    for name, function in vars(jax.random).items():
        if callable(function) and not name.startswith("_") and name not in DRAW_NOTHING:
            with contextlib.suppress(TypeError, ValueError):
                if next(iter(inspect.signature(function).parameters), "") == "key":
                    found.append(name)
    return found


def debugging_settings(log: Log) -> dict[str, str]:
    """Settings for finding mistakes that are on now, and the line that set each; empty if no line did."""
    lines = {event.by: event.where for event in log.of("setting")}
    return {name: lines.get(name, "") for name in DEBUGGING if bool(getattr(jax.config, name, False))}
