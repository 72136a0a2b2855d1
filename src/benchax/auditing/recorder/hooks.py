"""Logs what one process of a program does with JAX: its calls, and its actions around them."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import sys
import threading
import weakref
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from types import FrameType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from benchax.auditing.recorder.functions import FunctionRecorder, name_inputs
from benchax.auditing.recorder.log import CallStack, Event, FunctionFacts, Kind, Log, look
from benchax.profiling.samplers import PacedSampler
from benchax.results.watch import ObservedTransfer, Transfers
from benchax.source_files import is_in_package, outward, owner_of
from benchax.specs import short_dtype, spec_of
from benchax.watching.frames import JaxCall, calling, is_of_jax, user_line
from benchax.watching.transfers import BatchedCall, clock, watch_transfers
from benchax.watching.watch import place_of

# ---- hooks -----------------------------------------------------------------------------------------------------------
#
# Logs a program's actions around its calls: it puts data on devices, waits, draws random numbers, changes settings.
#
# The hooks wrap these functions for the whole run, at some microseconds for each call: `jax.device_put`, `jnp.asarray`,
# `jnp.array`, `jax.block_until_ready`, the array methods `block_until_ready` and `item`, `np.asarray` and `np.array` of
# JAX arrays, the functions of `jax.random` that use up a key, and `jax.config.update`. `ArrayImpl` is private to JAX.
# If it is missing, waits by methods are not seen, and `sees_methods` says so.


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
"""Smaller arrays are not looked at. At `RATE` they take 1 µs, and an array of any size takes `EACH_S`, 5 µs (both in
rules/transfers.py)."""
COMPARED = 4096
"""Elements that tell two contents of one array apart. With half or twice of it, rules find the same lines in the
programs of repeated-device-put."""
WHOLE_TIMES = 8
"""How often a whole array is compared: afterwards, a sample has to do. With half or twice of it, rules find the same
lines in the programs of repeated-device-put."""


@dataclass
class PutNote:
    """The argument of a "put", and where it came from."""

    what: str
    """The spec: f32[8,128]."""
    place: tuple[int, int]
    """The instruction, as one line can make several calls; and the position among the arrays of the call."""
    given: Any
    """The sharding it had; None for NumPy arrays."""
    made: Any
    """The sharding it has."""
    is_repeat: bool = False
    """Has it the contents of the put before, at the same place?"""
    is_new_object: bool = False


class HostHooks:
    """Wraps JAX's functions from now on, until `close`."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.sees_methods = True
        self._lost = LostDigitsNotes(log)
        self._contents: dict[Any, PutContents] = {}
        self._busy = threading.local()
        self._undo = contextlib.ExitStack()
        for owner, name in PUTS:
            self._wrap(owner, name, self._note_put)
        self._wrap(jax, "block_until_ready", self._note_wait)
        self._wrap(jax.config, "update", self._note_setting)
        for name in users_of_keys():
            self._wrap(jax.random, name, self._note_draw)
        try:
            # The class of arrays, which JAX names nowhere else.
            from jax._src.array import ArrayImpl as array_type  # noqa: PLC0415, TID251

            for name in METHODS:
                self._wrap(array_type, name, self._note_wait)
            # Numba recognizes NumPy functions by identity and would not compile a call of a wrapper.
            for name in READERS if "numba" not in sys.modules else ():
                self._wrap(np, name, self._note_wait, only=array_type)
        except (AttributeError, ImportError, TypeError):
            self.sees_methods = False

    def close(self) -> None:
        self._undo.close()

    def _wrap(self, owner: Any, name: str, note: Callable[..., None], only: type | None = None) -> None:
        """From now on, `note` takes each call of the user's: (name, arguments, keyword arguments, result, when it
        began, when it ended). `only`: calls whose first argument is of this type."""
        function = getattr(owner, name)
        by = name if owner in (jax, jnp, jax.random) else f"np.{name}" if owner is np else f".{name}"
        # Methods of a compiled class have no qualified name.
        assigned = [a for a in functools.WRAPPER_ASSIGNMENTS if isinstance(getattr(function, a, None), str)]

        @functools.wraps(function, assigned)
        def call(*args: Any, **kwargs: Any) -> Any:
            is_one = only is None or (
                bool(args) and type(args[0]) is only and owner_of(sys._getframe(1).f_code.co_filename) != "jax"
            )
            # These functions call each other, and only the user's own calls count. Users cannot change calls inside a
            # package, but a key that they passed to it is theirs.
            is_inner = not is_one or getattr(self._busy, "inside", False)
            if is_inner or (note != self._note_draw and is_in_package(sys._getframe(1))):
                return function(*args, **kwargs)
            self._busy.inside = True
            try:
                begun = perf_counter()
                found = function(*args, **kwargs)
                ended = perf_counter()
                with contextlib.suppress(Exception):  # whatever it is, it must not fail the user's call
                    note(by, args, kwargs, found, begun, ended)
                return found
            finally:
                self._busy.inside = False

        setattr(owner, name, call)
        self._undo.callback(setattr, owner, name, function)

    def _note_put(self, by: str, args: Any, kwargs: Any, found: Any, begun: float, ended: float) -> None:
        if by != "device_put":
            self._note_wide(args, kwargs, found)
        if isinstance(args[0], list | tuple) and by != "device_put":
            if isinstance(innermost(args[0]), int | float | complex) and not isinstance(found, Tracer):
                self.log.add(Event("list", by, user_line() or "", begun, ended, size=found.size))
        else:
            self._note_arrays(by, args[0], found, begun, ended)
        self._lost.note_put(args[0], found)

    def _note_wide(self, args: Sequence[Any], kwargs: Any, found: Any) -> None:
        """With jax_enable_x64, `jnp.asarray(np.hanning(n))` is float64, also while JAX traces."""
        is_asked = len(args) > 1 or kwargs.get("dtype") is not None
        if is_asked or not isinstance(args[0], np.ndarray | list | tuple) or str(found.dtype) not in WIDE:
            return
        if found.shape and jax.config.read("jax_enable_x64") and (where := user_line()):
            self.log.add(Event("wide", spec_of(found), where))

    def _note_arrays(self, by: str, given: Any, found: Any, begun: float, ended: float) -> None:
        leaves, made = jax.tree.leaves(given), jax.tree.leaves(found)
        if len(leaves) != len(made) or any(isinstance(leaf, Tracer) for leaf in made):
            return
        large = [i for i, leaf in enumerate(leaves) if getattr(leaf, "nbytes", 0) >= LEAST_BYTES]
        stack = look(sys._getframe(1), self.log) if large else CallStack()
        for i in large if stack.where else ():
            what, place = spec_of(leaves[i]), (stack.instruction, i)
            note = PutNote(what, place, getattr(leaves[i], "sharding", None), made[i].sharding)
            if isinstance(leaves[i], np.ndarray):
                last = self._contents.setdefault((by, stack.where, what, place), PutContents())
                note.is_repeat, note.is_new_object = last.compare(leaves[i])
            until = begun + (ended - begun) / len(large)
            self.log.add(Event("put", by, stack.where, begun, until, size=leaves[i].nbytes, note=note))

    def _note_setting(self, by: str, args: Any, kwargs: Any, found: Any, begun: float, ended: float) -> None:
        name = args[0] if args else kwargs["name"]
        if name in DEBUGGING:
            self.log.add(Event("setting", name, user_line() or ""))

    def _note_draw(self, by: str, args: Any, kwargs: Any, found: Any, begun: float, ended: float) -> None:
        key = args[0] if args else kwargs["key"]
        if isinstance(key, jax.Array) and not isinstance(key, Tracer):
            stack = look(sys._getframe(1), self.log)
            keys = self.log.ids((key,))
            self.log.add(Event("draw", by, stack.where, begun, reads=keys, caller=stack.caller, path=stack.path))

    def _note_wait(self, by: str, args: Any, kwargs: Any, found: Any, begun: float, ended: float) -> None:
        stack = look(sys._getframe(1), self.log)
        if stack.where:
            self.log.add(Event("wait", by, stack.where, begun, ended, path=stack.path))


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

    def compare(self, array: np.ndarray) -> tuple[bool, bool]:
        """Remembers this array. Returns (had the last one the same contents?, was it another object?)."""
        is_new = self._last is None or self._last() is not array
        sample = _checksum(array.flat[:: max(1, array.size // COMPARED)])
        is_same = sample == self._sample
        if not is_same:
            self._whole, self._times = None, 0
        elif is_new and array.size > COMPARED and self._times < WHOLE_TIMES:
            # The first array left only its sample.
            before, self._whole = self._whole, _checksum(array)
            is_same = self._whole == before
            self._times = self._times + 1 if is_same else 0
        self._last, self._sample = weakref.ref(array), sample
        return is_same, is_new


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)


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


# ---- windows ---------------------------------------------------------------------------------------------------------
#
# Watches the calls of a program: for a while from the first call on, then for a short while again and again.
#
# Each watched call takes about ten times as long, so a long run is watched for a few percent of its time.


# Samples the lines of your code that the main thread runs between calls, such as loading a batch.
#
# Samples in which JAX or benchax is on the stack are left out: there the program dispatches, compiles, or waits.

MOST_SHARE = 0.01
"""The share of the time that looking can take. Watching calls takes more than that. With half or twice of it, and of
the next, rules find the same line in the programs of host-between-calls."""
SWITCH_S = 5e-5
"""The work of the host between two waits may be short: with Python's usual pace, samples would fall into the waits."""


class HostSampler(PacedSampler):
    """Adds a "sample" to the log for each look at the main thread; `note` is (lines outermost first, seconds)."""

    def __init__(self, log: Log) -> None:
        super().__init__(MOST_SHARE, SWITCH_S)
        self._log = log
        self._last = perf_counter()

    def sample(self, frame: FrameType, late_s: float) -> None:
        now = perf_counter()
        elapsed_s, self._last = now - self._last, now
        if stack := _host_lines(frame):
            self._log.add(Event("sample", "", stack[-1], now, note=(stack, elapsed_s)))


def _host_lines(innermost: FrameType) -> tuple[str, ...]:
    lines: list[str] = []
    for frame in outward(innermost):
        owner = owner_of(frame.f_code.co_filename)
        if owner in ("jax", "benchax"):
            return ()
        if owner == "user":
            lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
    return tuple(reversed(lines))


FIRST_SHARE, LATER_SHARE, PAUSE_SHARE = 0.5, 0.05, 0.5
"""The first window, later ones, and the pauses between them, as shares of the time for which calls are watched. A
watched call takes ten times as long. So a program that does nothing but call loses 8 % of its time to later windows:
0.9 of 11."""
LEAST_PAUSE_S = 5.0
"""However short the time is for which calls are watched: a window changes JAX's configuration twice."""
ENOUGH: dict[Kind, int] = {"call": 2000, "operation": 5000, "read": 20_000}
"""A window stays open until it has seen this many of one kind: a program that compiles at first makes few calls. Rules
ask for as many: small-calls for 2000 calls, and eager-operations and element-reads for 1000 operations of one line,
which is one of several."""
LOOK_AGAIN_S = 0.2
"""A thread that waits costs nothing in between."""


class CallWindows:
    """Adds calls, eager operations and reads to a log, until `close`."""

    def __init__(self, log: Log, functions: FunctionRecorder, most_s: float) -> None:
        self.log, self.functions, self.most_s = log, functions, most_s
        self.transfers = Transfers()
        self._lost = LostDigitsNotes(log)
        self._running = defaultdict[int, list[Event]](list)
        """The calls that have begun, by thread."""
        self._begun = math.inf
        """When calls were first seen in this window."""
        self._called, self._ended = threading.Event(), threading.Event()
        self._turns = threading.Thread(target=self._take_turns, args=(self._open(),), daemon=True)
        self._turns.start()

    def close(self) -> None:
        """Ends watching; calls are as fast as before."""
        self._ended.set()
        self._called.set()
        self._turns.join()

    def _open(self) -> contextlib.ExitStack:
        self.log.add(Event("window", "", ""))
        block = contextlib.ExitStack()
        found = block.enter_context(watch_transfers(self._hear, self._hear_result, self._hear_transfer))
        block.callback(self._take, found)
        block.callback(HostSampler(self.log).start().stop)
        return block

    def _take(self, found: Transfers) -> None:
        for transfer in found.found.values():
            self.transfers.add(transfer)
        self.transfers.sees, self.transfers.remarks = found.sees, found.remarks

    def _take_turns(self, block: contextlib.ExitStack) -> None:
        """Closes a window after its time, if it has seen enough, and opens another one after a pause."""
        wait_s = FIRST_SHARE * self.most_s
        while True:
            before = Counter(self.log.counts)
            with block:
                self._called.wait()
                while not self._ended.wait(wait_s) and not self._has_seen_enough(before):
                    wait_s = LOOK_AGAIN_S
            self.log.seen_s += max(0.0, perf_counter() - self._begun)
            if self._ended.wait(max(LEAST_PAUSE_S, PAUSE_SHARE * self.most_s)):
                return
            block, self._begun, wait_s = self._open(), perf_counter(), LATER_SHARE * self.most_s

    def _has_seen_enough(self, before: Counter[Kind]) -> bool:
        return any(self.log.counts[kind] - before[kind] >= enough for kind, enough in ENOUGH.items())

    def _hear(self, fun: Any, leaves: Sequence[Any]) -> None:
        """Before a call runs."""
        if not self._called.is_set():
            self._begun = perf_counter()
            self._called.set()
        stack = look(sys._getframe(1), self.log)
        event = Event("call", getattr(fun, "__name__", ""), stack.where, clock(), caller=stack.caller, path=stack.path)
        event.function, event.reads = self.log.function(fun), self.log.ids(leaves)
        is_operation = _is_operation(fun)
        if is_operation:
            event.kind, event.note = "operation", stack.called
            event.size = getattr(leaves[0], "nbytes", 0) if leaves else 0
        else:
            event.by = self._facts(event.function, fun, leaves).name
            event.note = "batched" if isinstance(fun, BatchedCall) else None
        # First of all: the call has happened, whatever surprises those that look at its arguments.
        self._running[event.thread].append(self.log.add(event))
        if not is_operation:
            self.functions.hear_call(event.function, fun, leaves)
        arrays = (leaf for leaf in leaves if isinstance(leaf, np.ndarray))
        self._lost.note(stack.where, ((array, jnp.result_type(array)) for array in arrays))

    def _hear_result(self, fun: Any, leaves: Sequence[Any], results: Sequence[Any]) -> None:
        """When a call has been started."""
        serial, running = self.log.function(fun), self._running[threading.get_ident()]
        while running:
            event = running.pop()
            if event.function == serial:  # the others have raised
                event.makes, event.ended = self.log.ids(results), clock()
                break
        if not _is_operation(fun):
            self.functions.hear_result(serial, results)

    def _hear_transfer(self, transfer: ObservedTransfer) -> None:
        if transfer.direction == "device to host":
            now, stack = clock(), look(sys._getframe(1), self.log)
            event = Event("read", transfer.by, transfer.where or "", now - (transfer.elapsed_s or 0.0), now)
            event.path, event.size, event.caller = stack.path, transfer.size_bytes, stack.caller
            self.log.add(event)

    def _facts(self, serial: int, fun: Any, leaves: Sequence[Any]) -> FunctionFacts:
        facts = self.log.functions.get(serial)
        if facts is None or len(facts.names) != len(leaves):
            facts = self.log.functions[serial] = _describe(fun, leaves)
        return facts


def _is_operation(fun: Any) -> bool:
    """Is this an operation of JAX, and not a jitted function of the user's?"""
    if isinstance(fun, BatchedCall):
        return fun.is_of_jax
    return is_of_jax(fun) and getattr(fun, "__module__", "") != "jax._src.pmap"


def _describe(fun: Any, leaves: Sequence[Any]) -> FunctionFacts:
    unnamed = tuple(f"argument {i}" for i in range(len(leaves)))
    if isinstance(fun, BatchedCall):
        return FunctionFacts(fun.__name__, fun.defined, unnamed)
    call = calling()
    names, place = name_inputs(call), place_of(call, None)
    # A class says more than `__call__`.
    name = call.own.__qualname__ if place.name == "__call__" else place.name
    given = names if len(names) == len(leaves) else unnamed
    return FunctionFacts(name, place.defined or "", given, _wanted_shardings(call))


def _wanted_shardings(call: JaxCall) -> tuple[Any, ...]:
    """One for each leaf of the arguments, or one for all of them."""
    wanted = tuple(call.settings.get("in_shardings_leaves") or ())
    counts = [len(jax.tree.leaves(arg)) for arg in call.args]
    is_one_each = len(wanted) == len(counts) > 1
    return tuple(one for one, n in zip(wanted, counts, strict=True) for _ in range(n)) if is_one_each else wanted


# ---- numbers that lose digits ----------------------------------------------------------------------------------------
#
# Numbers that differ on the host and are equal on the device: float64 dates that become float32, int64 that wraps.
#
# JAX has 32 bits by default and does not warn. Only a large offset counts: float32 holds about 2,460,000 days to a
# quarter of a day. Small numbers next to large ones, such as the tails of a filter, are rounded without harm.


SAMPLED = 4096
"""Elements, one after another: neighbours are closest to each other, in a series of times. With half or twice of it,
rules find the same in the arrays below."""
MOST_COLUMNS = 64
"""The maximum number of columns of a table whose columns have several kinds, a limit of time. With half or twice of it,
rules find the same in the arrays below."""
LEAST_DISTINCT, NEAR = 8, 0.1
"""Numbers, and a share of the largest one. If they spread further, no offset is to blame. With half or twice of both,
rules find the same in 382 arrays that programs of tests/auditing/programs give to JAX."""
NOISE_BITS = 40
"""Numbers that are equal to this many bits differ only by the rounding of the operations that made them. float64
has 53 bits. Sums of 8192 terms lose 13 of them at most."""
OF_64_BITS = ("float64", "int64")


class LostDigits(NamedTuple):
    """The original numbers, and their values on the device."""

    title: str
    sentences: list[str]
    """The observations, for `seen`."""
    share: tuple[int, int] = (1, 1)
    """How many of the different numbers are lost, and how many there were."""


def find_lost_digits(given: Any, to_dtype: Any) -> LostDigits | None:
    """None: all is well, or it is not an array of 64 bits that becomes one of fewer.

    Args:
        given: an array of NumPy, or a list of numbers.
        to_dtype: what it becomes on the device.
    """
    array, to = np.asarray(given), jnp.dtype(to_dtype)
    if str(array.dtype) not in OF_64_BITS or to.itemsize >= array.dtype.itemsize or array.size < LEAST_DISTINCT:
        return None
    is_table = array.ndim > 1 and array.shape[-1] <= MOST_COLUMNS
    columns = array.reshape(-1, array.shape[-1])[-SAMPLED:].T if is_table else array.reshape(1, -1)[:, -SAMPLED:]
    return next((lost for column in columns if (lost := _look(column, to))), None)


def _look(column: np.ndarray, to: np.dtype) -> LostDigits | None:
    column = column[np.isfinite(column)]
    if column.size < LEAST_DISTINCT:
        return None
    with np.errstate(over="ignore"):
        made = column.astype(to)
    low, high = float(column.min()), float(column.max())
    before, after, between = short_dtype(str(column.dtype)), short_dtype(str(to)), f"from {low:.12g} to {high:.12g}"
    if jnp.issubdtype(to, jnp.integer):
        is_wrapped = column.dtype.kind == "i" and bool(np.any(made.astype(column.dtype) != column))
        told = f"the numbers go {between}; {after} ends at {np.iinfo(to).max}"
        return LostDigits(f"numbers in {before} wrap around in {after}", [told]) if is_wrapped else None
    size = max(abs(low), abs(high))
    if not 0 < high - low < NEAR * size:
        return None
    distinct, left = len(np.unique(_without_noise(column))), len(np.unique(made))
    if distinct < LEAST_DISTINCT or left >= distinct:
        return None
    # From one number of the new dtype to the next, at the largest of them.
    step = float(jnp.finfo(to).eps) * 2.0 ** np.floor(np.log2(size))
    told = [
        f"of {distinct} different numbers {between} {left} are left in {after}",
        f"{after} holds a number of this size to {step:.3g}",
    ]
    return LostDigits(
        f"{distinct} different numbers in {before} are {left} in {after}", told, (distinct - left, distinct)
    )


def _without_noise(column: np.ndarray) -> np.ndarray:
    parts, exponents = np.frexp(column.astype(np.float64))
    return np.ldexp(np.round(parts * 2.0**NOISE_BITS), exponents - NOISE_BITS)


NUMBERS = np.ndarray | np.generic | int | float
LOOKED_AT = 3
"""Arrays of one line and shape."""


class LostDigitsNotes:
    """Adds "rounded" to a log for lines at which numbers were lost on their way to a device."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._times = Counter[tuple[str, str]]()

    def note(self, where: str | None, arrays: Iterable[tuple[Any, Any]]) -> None:
        """Takes what JAX was given at a line, each with the dtype that it has on the device."""
        for given, dtype in arrays:
            kind = where or "", str(np.shape(given))
            self._times[kind] += 1
            if where and self._times[kind] <= LOOKED_AT and (lost := find_lost_digits(given, dtype)):
                self._log.add(Event("rounded", "", where, note=lost))

    def note_put(self, given: Any, found: Any) -> None:
        """Takes what `jax.device_put`, `jnp.asarray` or `jnp.array` was given, and what it made."""
        made = jax.tree.leaves(found)
        leaves = jax.tree.leaves(given) if len(made) > 1 or isinstance(given, Mapping) else [given]
        if len(leaves) == len(made):
            # A NumPy array, or a list of Python numbers: only the first element is examined.
            pairs = zip(leaves, made, strict=True)
            self.note(user_line(), ((one, to.dtype) for one, to in pairs if isinstance(innermost(one), NUMBERS)))


def innermost(given: Any) -> Any:
    """The first number of a list, or of the first of its lists; anything else is what it is."""
    while isinstance(given, list | tuple) and given:
        given = given[0]
    return given
