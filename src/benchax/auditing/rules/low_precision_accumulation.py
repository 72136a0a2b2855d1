"""Finds sums and products of bf16 and f16 that are accumulated in bf16 and f16."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from benchax.auditing.dataflow import Body
from benchax.auditing.evidence import Evidence
from benchax.auditing.input_names import name_inputs
from benchax.auditing.low_sums import (
    BITS,
    LOST,
    SCATTERS,
    LowSum,
    StuckAverage,
    low_sums,
    stuck_averages,
    sums_of_calls,
)
from benchax.auditing.origins import dtype_written_at, made_by
from benchax.auditing.rule import Gain, NotApplicable, probe, rule
from benchax.auditing.syntax import calls, holds, tree_of, where_of
from benchax.auditing.traced import TracedValue, closed_jaxpr, loops_and_all
from benchax.errors import NotAvailable, NotMeasured
from benchax.experiments.running_sums import LOW
from benchax.experiments.variant_rows import scientific
from benchax.experiments.variants.precision import Accumulated
from benchax.model import find_why
from benchax.program.jaxpr import is_users_own
from benchax.results.audit import Finding

LEAST_GAIN = 2.0
"""The error is this many times smaller, or there is nothing to say."""


CREATORS = ("array", "asarray", "empty", "full", "full_like", "ones", "ones_like", "zeros", "zeros_like")
"""Functions that make arrays of a dtype which is given by name."""
MANY = 256
"""Terms; from here on one more of the same size is less than half a digit of a sum in bf16."""
ADVICE = (
    "Sum in float32: jnp.matmul(a, b, preferred_element_type=jnp.float32), jnp.sum(x, dtype=jnp.float32), in a "
    "loop a carry of float32; then convert the result. In what time: benchax experiment --variants accumulate-f32."
)


@rule(
    "low-precision-accumulation", "are sums of bf16 and f16 accumulated in float32?", "warning", needs_trace_only=True
)
def low_precision_accumulation(e: Evidence) -> Iterable[Finding]:
    values = [value for step in loops_and_all(closed_jaxpr(e)) for value in step.makes]
    if not any(str(value.dtype) in LOW for value in values):
        raise NotApplicable("it computes nothing in bf16 or f16")
    if e.why_not_called:
        yield from _seen_in_loops(e, e.why_not_called)
        return
    try:
        variant = Accumulated().change(e.case, seed=e.seed).case
    except NotAvailable as error:
        raise NotApplicable(error.problem) from error
    as_it_is, widened = probe(e, "accumulated in float32", variant)
    now, wide = as_it_is.errors, widened.errors
    # Errors against the function itself show nothing about how exact it is.
    if now is None or wide is None or now.max_rel is None or wide.max_rel is None or now.reference != "float64":
        why = find_why((*as_it_is.absent, *widened.absent), "errors") or "its errors in float64 are not known"
        # A carry that the function makes in bf16 itself fits no run in float64, and adds up its terms all the same.
        yield from _seen_in_loops(e, why)
        return
    # An error of nothing cannot be made smaller: 0 is no more than twice 0.
    is_better = now.max_rel > 0 and now.max_rel >= LEAST_GAIN * wide.max_rel
    if not is_better and not now.overflows > wide.overflows:
        return
    change = f"{scientific(now.max_rel)} → {scientific(wide.max_rel)}"
    seen = [f"largest error against a run in float64: {change} of the largest value"]
    if now.median_rel is not None and wide.median_rel is not None:
        seen.append(f"median relative error: {scientific(now.median_rel)} → {scientific(wide.median_rel)}")
    if now.overflows > wide.overflows:
        seen.append(f"infinite where float64 is finite: {now.overflows} → {wide.overflows}")
    yield low_precision_accumulation.finding(
        "sums lose digits that float32 would keep",
        seen,
        ADVICE,
        where=e.def_where,
        gain=Gain(f"measured: error {change}"),
    )


def _seen_in_loops(e: Evidence, why: str) -> Iterable[Finding]:
    """Reads from the program how many terms a loop adds, which needs no comparison with float64."""
    closed = closed_jaxpr(e)
    for each in (*low_sums(closed), *sums_of_calls(closed, e.carried)):
        if each.terms >= MANY:
            yield _finding_of_sum(e, each, why)
    for average in stuck_averages(closed):
        if is_users_own(*average.multiplied.inwards):
            yield _finding_of_average(e, average)
    raise NotMeasured(why)


def _finding_of_sum(e: Evidence, each: LowSum, why: str) -> Finding:
    dtype, added, start = each.dtype, each.added.line, each.start
    begun, what = _beginning(e, each.body, start)
    if start.literal is not None:  # such as `jnp.zeros(())`, which needs no equation
        carries = len(each.step.split_operands(each.step.reads).carry)
        begun = _line_that_assigns(each.step.line, each.position, carries)
    made = begun or _only_line_making(dtype, added)
    written = dtype_written_at(where_of(made), dtype)
    seen = [_describe(each, what)]
    if added:
        seen.append(f"added at {added}")
    if made and (made != begun or written not in (None, where_of(made))):
        is_only = "the only line of that file which makes an array of" if made != begun else "begun in"
        seen.append(f"{is_only} {dtype}: {made}")
    reason = "the function was not called" if e.why_not_called else why
    seen.append(
        f"{dtype} has {BITS[dtype]} bits: a sum of equal terms stops growing after "
        f"{2 ** BITS[dtype]}; the error was not measured, because {reason}"
    )
    return low_precision_accumulation.finding(
        f"{_count(each)} in {dtype}",
        seen,
        ADVICE,
        where=written or where_of(made) or where_of(added) or where_of(each.step.line) or e.def_where,
    )


def _count(each: LowSum) -> str:
    if each.calls:
        return f"calls in a loop add up {int(each.terms)} terms"
    if each.step.name in SCATTERS:
        return f"a scatter adds up {int(each.terms)} terms for each element"
    return f"a loop adds up {int(each.terms)} terms"


def _describe(each: LowSum, what: str) -> str:
    if each.calls:
        return f"{each.dtype} that comes back at each of {each.calls} calls, {each.start.spec}{what}, and is added to"
    if each.step.name in SCATTERS:
        return (
            f"an array of {each.dtype}, {each.start.spec}{what}, to which {each.step.reads[2].spec} is added by index: "
            f"{int(each.terms)} terms for each element on average{each.step.at}"
        )
    trips = each.step.equation.params["length"]
    more = f", {int(each.terms)} terms for each element in all" if int(each.terms) != trips else ""
    share = " on average" if more and each.is_scattered else ""
    return (
        f"a carry of {each.dtype}, {each.start.spec}{what}, to which each of {trips} iterations adds{more}{share}, "
        f"in the loop{each.step.at}"
    )


def _finding_of_average(e: Evidence, each: StuckAverage) -> Finding:
    dtype, old = str(each.start.dtype), each.start
    begun, what = ("", "") if each.body.is_loop else _beginning(e, each.body, old)
    lost = f"{each.lost:.0%} to {2 * each.lost:.0%}"
    seen = [
        f"{old.spec}{what} is multiplied with {each.factor:.6g}{each.multiplied.at}",
        f"what is added is multiplied with {each.weight:.3g}",
        f"{dtype} has {BITS[dtype]} bits: a new value that is within {lost} of the average is lost",
    ]
    limit = each.weight / (1 - each.factor) if each.factor < 1 else 1.0
    if abs(limit - 1) > LOST:
        seen.append(
            f"the two numbers, as {dtype} has them, do not sum up to 1: it comes to {limit:.2g} times what is averaged"
        )
    return low_precision_accumulation.finding(
        f"a moving average in {dtype} loses its updates",
        seen,
        "Keep the average in float32: jnp.zeros(shape, jnp.float32), and convert what is added to it, "
        "x.astype(jnp.float32); convert the result where it is used.",
        where=dtype_written_at(where_of(begun), dtype) or where_of(each.multiplied.line) or e.def_where,
    )


def _beginning(e: Evidence, body: Body, first: TracedValue) -> tuple[str, str]:
    """(the line that makes what a sum begins with, or empty; which argument it is, for a sentence)"""
    value = body.through(first, ("copy", "reshape", "squeeze"))
    maker = body.maker(value)
    if maker is not None:
        return maker.line, ""
    at = next((i for i, one in enumerate(body.program.inputs) if one is value), None)
    is_whole = len(body.program.inputs) == len(closed_jaxpr(e).in_avals) and not body.is_loop
    if at is None or not is_whole:
        return "", ""
    name = name_inputs(e, len(body.program.inputs))[at]
    made = made_by(where_of(e.called_at), getattr(e.fn, "__name__", ""), name)
    return (f"{made[0]}:{made[1]}" if made else ""), f", the argument {name}"


def _only_line_making(dtype: str, line: str) -> str:
    """The one line of a file that makes an array of this dtype by name: `jnp.zeros(n, jnp.bfloat16)`; else empty."""
    where = where_of(line)
    tree = tree_of(where[0]) if where else None
    if where is None or tree is None:
        return ""
    found = {call.lineno for call in calls(tree, *CREATORS) if dtype_written_at((where[0], call.lineno), dtype)}
    return f"{where[0]}:{found.pop()}" if len(found) == 1 else ""


def _line_that_assigns(line: str, position: int, carries: int) -> str:
    """The line that gives a name to this one of the carries that the scan of a line begins with; empty where the text
    does not tell."""
    where = where_of(line)
    tree = tree_of(where[0]) if where else None
    scan = next((call for call in calls(tree, "scan") if holds(call, where[1])), None) if tree and where else None
    if scan is None or tree is None or where is None:
        return ""
    given = [*scan.args[1:2], *(keyword.value for keyword in scan.keywords if keyword.arg == "init")]
    parts = given[0].elts if given and isinstance(given[0], ast.Tuple) else given
    name = getattr(parts[position], "id", None) if len(parts) == carries else None
    around = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and holds(node, where[1])]
    inner = max(around, key=lambda node: node.lineno, default=tree)
    assigned = [node for node in ast.walk(inner) if isinstance(node, ast.Assign) and node.lineno < where[1]]
    lines = [node.lineno for node in assigned if name in [getattr(to, "id", "") for to in node.targets]]
    return f"{where[0]}:{max(lines)}" if name and lines else ""
