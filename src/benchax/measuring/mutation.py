"""What a function changes in place: which of its mutable arguments, and what it reaches beside them.

Of arguments it is read from the jaxpr, where what stays is handed through. What a function does not change must not be
an output of what is timed: a model's weights would be copied in every repetition of its forward pass, and the copies be
counted as its work.

Other objects are a model that it closes over, a reference in a global. Calls that change them do not start from the
same state, and nothing that is built around the function gives the change as an output. They are put back as they were
and refused by name. Objects that are only read stay what they are.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from benchax.errors import UsageError
from benchax.measuring import state
from benchax.measuring.state import Parts, Values
from benchax.measuring.surroundings import values_of

WRITES = ("swap", "addupdate")
"""Primitives that write to a reference."""
READS = ("get", "freeze")
MAKES = ("new_ref", "ref", "mutable_array")
"""Primitives that make a reference of a value; named differently from jax 0.5 to 0.10."""
CALLS = ("jit", "pjit", "closed_call", "core_call")
"""Primitives that run one inner jaxpr on their operands as they are."""


def changed_names(after: Callable[[list[Any]], Values], parts: Parts) -> tuple[str, ...]:
    """The names of what a call changes, makes or removes.

    Args:
        after: what the mutable arguments hold after a call that was given these values of `carried(parts)`.
    """
    names: list[str] = []

    def flat(*values: Any) -> list[Any]:
        now = after(list(values))
        names[:] = now
        return list(now.values())

    places = carried(parts)
    # By the jaxpr and not by the values, which may be the same by chance.
    jaxpr = jax.make_jaxpr(flat)(*(parts.leaves[i] for i in places)).jaxpr
    place = {parts.names[i]: k for k, i in enumerate(places) if i in parts.names}
    given = zip(names, sources(jaxpr), strict=True)
    return tuple(name for name, source in given if source is None or source != place.get(name))


def carried(parts: Parts) -> list[int]:
    """The places of what a compiled program is given at run time."""
    return [i for i, leaf in enumerate(parts.leaves) if is_carried(leaf)]


def is_carried(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | int | float | complex)


def sources(jaxpr: Any) -> list[int | None]:
    """Returns, for each output, the place of the input that it is, unchanged; None where it is computed."""
    places = {variable: i for i, variable in enumerate(jaxpr.invars)}
    written = written_refs(jaxpr)
    makers = {out: (eqn, k) for eqn in jaxpr.eqns for k, out in enumerate(eqn.outvars)}

    def source(variable: Any) -> int | None:
        if _is_literal(variable):
            return None
        if variable in places:
            return places[variable]
        eqn, k = makers.get(variable, (None, 0))
        operand = None if eqn is None else _operand(eqn, k, written)
        return None if operand is None else source(operand)

    return [source(variable) for variable in jaxpr.outvars]


def _operand(eqn: Any, k: int, written: set[Any]) -> Any:
    """What the k-th output of an equation is a mere copy of; None if it is computed."""
    name = eqn.primitive.name
    if name in CALLS and (inner := _inner(eqn)) is not None:
        place = sources(inner)[k]
        return None if place is None else eqn.invars[place]
    if name in MAKES:
        return eqn.invars[0]
    is_whole = name in READS and len(eqn.invars) == 1
    return eqn.invars[0] if is_whole and eqn.invars[0] not in written else None


def written_refs(jaxpr: Any) -> set[Any]:
    """The references, as variables of `jaxpr`, that it or anything inside it writes to."""
    found: set[Any] = set()
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in WRITES:
            found.add(eqn.invars[0])
        elif (inner := _inner(eqn)) is not None and eqn.primitive.name in CALLS:
            inside = written_refs(inner)
            pairs = zip(eqn.invars, inner.invars, strict=True)
            found.update(outer for outer, variable in pairs if variable in inside)
        elif any(_writes(each) for each in _inner_jaxprs(eqn.params.values())):
            # A loop's or a branch's own order of operands is its own affair: whatever it is given may be written to.
            found.update(v for v in eqn.invars if not _is_literal(v) and _is_ref(v))
    return found


def _writes(jaxpr: Any) -> bool:
    return any(
        eqn.primitive.name in WRITES or any(map(_writes, _inner_jaxprs(eqn.params.values()))) for eqn in jaxpr.eqns
    )


def _inner(eqn: Any) -> Any:
    inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
    return getattr(inner, "jaxpr", inner)


def _inner_jaxprs(values: Any) -> Iterator[Any]:
    for value in values:
        if hasattr(value, "eqns"):
            yield value
        elif hasattr(value, "jaxpr"):
            yield value.jaxpr
        elif isinstance(value, Sequence) and not isinstance(value, str):
            yield from _inner_jaxprs(value)


def _is_literal(variable: Any) -> bool:
    return hasattr(variable, "val")


def _is_ref(variable: Any) -> bool:
    """The type of a reference wraps that of its value."""
    return hasattr(variable.aval, "inner_aval")


class ClosedOver:
    """What `fn` reaches, as it is when this is made."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        reached = values_of(fn)
        if state.holds_objects(fn):
            reached["self"] = fn
        self._tree = (), {name: value for name, value in reached.items() if _is_stateful(value)}
        self._before = self._now()

    def check(self, name: str) -> None:
        """Raises `UsageError` where a call has changed something, after putting it back.

        Args:
            name: of the function.
        """
        if not self._tree[1]:
            return
        before, now = self._before.values, self._now().values
        changed = [each for each in now if each not in before or not _is_same(now[each], before[each])]
        if not changed:
            return
        state.put_back(self._tree, self._before)
        raise UsageError(
            f"{name} changes {changed[0]!r} in place, which it is not given as an argument: no two calls start from "
            "the same values",
            "a function that is given what it changes",
            f"pass {changed[0].partition('.')[0]!r} as an argument; what a call changes in its arguments is put back "
            "for each call, and timed",
        )

    def _now(self) -> Parts:
        return state.take_apart(self._tree)


def _is_stateful(value: Any) -> bool:
    try:
        return state.is_stateful(value)
    except (TypeError, ValueError):  # a container that is no tree, such as a dict of unlike keys
        return False


def _is_same(one: Any, other: Any) -> bool:
    return one is other or np.array_equal(state.data_of(one), state.data_of(other))
