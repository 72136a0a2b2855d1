"""The jitted functions of a program: kept so that rules can look at them when the program has ended.

The record of a call holds shapes, dtypes, static values, and copies of small arrays. The function itself is kept alive,
so only the functions that took longest to compile are. While calls are watched, results are searched for NaN, and what
a function read when it was traced is compared with what is there now.
"""

from __future__ import annotations

import contextlib
import dis
import inspect
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from benchax.auditing.recorder.log import Event, Log
from benchax.case import Case, make_case
from benchax.printable import truncate
from benchax.source_files import owner_of
from benchax.watching import frames
from benchax.watching.compiles import CompileEvent, Listening
from benchax.watching.frames import JaxCall, watch_lowering, without_arrays
from benchax.watching.signatures import name_arguments
from benchax.watching.transfers import reads_unseen
from benchax.watching.watch import FunctionLocation, place_of
from benchax.wrappers import layers

# ---- values that a function reads ------------------------------------------------------------------------------------
#
# The values that a function reads during tracing in addition to its arguments: globals, its closure, attributes of its
# object.
#
# A compiled call keeps the first value that it read. So benchax reads these values when a function was compiled, and
# again at later calls (`FunctionRecorder`). It finds names in the code that Python runs: of the function, and
# of the user's functions that it calls by name. Numbers, texts and arrays count. Reading them runs no code of the user,
# and only weak references hold arrays.


MISSING = object()
MOST_LEAVES = 50
"""Arrays of a container, a limit of time."""
PLAIN = (bool, int, float, complex, str)
OUTER = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF")
"""Instructions of Python that read a name from around a function (3.11 to 3.14)."""


class OuterValue(NamedTuple):
    """One of them, as it was."""

    where: str
    """file:line"""
    kept: tuple[Any, ...]
    """Numbers and texts, and weak references to arrays."""

    def change(self, now: OuterValue) -> str:
        """from 2.0 to 1.7; empty if it is the same"""
        if len(self.kept) == len(now.kept) and all(map(_is_same, self.kept, now.kept)):
            return ""
        if any(isinstance(one, weakref.ref) for one in (*self.kept, *now.kept)):
            return "to another array"
        return f"from {_describe(self.kept)} to {_describe(now.kept)}"


def _is_same(was: Any, now: Any) -> bool:
    # Each array has one weak reference.
    return was is now or (isinstance(was, PLAIN) and type(was) is type(now) and was == now)


def _describe(kept: tuple[Any, ...]) -> str:
    return truncate(repr(kept[0] if len(kept) == 1 else kept), 40)


def outer_values(fn: Any, static: Mapping[str, Any]) -> dict[str, OuterValue]:
    """As they are now, by name: self.temperature.

    Args:
        static: arguments by name that are no arrays: their attributes are read as those of an object are.
    """
    found: dict[str, OuterValue] = {}
    for name, value in _values(fn, static, set()):
        found.setdefault(name, value)
    return found


def _values(fn: Any, static: Mapping[str, Any], met: set[CodeType]) -> Iterator[tuple[str, OuterValue]]:
    *outer, fn = layers(fn)
    owner = next((one.__self__ for one in outer if isinstance(one, MethodType)), None)
    if not isinstance(fn, FunctionType) or fn.__code__ in met or owner_of(fn.__code__.co_filename) != "user":
        return
    code = fn.__code__
    met.add(code)
    named = {**static, **({code.co_varnames[0]: owner} if owner is not None and code.co_varnames else {})}
    for chain, line in _chains(code):
        name = chain[0]
        if name not in named and name in (*code.co_varnames, *code.co_cellvars):
            continue  # an argument, or made inside
        depth, value = _follow(named[name] if name in named else _variable(fn, name), chain)
        if (kept := _keep(value)) is not None:
            yield ".".join(chain[: depth + 1]), OuterValue(f"{code.co_filename}:{line}", kept)
        elif not _calls_back(code) and (
            isinstance(value, FunctionType | MethodType | partial) or hasattr(value, "lower")
        ):
            yield from _values(value, {}, met)


def _variable(fn: FunctionType, name: str) -> Any:
    """The present value of a name that a function reads from around it."""
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    try:
        return cells[name].cell_contents if name in cells else fn.__globals__.get(name, MISSING)
    except ValueError:  # not set
        return MISSING


def _follow(value: Any, chain: tuple[str, ...]) -> tuple[int, Any]:
    """How far along the attributes there are values to go on with, and the last one."""
    for depth, name in enumerate(chain[1:]):
        if _keep(value) is not None or value is MISSING:
            return depth, value
        if isinstance(value, ModuleType) and owner_of(getattr(value, "__file__", None) or "<") != "user":
            return depth, MISSING
        value = _attribute(value, name)
    return len(chain) - 1, value


def _attribute(value: Any, name: str) -> Any:
    """Returns an attribute of the value or of its class, but nothing that would be computed."""
    own = getattr(value, "__dict__", {})
    found = own[name] if name in own else inspect.getattr_static(value, name, MISSING)
    if isinstance(found, FunctionType) and name not in own:
        return MethodType(found, value)
    return found if name in own or isinstance(found, PLAIN) else MISSING


def _keep(value: Any) -> tuple[Any, ...] | None:
    """Returns a key that shows a change of the value. Returns None for a value that is not a number, text or array, nor
    made of them."""
    if isinstance(value, PLAIN):
        return (value,)
    leaves = jax.tree.leaves(value) if isinstance(value, dict | list | tuple) else [value]
    if not 0 < len(leaves) <= MOST_LEAVES or any(isinstance(leaf, Tracer) for leaf in leaves):
        return None
    if all(isinstance(leaf, (jax.Array, np.ndarray, *PLAIN)) for leaf in leaves):
        return tuple(leaf if isinstance(leaf, PLAIN) else weakref.ref(leaf) for leaf in leaves)
    return None


@cache
def _chains(code: CodeType, is_inner: bool = False) -> list[tuple[tuple[str, ...], int]]:
    """((self, temperature), line) of each name that is read, also in the functions inside. Their own are left out."""
    found: list[tuple[tuple[str, ...], int]] = []
    grows = False
    for step in dis.get_instructions(code):
        if grows and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            names, line = found.pop()
            found.append(((*names, step.argval), line))
            continue
        grows = step.opname.startswith(OUTER if is_inner else (*OUTER, "LOAD_FAST"))
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)  # LOAD_FAST_LOAD_FAST
        # From Python 3.13 on, LOAD_FAST also takes the variable for a function inside, whose own code reads it.
        read = [name for name in names if step.opname == "LOAD_DEREF" or name not in code.co_freevars] if grows else []
        found += [((name,), getattr(step.positions, "lineno", 0)) for name in read]
    inner = () if _calls_back(code) else (one for one in code.co_consts if isinstance(one, CodeType))
    return found + [read for one in inner for read in _chains(one, True) if read[0][0] not in one.co_cellvars]


def _calls_back(code: CodeType) -> bool:
    """A function that is passed to a callback runs in each call, and reads the values of that moment."""
    return any("callback" in name for name in code.co_names)


# ---- functions ------------------------------------------------------------------------------------------------------

MOST_COPIED_OF_CALL, MOST_COPIED = 1 << 26, 1 << 27
"""Bytes of the arguments of one call that are copied, and of those of all functions."""


def copy_inputs(call: JaxCall, jaxpr: Any, rest_bytes: int) -> tuple[Any, ...]:
    """Copies the leaves of its arguments, integers first, because they are indices. A leaf that is too large, or partly
    on devices of other processes, becomes None. The result is empty if leaves do not match the inputs of the jaxpr one
    by one.

    Args:
        rest_bytes: no more is copied.
    """
    leaves = _leaves(call)
    if jaxpr is None or len(leaves) != len(jaxpr.in_avals):
        return ()
    rest_bytes = min(rest_bytes, MOST_COPIED_OF_CALL)
    copies: list[Any] = [None] * len(leaves)
    for i in sorted(range(len(leaves)), key=lambda i: not _is_integer(leaves[i])):
        size = getattr(leaves[i], "nbytes", 8)
        if size <= rest_bytes:
            copies[i] = _copy_leaf(leaves[i])
            rest_bytes -= size
    return tuple(copies)


def name_inputs(call: JaxCall) -> tuple[str, ...]:
    """Returns the names of the same leaves in the user's function. This also works behind a library's wrapper, which
    gives jax.jit the same arrays in another order."""
    named = ((name, value) for key, name, value in name_arguments(call) if call.user or key not in call.static)
    names = {
        id(leaf): name + jax.tree_util.keystr(path) for name, v in named for path, leaf in jax.tree.leaves_with_path(v)
    }
    return tuple(names.get(id(leaf), f"input {i}") for i, leaf in enumerate(_leaves(call)))


def _leaves(call: JaxCall) -> list[Any]:
    static = call.static
    args = [value for i, value in enumerate(call.args) if i not in static]
    return jax.tree.leaves((args, {name: value for name, value in call.kwargs.items() if name not in static}))


def _is_integer(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(getattr(leaf, "dtype", None) or type(leaf), np.integer)


def _copy_leaf(leaf: Any) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return None
    # Nothing changes a random key.
    if not isinstance(leaf, jax.Array | np.ndarray) or jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended):
        return leaf
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return None
    return read_unseen(leaf) if isinstance(leaf, jax.Array) else leaf.copy()


def read_unseen(array: jax.Array) -> np.ndarray:
    """Returns a copy of an array without reporting the read. It does not use `np.asarray`, because benchax listens to
    it. It does not read the user's own object either, because that object would keep the value."""
    one = array.addressable_data(0) if len(array.sharding.device_set) == 1 else array
    with reads_unseen():
        return one.__array__().copy()


MOST_KEPT = 20
"""Functions; each is kept alive, with the program that JAX traced."""
SEARCHED_BYTES, SEARCHED_LEAVES = 1 << 23, 300
"""Results of a call that are searched for NaN; larger ones are not. This and the next are limits of time: with half or
twice of them, rules find the same in the program of nan-results."""
SMALL_BYTES, SMALL_LEAVES = 1 << 16, 50
"""Arguments up to this size are copied at each call, so that the first NaN can be computed again from them."""


@dataclass(frozen=True)
class RecordedFunction:
    """One function, as it was called for the program of it that took longest to compile."""

    serial: int
    """Its number in the log."""
    place: FunctionLocation
    call: JaxCall
    """The call, with shapes instead of arrays."""
    compile_s: float
    jaxpr: Any
    """The closed jaxpr that JAX traced; None if it could not be seen."""
    inputs: tuple[Any, ...]
    """Copies of the jaxpr's inputs, None for large ones; empty if the arguments are not its inputs one by one."""
    input_names: tuple[str, ...]
    """Names of the same inputs: songs.species."""
    nan_at: int | None = None
    """The first call with a NaN result; 0: none has one; None: no result was searched."""

    def arguments_of(self, leaves: frozenset[int]) -> frozenset[int | str]:
        """Arguments, by position or name, that own one of these leaves."""
        named = [*enumerate(self.call.args), *sorted(self.call.kwargs.items())]
        owners = [name for name, value in named if name not in self.call.static for _ in jax.tree.leaves(value)]
        # If JAX passes more than the arguments, such as constants, positions are meaningless.
        return frozenset(owners[i] for i in leaves) if all(i < len(owners) for i in leaves) else frozenset()

    @property
    def case(self) -> Case:
        call, donate = self.call, (*self._setting("donate_argnums"), *self._setting("donate_argnames"))
        return make_case(call.fun, call.args, call.kwargs, name=self.place.name, static=call.static, donate=donate)

    @property
    def why_not(self) -> str:
        """Why it cannot be compiled again; empty if it can."""
        given = (*self._setting("in_shardings_leaves"), *self._setting("out_shardings_leaves"))
        # Compared by name, because the class is private: it means that the caller leaves the sharding to JAX. nnx
        # passes None.
        if any(one is not None and type(one).__name__ != "UnspecifiedValue" for one in given):
            return "its jax.jit was given shardings"
        if self.call.user is not None and hasattr(self.call.fun, "ctxtag"):
            return "flax.nnx traces it only within its own call"
        return "its jax.jit was given compiler options" if self._setting("compiler_options_kvs") else ""

    def _setting(self, name: str) -> tuple[Any, ...]:
        return tuple(self.call.settings.get(name) or ())


@dataclass
class _Watched:
    """The facts about one function while its calls are watched."""

    calls: int = 0
    read: Callable[[], dict[str, OuterValue]] = dict
    """Reads the values that it reads from around it."""
    values: dict[str, OuterValue] = field(default_factory=dict[str, OuterValue])
    """These, when it was traced."""
    waiting: Sequence[jax.Array] = ()
    """Results of the last call, to be searched for NaN."""
    given: tuple[Any, ...] = ()
    """Copies of the arguments of that call."""
    nan_at: int | None = None
    """As for `RecordedFunction`."""
    nan_given: tuple[Any, ...] = ()


class FunctionRecorder:
    """Listens to JAX from now on. Costs nothing on a warm call, for which JAX sends no event."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._kept: dict[FunctionLocation, RecordedFunction] = {}
        """By place: the lambdas that one line makes in each iteration are one function here."""
        self._watched = defaultdict[int, _Watched](_Watched)
        self._lock = threading.Lock()
        self._block = contextlib.ExitStack()
        self._block.enter_context(Listening(self._on_step))
        self._block.enter_context(watch_lowering(self._on_lower))

    def close(self) -> list[RecordedFunction]:
        """Ends recording and returns the functions, the longest to compile first."""
        self._block.close()
        with self._lock:
            kept, self._kept = self._kept, {}
        return sorted(map(self._with_nan, kept.values()), key=lambda function: -function.compile_s)

    def _with_nan(self, one: RecordedFunction) -> RecordedFunction:
        known = self._watched[one.serial]
        _search(known, is_patient=True)
        # Without these the origin of a late NaN could not be found.
        inputs = known.nan_given if len(known.nan_given) == len(one.inputs) else one.inputs
        return replace(one, inputs=inputs, nan_at=known.nan_at)

    # ---- compilations

    def _on_step(self, step: CompileEvent) -> None:
        if step.kind != "compile":
            return
        with contextlib.suppress(Exception):  # it would surface in the user's call; then this one is not looked at
            call = frames.calling()
            if call.fun is None or call.is_nested or (call.user is None and frames.is_of_jax(call.fun)):
                return
            jaxpr = frames.compiling()
            self._note_compile(call)
            if self._is_longest(place_of(call, None), step.elapsed_s):
                self._keep(self._record(call, jaxpr, step.elapsed_s))

    def _on_lower(self, call: JaxCall, jaxpr: Any) -> Callable[[float], None]:
        """By hand. Its arguments are looked at now: they are gone when it is compiled."""
        self._note_compile(call)
        lowered = self._record(call, jaxpr, 0.0)
        return lambda compile_s: self._keep(replace(lowered, compile_s=compile_s))

    def _note_compile(self, call: JaxCall) -> None:
        """The trace has just ended: what the function has read is what is there now."""
        known = self._watched[self._log.function(call.fun)]
        with contextlib.suppress(TypeError):  # without weak references
            known.read = _reader(call.own, _static_values(call))
        known.values = known.read()

    def _is_longest(self, place: FunctionLocation, compile_s: float) -> bool:
        """If a function has several programs, the one that took longest to compile is looked at."""
        with self._lock:
            known = self._kept.get(place)
            return known is None or known.compile_s < compile_s

    def _keep(self, recorded: RecordedFunction) -> None:
        if self._is_longest(recorded.place, recorded.compile_s):
            with self._lock:
                self._kept[recorded.place] = recorded
                if len(self._kept) > MOST_KEPT:
                    del self._kept[min(self._kept, key=lambda key: self._kept[key].compile_s)]

    def _record(self, call: JaxCall, jaxpr: Any, compile_s: float) -> RecordedFunction:
        with self._lock:
            rest_bytes = MOST_COPIED - sum(getattr(i, "nbytes", 8) for one in self._kept.values() for i in one.inputs)
        static = call.static
        args = tuple(value if i in static else jax.tree.map(_shape, value) for i, value in enumerate(call.args))
        kwargs = {k: value if k in static else jax.tree.map(_shape, value) for k, value in call.kwargs.items()}
        return RecordedFunction(
            self._log.function(call.fun),
            place_of(call, None),
            replace(without_arrays(call), args=args, kwargs=kwargs),
            compile_s,
            jaxpr,
            copy_inputs(call, jaxpr, rest_bytes),
            name_inputs(call),
        )

    # ---- calls, while they are watched

    def hear_call(self, serial: int, fun: Any, leaves: Sequence[Any]) -> None:
        """Before a call runs."""
        known = self._watched[serial]
        _search(known, is_patient=_is_power_of_two(known.calls))
        known.calls += 1
        known.given = () if known.nan_at else _copy_small(leaves)
        now = known.read() if known.values and _is_power_of_two(known.calls) else {}
        for name, was in list(known.values.items()):
            if change := was.change(now.get(name, was)):
                by = getattr(fun, "__name__", type(fun).__name__)
                self._log.add(Event("stale", by, was.where, note=(name, change, known.calls)))
                del known.values[name]

    def hear_result(self, serial: int, results: Sequence[Any]) -> None:
        """When a call has been started."""
        known = self._watched[serial]
        known.waiting = () if known.nan_at else _searchable(results)


def _search(known: _Watched, *, is_patient: bool) -> None:
    """Searches the last results for NaN. Waits for them only if it `is_patient`: waiting changes how a program runs."""
    ready = [one for one in known.waiting if not one.is_deleted() and (is_patient or _is_ready(one))]
    known.waiting = ()
    if any(np.isnan(read_unseen(one)).any() for one in ready):
        known.nan_at, known.nan_given = known.calls, known.given
    elif ready:
        known.nan_at = 0


def _searchable(results: Sequence[Any]) -> Sequence[jax.Array]:
    floats = [one for one in results if isinstance(one, jax.Array) and jnp.issubdtype(one.dtype, jnp.inexact)]
    is_small = len(floats) <= SEARCHED_LEAVES and sum(one.nbytes for one in floats) <= SEARCHED_BYTES
    is_plain = is_small and all(not isinstance(x, Tracer) and len(x.sharding.device_set) == 1 for x in floats)
    # New objects for the same buffers, so that the program's own arrays still die when the program drops them.
    return [one.addressable_data(0) for one in floats] if is_plain else ()


def _copy_small(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Copies of all arguments; empty if they are large, or not ready, so that copying would wait for them."""
    is_small = len(leaves) <= SMALL_LEAVES and sum(getattr(leaf, "nbytes", 8) for leaf in leaves) <= SMALL_BYTES
    arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array)] if is_small else []
    is_plain = all(not isinstance(x, Tracer) and _is_ready(x) and len(x.sharding.device_set) == 1 for x in arrays)
    return tuple(map(_copy_leaf, leaves)) if is_small and is_plain else ()


def _is_ready(array: Any) -> bool:
    """Typed random keys don't tell, and are not copied."""
    return not hasattr(array, "is_ready") or array.is_ready()


def _is_power_of_two(n: int) -> bool:
    return n & (n - 1) == 0


def _reader(fn: Any, static: Mapping[str, Any]) -> Callable[[], dict[str, OuterValue]]:
    """Reads what a function reads from around it. Keeps neither the function nor its arguments alive."""
    found = weakref.ref(fn)
    objects = {name: weakref.ref(one) for name, one in static.items() if hasattr(type(one), "__weakref__")}

    def read() -> dict[str, OuterValue]:
        alive = {name: one for name, reference in objects.items() if (one := reference()) is not None}
        return outer_values(found(), alive)

    return read


def _static_values(call: JaxCall) -> dict[str, Any]:
    """Static arguments by name."""
    named = () if call.user else name_arguments(call)
    return {name: value for key, name, value in named if key in call.static}


def _shape(leaf: Any) -> Any:
    """Python numbers stay what they are, since they are weakly typed."""
    # Under a derivative or vmap, the function is part of another program. That program is the one to look at.
    if isinstance(leaf, Tracer):
        raise TypeError("called inside a transformation: its arguments aren't arrays")
    if isinstance(leaf, jax.Array):  # also of random keys, which have no weak types
        sharding = leaf.sharding if len(leaf.sharding.device_set) > 1 else None
        return jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=sharding, weak_type=getattr(leaf, "weak_type", False)
        )
    if isinstance(leaf, np.ndarray | np.generic):
        return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))
    return leaf
