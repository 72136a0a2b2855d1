"""Finds the values that a function changes in place: mutable arguments, and other objects that it reaches.

For arguments, the jaxpr shows it: it passes unchanged values through. Unchanged values must not be outputs of the timed
program. Otherwise a model's weights would be copied in every repetition of its forward pass, and the copies would count
as its work.

Other objects are, for example, a model that it closes over, or a reference in a global. Calls that change them do not
start from the same state, and no program around the function has the change as an output. So benchax restores them and
refuses the function, with their names. Objects that are only read stay as they are.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from benchax.errors import UsageError
from benchax.measuring import state
from benchax.measuring.state import Parts, Values
from benchax.measuring.surroundings import values_of
from benchax.program.index import TracedProgram, Value, index
from benchax.program.jaxpr import every_equation, nested_in

WRITES = ("swap", "addupdate")
"""Primitives that write to a reference."""
READS = ("get", "freeze")
MAKES = ("new_ref", "ref", "mutable_array")
"""Primitives that make a reference of a value; named differently from jax 0.5 to 0.10."""


def changed_names(after: Callable[[list[Any]], Values], parts: Parts) -> tuple[str, ...]:
    """Returns the names of the values that a call changes, makes or removes.

    Args:
        after: returns the values of the mutable arguments after a call with these values of `carried(parts)`.
    """
    names: list[str] = []

    def flat(*values: Any) -> list[Any]:
        now = after(list(values))
        names[:] = now
        return list(now.values())

    places = carried(parts)
    # By the jaxpr and not by the values, which may be the same by chance.
    program = index(jax.make_jaxpr(flat)(*(parts.leaves[i] for i in places)))
    place = {parts.names[i]: k for k, i in enumerate(places) if i in parts.names}
    given = zip(names, sources(program), strict=True)
    return tuple(name for name, source in given if source is None or source != place.get(name))


def carried(parts: Parts) -> list[int]:
    """The positions of the run-time inputs of a compiled program."""
    return [i for i, leaf in enumerate(parts.leaves) if is_carried(leaf)]


def is_carried(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | int | float | complex)


def sources(program: TracedProgram) -> list[int | None]:
    """Returns, for each output, the place of the input that it is, unchanged; None if it is computed."""

    def source(value: Value) -> int | None:
        while (op := value.maker) is not None:
            is_whole = op.name in READS and len(op.reads) == 1 and not _is_written(op.reads[0])
            if op.name not in MAKES and not is_whole:
                return None
            value = op.reads[0]
        return program.body.position(value)

    return [source(value) for value in program.outputs]


def _is_written(reference: Value) -> bool:
    """Does anything write to it? A loop or branch that writes to any reference can write to each that it is given."""
    writes = [op for op in reference.readers if op.name in WRITES and op.reads[0] is reference]
    inside = (nested for op in reference.readers for nested in nested_in(op.equation))
    return bool(writes) or any(each.primitive.name in WRITES for one in inside for each in every_equation(one))


class ClosedOver:
    """The objects that `fn` reaches, in their state when this is made."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        reached = values_of(fn)
        if state.holds_objects(fn):
            reached["self"] = fn
        self._tree = (), {name: value for name, value in reached.items() if _is_stateful(value)}
        self._before = self._now()

    def check(self, name: str) -> None:
        """Raises `UsageError` if a call has changed something, after putting it back.

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
