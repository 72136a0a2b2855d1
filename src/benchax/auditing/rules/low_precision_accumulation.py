"""Finds sums and products of bf16 and f16 that are accumulated in bf16 and f16."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from benchax.auditing.dataflow import Body, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.input_names import name_inputs
from benchax.auditing.rule import Gain, NotApplicable, probe, rule
from benchax.auditing.syntax import calls, holds, tree_of, where_of
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr, loops_and_all
from benchax.errors import NotAvailable, NotMeasured
from benchax.experiments.running_sums import LOW, RunningSum, find_running_sums, line_of_sum
from benchax.experiments.variant_rows import scientific
from benchax.experiments.variants.precision import Accumulated
from benchax.results.audit import Finding

MANTISSA = {"bfloat16": 8, "float16": 11}
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
        yield from _seen_in_loops(e)
        return
    try:
        variant = Accumulated().change(e.case, seed=e.seed).case
    except NotAvailable as error:
        raise NotApplicable(error.problem) from error
    now, wide = (seen.errors for seen in probe(e, "accumulated in float32", variant))
    if now is None or wide is None or now.max_rel is None or wide.max_rel is None:
        raise NotMeasured("the errors against a run in float64 could not be taken")
    # Errors against the function itself say nothing of how exact it is.
    if now.reference != "float64":
        raise NotMeasured("the run in float64 failed, so that errors cannot be told")
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


def _seen_in_loops(e: Evidence) -> Iterable[Finding]:
    """What may not be called cannot be compared with float64; how often a loop adds is known all the same."""
    for body in bodies(closed_jaxpr(e)):
        for step in body.program.steps:
            trips = step.equation.params.get("length") if step.name == "scan" else None
            sums = find_running_sums(step.equation) if trips is not None and trips >= MANY else []
            for each in sums:
                yield _finding_of_loop(e, body, step, each)
    raise NotMeasured(e.why_not_called)


def _finding_of_loop(e: Evidence, body: Body, step: TracedEquation, each: RunningSum) -> Finding:
    params, dtype = step.equation.params, str(each.total.aval.dtype)
    trips, first = params["length"], step.reads[params["num_consts"] + each.position]
    added = line_of_sum(step.equation, each)
    begun, what = _beginning(e, body, first)
    if first.literal is not None:  # such as `jnp.zeros(())`, which needs no equation
        begun = _line_that_assigns(step.line, each.position, params["num_carry"])
    made = begun or _only_line_making(dtype, added)
    seen = [
        f"a carry of {dtype}, {first.spec}{what}, to which each of {trips} iterations adds, in the loop{step.at}",
        (
            f"{dtype} has {MANTISSA[dtype]} bits: a sum of equal terms stops growing after "
            f"{2 ** MANTISSA[dtype]}; the error was not measured, because the function was not called"
        ),
    ]
    if added:
        seen.insert(1, f"added at {added}")
    if made and made != begun:
        seen.insert(1, f"the only line of that file which makes an array of {dtype}: {made}")
    return low_precision_accumulation.finding(
        f"a loop adds up {trips} terms in {dtype}",
        seen,
        ADVICE,
        where=where_of(made) or where_of(added) or where_of(step.line) or e.def_where,
    )


def _beginning(e: Evidence, body: Body, first: TracedValue) -> tuple[str, str]:
    """(the line that makes what a sum begins with, or empty; which argument it is, for a sentence)"""
    value = body.through(first, ("copy", "reshape", "squeeze"))
    maker = body.maker(value)
    if maker is not None:
        return maker.line, ""
    at = next((i for i, one in enumerate(body.program.inputs) if one is value), None)
    is_whole = len(body.program.inputs) == len(closed_jaxpr(e).in_avals) and not body.is_loop
    return "", f", the argument {name_inputs(e, len(body.program.inputs))[at]}" if at is not None and is_whole else ""


def _only_line_making(dtype: str, line: str) -> str:
    """The one line of a file that makes an array of this dtype by name: `jnp.zeros(n, jnp.bfloat16)`; else empty."""
    where = where_of(line)
    tree = tree_of(where[0]) if where else None
    found = {call.lineno for call in calls(tree, *CREATORS) if _names(call, dtype)} if tree is not None else set[int]()
    return f"{where[0]}:{found.pop()}" if where and len(found) == 1 else ""


def _names(call: ast.Call, dtype: str) -> bool:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(dtype in (getattr(one, "attr", ""), getattr(one, "id", ""), getattr(one, "value", "")) for one in given)


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
