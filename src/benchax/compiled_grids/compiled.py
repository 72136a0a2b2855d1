"""`compiled_grid`: functions × repetitions as one jitted function of the data, with clocks and deadlines inside.

One after the other, each function gets a time limit and is then called repeatedly. Each repetition is a stamp over its
inputs, the function, and a stamp over its outputs. Inputs and times pass from stamp to stamp and from function to
function. So nothing begins before the previous step has ended; `clock/stamps.py` says why nothing less works. Between
functions, a reading of the clock decides whether the next one can begin. Between repetitions, the end stamp decides.

A function with loops runs once before it is timed. In this run, its loops look at the clock, so that they stop at the
limit. Repetitions are timed only if there is time left for one more run. They run the function as it was given, because
rewriting changes how long it takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.extend.core import jaxpr_as_fun

from benchax.clock import handlers
from benchax.clock.deadline import interruptible, refuse_elsewhere
from benchax.clock.handlers import tier
from benchax.clock.stamps import elapsed_s, run_in_branch, stamp
from benchax.clock.times import is_before, minus
from benchax.compiled_grids.compiled_result import (
    CompiledGridResult,
    LoopComparison,
    Status,
    compare_loops,
    describe_circumstances,
)
from benchax.errors import NotAvailable, NotMeasured, UsageError
from benchax.grids.outputs import checked_clip
from benchax.grids.plan import named_functions, whole
from benchax.keywords import guard_keywords
from benchax.machine import noise
from benchax.measuring.inputs import Inputs
from benchax.measuring.program import CallableProgram, as_reason, first_line, refuse_result
from benchax.measuring.state import is_ref
from benchax.measuring.timers.base import Subject
from benchax.measuring.timers.embedding import explain
from benchax.measuring.timers.in_graph import SPAN_S
from benchax.program import census, hlo
from benchax.program.hlo import Module
from benchax.program.index import index
from benchax.program.jaxpr import every_equation
from benchax.progress import Progress, ProgressEvent, check_progress, quiet, show_progress
from benchax.specs import spec_of
from benchax.static_leaves import data_of, hide_argument, is_key, reveal
from benchax.units import parse_duration, plural

MOST_REPEATS = 10_000_000
"""Each repetition leaves three times of eight bytes behind: 240 MB for a function."""
Limit = Any
"""Seconds: a number, an array, or one for each function."""


@guard_keywords()
def compiled_grid(
    functions: Iterable[Callable[..., Any]] | Mapping[str, Callable[..., Any]],
    *,
    repeats: int = 100,
    timeout_s: Limit | None = None,
    total_timeout_s: Limit | None = None,
    stop_inside: bool = True,
    like: Any = None,
    fill: float | None = None,
    clip: tuple[float, float] | None = None,
    nan_to_num: bool = False,
    progress: Progress = None,
) -> CompiledGrid:
    """Makes a jitted function of data. It calls each of `functions` with them many times, and returns their times.

        h = compiled_grid([f1, f2, f3], repeats=100)
        r = h(x, timeout_s=0.02, total_timeout_s=0.1)
        print(r); r.outputs; r.seconds(); r.status_names

    Args:
        functions: a list, or a mapping from names; each takes the data and returns arrays. Plain or jitted.
        repeats: repetitions of each function, at most.
        timeout_s: for all repetitions of one function together: 2.5, "500ms"; one, or one for each function. None: no
            limit. Each call can have another limit without a new compilation.
        total_timeout_s: seconds for the whole call.
        stop_inside: also stop a call in the middle of a loop, at most about a millisecond late. Costs a second
            compilation of functions with loops, and one more run of them. False: limits hold between repetitions.
        like: outputs of the structure, shapes and dtypes that all functions should return, or a function of the data
            that returns such outputs; `like=lambda x: x`. Default: the outputs of the first function that can be
            traced.
        fill: the value in `outputs` for a function that has none. Default: NaN, or 0 if the type has no NaN.
        clip: bounds for the outputs, applied after the timing.
        nan_to_num: NaN and infinities in the outputs become numbers, after `clip`.
        progress: as for `bench`; shows what is traced. XLA then compiles and runs one call, without progress events.

    You can call it inside your own `jax.jit`; outside, a call returns when it is done. Operations that depend on no
    input of a function run in every repetition, as in every call. The exception is that XLA folds them into a constant
    in both. For some functions this is not possible (a callback without arguments, a program for several devices). The
    function's line then reports how many operations can be computed once for all. `h.compare_python_loop({"x": x})`
    does the same by a loop in Python, alternately with the grid, and reports the cost of a run in each.

    Raises:
        UsageError: an argument that cannot work.
        NotAvailable: this platform has no clock inside compiled code.

    Example:
        >>> h = benchax.compiled_grid([jnp.sin, jnp.cos], repeats=10)
        >>> r = h(jnp.ones(8), timeout_s=1)
        >>> r.outputs.shape
        (2, 8)
    """
    return CompiledGrid(
        functions, repeats, timeout_s, total_timeout_s, stop_inside=stop_inside, like=like, fill=fill, clip=clip,
        nan_to_num=nan_to_num, progress=progress,
    )  # fmt: skip


class CompiledGrid:
    """The result of `compiled_grid`: call it with the data, also inside your own `jax.jit`.

    It can be neither differentiated nor vmapped, because readings of the clock cannot: do that to the functions.
    """

    def __init__(
        self,
        functions: Any,
        repeats: int,
        timeout_s: Limit | None,
        total_timeout_s: Limit | None,
        *,
        stop_inside: bool,
        like: Any,
        fill: float | None,
        clip: tuple[float, float] | None,
        nan_to_num: bool,
        progress: Progress,
    ) -> None:
        self.functions = named_functions(functions)
        self.repeats = whole("repeats", repeats, least=1, most=MOST_REPEATS)
        self.timeout_s = limits("timeout_s", timeout_s, len(self.functions))
        self.total_timeout_s = limits("total_timeout_s", total_timeout_s)
        self.stop_inside, self.like, self.fill = stop_inside, like, fill
        self.clip, self.nan_to_num = checked_clip(clip), nan_to_num
        self.progress, self._report = check_progress(progress), quiet
        self.clock = tier().name
        self.jitted = jax.jit(self._run)
        self._proofs: dict[Any, tuple[str, ...]] = {}
        self._traced: dict[Any, list[Traced]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.functions)

    def __call__(
        self, x: Any, timeout_s: Limit | None = None, total_timeout_s: Limit | None = None
    ) -> CompiledGridResult:
        """Runs all functions with `x`; compiles at the first call with data of this structure, shape and dtype.

        Args:
            x: what every function is given: an array or a pytree of arrays. A tuple holds several arguments.
            timeout_s, total_timeout_s: instead of those of the grid; `math.inf` is no limit. They may be traced.

        Raises:
            UsageError: no arrays in `x`, or limits that cannot be.
            NotAvailable: `x` is not on one device that has such a clock.
        """
        x = tuple(map(hide_argument, x)) if type(x) is tuple else hide_argument(x)
        check_data(x)
        own = self.timeout_s if timeout_s is None else limits("timeout_s", timeout_s, len(self.functions))
        total = self.total_timeout_s if total_timeout_s is None else limits("total_timeout_s", total_timeout_s)
        # Inside the user's own jit, there is no program yet to prove, and no progress to show.
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((x, own, total))):
            return self.jitted(x, own, total)
        with show_progress(self.progress) as self._report:
            unproved = self._prove(x, own, total)
            args, begun = x if type(x) is tuple else (x,), noise.start()
            # Wait here, so that the caller's next work does not overlap with the timing.
            found = jax.block_until_ready(self.jitted(x, own, total))
            return replace(found, unproved=unproved, circumstances=describe_circumstances(args, begun))

    def compare_python_loop(self, data: Mapping[Any, Any], *, rounds: int = 5) -> LoopComparison:
        """Benchmarks the same functions and data alternately by a loop in Python: how much does benchmarking cost?

        Args:
            data: by label, the argument of each function: an array or a pytree; a tuple holds several arguments.
            rounds: of each way, in addition to the first round, which compiles.

        Raises:
            UsageError: `data` is not a mapping, or is empty.
            NotMeasured: no function ends within its limit.
        """
        if not isinstance(data, Mapping) or not data:
            raise UsageError(f"data={data!r}", "a mapping from labels to data", 'one data point is {"x": x}')
        return compare_loops(self, {str(label): x for label, x in data.items()}, whole("rounds", rounds, least=1))

    def __repr__(self) -> str:
        return f"compiled_grid of {plural(len(self.functions), 'function')} × {self.repeats}: {', '.join(self.names)}"

    def _prove(self, x: Any, own_s: Any, total_s: Any) -> tuple[str, ...]:
        """Once for each structure, shapes and dtypes; what it compiles is what the call finds."""
        key = signature_of(x)
        if key not in self._proofs:
            text = self.jitted.lower(x, own_s, total_s).compile().as_text() or ""
            self._proofs[key] = prove(text, self._traced[key], jax.tree.leaves(x))
        return self._proofs[key]

    def _run(self, x: Any, own_s: Any, total_s: Any) -> CompiledGridResult:
        args = x if type(x) is tuple else (x,)
        form, functions = self._trace(args)
        inputs, now = stamp(jax.tree.leaves(args))
        latest = handlers.deadline(tier(), total_s, now)
        cells: list[CompiledCell] = []
        for k, function in enumerate(functions):
            # The blanks pass through the stamp, so that XLA creates their arrays now and not while another function is
            # timed.
            (inputs, blanks, _), now = stamp((inputs, blanks_of(form, self.fill), now))
            blank = [jnp.broadcast_to(b, s.shape) for b, s in zip(blanks, form.leaves, strict=True)]
            until = handlers.deadline(tier(), own_s[k], now, latest)
            # A limit of nothing would be counted from a moment after `now`.
            until = jnp.where((own_s[k] > 0) & (total_s > 0), until, now)
            inputs, cell, functions[k] = self._part(function, inputs, blank, now, until)
            cells.append(cell)
            now = cell.span[2]
        # An intended side effect of tracing: the proof is about the program of this very trace.
        self._traced[signature_of(x)] = functions
        self._report(ProgressEvent(repr(self), "compile and run"))
        # Without this, outputs of the first functions would be stacked while the last ones are timed.
        (cells, _), _ = stamp((cells, now))
        return self._result(functions, form, jax.tree.map(lambda *rows: jnp.stack(rows), *cells))

    def _trace(self, args: tuple[Any, ...]) -> tuple[OutputForm, list[Traced]]:
        """(what outputs should look like, the functions)."""
        traced: list[Traced] = []
        for k, (name, f) in enumerate(self.functions.items()):
            self._report(ProgressEvent(name, "trace", k, len(self.functions)))
            traced.append(replace(trace(name, f, args), scope=scope_of(k)))
        if self.like is None:
            form = next((t.form for t in traced if t.form), NO_OUTPUTS)
        else:
            of, given = (self.like, args) if callable(self.like) else (lambda like: like, (self.like,))
            form = program_of(of, given)[1]
        traced = [
            # Its outputs do not fit into one array with those of the others.
            replace(t, refused=Status.wrong_shape, note=f"it returns {t.form}, not {form}")
            if t.form is not None and t.form != form
            else t
            for t in traced
        ]
        if self.stop_inside:
            traced = [with_guard(t, jax.tree.leaves(args)) for t in traced]
        return form, traced

    def _part(
        self, function: Traced, inputs: Leaves, blank: Leaves, now: Any, until: Any
    ) -> tuple[Leaves, CompiledCell, Traced]:
        """(inputs, what the function left behind, the function as it is known now)."""
        if function.is_runnable:
            try:
                return *measure_function(function, self.repeats, inputs, blank, now, until), function
            except Exception as error:  # it traces alone, but not inside of a loop: an ordered effect, for instance
                function = as_failed(function, error)
        return inputs, skip_function(function.refused or Status.error, self.repeats, blank, now), function

    def _result(self, functions: list[Traced], form: OutputForm, cells: CompiledCell) -> CompiledGridResult:
        is_timed = jnp.arange(self.repeats) < cells.count[:, None]
        of_run = elapsed_s(cells.stamps[:, :, 0], cells.stamps[:, :, 1]) / cells.runs[:, None]
        timings = jnp.where(is_timed, of_run, jnp.nan)
        return CompiledGridResult(
            outputs=form.tree_of([self._finish(leaf) for leaf in cells.outputs]),
            timings=timings.astype(jnp.float32),
            count=cells.count,
            runs=cells.runs,
            status=cells.status,
            stamps=cells.stamps,
            guard=cells.guard,
            span=cells.span,
            names=self.names,
            notes=tuple(function.note for function in functions),
            guarded=tuple(function.guard is not None and not function.refused for function in functions),
            unstoppable=tuple(function.unstoppable for function in functions),
            clock=self.clock,
        )

    def _finish(self, output: Any) -> Any:
        """After all timing is done."""
        if self.clip is not None and jnp.issubdtype(output.dtype, jnp.number):
            output = jnp.clip(output, *self.clip)
        return jnp.nan_to_num(output) if self.nan_to_num else output


def signature_of(x: Any) -> Any:
    """Structure, shapes and dtypes: what a compiled program is made for."""
    leaves, tree = jax.tree.flatten(x)
    is_weak = [isinstance(leaf, int | float | complex) or bool(getattr(leaf, "weak_type", False)) for leaf in leaves]
    kinds = ((jnp.shape(leaf), str(jnp.result_type(leaf))) for leaf in leaves)
    return tree, tuple(kinds), tuple(is_weak)


def blanks_of(form: OutputForm, fill: float | None) -> Leaves:
    """One number for each leaf of the outputs. NaN cannot be taken for a result; integers have none."""
    values = [(math.nan if jnp.issubdtype(s.dtype, jnp.inexact) else 0) if fill is None else fill for s in form.leaves]
    return [jnp.asarray(value, s.dtype) for value, s in zip(values, form.leaves, strict=True)]


def limits(name: str, given: Limit | None, functions: int | None = None) -> Any:
    """f32[functions], or f32[] for None, of seconds.

    Raises:
        UsageError: not positive, or not one number or as many as there are functions.
    """
    shape = () if functions is None else (functions,)
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(given)):
        # For the clock, a NaN limit would be no limit. Nothing should run forever by mistake.
        return jnp.broadcast_to(jnp.nan_to_num(jnp.asarray(given, jnp.float32), posinf=math.inf), shape)
    expected = "a number of seconds above 0" + (f", or one for each of {functions} functions" if functions else "")
    try:
        values = np.asarray(_in_seconds(given), np.float32)
    except (TypeError, ValueError, UsageError):
        raise UsageError(f"{name}={given!r}", expected) from None
    if isinstance(given, bool) or values.shape not in ((), shape) or not (values > 0).all():
        raise UsageError(f"{name}={given!r}", expected, "math.inf isn't a limit")
    return np.broadcast_to(values, shape)


def _in_seconds(given: Any) -> Any:
    """Texts such as "500ms" as numbers, also in a list with one for each function."""
    if isinstance(given, list | tuple):
        return [_in_seconds(each) for each in given]
    return math.inf if given is None else parse_duration(given) if isinstance(given, str) else given


def check_data(x: Any) -> None:
    """Raises `UsageError` without arrays, `NotAvailable` where they are not on one device that has a clock."""
    leaves = jax.tree.leaves(x)
    if not leaves:
        raise UsageError(f"a compiled grid of {x!r}, which holds no arrays", "an array or a pytree of arrays")
    if any(map(is_ref, leaves)):
        raise UsageError("a compiled grid of a reference (jax.new_ref), whose state it would not keep", "arrays")
    hint = f"jax.device_put(x, jax.devices({handlers.default_platform()!r})[0])"
    refuse_elsewhere(leaves, "a reading of the clock would gather them on one", hint)


# ---- a function of the grid ------------------------------------------------------------------------------------------
#
# A function of a compiled grid, traced once: its program, the form of its outputs, and how to stop it inside.
#
# The grid replays the program as often as needed, so a function's side effects in Python happen once. Functions that
# cannot be measured are reported here, while tracing, and cost nothing when the grid runs. Such a function raises, its
# outputs have another form than the reference's, or its result does not depend on its inputs.
#
# In the optimised program of the grid, the runs of each function are in a separate loop, under a name (`scope_of`).
# benchax compares its operations with the function compiled alone (`program/census.py`), as in the timers
# (`measuring/timers/embedding.py`). If they disagree, there is no time. The proof costs a compilation of each function.
# It only works if the grid is called from Python: within the user's `jax.jit`, its final program is not known.


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
    if names := changed_by(function, args):
        note = f"it changes {', '.join(names[:3])} in place, and this grid keeps no state: return the new state"
        return Traced(name, list, None, refused=Status.error, note=note)
    try:
        program, form = program_of(function, args)
    except Exception as error:
        return as_failed(Traced(name, list, None), error)
    as_function = jaxpr_as_fun(program)
    traced = Traced(name, lambda leaves: list(as_function(*leaves)), form)
    if not uses_inputs(program):
        note = "its result does not depend on its inputs, so XLA would compute it once"
        return replace(
            traced, guard=lambda _, leaves: (traced.run(leaves), jnp.bool_(False)), refused=Status.constant, note=note
        )
    return traced


def changed_by(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[str, ...]:
    """The names of the values that a call changes in its arguments; also empty if it cannot be traced."""
    program = CallableProgram("plain", function, function, function)
    try:
        return Subject(program, Inputs(args, {}, (), ""), None).mutated
    except Exception:  # told when it is traced as it stands
        return ()


def as_failed(traced: Traced, error: Exception) -> Traced:
    note = f"it cannot be traced: {type(error).__name__}: {first_line(error)}"
    return replace(traced, refused=Status.error, guard=None, note=note)


def program_of(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, OutputForm]:
    """(closed jaxpr from flat inputs to flat outputs, their form)."""
    inputs, tree = jax.tree.flatten(args)
    seen: list[Any] = []

    def flat(*leaves: Any) -> Leaves:
        outputs, out_tree = jax.tree.flatten(refuse_result(function(*reveal(jax.tree.unflatten(tree, leaves)))))
        impls = [jax.random.key_impl(leaf) if is_key(leaf) else None for leaf in outputs]
        seen[:] = [out_tree, tuple(impls)]
        return [jnp.asarray(data_of(leaf)) for leaf in outputs]

    program = jax.make_jaxpr(flat)(*inputs)
    avals: tuple[Any, ...] = tuple(program.out_avals)  # JAX 0.12 types them as values without a shape
    shapes = tuple(jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals)
    return program, OutputForm(seen[0], shapes, seen[1])


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
    if not any(handlers.target_of(eqn) == tier().target("tick") for eqn in every_equation(program)):
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
        with as_reason("it does not compile alone"):
            text = jax.jit(lambda *leaves: function.run(list(leaves))).lower(*inputs).compile().as_text() or ""
        difference = census.compare(census.take_census(module, region), census.take_census(hlo.parse(text)))
    except NotMeasured as error:
        return error.problem
    return "" if difference.is_same else explain(difference)


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
        # A second run like the first would exceed the limit.
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

    return lax.cond(is_before(now, until), run, lambda _: (pair(now, now), blank, jnp.bool_(False)), inputs)


def repeat_calls(traced: Traced, repeats: int, inputs: Leaves, outputs: Leaves, now: Any, until: Any) -> Any:
    """(count, runs, inputs, time, outputs, stamps) after all repetitions, or those that begin before `until`."""

    def run(inputs: Leaves, _: Leaves, time: Any) -> tuple[Leaves, Any]:
        # In a branch: otherwise XLA would compute the parts that do not depend on the inputs once for all runs.
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

    # Depends on `now`, so that XLA makes it now and not while another function is timed. All of it is overwritten or
    # masked.
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
