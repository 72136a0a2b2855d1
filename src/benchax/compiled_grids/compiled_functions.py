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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import jaxpr_as_fun

from benchax.clock.deadline import interruptible
from benchax.clock.selftest import tier
from benchax.clock.stamps import is_key, run_in_branch, stamp
from benchax.compiled_grids.compiled_result import Status
from benchax.errors import NotAvailable, NotMeasured
from benchax.measuring.program import refuse_result
from benchax.measuring.state import Values, carried, changed_names, is_stateful, take_apart
from benchax.measuring.timers.in_graph import SPAN_S
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
    """The name of its runs in the program."""

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


# ---- repetitions -----------------------------------------------------------------------------------------------------
#
# One function's part of a compiled grid: a run that can be stopped, then repetitions between stamps, within a limit.
#
# Between two repetitions, the program reads the limit and keeps stamps and outputs. None of this is inside the measured
# interval. The interval begins after the start stamp and ends when all outputs are there. The cost of the stamps is
# measured in place. A third stamp follows the end stamp, over the same arrays, with an empty branch between them.
#
# If a function takes less time than a reading of the clock, a repetition is several runs in a row, as in `in_graph`. As
# many empty runs follow the end stamp. The clock itself decides their number while the grid runs. After a reading that
# is too short, the repetitions begin again, with more runs in each.


Run = Callable[[Leaves, Leaves, Any], tuple[Leaves, Any]]
"""(inputs, outputs of the run before, time of the stamp over them) -> (outputs, time), for the next stamp."""
MOST_RUNS = 1000
LONG = 4
"""The length of a repetition of several runs, in spans. Entering the loop of runs takes 0.1 µs more or less than
entering the empty one. For a run of 20 ns, this is 1 % in a loop of 200 runs, and 25 % in a loop of 20."""
FIRST_REPETITIONS = 16
"""Only one of the first repetitions begins them again. It would be very unlikely that all of them are preempted. And a
function that takes about as long as a reading should not lose all its measurements by one quick reading at the end."""


class CompiledCell(NamedTuple):
    """The results of one function, in the graph. Times are u32[2]."""

    outputs: Leaves
    """The outputs of the last run that finished."""
    stamps: Any
    """u32[repeats, 3, 2]: start, end, and a reading right after the end."""
    guard: Any
    """u32[2, 2]: start and end of the run that could be stopped; equal if there was no such run."""
    span: Any
    """u32[3, 2]: when its time began, when it was to end, when it did."""
    count: Any
    """i32: repetitions in `stamps`."""
    runs: Any
    """i32: of the function in each repetition."""
    status: Any


def skip_function(status: Status, repeats: int, blank: Leaves, now: Any) -> CompiledCell:
    stamps = jnp.zeros((repeats, 3, 2), jnp.uint32)
    none, once = jnp.int32(0), jnp.int32(1)
    return CompiledCell(blank, stamps, pair(now, now), jnp.stack([now] * 3), none, once, jnp.int32(status))


def measure_function(
    traced: Traced, repeats: int, inputs: Leaves, blank: Leaves, now: Any, until: Any
) -> tuple[Leaves, CompiledCell]:
    """(inputs, pinned behind it; what it left behind).

    Args:
        blank: the outputs, if no run finishes.
        now: when its time begins.
        until: when its time ends.
    """
    begun, is_begun = now, is_before(now, until)
    guard, outputs, is_expired, room = pair(now, now), blank, jnp.bool_(False), until
    if traced.guard:
        guard, outputs, is_expired = call_guarded(traced, inputs, blank, now, until)
        now = guard[1]
        # Without room for a second run like the first, the limit would be passed.
        room = jnp.where(is_begun & ~is_expired, minus(until, minus(guard[1], guard[0])), jnp.uint32(0))
    if traced.refused:  # its outputs are wanted all the same
        cell = skip_function(traced.refused, repeats, outputs, now)
        status = jnp.where(is_expired, Status.timed_out, jnp.where(is_begun, traced.refused, Status.not_run))
        return inputs, cell._replace(guard=guard, span=jnp.stack([begun, until, now]), status=status)
    count, runs, inputs, now, outputs, stamps = repeat_calls(traced, repeats, inputs, outputs, now, room)
    stopped = jnp.where(is_begun, Status.stopped, Status.not_run)
    status = jnp.where(is_expired, Status.timed_out, jnp.where(count == repeats, Status.ok, stopped))
    return inputs, CompiledCell(outputs, stamps, guard, jnp.stack([begun, until, now]), count, runs, status)


def call_guarded(traced: Traced, inputs: Leaves, blank: Leaves, now: Any, until: Any) -> tuple[Any, Leaves, Any]:
    """(its start and end, outputs, was it stopped inside). Does nothing where the time is up already."""

    def run(inputs: Leaves) -> tuple[Any, Leaves, Any]:
        inputs, start = stamp(inputs)
        outputs, is_expired = traced.guard(until, inputs)  # type: ignore[misc]
        (outputs, is_expired, start), end = stamp((outputs, is_expired, start))
        return pair(start, end), [jnp.where(is_expired, b, o) for b, o in zip(blank, outputs, strict=True)], is_expired

    def skip(_: Leaves) -> tuple[Any, Leaves, Any]:
        return pair(now, now), blank, jnp.bool_(False)

    return lax.cond(is_before(now, until), run, skip, inputs)


def repeat_calls(traced: Traced, repeats: int, inputs: Leaves, outputs: Leaves, now: Any, until: Any) -> Any:
    """(count, runs, inputs, time, outputs, stamps) after all repetitions, or those that begin before `until`."""

    def run(inputs: Leaves, _: Leaves, time: Any) -> tuple[Leaves, Any]:
        # In a branch, for what does not depend on the inputs would be computed once for all runs otherwise.
        return run_in_branch(traced.run, inputs, time[1]), time

    def goes_on(state: Any) -> Any:
        i, _, _, now, _, _ = state
        return (i < repeats) & is_before(now, until)

    def once(state: Any) -> Any:
        i, runs, inputs, now, outputs, stamps = state
        (inputs, now), start = stamp((inputs, now))
        with jax.named_scope(traced.scope):
            end, outputs = chain_runs(run, runs, start, outputs, inputs)
        after, outputs = chain_runs(do_nothing, runs, end, outputs, inputs)
        stamps = lax.dynamic_update_index_in_dim(stamps, jnp.stack([start, end, after]), i, 0)
        i, runs = next_repetition(i, runs, minus(end, start))
        return i, runs, inputs, after, outputs, stamps

    # Made of `now`, so that it is made now and not while another function is timed; all of it is overwritten or masked.
    stamps = jnp.broadcast_to(now, (repeats, 3, 2))
    return lax.while_loop(goes_on, once, (jnp.int32(0), jnp.int32(1), inputs, now, outputs, stamps))


def chain_runs(run: Run, runs: Any, start: Any, outputs: Leaves, inputs: Leaves) -> tuple[Any, Leaves]:
    """(time, outputs) after `runs` runs, each of which waits for the stamp over the outputs of the one before."""

    def once(_: Any, state: Any) -> Any:
        time, outputs = state
        (outputs, _), time = stamp(run(inputs, outputs, time))
        return time, outputs

    return lax.fori_loop(0, runs, once, (start, outputs))


def do_nothing(inputs: Leaves, outputs: Leaves, time: Any) -> tuple[Leaves, Any]:
    """Does the steps around a run: a stamp over as many arrays, and a branch that is always taken."""
    return outputs, run_in_branch(lambda time: time, time, time[1])


def next_repetition(i: Any, runs: Any, took: Any) -> tuple[Any, Any]:
    """(number, runs) of the repetition after number `i`, which took u32[2]."""
    span_ns = round(SPAN_S[tier().name] * 1e9)
    enough_ns = jnp.where(runs > 1, LONG * span_ns, span_ns) // 2  # the first run of all is slower than others
    is_short = (took[1] == 0) & (took[0] < enough_ns) & (runs < MOST_RUNS) & (i < FIRST_REPETITIONS)
    more = jnp.minimum(runs.astype(jnp.uint32) * (LONG * span_ns) // jnp.maximum(took[0], 1) + 1, MOST_RUNS)
    return jnp.where(is_short, 0, i + 1), jnp.where(is_short, more.astype(jnp.int32), runs)


def pair(start: Any, end: Any) -> Any:
    return jnp.stack([start, end])


def is_before(a: Any, b: Any) -> Any:
    return (a[1] < b[1]) | ((a[1] == b[1]) & (a[0] < b[0]))


def minus(a: Any, b: Any) -> Any:
    """a - b, both u32[2]; b is not the later one."""
    borrow = (a[0] < b[0]).astype(jnp.uint32)
    return jnp.stack([a[0] - b[0], a[1] - b[1] - borrow])
