"""The jitted functions of a program: kept so that rules can look at them when the program has ended.

The record of a call holds shapes, dtypes, static values, and copies of small arrays. The function itself is kept alive,
so only the functions that took longest to compile are. While calls are watched, results are searched for NaN, and what
a function read when it was traced is compared with what is there now.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from benchax.auditing.outer_values import OuterValue, outer_values
from benchax.auditing.recorder.log import Event, Log
from benchax.case import Case, make_case
from benchax.watching import frames
from benchax.watching.compiles import CompileEvent, Listening
from benchax.watching.frames import JaxCall, watch_lowering
from benchax.watching.functions import FunctionLocation, place_of
from benchax.watching.signatures import name_arguments
from benchax.watching.transfers import reads_unseen

MOST_COPIED_OF_CALL, MOST_COPIED = 1 << 26, 1 << 27
"""Bytes of the arguments of one call that are copied, and of those of all functions."""


def copy_inputs(call: JaxCall, static: set[Any], jaxpr: Any, rest_bytes: int) -> tuple[Any, ...]:
    """Copies the leaves of its arguments, integers first, because they are indices. A leaf that is too large, or partly
    on devices of other processes, becomes None. The result is empty if leaves do not match the inputs of the jaxpr one
    by one.

    Args:
        rest_bytes: no more is copied.
    """
    leaves = _leaves(call, static)
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


def name_inputs(call: JaxCall, static: set[Any]) -> tuple[str, ...]:
    """Returns the names of the same leaves in the user's function. This also works behind a library's wrapper, which
    gives jax.jit the same arrays in another order."""
    leaves = _leaves(call, static)
    named = [(name, value) for i, (name, value) in enumerate(name_arguments(call)) if call.user or i not in static]
    names = {
        id(leaf): name + jax.tree_util.keystr(path) for name, v in named for path, leaf in jax.tree.leaves_with_path(v)
    }
    return tuple(names.get(id(leaf), f"input {i}") for i, leaf in enumerate(leaves))


def _leaves(call: JaxCall, static: set[Any]) -> list[Any]:
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
"""Results of a call that are searched for NaN; larger ones are not."""
SMALL_BYTES, SMALL_LEAVES = 1 << 16, 50
"""Arguments up to this size are copied at each call, so that the first NaN can be computed again from them."""


@dataclass(frozen=True)
class RecordedFunction:
    """One function, as it was called for the program of it that took longest to compile."""

    serial: int
    """Its number in the log."""
    place: FunctionLocation
    fun: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    settings: Mapping[str, Any]
    """The arguments of its `jax.jit`, as in `frames.JaxCall`."""
    compile_s: float
    jaxpr: Any = None
    """The closed jaxpr that JAX traced; None if it could not be seen."""
    is_wrapped: bool = False
    """A library is between your function and `jax.jit`, as `flax.nnx.jit`."""
    user: Any = None
    """Your own function, under a library's wrapper."""
    inputs: tuple[Any, ...] = ()
    """Copies of the jaxpr's inputs, None for large ones; empty if the arguments are not its inputs one by one."""
    input_names: tuple[str, ...] = ()
    """Names of the same inputs: songs.species."""
    nan_at: int | None = None
    """The first call with a NaN result; 0: none has one; None: no result was searched."""

    @property
    def static(self) -> tuple[int | str, ...]:
        return (*self._setting("static_argnums"), *self._setting("static_argnames"))

    def arguments_of(self, leaves: frozenset[int]) -> frozenset[int | str]:
        """Arguments, by position or name, that own one of these leaves."""
        named = [*enumerate(self.args), *sorted(self.kwargs.items())]
        owners = [name for name, value in named if name not in self.static for _ in jax.tree.leaves(value)]
        # If JAX passes on more than the arguments, such as constants, positions say nothing.
        return frozenset(owners[i] for i in leaves) if all(i < len(owners) for i in leaves) else frozenset()

    @property
    def case(self) -> Case:
        donate = (*self._setting("donate_argnums"), *self._setting("donate_argnames"))
        return make_case(self.fun, self.args, self.kwargs, name=self.place.name, static=self.static, donate=donate)

    @property
    def why_not(self) -> str:
        """Why it cannot be compiled again; empty if it can."""
        given = (*self._setting("in_shardings_leaves"), *self._setting("out_shardings_leaves"))
        # By its name, for the class is private: the caller leaves the sharding to JAX. nnx gives None.
        if any(one is not None and type(one).__name__ != "UnspecifiedValue" for one in given):
            return "its jax.jit was given shardings"
        if self.is_wrapped and hasattr(self.fun, "ctxtag"):
            return "flax.nnx traces it only within its own call"
        return "its jax.jit was given compiler options" if self._setting("compiler_options_kvs") else ""

    def _setting(self, name: str) -> tuple[Any, ...]:
        return tuple(self.settings.get(name) or ())


@dataclass
class _Watched:
    """The facts about one function while its calls are watched."""

    calls: int = 0
    values: list[OuterValue] = field(default_factory=list[OuterValue])
    """The values that it read when it was traced."""
    waiting: Sequence[jax.Array] = ()
    """Results of the last call, to be searched for NaN."""
    given: tuple[Any, ...] = ()
    """Copies of the arguments of that call."""
    searched: int = 0
    nan_at: int | None = None
    nan_given: tuple[Any, ...] = ()


class FunctionRecorder:
    """Listens to JAX from now on. Costs nothing on a warm call, for which JAX sends no event."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._kept: dict[FunctionLocation, RecordedFunction] = {}
        """By place: the lambdas that one line makes in each iteration are one function here."""
        self._watched: dict[int, _Watched] = {}
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
        known = self._watched.get(one.serial)
        if known is None:
            return one
        _search(known, is_patient=True)
        # Without these the origin of a late NaN could not be found.
        inputs = known.nan_given if len(known.nan_given) == len(one.inputs) else one.inputs
        return replace(one, inputs=inputs, nan_at=known.nan_at or (0 if known.searched else None))

    # ---- compilations

    def _on_step(self, step: CompileEvent) -> None:
        if step.kind != "compile":
            return
        with contextlib.suppress(Exception):  # it would surface in the user's call; then this one is not looked at
            call = frames.calling(frozenset())
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
        values = outer_values(call.user.fun if call.user else call.fun, _static_values(call))
        self._watched.setdefault(self._log.function(call.fun), _Watched()).values = values

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
        static = {*(call.settings.get("static_argnums") or ()), *(call.settings.get("static_argnames") or ())}
        return RecordedFunction(
            self._log.function(call.fun),
            place_of(call, None),
            call.fun,
            tuple(value if i in static else jax.tree.map(_shape, value) for i, value in enumerate(call.args)),
            {name: value if name in static else jax.tree.map(_shape, value) for name, value in call.kwargs.items()},
            call.settings,
            compile_s,
            jaxpr,
            call.user is not None,
            call.user.fun if call.user else None,
            copy_inputs(call, static, jaxpr, rest_bytes),
            name_inputs(call, static),
        )

    # ---- calls, while they are watched

    def hear_call(self, serial: int, fun: Any, leaves: Sequence[Any]) -> None:
        """Before a call runs."""
        known = self._watched.setdefault(serial, _Watched())
        _search(known, is_patient=_is_power_of_two(known.calls))
        known.calls += 1
        known.given = _copy_small(leaves) if known.nan_at is None else ()
        for value in known.values if _is_power_of_two(known.calls) else ():
            if value.has_changed:
                name = getattr(fun, "__name__", type(fun).__name__)
                self._log.add(Event("stale", name, value.where, note=(value.name, value.change, known.calls)))
                known.values = [one for one in known.values if one.name != value.name]

    def hear_result(self, serial: int, results: Sequence[Any]) -> None:
        """When a call has been started."""
        known = self._watched.get(serial)
        if known is not None and known.nan_at is None:
            known.waiting = _searchable(results)


def _search(known: _Watched, *, is_patient: bool) -> None:
    """Searches the last results for NaN. Waits for them only if it `is_patient`: waiting changes how a program runs."""
    ready = [one for one in known.waiting if not one.is_deleted() and (is_patient or _is_ready(one))]
    known.waiting = ()
    if ready:
        known.searched += 1
        if any(np.isnan(read_unseen(one)).any() for one in ready):
            known.nan_at, known.nan_given = known.calls, known.given


def _searchable(results: Sequence[Any]) -> Sequence[jax.Array]:
    floats = [one for one in results if isinstance(one, jax.Array) and jnp.issubdtype(one.dtype, jnp.inexact)]
    is_small = len(floats) <= SEARCHED_LEAVES and sum(one.nbytes for one in floats) <= SEARCHED_BYTES
    is_plain = is_small and all(not isinstance(x, Tracer) and len(x.sharding.device_set) == 1 for x in floats)
    # Other objects for the same buffers: the program's own still die when the program drops them.
    return [one.addressable_data(0) for one in floats] if is_plain else ()


def _copy_small(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Copies of all arguments; empty if they are large, or not ready, so that copying would wait for them."""
    is_small = len(leaves) <= SMALL_LEAVES and sum(getattr(leaf, "nbytes", 8) for leaf in leaves) <= SMALL_BYTES
    arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array)] if is_small else []
    is_plain = all(not isinstance(x, Tracer) and _is_ready(x) and len(x.sharding.device_set) == 1 for x in arrays)
    return tuple(map(_copy_leaf, leaves)) if is_small and is_plain else ()


def _is_ready(array: Any) -> bool:
    return array.is_ready()  # public, but not part of the type


def _is_power_of_two(n: int) -> bool:
    return n & (n - 1) == 0


def _static_values(call: JaxCall) -> dict[str, Any]:
    """Static arguments by name."""
    if call.user is not None:
        return {}
    numbers, names = (tuple(call.settings.get(f"static_arg{what}") or ()) for what in ("nums", "names"))
    parameters = list(inspect.signature(call.fun).parameters)
    by_number = {parameters[i]: call.args[i] for i in numbers if i < min(len(parameters), len(call.args))}
    return by_number | {name: call.kwargs[name] for name in names if name in call.kwargs}


def _shape(leaf: Any) -> Any:
    """Python numbers stay what they are, since they are weakly typed."""
    # Under a derivative or vmap the function is part of another program, which is the one to be looked at.
    if isinstance(leaf, Tracer):
        raise TypeError("called inside a transformation: its arguments are no arrays")
    if isinstance(leaf, jax.Array):  # also of random keys, which have no weak types
        sharding = leaf.sharding if len(leaf.sharding.device_set) > 1 else None
        return jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=sharding, weak_type=getattr(leaf, "weak_type", False)
        )
    if isinstance(leaf, np.ndarray | np.generic):
        return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))
    return leaf
