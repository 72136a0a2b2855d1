"""The arguments of a function that hold its batch: leading rows that can be cut, doubled, or taken one by one.

The author can name them (batch=x, batch=x+y, as `in_axes` does for `jax.vmap`). Otherwise benchax guesses them from the
shapes of the outputs. It traces the function again with twice the rows of some arguments:

    the outputs grow with them     x of x @ w, and not w
    the outputs stay as they are   x and y of a loss, whose weights cannot have twice the rows

A guess can be wrong, so code that uses it must report it, in the words of `Batch.how`. Nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, Protocol, Self, runtime_checkable

import jax

from benchax.case import Case
from benchax.errors import NotAvailable, UsageError
from benchax.experiments.functions import argument_name, count_rows
from benchax.experiments.parsing import arguments, find_argument
from benchax.measuring.inputs import Inputs
from benchax.static_leaves import as_function_of_arrays, hide_all

BATCH = "batch"
"""The word under which it is given, for all variants together: --given batch=x."""
MOST_TOGETHER = 5
"""Where more arguments have as many rows, not every choice is tried."""

Arguments = tuple[int | str, ...]
Basis = Literal["given", "outputs", "loss", "last"]


@dataclass(frozen=True)
class Batch:
    """The arguments that hold the batch, and how that is known."""

    rows: int
    arguments: Arguments
    names: tuple[str, ...]
    """As their author calls them."""
    basis: Basis

    @property
    def how(self) -> str:
        """The rows of x, guessed: the outputs grow with them (say it with batch=...)."""
        rows = f"the {self.rows} rows of {', '.join(self.names)}"
        return f"{rows}, as given" if self.basis == "given" else f"{rows}, guessed: {_REASONS[self.basis]}"


_REASONS: Mapping[Basis, str] = {
    "outputs": "the outputs grow with them (else: batch=NAME)",
    "loss": "with more of them the outputs keep their shapes (else: batch=NAME)",
    "last": "the last argument with rows, for the outputs do not tell (else: batch=NAME)",
}


@runtime_checkable
class CutsBatch(Protocol):
    """A variant that splits a batch. It accepts the names of the arguments that hold the batch."""

    def with_batch(self, batch: str) -> Self: ...


def find_batch(case: Case, inputs: Inputs, given: str = "", *, without: Arguments = ()) -> Batch:
    """Which arguments hold the batch of an eager function.

    Args:
        given: "x" or "x+y"; empty: it is guessed.
        without: these are no batch, such as the weights of a loss.

    Raises:
        NotAvailable: no argument has rows.
        UsageError: `given` names what is no argument with rows, or arguments with several numbers of rows.
    """
    rows = {key: count for key, count in _count_all(inputs).items() if count and key not in without}
    chosen, basis = (_read(case, inputs, given, rows), "given") if given else _guess(case, inputs, rows)
    names = tuple(argument_name(case.fn, key) for key in chosen)
    return Batch(rows[chosen[0]], chosen, names, basis)


def _count_all(inputs: Inputs) -> dict[int | str, int | None]:
    everything: dict[int | str, Any] = {**dict(enumerate(inputs.args)), **inputs.kwargs}
    return {key: count_rows(tree) for key, tree in everything.items() if key not in inputs.static}


def _read(case: Case, inputs: Inputs, given: str, rows: Mapping[int | str, int]) -> Arguments:
    permitted = arguments(case, inputs)
    chosen = tuple(dict.fromkeys(find_argument(BATCH, word, permitted) for word in given.split("+")))
    if without := [argument_name(case.fn, key) for key in chosen if key not in rows]:
        raise UsageError(f"batch={given!r}: {without[0]!r} is no batch", "arrays, or trees of arrays with as many rows")
    if len({rows[key] for key in chosen}) > 1:
        counts = ", ".join(f"{argument_name(case.fn, key)} has {rows[key]}" for key in chosen)
        raise UsageError(f"batch={given!r} names arguments with several numbers of rows: {counts}", "one number")
    return chosen


def _guess(case: Case, inputs: Inputs, rows: Mapping[int | str, int]) -> tuple[Arguments, Basis]:
    if not rows:
        raise NotAvailable("no argument is a batch: an array, or a tree of arrays with as many rows")
    before = _output_shapes(case, inputs, ())
    after = {chosen: _output_shapes(case, inputs, chosen) for chosen in _choices(rows)} if before is not None else {}
    # The fewest that make the outputs grow: x of x @ w, though w may have as many rows. Of a loss the most: x and y.
    if grown := [chosen for chosen, shapes in after.items() if _grows(before, shapes)]:
        return grown[0], "outputs"
    if kept := [chosen for chosen, shapes in after.items() if shapes == before]:
        return max(kept, key=lambda chosen: (len(chosen), list(rows).index(chosen[-1]))), "loss"
    last = list(rows.values())[-1]
    return tuple(key for key, count in rows.items() if count == last), "last"


def _choices(rows: Mapping[int | str, int]) -> Iterator[Arguments]:
    """Arguments with as many rows, first each by itself."""
    groups = [[key for key in rows if rows[key] == count] for count in dict.fromkeys(rows.values())]
    for together in range(1, max(map(len, groups)) + 1):
        for group in groups:
            if together in (1, len(group)) or len(group) <= MOST_TOGETHER:
                # Fewest first, since the first choice that makes the outputs grow is taken.
                yield from combinations(group, together)


Shapes = Sequence[tuple[int, ...]]


def _grows(before: Shapes | None, after: Shapes | None) -> bool:
    """Some outputs have twice the rows, and the others are as they were, such as a loss or a state."""
    if before is None or after is None:
        return False
    pairs = list(zip(before, after, strict=True))
    return any(a != b for a, b in pairs) and all(a == b or (a and b == (2 * a[0], *a[1:])) for a, b in pairs)


def _output_shapes(case: Case, inputs: Inputs, doubled: Arguments) -> Shapes | None:
    """Returns the shapes of the outputs, where these arguments have twice the rows; None: it does not trace so."""
    call, arrays = as_function_of_arrays(case.fn, inputs.args, inputs.kwargs)
    everything: dict[int | str, Any] = {**dict(enumerate(inputs.args)), **inputs.kwargs}
    # As `as_function_of_arrays` lists them: by position, then by name in the order of a dict's leaves.
    keys = [*range(len(inputs.args)), *sorted(inputs.kwargs)]
    owners = [key for key in keys for _ in jax.tree.leaves(hide_all(everything[key]))]
    shapes = [
        jax.ShapeDtypeStruct((2 * a.shape[0], *a.shape[1:]) if owner in doubled else a.shape, a.dtype)
        for owner, a in zip(owners, arrays, strict=True)
    ]
    try:
        return [leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(call, *shapes))]
    except Exception:  # harmless: the shapes do not fit, so it is another argument that holds the batch
        return None
