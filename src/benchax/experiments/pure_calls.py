"""Steps under `equinox.filter_jit` or `flax.nnx.jit`, as functions of arrays alone, which `jax.jit` takes.

Variants are made of functions that `jax.jit` takes. Leaves that are not arrays are static (`static_leaves`). Objects of
Flax NNX become a first argument `state`, and the new state is an output. Neither library is imported here: a case needs
one only if the user has imported it.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import MethodType
from typing import Any

import jax

from benchax.case import Case, Positions
from benchax.errors import NotAvailable
from benchax.experiments.functions import CallArguments, OfArrays
from benchax.measuring.inputs import make_inputs
from benchax.measuring.program import unwrapped
from benchax.measuring.state import CallOutcome, holds_objects, is_ref, take_apart, without_objects
from benchax.static_leaves import hide_all, hide_argument, reveal

_BY_POSITION = inspect.Parameter.POSITIONAL_OR_KEYWORD


def make_pure(case: Case, seed: int) -> tuple[Case, str]:
    """Returns (a case of a plain function that computes the same, its former wrapper), or the case itself and "" if
    there was no wrapper.

    Raises:
        NotAvailable: it is unknown which arguments the wrapper donates, or the function holds arrays itself.
    """
    wrapper = _name_wrapper(case)
    if not wrapper:
        return case, ""
    made = make_inputs(case, seed)
    call = made.args, made.kwargs
    if any(map(is_ref, jax.tree.leaves(without_objects(call)))):
        return case, ""
    if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(_under(case))):
        raise NotAvailable(
            f"the function under {wrapper} holds arrays itself, which would become constants of its variants",
            "a function that takes them as an argument",
        )
    if holds_objects(call):
        fn = StateFirst(case, seed)
        changed = replace(case, fn=fn, inputs=fn.inputs)
    else:
        changed = replace(case, fn=OfArrays(_under(case), hide_all), inputs=partial(_hidden_inputs, case, seed))
    return replace(changed, donate=_find_donated(case, call, changed.inputs(), wrapper)), wrapper


def _hidden_inputs(case: Case, seed: int) -> CallArguments:
    made = make_inputs(case, seed)
    return hide_all((made.args, made.kwargs))


def _name_wrapper(case: Case) -> str:
    fn = case.fn
    is_wrapper = hasattr(fn, "lower") and hasattr(fn, "__wrapped__") and not hasattr(fn, "clear_cache")
    if not case.jit or isinstance(fn, MethodType) or not is_wrapper:
        return ""
    package = type(fn).__module__.partition(".")[0]
    return {"equinox": "equinox.filter_jit", "flax": "flax.nnx.jit"}.get(package, "")


def _under(case: Case) -> Callable[..., Any]:
    return case.fn.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]


def _find_donated(case: Case, call: Any, pure: Any, wrapper: str) -> Positions:
    """Arguments that the wrapper donates. Libraries do not publish them; how many arrays are donated, JAX does."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")  # told by the plan
        lowered = unwrapped(case.fn.lower(*call[0], **call[1]), jax.stages.Lowered)  # pyright: ignore[reportFunctionMemberAccess]
    if lowered is None:
        raise NotAvailable(f"the program of {wrapper} cannot be reached, and so not what it donates")
    infos = jax.tree.leaves(lowered.args_info, is_leaf=lambda leaf: hasattr(leaf, "donated"))
    donated = sum(1 for info in infos if info.donated)
    args, kwargs = pure
    sizes: dict[int | str, int] = {i: len(jax.tree.leaves(value)) for i, value in enumerate(args)}
    sizes |= {name: len(jax.tree.leaves(value)) for name, value in kwargs.items()}
    everything, first = tuple(sizes), next(iter(sizes), 0)
    rest = tuple(name for name in everything if name != first)
    for choice in ((), everything, (first,), rest):
        if sum(sizes.get(name, 0) for name in choice) == donated:
            return choice
    raise NotAvailable(f"{wrapper} donates some of its arguments, and which cannot be told")


@dataclass(frozen=True, eq=False)
class StateFirst:
    """The function inside `flax.nnx.jit`, as a function of the state of the Flax NNX objects and of the other
    arguments. It returns the new state as well."""

    case: Case
    seed: int

    def __getstate__(self) -> dict[str, Any]:
        return {"case": self.case, "seed": self.seed}

    @property
    def __signature__(self) -> inspect.Signature:
        own = list(inspect.signature(_under(self.case)).parameters.values())
        name = "nnx_state" if any(p.name == "state" for p in own) else "state"
        kind = own[0].kind if own and own[0].kind == inspect.Parameter.POSITIONAL_ONLY else _BY_POSITION
        return inspect.Signature([inspect.Parameter(name, kind), *own])

    def inputs(self) -> CallArguments:
        made = make_inputs(self.case, self.seed)
        return self.arrays_of((made.args, made.kwargs))

    def arrays_of(self, call: CallArguments) -> CallArguments:
        args, kwargs = without_objects(call)
        held = take_apart(call).leaves[len(jax.tree.leaves((args, kwargs))) :]
        return (held, *map(hide_argument, args)), {name: hide_argument(value) for name, value in kwargs.items()}

    @cached_property
    def merge(self) -> Callable[[list[Any]], Any]:
        """Makes the user's arguments of leaves, on new objects."""
        made = make_inputs(self.case, self.seed)
        return take_apart((made.args, made.kwargs)).merge

    def __call__(self, state: list[Any], *args: Any, **kwargs: Any) -> CallOutcome:
        call = self.merge([*jax.tree.leaves(reveal((args, kwargs))), *state])
        outputs = _under(self.case)(*call[0], **call[1])
        # What it returns may be, or hold, such objects.
        return CallOutcome(take_apart(outputs).leaves, take_apart(call).values)
