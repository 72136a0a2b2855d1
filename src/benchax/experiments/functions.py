"""Cases reopened, so that variants can be made of them: the function under its jit, its inputs, pairs of inputs.

Traces the function in this process, where a variant has to know its arguments; runs nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any

import jax

from benchax.case import Case, Positions
from benchax.errors import NotAvailable
from benchax.inspecting.inspect import abstract_inputs
from benchax.measuring.inputs import Inputs, make_inputs, static_arguments
from benchax.measuring.prepare import prepare
from benchax.measuring.state import is_stateful
from benchax.static_leaves import find_hidden, hide, reveal

CallArguments = tuple[tuple[Any, ...], Mapping[str, Any]]
"""(args, kwargs) of one call."""
InputsOf = Callable[[], CallArguments]


def plain(case: Case, seed: int = 0) -> Case:
    """The case with its eager function; static and donated arguments of a jit are declared with the case then.

    Raises:
        NotAvailable: the function under the jit cannot be reached, or calls change their arguments.
    """
    _refuse_stateful(case, seed)
    fn = case.fn
    if not hasattr(fn, "lower") and not isinstance(fn, jax.stages.Compiled):
        inputs = abstract_inputs(replace(case, jit=True))
        return replace(case, fn=OfArrays(fn)) if find_hidden((inputs.args, inputs.kwargs)) else case
    under = getattr(fn, "__wrapped__", None)
    # Under a bound method stands the function without its object, which would be called with one argument too few.
    if under is None or not hasattr(fn, "trace") or isinstance(fn, MethodType):
        wrapper: type[Any] = type(fn)  # a class of equinox's is called _JitWrapper, which nobody wrote
        kind, package = wrapper.__name__.lstrip("_"), wrapper.__module__.partition(".")[0]
        raise NotAvailable(
            f"the function under the {kind} of {package} {case.id.label!r} cannot be reached; variants are made of "
            "functions that jax.jit wraps, or nothing does"
        )
    prepared = prepare(replace(case, jit=True), seed)
    found = prepared.trace()
    if found.traced is None:
        raise NotAvailable(f"the trace of {type(fn).__name__} {case.id.label!r} cannot be reached")
    donated = _find_donated(found.traced.args_info, len(prepared.inputs.args), found.static)
    return replace(case, fn=under, static=found.static, donate=donated)


@dataclass(frozen=True, eq=False)
class OfArrays:
    """A function that JAX can transform: leaves of its arguments and results that are not arrays are `Static`."""

    fn: Callable[..., Any]
    hide: Callable[[Any], Any] = hide

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        return self.fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = reveal((args, kwargs))
        return self.hide(self.fn(*args, **kwargs))


def _refuse_stateful(case: Case, seed: int) -> None:
    """Refuses a function that only changes state in place. Its variants would lose these changes."""
    args, kwargs = case.inputs()
    if not is_stateful((args, dict(kwargs))):
        return
    # With the inputs that were just made: a factory may draw others when it is called again.
    names = prepare(replace(case, jit=True, inputs=lambda: (args, kwargs)), seed).subject_of().mutated
    if names:
        raise NotAvailable(
            f"{case.id.label!r} changes {', '.join(names[:3])} in place, and variants are made of functions that "
            "return all that they compute",
            "a function that takes its state and returns the new one (flax.nnx.split and merge)",
        )


def _find_donated(infos: Any, count: int, static: Positions) -> Positions:
    """Returns the arguments whose leaves are all donated, by position or name."""
    positions = [i for i in range(count) if i not in static]
    by_position = dict(zip(positions, infos[0], strict=True))
    return tuple(name for name, tree in {**by_position, **infos[1]}.items() if _is_donated(tree))


def _is_donated(tree: Any) -> bool:
    leaves = jax.tree.leaves(tree, is_leaf=lambda leaf: hasattr(leaf, "donated"))
    return bool(leaves) and all(leaf.donated for leaf in leaves)


@dataclass(frozen=True)
class Converted:
    """An input factory: the inputs of `case`, float arrays in another precision; complex ones stay as they are."""

    case: Case
    seed: int
    dtype: str

    def __call__(self) -> CallArguments:
        made = make_inputs(self.case, self.seed)
        return change_arrays(made, lambda _, leaf: leaf.astype(self.dtype) if is_float(leaf) else leaf)


def change_arrays(inputs: Inputs, change: Callable[[int | str, Any], Any]) -> CallArguments:
    """Returns the call with `change(argument, array)` instead of each array; static arguments stay."""

    def each(key: int | str, tree: Any) -> Any:
        return jax.tree.map(lambda leaf: change(key, leaf) if isinstance(leaf, jax.Array) else leaf, tree)

    args = tuple(value if i in inputs.static else each(i, value) for i, value in enumerate(inputs.args))
    return args, {k: value if k in inputs.static else each(k, value) for k, value in inputs.kwargs.items()}


def count_rows(tree: Any) -> int | None:
    """Returns the number of leading rows of every leaf, as a batch has them. Returns None if there are no rows, or if
    they differ."""
    leaves = jax.tree.leaves(tree)
    rows = {leaf.shape[0] if getattr(leaf, "shape", ()) else None for leaf in leaves}
    return rows.pop() if len(rows) == 1 else None


def is_float(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating)


@dataclass(frozen=True)
class SharedArguments:
    """A function of the arguments of two, which takes its own of them."""

    fn: Callable[..., Any]
    start: int
    count: int
    names: tuple[str, ...]
    """The names of the arguments that are given by name; they come after the others."""

    def __call__(self, *everything: Any) -> Any:
        own = everything[self.start : self.start + self.count]
        first = len(own) - len(self.names)
        return self.fn(*own[:first], **dict(zip(self.names, own[first:], strict=True)))


@dataclass(frozen=True)
class Both:
    """An input factory: the arguments of two cases, one behind the other, all by position."""

    one: InputsOf
    other: InputsOf

    def __call__(self) -> CallArguments:
        (args, kwargs), (more, named) = self.one(), self.other()
        return (*args, *kwargs.values(), *more, *named.values()), {}


def side_by_side(one: Case, other: Case, seed: int = 0) -> tuple[Case, Case]:
    """Two cases that can be given the same arguments, as those of one paired run are: XLA drops what is not used.

    Raises:
        NotAvailable: they have different inputs, and the function under a jit cannot be reached.
    """
    if one.inputs is other.inputs:
        return one, other
    # Not one set of inputs, converted inside: that would time the conversion.
    one, other = plain(one, seed), plain(other, seed)
    first, second = make_inputs(one, seed), make_inputs(other, seed)
    start = len(first.args) + len(first.kwargs)
    both = Both(one.inputs, other.inputs)
    static = (*positions_among(one, first, one.static, 0), *positions_among(other, second, other.static, start))
    return (
        _part(one, first, 0, both, static),
        _part(other, second, start, both, static),
    )


def _part(case: Case, inputs: Inputs, start: int, both: Both, static: Positions) -> Case:
    names = tuple(inputs.kwargs)
    fn = SharedArguments(case.fn, start, len(inputs.args) + len(names), names)
    return replace(case, fn=fn, inputs=both, static=static, donate=positions_among(case, inputs, case.donate, start))


def positions_among(case: Case, inputs: Inputs, arguments: Positions, start: int) -> Positions:
    """Arguments that may be named, as positions among all; those of the case begin at `start`."""
    found = static_arguments(replace(case, static=arguments), inputs.args, inputs.kwargs)
    names = tuple(inputs.kwargs)
    own = [
        argument if isinstance(argument, int) else len(inputs.args) + names.index(argument)
        for argument in found
        if (isinstance(argument, int) and argument < len(inputs.args)) or argument in names
    ]
    return tuple(start + position for position in dict.fromkeys(own))


def argument_name(fn: Callable[..., Any], argument: int | str) -> str:
    """As its author calls it; else its position."""
    if isinstance(argument, str):
        return argument
    try:
        names = list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):  # builtins have none
        names = []
    return names[argument] if argument < len(names) else f"argument {argument}"
