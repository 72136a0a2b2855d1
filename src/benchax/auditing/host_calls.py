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
import inspect
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from time import perf_counter
from types import FrameType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from benchax.auditing.put_contents import PutContents
from benchax.auditing.wide_arrays import WideArrays
from benchax.source_files import is_in_package, owner_of
from benchax.specs import spec_of
from benchax.watching.frames import user_line
from benchax.watching.signatures import describe_placement

SMALL_BYTES = 1 << 10
"""What is smaller costs as much as any call, and is not looked at."""
LARGE_BYTES = 1 << 20
"""What is smaller may well be on every device."""
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
DRAW_NOTHING = ("fold_in", "key_data", "wrap_key_data", "clone", "key_impl")
"""Functions of `jax.random` after which a key may be used again."""
OF_LOOP = 5
"""Uses of one key inside of one line's calls of a package: so many show that the line runs again and again."""
MOST_PUTS = 2000
"""Places that put arrays on a device; each shape is another one."""
MOST_KEYS = 1000
"""Keys that are held, so that no other array takes their number; they are small."""


@dataclass
class PutLine:
    """What one line puts on a device, of one place in its arguments."""

    where: str
    by: str
    what: str
    count: int = 0
    repeats: int = 0
    """Times that it had the same contents as the time before."""
    copies_on_host: int = 0
    """Repeats that were another array, made anew."""
    size_bytes: int = 0
    elapsed_s: float = 0.0
    """That the host spent in it, of the repeats."""
    copies: int = 0
    """Times that each of several devices was given all of a large one."""
    devices: int = 1
    moves: int = 0
    """Times that it was an array of JAX that lay otherwise."""
    moved_from: str = ""
    moved_to: str = ""


@dataclass
class ListLine:
    """A line that makes arrays of lists of Python numbers."""

    where: str
    by: str
    count: int = 0
    elements: int = 0
    elapsed_s: float = 0.0
    """That the host spent in it."""


@dataclass
class WaitLine:
    """A line that waits for the device."""

    where: str
    by: str
    count: int = 0
    waited_s: float = 0.0
    between_s: float = 0.0
    """From the end of each wait to the beginning of the next one of its thread, at whatever line: what the host did
    meanwhile. Without this wait it could go on until that one, and no further."""
    gain_s: float = 0.0
    """The smaller of each wait and of what the host did before the next: what can run side by side at most."""
    stepped_s: float = 0.0
    """From the end of each wait to the end of the next at this line: the length of its steps."""
    ended: dict[int, float] = field(default_factory=dict[int, float], repr=False)
    """By thread: when it last waited here."""


class _PutPlace(NamedTuple):
    """Where an array is put on a device."""

    where: str
    by: str
    at: int
    """The instruction of that line."""
    leaf: int
    """Which one of the arguments' arrays."""
    what: str


class _LastWait(NamedTuple):
    """Of one thread."""

    line: WaitLine
    waited_s: float
    ended: float


class _KeyUse(NamedTuple):
    """One place where a random key is used up."""

    by: str
    where: str
    inside: frozenset[tuple[str, int]] | None
    """Of a package's use: the user's lines on the stack, which is inside of them. None: the user's own use."""


class HostCalls:
    """Wraps JAX's functions from now on, until `close`.

    Args:
        on_read: told of the user's line that reads an array by name, as `x.item()` does.
    """

    def __init__(self, on_read: Callable[[str | None], None] = lambda where: None) -> None:
        self._on_read = on_read
        self.puts: dict[_PutPlace, PutLine] = {}
        self.lists: dict[tuple[str, str], ListLine] = {}
        self.settings: dict[str, str] = {}
        """Of `DEBUGGING`: the line that has set each last."""
        self.waits: dict[tuple[str, str], WaitLine] = {}
        self.sees_methods = True
        self.wide = WideArrays()
        self._keys: dict[int, tuple[Any, Counter[_KeyUse]]] = {}
        self._last_waits: dict[int, _LastWait] = {}
        self._last: dict[_PutPlace, PutContents] = {}
        self._lock = threading.Lock()
        self._busy = threading.local()
        self._undo = contextlib.ExitStack()
        for owner, name in PUTS:
            self._wrap(owner, name, self._put)
        self._wrap(jax, "block_until_ready", self._wait)
        self._wrap(jax.config, "update", self._configure)
        for name in _users_of_keys():
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
        with self._lock:
            return {
                "puts": [asdict(line) for line in self.puts.values()],
                "lists": [asdict(line) for line in self.lists.values()],
                "settings": {name: self.settings.get(name, "") for name in DEBUGGING if _is_on(name)},
                "waits": [{k: v for k, v in asdict(line).items() if k != "ended"} for line in self.waits.values()],
                "sees_methods": self.sees_methods,
                "keys": [
                    [[use.by, use.where, n] for use, n in uses.items()]
                    for _, uses in self._keys.values()
                    if uses.total() > 1 and _is_users(uses)
                ],
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
            if isinstance(args[0], list | tuple) and by != "device_put":
                self._note_list(by, args[0], found, elapsed_s)
            else:
                self._note_put(by, args[0], found, elapsed_s)
        return found

    def _note_list(self, by: str, given: Any, found: Any, elapsed_s: float) -> None:
        innermost = given
        while isinstance(innermost, list | tuple):
            innermost = innermost[0]
        where = user_line() if isinstance(innermost, int | float | complex) and not isinstance(found, Tracer) else None
        if where is not None:
            line = self.lists.setdefault((where, by), ListLine(where, by))
            line.count += 1
            line.elements += found.size
            line.elapsed_s += elapsed_s

    def _note_put(self, by: str, given: Any, found: Any, elapsed_s: float) -> None:
        leaves, made = jax.tree.leaves(given), jax.tree.leaves(found)
        if len(leaves) != len(made) or any(isinstance(leaf, Tracer) for leaf in made):
            return
        large = [i for i, leaf in enumerate(leaves) if getattr(leaf, "nbytes", 0) >= SMALL_BYTES]
        where = user_line() if large else None
        if where is None:
            return
        at = _position(sys._getframe(1))
        for i in large:
            # One line may put several arrays there, each by a call of its own, or one helper arrays of all kinds.
            place = _PutPlace(where, by, at, i, spec_of(leaves[i]))
            if place not in self.puts and len(self.puts) >= MOST_PUTS:
                continue
            line = self.puts.setdefault(place, PutLine(where, by, place.what))
            line.count += 1
            if leaves[i].nbytes >= LARGE_BYTES and made[i].sharding.is_fully_replicated:
                line.devices = len(made[i].sharding.device_set)
                line.copies += line.devices > 1
            if isinstance(leaves[i], np.ndarray):
                self._note_array(line, place, leaves[i], elapsed_s / len(large))
            elif isinstance(leaves[i], jax.Array) and not made[i].sharding.is_equivalent_to(
                leaves[i].sharding, leaves[i].ndim
            ):
                line.moves += 1
                line.elapsed_s += elapsed_s
                line.size_bytes += leaves[i].nbytes
                line.moved_from = describe_placement(leaves[i].sharding)
                line.moved_to = describe_placement(made[i].sharding)

    def _note_array(self, line: PutLine, place: _PutPlace, array: np.ndarray, elapsed_s: float) -> None:
        last = self._last.setdefault(place, PutContents())
        is_same_object = last.is_of(array)
        if last.repeat(array):
            line.repeats += 1
            line.copies_on_host += not is_same_object
            line.size_bytes += array.nbytes
            line.elapsed_s += elapsed_s

    def _configure(self, by: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            name = args[0] if args else kwargs["name"]
            if name in DEBUGGING:
                self.settings[name] = user_line() or ""
        return function(*args, **kwargs)

    def _draw(self, by: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            key = args[0] if args else kwargs["key"]
            if isinstance(key, jax.Array) and not isinstance(key, Tracer) and len(self._keys) < MOST_KEYS:
                inside = _own_lines(sys._getframe(2)) if is_in_package(sys._getframe(2)) else None
                self._keys.setdefault(id(key), (key, Counter()))[1][_KeyUse(by, user_line() or "", inside)] += 1
        return function(*args, **kwargs)

    def _wait(self, by: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        begun = perf_counter()
        found = function(*args, **kwargs)
        ended = perf_counter()
        with contextlib.suppress(Exception):
            self._note_wait(by, begun, ended)
            if "block_until_ready" not in by:
                self._on_read(user_line())
        return found

    def _note_wait(self, by: str, begun: float, ended: float) -> None:
        where = user_line()
        if where is None:
            return
        with self._lock:
            line = self.waits.setdefault((where, by), WaitLine(where, by))
            thread = threading.get_ident()
            if (last := self._last_waits.get(thread)) is not None:
                last.line.between_s += begun - last.ended
                last.line.gain_s += min(last.waited_s, begun - last.ended)
            line.count += 1
            line.waited_s += ended - begun
            line.stepped_s += ended - line.ended.get(thread, ended)
            line.ended[thread] = ended
            self._last_waits[thread] = _LastWait(line, ended - begun, ended)


def _is_outside_jax(frame: FrameType) -> bool:
    return owner_of(frame.f_code.co_filename) != "jax"


def _position(frame: FrameType | None) -> int:
    """The instruction that the user's nearest frame is at."""
    while frame is not None and owner_of(frame.f_code.co_filename) != "user":
        frame = frame.f_back
    return -1 if frame is None else frame.f_lasti


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


def _is_on(setting: str) -> bool:
    return bool(getattr(jax.config, setting, False))


def _users_of_keys() -> list[str]:
    """Functions of `jax.random` whose first argument is a key that they use up."""
    found: list[str] = []
    for name, function in vars(jax.random).items():
        if callable(function) and not name.startswith("_") and name not in DRAW_NOTHING:
            with contextlib.suppress(TypeError, ValueError):
                if next(iter(inspect.signature(function).parameters), "") == "key":
                    found.append(name)
    return found


def _array_type() -> Any:
    from jax._src.array import ArrayImpl  # noqa: PLC0415, TID251  # the class of arrays, which JAX names nowhere else

    return ArrayImpl
