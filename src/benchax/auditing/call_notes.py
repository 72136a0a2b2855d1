"""Notes what jitted functions are called with, line by line: how often, how large, which arguments stay the same.

Told of each call while calls are counted (`call_counter.py`). Arrays are remembered by weak references alone. Results
are followed from call to call: calls of a function whose results come back to it, through whatever else, cannot all be
one.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from benchax.auditing.argument_lifetimes import Reference
from benchax.auditing.copied_inputs import name_inputs
from benchax.auditing.inner_layouts import ArgumentLayouts, note_layouts
from benchax.watching.frames import JaxCall, is_of_jax
from benchax.watching.signatures import describe_placement

LARGE_BYTES = 1 << 16
"""What is smaller is copied to other devices in no time."""
NOTHING: Mapping[int, int] = {}


@dataclass
class CallLine:
    """Calls of one function from one line."""

    function: str
    where: str
    count: int = 0
    inside: int = 0
    """Of these, calls that a package makes by itself, inside of one call of the user's."""
    handed: int = 0
    """Others, by a function of the user's that a package calls, which was given it."""
    most_bytes: int = 0
    """Of the arguments of one call that are not the same each time, the largest that was seen."""
    row: int = 0
    """The longest row of calls each of which was given what came of the one before, through whatever else."""
    depths: set[int] = field(default_factory=set[int])
    """How many calls in a row, of whatever function, its arguments came of: of a model that is tried after each step
    there are as many as steps."""
    moved: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    """Arguments that lay otherwise than the function wants them: (name, from, to)."""
    of_numpy: Counter[str] = field(default_factory=Counter[str])
    """Arguments that were arrays of NumPy, by name: how often."""
    same_of_numpy: Counter[str] = field(default_factory=Counter[str])
    """How often it was the array of the call before."""
    names: Sequence[str] = ()
    """Of its arguments' leaves."""

    @property
    def in_turn(self) -> int:
        """So many of them could not be made before another call had given its result."""
        return max(self.row, len(self.depths))


class CallNotes:
    """What was seen of all calls so far."""

    def __init__(self) -> None:
        self.lines: dict[tuple[int, str], CallLine] = {}
        self._last: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()
        self._repeated: weakref.WeakKeyDictionary[Any, set[int]] = weakref.WeakKeyDictionary()
        self._calls: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._last_of_numpy: weakref.WeakValueDictionary[tuple[int, int], np.ndarray] = weakref.WeakValueDictionary()
        self._layouts: weakref.WeakKeyDictionary[Any, ArgumentLayouts] = weakref.WeakKeyDictionary()
        self._behind: dict[int, Mapping[int, int]] = {}
        """Of arrays that are results: functions that they depend on, by id, and of how many calls of each in a row.
        Entries go with their arrays."""

    def note_call(
        self, fun: Any, leaves: Sequence[Any], call: JaxCall, *, is_packages: bool = False, is_handed: bool = False
    ) -> None:
        """Before it runs. `is_packages`: a package makes it by itself; `is_handed`: one calls the user's function that
        makes it."""
        where = call.where or ""
        if is_of_jax(fun):
            return
        line = self.lines.setdefault((id(fun), where), CallLine(name_of(call), where))
        line.count += 1
        line.inside += is_packages
        line.handed += is_handed and not is_packages
        behind = [self._behind.get(id(leaf), NOTHING) for leaf in leaves]
        line.row = max(line.row, max((one.get(id(fun), 0) for one in behind), default=0) + 1)
        line.depths.add(max((max(one.values(), default=0) for one in behind), default=0))
        same = self._note_repeats(fun, leaves)
        # Of the first call nothing is known to stay.
        if same is not None:
            fresh = sum(getattr(leaf, "nbytes", 8) for i, leaf in enumerate(leaves) if i not in same)
            line.most_bytes = max(line.most_bytes, fresh)
        self._note_moves(line, leaves, call)
        self._note_spreads(line, leaves, call, same or set())
        self._note_numpy(line, id(fun), leaves, call)
        self._note_layouts(line, fun, leaves, call)

    def note_result(self, fun: Any, leaves: Sequence[Any], results: Sequence[Any]) -> None:
        """When it was started."""
        behind: dict[int, int] = {}
        for leaf in leaves:
            for other, n in self._behind.get(id(leaf), NOTHING).items():
                behind[other] = max(n, behind.get(other, 0))
        if not is_of_jax(fun):
            behind[id(fun)] = behind.get(id(fun), 0) + 1
        # What a program hands on as it is, as flax.nnx does with weights, comes of no call.
        given = set(map(id, leaves))
        for result in (one for one in results if id(one) not in given) if behind else ():
            with contextlib.suppress(TypeError):
                weakref.finalize(result, self._behind.pop, id(result), None).atexit = False
                self._behind[id(result)] = behind

    def repeated(self, fun: Any) -> frozenset[int]:
        """Leaves that were the same at each of three calls or more; none where fewer were seen."""
        with contextlib.suppress(TypeError):
            if self._calls.get(fun, 0) > 2:
                return frozenset(self._repeated.get(fun, ()))
        return frozenset()

    def layouts(self, fun: Any) -> ArgumentLayouts | None:
        """Of its arguments at the calls that were seen; None where none lay on several devices."""
        with contextlib.suppress(TypeError):
            return self._layouts.get(fun)
        return None

    def called_at(self, fun: Any) -> str:
        """file:line of the user's that called it most often; empty where no call was seen."""
        lines = [line for (number, _), line in self.lines.items() if number == id(fun)]
        return max(lines, key=lambda line: line.count).where if lines else ""

    def asdict(self) -> dict[str, Any]:
        return {
            "lines": [
                {
                    "function": one.function, "where": one.where, "count": one.count, "inside": one.inside,
                    "handed": one.handed, "most_bytes": one.most_bytes, "in_turn": one.in_turn,
                    "moved": [[*what, n] for what, n in one.moved.most_common(5)],
                    "of_numpy": [[name, n, one.same_of_numpy[name]] for name, n in one.of_numpy.most_common(5)],
                }
                for one in sorted(self.lines.values(), key=lambda line: -line.count)
            ],
        }  # fmt: skip

    def _note_repeats(self, fun: Any, leaves: Sequence[Any]) -> set[int] | None:
        """Leaves that are those of the call before; None at the first."""
        with contextlib.suppress(TypeError):
            before = self._last.get(fun)
            self._last[fun] = [_refer(leaf) for leaf in leaves]
            self._calls[fun] = self._calls.get(fun, 0) + 1
            if before is None:
                return None
            pairs = zip(before, leaves, strict=True) if len(before) == len(leaves) else ()
            same = {i for i, (old, new) in enumerate(pairs) if _is_same(old, new)}
            self._repeated[fun] = self._repeated.get(fun, same) & same
            return same
        return set()

    def _note_layouts(self, line: CallLine, fun: Any, leaves: Sequence[Any], call: JaxCall) -> None:
        if jax.device_count() > 1:
            with contextlib.suppress(TypeError):
                if fun not in self._layouts:
                    self._layouts[fun] = ArgumentLayouts(_names(line, leaves, call))
                note_layouts(self._layouts[fun], leaves)

    def _note_moves(self, line: CallLine, leaves: Sequence[Any], call: JaxCall) -> None:
        wanted = _wanted_shardings(call)
        if len(wanted) not in (1, len(leaves)):
            return
        for i, leaf in enumerate(leaves):
            to = wanted[i if len(wanted) > 1 else 0]
            if not isinstance(leaf, jax.Array) or not isinstance(to, jax.sharding.Sharding):
                continue
            if not leaf.sharding.is_equivalent_to(to, leaf.ndim):
                name = _names(line, leaves, call)[i]
                line.moved[name, describe_placement(leaf.sharding), describe_placement(to)] += 1

    def _note_spreads(self, line: CallLine, leaves: Sequence[Any], call: JaxCall, same: set[int]) -> None:
        """What is kept on one device is copied to all of them in each call, where another argument lies on several."""
        if any(isinstance(one, jax.sharding.Sharding) for one in _wanted_shardings(call)):
            return
        lying = [len(leaf.sharding.device_set) if isinstance(leaf, jax.Array) else 0 for leaf in leaves]
        if max(lying, default=0) > 1:
            to = f"the {max(lying)} devices of {_names(line, leaves, call)[lying.index(max(lying))]}"
            for i in (i for i in same if lying[i] == 1 and leaves[i].nbytes >= LARGE_BYTES):
                line.moved[_names(line, leaves, call)[i], describe_placement(leaves[i].sharding), to] += 1

    def _note_numpy(self, line: CallLine, fun: int, leaves: Sequence[Any], call: JaxCall) -> None:
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, np.ndarray):
                name = _names(line, leaves, call)[i]
                line.of_numpy[name] += 1
                line.same_of_numpy[name] += self._last_of_numpy.get((fun, i)) is leaf
                self._last_of_numpy[fun, i] = leaf


def _wanted_shardings(call: JaxCall) -> Sequence[Any]:
    """Of each leaf of the arguments; one for all of them; or others, where that cannot be told."""
    wanted = call.settings.get("in_shardings_leaves") or ()
    counts = [len(jax.tree.leaves(arg)) for arg in call.args]
    if len(wanted) != len(counts) or len(wanted) == 1:
        return wanted
    # One for each argument is for all of its leaves.
    return [one for one, n in zip(wanted, counts, strict=True) for _ in range(n)]


def name_of(call: JaxCall) -> str:
    fun = call.user.fun if call.user else call.fun
    name = getattr(fun, "__name__", None) or type(fun).__name__
    # That of a class alone tells which one is called.
    return fun.__qualname__ if name == "__call__" else name


def _names(line: CallLine, leaves: Sequence[Any], call: JaxCall) -> Sequence[str]:
    """Of the leaves, as the function calls its arguments; asked of a line once for each number of leaves."""
    if len(line.names) != len(leaves):
        static = {*(call.settings.get("static_argnums") or ()), *(call.settings.get("static_argnames") or ())}
        names = name_inputs(call, static)
        line.names = names if len(names) == len(leaves) else [f"argument {i}" for i in range(len(leaves))]
    return line.names


def _refer(leaf: Any) -> Reference | Any:
    return weakref.ref(leaf) if isinstance(leaf, jax.Array) else leaf if isinstance(leaf, int | float) else _Other()


class _Other:
    """Equal to nothing."""


def _is_same(old: Any, new: Any) -> bool:
    if isinstance(old, weakref.ref):
        return old() is new
    return type(old) is type(new) and old == new
