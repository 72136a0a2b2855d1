"""Rules about a call as a whole: whether jit pays, where vmap is, the size of the batch, and its profile."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import mmap
import os
import timeit
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.rule import (
    Gain,
    Match,
    NotApplicable,
    measured_gain,
    median_s,
    refuse_failed,
    require_decided,
    rule,
)
from benchax.auditing.syntax import callee_name, calls, check_readable, code_of, where_of
from benchax.case import Case
from benchax.comparing.break_even import break_even, of_comparison
from benchax.errors import NotAvailable, NotMeasured
from benchax.experiments.functions import Batch, CallArguments, change_arrays, find_batch
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.model import Comparison
from benchax.profiling.profile import LEAST_S, profile
from benchax.results.audit import Where
from benchax.results.profile import Profile
from benchax.units import count, number, percent, seconds

WORTH_ASKING = 1.1
"""Only where the medians are this far apart is a comparison made."""
FEW_CALLS = 1000
"""Advice that pays only after more calls is a hint: most programs call few functions as often."""


@rule("not-jitted", "is it compiled as a whole?", "warning")
def not_jitted(e: Evidence) -> Iterable[Match]:
    """Finds a function that runs operation by operation, though compiled as a whole it would be faster."""
    if e.is_jitted:
        raise NotApplicable("it is jitted")
    rows = break_even(e.eager, e.measurement)
    # The two medians are of different moments: enough to ask by, since a comparison takes 5 to 20 s, not to say by.
    if rows.speedup < WORTH_ASKING:
        return
    c = require_decided(e.compare("jax.jit", e.case, e.eager_case), "jax.jit")
    gain, pays = measured_gain(c), of_comparison(rows.build_s, c)
    # What pays later than `trivial-jit` allows is no advice to jit: the two rules never contradict one another.
    if gain is None or pays is None or not pays.pays_soon:
        return
    seen = [str(pays)]
    if e.inspection.jaxpr is not None and not pays.is_same_program:
        seen.append(f"{e.inspection.jaxpr.equations} operations, sent to the device one by one")
    yield Match(
        "starts its one operation from Python" if pays.is_same_program else "runs operation by operation",
        seen,
        pays.advice,
        gain=gain,
        severity="info" if pays.calls is None or pays.calls > FEW_CALLS else None,
    )


MANY_BATCHED = 20
ONE = np.ones(1, np.float32)


@rule(
    "vmap-of-jit",
    "is vmap outside of jit?",
    "warning",
    advice="Write jax.jit(jax.vmap(f)) instead of jax.vmap(jax.jit(f)), and jax.jit(jax.grad(f)).",
)
def vmap_of_jit(e: Evidence) -> Iterable[Match]:
    """Finds vmap(jit(f)) and grad(jit(f)) outside of jit: Python transforms the function again in each call."""
    if e.is_jitted:
        raise NotApplicable("it is jitted as a whole")
    where = _mapped_jit(e)
    if where is None:
        raise NotApplicable("it maps nothing jitted with vmap, as far as its source says")
    eager_s, jitted_s = median_s(e.eager), median_s(e.measurement)
    if eager_s < WORTH_ASKING * jitted_s:
        return
    # Word for word the comparison of not-jitted, so that it need not be made twice.
    gain = measured_gain(require_decided(e.compare("jax.jit", e.case, e.eager_case), "jax.jit"))
    if gain is None:
        return
    yield Match(
        "maps a jitted function with vmap, and is not jitted itself",
        [
            "vmap is a transformation in Python: outside of jit, it is done again in each call",
            "compared as it is with jit around all of it, in pairs, in new processes",
        ],
        where=where,
        gain=gain,
    )


@vmap_of_jit.in_program
def _calls_under_vmap(e: ProgramEvidence) -> Iterable[Match]:
    """Jitted functions that lines of the program call under vmap or a derivative, outside of jit."""
    for line in e.lines:
        n = sum(event.note == "batched" for event in line.events)
        if n >= MANY_BATCHED:
            lost_s = n * outside_s()
            yield Match(
                f"{line.name} is called {count(n)} times under vmap or a derivative, outside of jit",
                [
                    "vmap, grad and the like are transformations in Python: outside of jit, each call does them again",
                    f"for a function that does next to nothing that takes {seconds(lost_s / n)} more here",
                ],
                related=[
                    ("called here", where_of(line.where)),
                    ("defined here", where_of(e.log.functions[line.function].defined)),
                ],
                gain=Gain(f"estimated: at least {seconds(lost_s)} of this run"),
                lost=(lost_s, e.watch.wall_s),
            )


@cache
def outside_s() -> float:
    """The seconds that a call of jax.vmap(jax.jit(f)) takes longer than one of jax.jit(jax.vmap(f)), adding two
    numbers."""
    add = jax.jit(lambda a: a + 1)

    def quickest_s(call: Callable[..., Any]) -> float:
        call(ONE).block_until_ready()
        return min(timeit.repeat(lambda: call(ONE), number=20)) / 20

    return max(0.0, quickest_s(jax.vmap(add)) - quickest_s(jax.jit(jax.vmap(add))))


def _mapped_jit(e: Evidence) -> Where | None:
    """Where it maps something jitted; None where it does not, as far as can be seen."""
    if is_vmap(e.fn) and _is_jitted(getattr(e.fn, "__wrapped__", None)):
        return e.def_where
    check_readable(e.fn)
    if e.source is None:  # not written in Python
        return None
    names = _names(e.fn)
    for call in calls(e.source.tree, "vmap"):
        target = call.args[0] if call.args else None
        is_call = isinstance(target, ast.Call) and callee_name(target) == "jit"
        if is_call or (isinstance(target, ast.Name) and _is_jitted(names.get(target.id))):
            return e.source.file, call.lineno
    return None


def is_vmap(fn: Callable[..., Any]) -> bool:
    """By the first words of the docstring that jax.vmap gives (jax 0.6 to 0.10.2); it leaves no other mark."""
    return (getattr(fn, "__doc__", None) or "").startswith("Vectorized version of ")


def _is_jitted(fn: Any) -> bool:
    return callable(fn) and hasattr(fn, "lower")


def _names(fn: Callable[..., Any]) -> dict[str, Any]:
    """Returns the values of its names: globals, and the variables that it closes over."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    try:
        variables = inspect.getclosurevars(inspect.unwrap(fn))
    except (TypeError, ValueError):  # no Python function, or a name that is not set yet
        return {}
    return {**variables.globals, **variables.nonlocals}


@rule("trivial-jit", "does compiling it pay?", "info")
def trivial_jit(e: Evidence) -> Iterable[Match]:
    """Finds a jitted function so small that compiling it hardly ever pays."""
    if not e.is_jitted:
        raise NotApplicable("it is not jitted")
    rows = break_even(e.eager, e.measurement)
    # By the end of the interval that speaks for compiling.
    if rows.pays_soon:
        return
    # The two medians are of different moments; only pairs can say that so little is saved, or nothing.
    c = require_decided(e.compare("no jit", e.eager_case), "the eager function")
    pays = of_comparison(rows.build_s, c, is_eager_baseline=False)
    if pays is None:
        raise NotMeasured("the comparison with the eager function has no interval")
    if pays.pays_soon:
        return
    yield Match(
        f"compiling pays from {pays.low:,} calls on at best" if pays.low else "compiling never pays",
        [str(pays)],
        pays.advice,
        gain=measured_gain(c),
    )


SHORT_CALL_S = 100e-6
"""In shorter calls the dispatch to the thread pool decides, whose time depends on what else runs."""
LONG_CALL_S = 0.1
"""A call of this length has enough to do."""
LITTLE = 1.4
"""Twice the work in less than this times the time."""


@rule(
    "small-batch",
    "is the batch too small to use the machine?",
    "info",
    advice="Put more into one call, if the elements need not be answered one by one.",
)
def small_batch(e: Evidence) -> Iterable[Match]:
    """Finds batches so small that a batch of twice the size takes hardly longer."""
    refuse_failed(e.failure)
    case = replace(e.plain_case, donate=())
    batch = _batch(case, e.inputs)
    n = batch.rows
    call_s = e.measurement.median_s
    # In pairs twice the batch took 1.2 times as long, in plain loops 0.5 to 3.6 times, for calls of 15 to 60 µs: it
    # depends on whether a thread of XLA's pool is awake, and not on the batch (docs/about/field-notes.md).
    if call_s < SHORT_CALL_S:
        raise NotApplicable(f"a call takes {seconds(call_s)}, most of which does not depend on the batch")
    if call_s > LONG_CALL_S:
        return
    doubled = replace(case, inputs=_Twice(case, e.seed, batch.arguments))
    c = require_decided(e.compare(f"batch {2 * n}", doubled, case), f"a batch of {2 * n}")
    if c.ratio is None or (c.low or c.ratio) > LITTLE:
        return
    # By the end of the interval that speaks against it: to batch more is work, and no median is worth that alone.
    if (c.high or c.ratio) > LITTLE:
        raise NotMeasured(f"undecided: {_describe_batch(n, c)}")
    yield Match(
        f"a batch of {2 * n} takes {number(c.ratio)} times as long as one of {n}",
        [
            _describe_batch(n, c),
            f"batch: {batch.how}",
            f"{percent(1 - c.ratio / 2)} less time for each element of the batch",
        ],
        gain=_gain_of_batch(n, c),
    )


def _gain_of_batch(n: int, c: Comparison) -> Gain | None:
    if c.baseline_value is None or c.ratio is None:
        return None
    now, then = c.baseline_value, c.baseline_value * c.ratio / 2
    return Gain(f"measured: {seconds(now / n)} → {seconds(then / n)} per element of the batch", now - then)


def _describe_batch(n: int, c: Comparison) -> str:
    around = f", {number(c.low)} – {number(c.high)}" if c.low and c.high else ""
    return f"batch {n}: {seconds(c.baseline_value or 0.0)} per call; batch {2 * n}: {number(c.ratio or 0.0)}×{around}"


def _batch(case: Case, inputs: Inputs) -> Batch:
    """Raises `NotApplicable` where the outputs grow with no argument: what holds the batch is not known then."""
    try:
        found = find_batch(case, inputs)
    except NotAvailable as error:
        raise NotApplicable(error.problem) from error
    if found.basis != "outputs":
        raise NotApplicable("no argument has a first axis along which its outputs grow")
    return found


@dataclass(frozen=True)
class _Twice:
    """An input factory: the inputs of a case, some of them twice, one behind the other."""

    case: Case
    seed: int
    chosen: tuple[int | str, ...]

    def __call__(self) -> CallArguments:
        made = make_inputs(self.case, self.seed)
        return change_arrays(made, lambda key, leaf: jnp.concatenate([leaf, leaf]) if key in self.chosen else leaf)


DEPTH, MOST_FOLDERS = 3, 5000  # `benchax profile` writes to .benchmarks/profiles/NAME
MOST_RUNS, DONATING_RUNS = 100, 5  # each run of those that donate needs a copy of the inputs
WORTH_PROFILE_S = 0.01
"""A call of this length is worth a look: a thousand take ten seconds. A shorter call is mostly dispatch, and the rule
would list all of a library's functions."""
LONG_PROFILE_S = 10.0  # what takes longer to call twice is not profiled in passing


@rule(
    "profile-missing",
    "was it profiled since it was written?",
    "info",
    advice=(
        "Look at one before changing anything: `benchax profile` takes what `benchax audit` was given, shows all "
        "operations, and keeps the trace in .benchmarks/profiles."
    ),
)
def profile_missing(e: Evidence) -> Iterable[Match]:
    """Finds functions without a profile since they were written, and states what a profile would show."""
    folders = list(islice(_folders(Path.cwd()), MOST_FOLDERS))
    if any(_shows(e, trace) for folder in folders for trace in folder.glob("plugins/profile/*/*.xplane.pb")):
        return
    if (one_s := median_s(e.measurement)) < WORTH_PROFILE_S:
        raise NotApplicable(f"a call takes {seconds(one_s)}: from {seconds(WORTH_PROFILE_S)} on it is worth a profile")
    p, runs = _take_profile(e)
    hottest = [f"{op.name} ({Path(op.source or op.category).name}), {percent(op.share)}" for op in p.ops[:3]]
    yield Match(
        f"no profile of it was recorded since its file was changed; the hottest operation is {hottest[0]}",
        [
            f"folders searched, {DEPTH} levels down from the working one: {len(folders)}, at most {MOST_FOLDERS}",
            f"{runs} calls were profiled just now, compiled; shares of their operations: {'; '.join(hottest)}",
            *(f"{d.name} was busy for {seconds(d.busy_s)} and idle for {seconds(d.idle_s)}" for d in p.devices),
            *(r.message for r in p.remarks if r.severity == "error"),
        ],
    )


def _folders(top: Path) -> Iterator[Path]:
    """Itself and those below it, .benchmarks first; no links, and no other hidden ones."""
    for folder, below, _ in os.walk(top):
        yield Path(folder)
        below[:] = sorted(name for name in below if name == ".benchmarks" or not name.startswith("."))
        if len(Path(folder).relative_to(top).parts) == DEPTH:
            below.clear()


def _shows(e: Evidence, trace: Path) -> bool:
    """Does it name the function and its file, and is it newer than that?"""
    # Not by age alone, by which a profile of any other function silences the rule; nor by the file alone, by which one
    # of `mlp` did so for `fft` beside it.
    file, code = Path(e.source.file) if e.source else None, code_of(e.fn)
    names = [f"jit({e.case.id.name})".encode(errors="replace")]
    if code and len(inlined := code.co_qualname.encode()) < 128:  # function_names of XLA's StackFrameIndexProto
        names.append(b"\x12%c%b" % (len(inlined), inlined))
    try:
        if file and file.exists() and trace.stat().st_mtime_ns < file.stat().st_mtime_ns:
            return False
        with trace.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            is_here = file is None or data.find(f"{os.sep}{file.name}".encode()) >= 0
            return is_here and any(data.find(name) >= 0 for name in names)
    except (OSError, ValueError):  # gone, unreadable or empty: it shows nothing
        return False


def _take_profile(e: Evidence) -> tuple[Profile, int]:
    """A short profile of the compiled function, and its runs."""
    one_s, donation = median_s(e.measurement), e.inspection.donation
    if 2 * one_s > LONG_PROFILE_S:
        raise NotMeasured(f"calling it twice takes {seconds(2 * one_s)}, too long to profile it in passing")
    program, donates = e.prepared.program, donation is None or bool(donation.arguments)
    runs = min(DONATING_RUNS if donates else MOST_RUNS, math.ceil(LEAST_S / one_s))
    inputs = [e.fresh_inputs() if donates else (e.inputs.args, e.inputs.kwargs) for _ in range(runs + 1)]
    calls = (partial(program.call, *args, **kwargs) for args, kwargs in inputs)  # the first one warms up
    e.tell("profiling it")
    p = profile(lambda: next(calls)(), runs=runs)
    if not p.ops:
        raise NotMeasured("; ".join(remark.message for remark in p.remarks) or "the trace holds no operation")
    return p, runs
