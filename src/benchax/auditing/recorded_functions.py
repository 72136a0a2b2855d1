"""The jitted functions that a program compiles, remembered so that rules can look at them when it has ended.

Of a call shapes, dtypes and static values are kept, and copies of its arrays as far as they are small
(`copied_inputs.py`), for some of what goes wrong depends on them. The function itself is kept alive, or one
that is made inside `main()` would be gone by then; so only those are that took longest to compile. The jaxpr that JAX
made is kept with it: rules that need no more than that need neither trace nor compile it again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from benchax.auditing.copied_inputs import MOST_COPIED, copy_inputs, name_inputs, size_of
from benchax.auditing.fed_back import NOTHING_CARRIED, Carried
from benchax.case import Case, make_case
from benchax.watching import frames
from benchax.watching.compiles import KINDS, unregister
from benchax.watching.frames import JaxCall
from benchax.watching.functions import FunctionLocation, place_of
from benchax.watching.lowering import watch_lowering

MOST_KEPT = 20
"""Functions; each is kept alive, with the program that JAX traced."""


@dataclass(frozen=True)
class RecordedFunction:
    """One function, as it was called for the program of it that took longest to compile."""

    place: FunctionLocation
    fun: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    settings: Mapping[str, Any]
    """What was given to its `jax.jit`, as `frames.JaxCall` has them."""
    compile_s: float
    held: frozenset[int] = frozenset()
    """Leaves of its arguments, in JAX's order, that the program still had when it called the function again."""
    jaxpr: Any = None
    """As JAX traced it, closed; None where it could not be seen."""
    is_wrapped: bool = False
    """A library stands between what the user called and `jax.jit`, as `flax.nnx.jit`."""
    user: Any = None
    """The user's own function, under a library's wrapper."""
    repeated: frozenset[int] = frozenset()
    """Leaves of its arguments that were the same object, or the same number, at each call that was seen."""
    carried: Carried = NOTHING_CARRIED
    """Leaves of its results that were its arguments at each next call that was seen."""
    wide_lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Of the whole program: lines that make float64 arrays without asking for them, by what they make."""
    called_at: str = ""
    """file:line of the user's that called it most often; empty where no call was seen."""
    inputs: tuple[Any, ...] = ()
    """Copies of the leaves of its arguments, as the jaxpr has them; None in place of those that are too large; empty
    where they are not the inputs of the jaxpr one by one."""
    input_names: tuple[str, ...] = ()
    """Of the same leaves: songs.species."""
    nan_at: int | None = None
    """As `NanCalls.nan_at` has it."""

    @property
    def held_arguments(self) -> frozenset[int | str]:
        """Arguments with such a leaf, by position and name."""
        static = {*self._setting("static_argnums"), *self._setting("static_argnames")}
        named = [*enumerate(self.args), *sorted(self.kwargs.items())]
        owners = [name for name, value in named if name not in static for _ in jax.tree.leaves(value)]
        # Where JAX passes on more than the arguments, such as constants, a position says nothing.
        return frozenset(owners[i] for i in self.held) if all(i < len(owners) for i in self.held) else frozenset()

    @property
    def case(self) -> Case:
        static = (*self._setting("static_argnums"), *self._setting("static_argnames"))
        donate = (*self._setting("donate_argnums"), *self._setting("donate_argnames"))
        return make_case(self.fun, self.args, self.kwargs, name=self.place.name, static=static, donate=donate)

    @property
    def why_not(self) -> str:
        """Why it cannot be looked at; empty: it can."""
        given = (*self._setting("in_shardings_leaves"), *self._setting("out_shardings_leaves"))
        # By its name, for the class is private: what says that the caller has left the sharding to JAX. nnx gives None.
        if any(one is not None and type(one).__name__ != "UnspecifiedValue" for one in given):
            return "its jax.jit was given shardings"
        if self.is_wrapped and _needs_context(self.fun):
            return "flax.nnx traces it only within a call of its own"
        return "its jax.jit was given options of the compiler" if self._setting("compiler_options_kvs") else ""

    def _setting(self, name: str) -> tuple[Any, ...]:
        return tuple(self.settings.get(name) or ())


class FunctionRecorder:
    """Listens to JAX from now on. Costs nothing on a warm call, of which JAX tells nothing.

    Args:
        on_compile: told of each call of a user's function that a program was compiled for, and of the closed jaxpr, or
            None where that could not be seen.
    """

    def __init__(self, on_compile: Callable[[JaxCall, Any], None] = lambda call, jaxpr: None) -> None:
        self._on_compile = on_compile
        self._kept: dict[FunctionLocation, RecordedFunction] = {}
        """By place: the lambdas that one line makes anew in each iteration are one function here."""
        self._lock = threading.Lock()
        jax.monitoring.register_event_duration_secs_listener(self._on_event)
        self._block = contextlib.ExitStack()
        self._block.enter_context(watch_lowering(self._on_lower))

    def close(self) -> list[RecordedFunction]:
        """No more is kept; those that were, longest first."""
        unregister("event_duration", self._on_event)
        self._block.close()
        with self._lock:
            kept, self._kept = self._kept, {}
        return sorted(kept.values(), key=lambda function: -function.compile_s)

    def _on_event(self, event: str, duration_secs: float, **_: Any) -> None:
        if KINDS.get(event) != "compile":
            return
        with contextlib.suppress(Exception):  # it would surface in the user's call; then this one is not looked at
            call = frames.calling(frozenset())
            if call.fun is None or call.is_nested or frames.is_of_jax(call.fun):
                return
            jaxpr = frames.compiling()
            self._on_compile(call, jaxpr)
            if self._is_longest(place_of(call, None), duration_secs):
                self._keep(self._record(call, jaxpr, duration_secs))

    def _on_lower(self, call: JaxCall, jaxpr: Any) -> Callable[[float], None]:
        """By hand. Its arguments are looked at now: they are gone when it is compiled."""
        self._on_compile(call, jaxpr)
        lowered = self._record(call, jaxpr, 0.0)
        return lambda compile_s: self._keep(replace(lowered, compile_s=compile_s))

    def _is_longest(self, place: FunctionLocation, compile_s: float) -> bool:
        """Of several programs of one function the one that took longest is the one to be looked at."""
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
            rest_bytes = MOST_COPIED - sum(size_of(one.inputs) for one in self._kept.values())
        return _record(call, place_of(call, None), compile_s, jaxpr, rest_bytes)


def _needs_context(fun: Any) -> bool:
    return hasattr(fun, "ctxtag")


def _record(call: JaxCall, place: FunctionLocation, compile_s: float, jaxpr: Any, rest_bytes: int) -> RecordedFunction:
    static = {*(call.settings.get("static_argnums") or ()), *(call.settings.get("static_argnames") or ())}
    args = tuple(value if i in static else jax.tree.map(_shape, value) for i, value in enumerate(call.args))
    kwargs = {name: value if name in static else jax.tree.map(_shape, value) for name, value in call.kwargs.items()}
    user = call.user.fun if call.user else None
    return RecordedFunction(
        place,
        call.fun,
        args,
        kwargs,
        call.settings,
        compile_s,
        jaxpr=jaxpr,
        is_wrapped=call.user is not None,
        user=user,
        inputs=copy_inputs(call, static, jaxpr, rest_bytes),
        input_names=name_inputs(call, static),
    )


def _shape(leaf: Any) -> Any:
    """Python's numbers stay what they are, for they are weakly typed."""
    # Under a derivative or vmap the function is part of another program, which is the one to be looked at.
    if isinstance(leaf, Tracer):
        raise TypeError("called inside a transformation: its arguments are no arrays")
    if isinstance(leaf, jax.Array):  # of random keys, too, which know no weak types
        sharding = leaf.sharding if len(leaf.sharding.device_set) > 1 else None
        return jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=sharding, weak_type=getattr(leaf, "weak_type", False)
        )
    if isinstance(leaf, np.ndarray | np.generic):
        return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))
    return leaf
