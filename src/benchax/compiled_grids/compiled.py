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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from benchax.clock import handlers
from benchax.clock.selftest import tier
from benchax.clock.stamps import elapsed_s, stamp
from benchax.compiled_grids import compiled_functions
from benchax.compiled_grids.compiled_functions import (
    CompiledCell,
    Leaves,
    OutputForm,
    Traced,
    measure_function,
    skip_function,
)
from benchax.compiled_grids.compiled_result import (
    CompiledGridResult,
    LoopComparison,
    Status,
    compare_loops,
    describe_circumstances,
)
from benchax.errors import NotAvailable, UsageError
from benchax.grids.outputs import checked_clip
from benchax.grids.plan import named_functions, whole
from benchax.keywords import guard_keywords
from benchax.machine import noise
from benchax.progress import Progress, ProgressEvent, check_progress, quiet, show_progress
from benchax.static_leaves import hide_argument
from benchax.units import parse_duration

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
            NotAvailable: `x` is not on one CPU device.
        """
        x = tuple(map(hide_argument, x)) if type(x) is tuple else hide_argument(x)
        check_data(x)
        own = self.timeout_s if timeout_s is None else limits("timeout_s", timeout_s, len(self.functions))
        total = self.total_timeout_s if total_timeout_s is None else limits("total_timeout_s", total_timeout_s)
        # Inside a jit of the user's there is no program yet that could be proved, and no progress to be shown.
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((x, own, total))):
            return self.jitted(x, own, total)
        with show_progress(self.progress) as self._report:
            unproved = self._prove(x, own, total)
            args, begun = x if type(x) is tuple else (x,), noise.start()
            # What the caller does next must not run beside what is being timed.
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
        return f"compiled_grid of {len(self.functions)} functions × {self.repeats}: {', '.join(self.names)}"

    def _prove(self, x: Any, own_s: Any, total_s: Any) -> tuple[str, ...]:
        """Once for each structure, shapes and dtypes; what it compiles is what the call finds."""
        key = signature_of(x)
        if key not in self._proofs:
            text = self.jitted.lower(x, own_s, total_s).compile().as_text() or ""
            self._proofs[key] = compiled_functions.prove(text, self._traced[key], jax.tree.leaves(x))
        return self._proofs[key]

    def _run(self, x: Any, own_s: Any, total_s: Any) -> CompiledGridResult:
        args = x if type(x) is tuple else (x,)
        form, functions = self._trace(args)
        inputs, now = stamp(jax.tree.leaves(args))
        latest = handlers.deadline(tier(), total_s, now)
        cells: list[CompiledCell] = []
        for k, function in enumerate(functions):
            # The blanks pass through the stamp, so that arrays are made of them now, not while another one is timed.
            (inputs, blanks, _), now = stamp((inputs, blanks_of(form, self.fill), now))
            blank = [jnp.broadcast_to(b, s.shape) for b, s in zip(blanks, form.leaves, strict=True)]
            until = handlers.deadline(tier(), own_s[k], now, latest)
            # A limit of nothing would be counted from a moment after `now`.
            until = jnp.where((own_s[k] > 0) & (total_s > 0), until, now)
            inputs, cell, functions[k] = self._part(function, inputs, blank, now, until)
            cells.append(cell)
            now = cell.span[2]
        # A side effect of tracing, on purpose: what is proved is the program of this very trace.
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
            traced.append(replace(compiled_functions.trace(name, f, args), scope=compiled_functions.scope_of(k)))
        if self.like is None:
            form = next((t.form for t in traced if t.form), compiled_functions.NO_OUTPUTS)
        else:
            of, given = (self.like, args) if callable(self.like) else (lambda like: like, (self.like,))
            form = compiled_functions.program_of(of, given)[1]
        traced = [compiled_functions.check_form(t, form) for t in traced]
        if self.stop_inside:
            traced = [compiled_functions.with_guard(t, jax.tree.leaves(args)) for t in traced]
        return form, traced

    def _part(
        self, function: Traced, inputs: Leaves, blank: Leaves, now: Any, until: Any
    ) -> tuple[Leaves, CompiledCell, Traced]:
        """(inputs, what the function left behind, the function as it is known now)."""
        if function.is_runnable:
            try:
                return *measure_function(function, self.repeats, inputs, blank, now, until), function
            except Exception as error:  # it traces alone, but not inside of a loop: an ordered effect, for instance
                function = compiled_functions.as_failed(function, error)
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
        # A limit that is not a number would be none to the clock; nothing should run for ever by mistake.
        return jnp.broadcast_to(jnp.nan_to_num(jnp.asarray(given, jnp.float32), posinf=math.inf), shape)
    expected = "a number of seconds above 0" + (f", or one for each of {functions} functions" if functions else "")
    try:
        values = np.asarray(_in_seconds(given), np.float32)
    except (TypeError, ValueError, UsageError):
        raise UsageError(f"{name}={given!r}", expected) from None
    if isinstance(given, bool) or values.shape not in ((), shape) or not (values > 0).all():
        raise UsageError(f"{name}={given!r}", expected, "math.inf is no limit")
    return np.broadcast_to(values, shape)


def _in_seconds(given: Any) -> Any:
    """Texts such as "500ms" as numbers, also in a list with one for each function."""
    if isinstance(given, list | tuple):
        return [_in_seconds(each) for each in given]
    return math.inf if given is None else parse_duration(given) if isinstance(given, str) else given


def check_data(x: Any) -> None:
    """Raises `UsageError` without arrays, `NotAvailable` where they are not on one CPU device."""
    leaves = jax.tree.leaves(x)
    if not leaves:
        raise UsageError(f"a compiled grid of {x!r}, which holds no arrays", "an array or a pytree of arrays")
    placed = [leaf for leaf in leaves if isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)]
    devices = {device for leaf in placed for device in leaf.devices()}
    if len(devices) > 1:
        raise NotAvailable(
            f"the data are on {len(devices)} devices, and a reading of the clock would gather them on one",
            hint="jax.device_put(x, jax.devices('cpu')[0])",
        )
    # A device, the name of a platform, or None.
    default = getattr(jax.config, "jax_default_device", None)
    platforms = {device.platform for device in devices}
    platforms = platforms or {getattr(default, "platform", default) or jax.default_backend()}
    if platforms != {"cpu"}:
        raise NotAvailable(
            f"the clock inside compiled code is one of the CPU, and the data are on {platforms.pop()!r}",
            hint="jax.device_put(x, jax.devices('cpu')[0])",
        )
