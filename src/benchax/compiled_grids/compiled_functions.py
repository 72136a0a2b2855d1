"""A function of a compiled grid, traced once: its program, the form of its outputs, and how to stop it inside.

The grid replays the program as often as needed, so a function's side effects in Python happen once. Functions that
cannot be measured are reported here, while tracing, and cost nothing when the grid runs. Such a function raises, its
outputs have another form than the reference's, or its result does not depend on its inputs.

In the optimised program of the grid, the runs of each function are in a separate loop, under a name (`scope_of`). The
operations in it are compared with those of the function compiled alone (`program/census.py`), as in the timers
(`measuring/timers/regions.py`). If they disagree, there is no time. The proof costs a compilation of each function. It
only works if the grid is called from Python: within the user's `jax.jit`, its final program is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import jaxpr_as_fun

from benchax.clock.deadline import interruptible
from benchax.clock.selftest import tier
from benchax.clock.stamps import is_key
from benchax.compiled_grids.compiled_result import Status
from benchax.errors import NotAvailable, NotMeasured
from benchax.measuring.program import refuse_result
from benchax.measuring.state import Values, carried, changed_names, is_stateful, take_apart
from benchax.measuring.timers.regions import explain
from benchax.program import census, hlo
from benchax.program.hlo import Module
from benchax.program.index import index
from benchax.program.jaxpr import every_equation
from benchax.specs import spec_of
from benchax.static_leaves import reveal

Leaves = list[Any]


@dataclass(frozen=True)
class OutputForm:
    """Structure, shapes and dtypes of outputs. Typed keys count as the numbers that they are made of."""

    tree: Any
    leaves: tuple[jax.ShapeDtypeStruct, ...]
    key_impls: tuple[Any, ...]
    """The kind of each leaf that is a typed key; None for the others."""

    def __str__(self) -> str:
        texts = [*map(spec_of, self.leaves)]
        texts = [f"key {text}" if impl else text for text, impl in zip(texts, self.key_impls, strict=True)]
        return str(jax.tree.unflatten(self.tree, texts)).replace("'", "")

    def tree_of(self, leaves: Leaves) -> Any:
        keyed = [
            leaf if impl is None else jax.random.wrap_key_data(leaf, impl=impl)
            for leaf, impl in zip(leaves, self.key_impls, strict=True)
        ]
        return jax.tree.unflatten(self.tree, keyed)


@dataclass(frozen=True)
class Traced:
    """One function. `run` takes and gives flat lists of arrays, `guard` takes a deadline too and tells if it passed."""

    name: str
    run: Callable[[Leaves], Leaves]
    form: OutputForm | None
    guard: Callable[[Any, Leaves], tuple[Leaves, Any]] | None = None
    """The same function, looking at the clock inside its loops; None if it has no loops to stop."""
    refused: Status | None = None
    """Why it is not measured."""
    note: str = ""
    unstoppable: tuple[str, ...] = ()
    """Operations that no deadline stops."""
    scope: str = "runs"
    """The name under which its runs stand in the program."""

    @property
    def is_runnable(self) -> bool:
        """Its outputs are wanted, if not its times."""
        return self.refused in (None, Status.constant)


NO_OUTPUTS = OutputForm(jax.tree.structure(None), (), ())


def trace(name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> Traced:
    """Whatever the function raises becomes its note."""
    if is_stateful(args):
        names = changed_by(function, args)
        if names:
            note = f"it changes {', '.join(names[:3])} in place, and this grid keeps no state: return what is new"
            return Traced(name, list, None, refused=Status.error, note=note)
    try:
        program, form = program_of(function, args)
    except Exception as error:
        return as_failed(Traced(name, list, None), error)
    as_function = jaxpr_as_fun(program)
    traced = Traced(name, lambda leaves: list(as_function(*leaves)), form)
    if not uses_inputs(program):
        note = "its result does not depend on its inputs, so that XLA would compute it once"
        return replace(
            traced, guard=lambda _, leaves: (traced.run(leaves), jnp.bool_(False)), refused=Status.constant, note=note
        )
    return traced


def changed_by(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[str, ...]:
    """The names of the values that a call changes in its arguments; also empty if it cannot be traced."""
    parts = take_apart((args, {}))
    places = carried(parts)

    def after(values: Leaves) -> Values:
        leaves = list(parts.leaves)
        for place, value in zip(places, values, strict=True):
            leaves[place] = value
        given, _ = parts.merge(leaves)
        function(*given)
        return take_apart((tuple(given), {})).values

    try:
        return changed_names(after, parts)
    except Exception:  # told when it is traced as it stands
        return ()


def as_failed(traced: Traced, error: Exception) -> Traced:
    message = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return replace(traced, refused=Status.error, guard=None, note=f"it cannot be traced: {message}")


def program_of(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, OutputForm]:
    """(closed jaxpr from flat inputs to flat outputs, their form)."""
    inputs, tree = jax.tree.flatten(args)
    seen: list[Any] = []

    def flat(*leaves: Any) -> Leaves:
        outputs, out_tree = jax.tree.flatten(refuse_result(function(*reveal(jax.tree.unflatten(tree, leaves)))))
        impls = [jax.random.key_impl(leaf) if is_key(leaf) else None for leaf in outputs]
        seen[:] = [out_tree, tuple(impls)]
        return [jax.random.key_data(leaf) if is_key(leaf) else jnp.asarray(leaf) for leaf in outputs]

    program = jax.make_jaxpr(flat)(*inputs)
    avals: tuple[Any, ...] = tuple(program.out_avals)  # JAX 0.12 types them as values without a shape
    shapes = tuple(jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals)
    return program, OutputForm(seen[0], shapes, seen[1])


def check_form(traced: Traced, reference: OutputForm | None) -> Traced:
    """Refuses a function whose outputs cannot be in one array with those of the reference."""
    if traced.form is None or traced.form == reference:
        return traced
    return replace(traced, refused=Status.wrong_shape, note=f"it returns {traced.form}, not {reference}")


def with_guard(traced: Traced, inputs: Leaves) -> Traced:
    """With a form of it that can be stopped, if it has loops that would need one."""
    if not traced.is_runnable:
        return traced
    until = jax.ShapeDtypeStruct((2,), jnp.uint32)
    names: list[str] = []
    stoppable = interruptible(lambda *leaves: traced.run(list(leaves)), note=names.extend)
    try:
        program = jax.make_jaxpr(lambda until, leaves: stoppable(until, *leaves))(until, inputs)
    except NotAvailable as error:
        notes = [traced.note, f"its loops cannot be stopped inside, because {error.problem}"]
        return replace(traced, note="; ".join(filter(None, notes)))
    traced = replace(traced, unstoppable=tuple(names))
    if not any(eqn.params.get("target_name") == tier().target("tick") for eqn in every_equation(program)):
        return traced
    as_function = jaxpr_as_fun(program)

    def guard(until: Any, leaves: Leaves) -> tuple[Leaves, Any]:
        *outputs, is_expired = as_function(until, *leaves)
        return outputs, is_expired

    return replace(traced, guard=guard)


def uses_inputs(program: Any) -> bool:
    """Does any output depend on any input? Looks inside jit; other operations use all their inputs."""
    traced = index(program)
    inputs = set(traced.inputs)
    return any(not inputs.isdisjoint(value.behind()) for value in traced.outputs)


# ---- proof that what is timed is the work of the functions -----------------------------------------------------------


def scope_of(k: int) -> str:
    """The name of the runs of function `k` in the program."""
    return f"benchax_runs_{k}"


def prove(text: str, functions: Sequence[Traced], inputs: Leaves) -> tuple[str, ...]:
    """For each function why its time cannot be believed; empty if the timed work is its own.

    Args:
        text: the optimised program of the grid.
        inputs: the leaves of the data, or their shapes.
    """
    module = hlo.parse(text)
    return tuple("" if each.refused else _disprove(module, k, each, inputs) for k, each in enumerate(functions))


def _disprove(module: Module, k: int, function: Traced, inputs: Leaves) -> str:
    region = census.timed_body(module, tier().target("stamp"), scope_of(k))
    if region is None:
        return "its work cannot be found in the optimised program of the grid"
    try:
        difference = census.compare(census.take_census(module, region), _census_alone(function, inputs))
    except NotMeasured as error:
        return error.problem
    return "" if difference.is_same else explain(difference)


def _census_alone(function: Traced, inputs: Leaves) -> census.OperationTally:
    try:
        compiled = jax.jit(lambda *leaves: function.run(list(leaves))).lower(*inputs).compile()
    except Exception as error:
        first_line = (str(error).splitlines() or [""])[0]
        raise NotMeasured(f"it does not compile alone ({type(error).__name__}: {first_line})") from error
    return census.take_census(hlo.parse(compiled.as_text() or ""))
