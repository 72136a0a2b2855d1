"""Cases reopened, so that variants can be made of them: the function under its jit, its inputs, pairs of inputs.

Traces the function in this process, where a variant has to know its arguments; runs nothing.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from itertools import combinations
from types import MethodType
from typing import Any, Literal

import jax

from benchax.case import Case, Positions
from benchax.errors import NotAvailable, UsageError
from benchax.grouping import group_by
from benchax.inspecting.inspect import abstract_inputs
from benchax.keywords import positional_names
from benchax.measuring.inputs import Inputs, make_inputs, map_dynamic
from benchax.measuring.prepare import prepare
from benchax.measuring.program import unwrapped
from benchax.measuring.state import CallOutcome, holds_objects, is_ref, is_stateful, take_apart, without_objects
from benchax.program.arguments import leaves
from benchax.static_leaves import as_function_of_arrays, find_hidden, hide, hide_all, hide_argument, reveal
from benchax.wrappers import without_jit

Arguments = tuple[int | str, ...]
"""Positions and names of arguments."""
CallArguments = tuple[tuple[Any, ...], Mapping[str, Any]]
"""(args, kwargs) of one call."""


def plain(case: Case, seed: int = 0) -> Case:
    """The case with its eager function; static and donated arguments of a jit are declared with the case then.

    Raises:
        NotAvailable: the function under the jit cannot be reached, or calls change their arguments.
    """
    _refuse_stateful(case, seed)
    fn = case.fn
    if not hasattr(fn, "lower") and not isinstance(fn, jax.stages.Compiled):
        case, inputs = replace(case, fn=without_jit(fn)), abstract_inputs(replace(case, jit=True))
        return replace(case, fn=of_arrays(case.fn)) if find_hidden((inputs.args, inputs.kwargs)) else case
    under = without_jit(fn)
    if under is fn or not hasattr(fn, "trace"):
        wrapper: type[Any] = type(fn)  # a class of equinox's is called _JitWrapper, which nobody wrote
        kind, package = wrapper.__name__.lstrip("_"), wrapper.__module__.partition(".")[0]
        raise NotAvailable(
            f"the function under the {kind} of {package} {case.id.label!r} cannot be reached; variants need a plain "
            "function, or one that only jax.jit wraps"
        )
    prepared = prepare(replace(case, jit=True), seed)
    found = prepared.trace()
    if found.traced is None:
        raise NotAvailable(f"the trace of {type(fn).__name__} {case.id.label!r} cannot be reached")
    donated = _find_donated(found.traced.args_info, len(prepared.inputs.args), found.static)
    return replace(case, fn=under, static=found.static, donate=donated)


def wrapper(call: Callable[..., Any]) -> Callable[..., Callable[..., Any]]:
    """Makes `wrap(fn, **how)` of `call(fn, args, kwargs, **how)`. The wrapped function keeps the names of its
    arguments: in a combination, the next variant chooses some by name."""

    def wrap(fn: Callable[..., Any], **how: Any) -> Callable[..., Any]:
        # Don't copy the attributes: with a jitted function's attributes, this would look jitted.
        @wraps(fn, updated=())
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return call(fn, args, kwargs, **how)

        return wrapped

    return wrap


@wrapper
def of_arrays(fn: Callable[..., Any], args: Any, kwargs: Any, hide: Callable[[Any], Any] = hide) -> Any:
    """Makes a function that JAX can transform: leaves of its arguments and results that are not arrays are `Static`."""
    args, kwargs = reveal((args, kwargs))
    return hide(fn(*args, **kwargs))


def _refuse_stateful(case: Case, seed: int) -> None:
    """Refuses a function that only changes state in place. Its variants would lose these changes."""
    args, kwargs = case.inputs()
    if not is_stateful((args, dict(kwargs))):
        return
    # Use the inputs from above: a factory may draw others when it is called again.
    names = prepare(replace(case, jit=True, inputs=lambda: (args, kwargs)), seed).trace().subject.mutated
    if names:
        raise NotAvailable(
            f"{case.id.label!r} changes {', '.join(names[:3])} in place, and variants need a function that returns "
            "all that it computes",
            "a function that takes its state and returns the new one (flax.nnx.split and merge)",
        )


def _find_donated(infos: Any, count: int, static: Positions) -> Positions:
    """Returns the arguments whose leaves are all donated, by position or name."""
    positions = (i for i in range(count) if i not in static)
    trees = {**dict(zip(positions, infos[0], strict=True)), **infos[1]}
    found = {key: [leaf.donated for leaf in leaves("", tree)] for key, tree in trees.items()}
    return tuple(key for key, flags in found.items() if flags and all(flags))


def converted(case: Case, seed: int, dtype: str) -> CallArguments:
    """The inputs of `case`, float arrays in another precision; complex ones stay as they are."""
    return change_arrays(make_inputs(case, seed), lambda _, leaf: leaf.astype(dtype) if is_float(leaf) else leaf)


def change_arrays(inputs: Inputs, change: Callable[[int | str, Any], Any]) -> CallArguments:
    """Returns the call with `change(argument, array)` instead of each array; static arguments stay."""

    def each(key: int | str, tree: Any) -> Any:
        return jax.tree.map(lambda leaf: change(key, leaf) if isinstance(leaf, jax.Array) else leaf, tree)

    return map_dynamic(each, (inputs.args, inputs.kwargs), inputs.static)


def count_rows(tree: Any) -> int | None:
    """Returns the number of leading rows of every leaf, as a batch has them. Returns None if there are no rows, or if
    they differ."""
    leaves = jax.tree.leaves(tree)
    rows = {leaf.shape[0] if getattr(leaf, "shape", ()) else None for leaf in leaves}
    return rows.pop() if len(rows) == 1 else None


def is_float(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating)


def every_argument(inputs: Inputs) -> dict[int | str, Any]:
    """All arguments of the call, by position or name."""
    return {**dict(enumerate(inputs.args)), **inputs.kwargs}


def dynamic_arguments(inputs: Inputs) -> dict[int | str, Any]:
    """Those that are not static."""
    return {key: value for key, value in every_argument(inputs).items() if key not in inputs.static}


def argument_name(fn: Callable[..., Any], argument: int | str) -> str:
    """As its author calls it; else its position."""
    if isinstance(argument, str):
        return argument
    names = positional_names(fn)
    return names[argument] if argument < len(names) else f"argument {argument}"


def arguments(case: Case, inputs: Inputs) -> dict[str, int | str]:
    """The dynamic arguments of the call: as their author calls them → position or name."""
    return {argument_name(case.fn, key): key for key in dynamic_arguments(inputs)}


def find_arguments(variant: str, words: Collection[str], permitted: Mapping[str, int | str]) -> Arguments:
    """The arguments of these names, or at these positions, each once.

    Raises:
        UsageError: one is none of `permitted`.
    """
    known = {str(key): key for key in permitted.values()} | dict(permitted)
    for word in words:
        if word.strip() not in known:
            raise UsageError(f"{variant} is given the argument {word!r}", f"one of: {', '.join(permitted)}")
    return tuple(dict.fromkeys(known[word.strip()] for word in words))


# ---- the arguments that hold a batch ------------------------------------------------------------------------------
#
# Leading rows that can be cut, doubled, or taken one by one. The author can name the arguments (batch=x, batch=x+y, as
# `in_axes` does for `jax.vmap`). Otherwise benchax guesses them from the shapes of the outputs. It traces the function
# again with twice the rows of some arguments:
#
#     the outputs grow with them     x of x @ w, and not w
#     the outputs stay as they are   x and y of a loss, whose weights cannot have twice the rows
#
# A guess can be wrong, so code that uses it must report it, in the words of `Batch.how`. Nothing is run.

BATCH = "batch"
"""The word under which it is given, for all variants together: --given batch=x."""
MOST_TOGETHER = 5
"""If more arguments have as many rows, not every choice is tried. Five have 31 choices, and each is traced."""

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
    "outputs": "the outputs grow with them (otherwise: batch=NAME)",
    "loss": "with more of them the outputs keep their shapes (otherwise: batch=NAME)",
    "last": "the last argument with rows, because the outputs don't show which (otherwise: batch=NAME)",
}


def find_batch(case: Case, inputs: Inputs, given: str = "", *, without: Arguments = ()) -> Batch:
    """Which arguments hold the batch of an eager function.

    Args:
        given: "x" or "x+y"; empty: it is guessed.
        without: these are no batch, such as the weights of a loss.

    Raises:
        NotAvailable: no argument has rows.
        UsageError: `given` names what is no argument with rows, or arguments with several numbers of rows.
    """
    counts = {key: count_rows(tree) for key, tree in dynamic_arguments(inputs).items() if key not in without}
    rows = {key: count for key, count in counts.items() if count}
    chosen, basis = (_read(case, inputs, given, rows), "given") if given else _guess(case, inputs, rows)
    names = tuple(argument_name(case.fn, key) for key in chosen)
    return Batch(rows[chosen[0]], chosen, names, basis)


def _read(case: Case, inputs: Inputs, given: str, rows: Mapping[int | str, int]) -> Arguments:
    chosen = find_arguments(BATCH, given.split("+"), arguments(case, inputs))
    if without := [argument_name(case.fn, key) for key in chosen if key not in rows]:
        raise UsageError(
            f"batch={given!r}: {without[0]!r} isn't a batch", "arrays, or trees of arrays with as many rows"
        )
    if len({rows[key] for key in chosen}) > 1:
        counts = ", ".join(f"{argument_name(case.fn, key)} has {rows[key]}" for key in chosen)
        raise UsageError(f"batch={given!r} names arguments with several numbers of rows: {counts}", "one number")
    return chosen


def _guess(case: Case, inputs: Inputs, rows: Mapping[int | str, int]) -> tuple[Arguments, Basis]:
    if not rows:
        raise NotAvailable("no argument is a batch: an array, or a tree of arrays with as many rows")
    groups = group_by(rows, rows.__getitem__).values()
    # Fewest first, because the first choice that makes the outputs grow is taken: x of x @ w, although w can have as
    # many rows.
    choices = sorted(
        (
            chosen
            for group in groups
            for together in range(1, len(group) + 1)
            if together in (1, len(group)) or len(group) <= MOST_TOGETHER
            for chosen in combinations(group, together)
        ),
        key=len,
    )
    before, kept = _output_shapes(case, inputs, ()), list[Arguments]()
    for chosen in choices if before else ():
        after = _output_shapes(case, inputs, chosen)
        if after == before:
            kept.append(chosen)
        # Others stay as they were, such as a loss or a state.
        elif after and all(b == a or (a and b == (2 * a[0], *a[1:])) for a, b in zip(before, after, strict=True)):
            return chosen, "outputs"
    if kept:  # for a loss, the most: x and y
        return max(kept, key=lambda chosen: (len(chosen), list(rows).index(chosen[-1]))), "loss"
    last = list(rows.values())[-1]
    return tuple(key for key, count in rows.items() if count == last), "last"


def _output_shapes(case: Case, inputs: Inputs, doubled: Arguments) -> list[tuple[int, ...]]:
    """Returns the shapes of the outputs, where these arguments have twice the rows; none if it does not trace so."""

    def shape(key: int | str, leaf: Any) -> jax.ShapeDtypeStruct:
        rows = (2 * leaf.shape[0], *leaf.shape[1:]) if key in doubled else leaf.shape
        return jax.ShapeDtypeStruct(rows, leaf.dtype)

    call, shapes = as_function_of_arrays(case.fn, *change_arrays(inputs, shape))
    try:
        return [leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(call, *shapes))]
    except Exception:  # harmless: the shapes do not fit, so it is another argument that holds the batch
        return []


# ---- steps under `equinox.filter_jit` and `flax.nnx.jit` -----------------------------------------------------------
#
# Variants are made of functions that `jax.jit` takes. Leaves that are not arrays are static (`static_leaves`). Objects
# of Flax NNX become a first argument `state`, and the new state is an output. Neither library is imported here: a case
# needs one only if the user has imported it.


def make_pure(case: Case, seed: int) -> tuple[Case, str]:
    """Returns (a case of a plain function that computes the same, its former wrapper), or the case itself and "" if
    there was no wrapper.

    Raises:
        NotAvailable: it is unknown which arguments the wrapper donates, or the function holds arrays itself.
    """
    wrapper = _name_wrapper(case)
    if not wrapper:
        return case, ""
    call = _call(case, seed)
    if any(map(is_ref, jax.tree.leaves(without_objects(call)))):
        return case, ""
    if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(_under(case))):
        raise NotAvailable(
            f"the function under {wrapper} holds arrays itself, which would become constants of its variants",
            "a function that takes them as an argument",
        )
    if holds_objects(call):
        changed = _with_state_first(case, seed)
    else:
        changed = replace(case, fn=of_arrays(_under(case), hide=hide_all), inputs=lambda: hide_all(_call(case, seed)))
    return replace(changed, donate=_donated_by(wrapper, case, call, changed.inputs())), wrapper


def _call(case: Case, seed: int) -> CallArguments:
    made = make_inputs(case, seed)
    return made.args, made.kwargs


def _name_wrapper(case: Case) -> str:
    fn = case.fn
    is_wrapper = hasattr(fn, "lower") and hasattr(fn, "__wrapped__") and not hasattr(fn, "clear_cache")
    if not case.jit or isinstance(fn, MethodType) or not is_wrapper:
        return ""
    package = type(fn).__module__.partition(".")[0]
    return {"equinox": "equinox.filter_jit", "flax": "flax.nnx.jit"}.get(package, "")


def _under(case: Case) -> Callable[..., Any]:
    return case.fn.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]


def _donated_by(wrapper: str, case: Case, call: CallArguments, pure: CallArguments) -> Positions:
    """Arguments that the wrapper donates. Libraries do not publish them; how many arrays are donated, JAX does."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")  # told by the plan
        lowered = unwrapped(case.fn.lower(*call[0], **call[1]), jax.stages.Lowered)  # pyright: ignore[reportFunctionMemberAccess]
    if lowered is None:
        raise NotAvailable(f"the program of {wrapper} cannot be reached, and so not what it donates")
    donated = sum(bool(leaf.donated) for leaf in leaves("", lowered.args_info))
    sizes = {key: len(jax.tree.leaves(value)) for key, value in {**dict(enumerate(pure[0])), **pure[1]}.items()}
    everything = tuple(sizes)
    for choice in ((), everything, everything[:1], everything[1:]):
        if sum(sizes[key] for key in choice) == donated:
            return choice
    raise NotAvailable(f"{wrapper} donates some of its arguments, and doesn't show which")


def _with_state_first(case: Case, seed: int) -> Case:
    """The function inside `flax.nnx.jit`, as a function of the state of the Flax NNX objects and of the other
    arguments. It returns the new state as well."""
    under, merge = _under(case), take_apart(_call(case, seed)).merge

    def fn(state: list[Any], *args: Any, **kwargs: Any) -> CallOutcome:
        call = merge([*jax.tree.leaves(reveal((args, kwargs))), *state])
        outputs = under(*call[0], **call[1])
        # The result may be, or contain, such objects.
        return CallOutcome(take_apart(outputs).leaves, take_apart(call).values)

    def inputs() -> CallArguments:
        call = _call(case, seed)
        args, kwargs = without_objects(call)
        held = take_apart(call).leaves[len(jax.tree.leaves((args, kwargs))) :]
        return (held, *map(hide_argument, args)), {name: hide_argument(value) for name, value in kwargs.items()}

    own = list(inspect.signature(under).parameters.values())
    name = "nnx_state" if any(p.name == "state" for p in own) else "state"
    signature = inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY), *own])
    fn.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    return replace(case, fn=fn, inputs=inputs)
