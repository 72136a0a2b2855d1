"""Finds loops that wait for a tolerance that rounding keeps them from, and so run to the limit of their iterations."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable, rule
from benchax.auditing.syntax import holds, tree_of, where_of
from benchax.auditing.tolerance_loops import ToleranceLoop, behind_tolerance, tolerance_loops
from benchax.auditing.tolerance_runs import LoopRun, run_loop
from benchax.auditing.traced import TracedProgram, closed_jaxpr
from benchax.errors import NotMeasured
from benchax.program.jaxpr import equations
from benchax.results.audit import Finding, Where
from benchax.units import seconds

LIMIT_S = 5.0
"""A loop is run for about so long, and less than so many iterations tell nothing."""
LEAST_ITERATIONS = 16
WASTED, WASTED_OF_STOPPED = 0.5, 0.9
"""The residual has not fallen for this share of the iterations; the second of a loop that was stopped here."""
WARNED_S = 1e-3
"""That the loop takes; less is an info."""
TIMES_EPS = 100
"""A tolerance above rounding."""
ULPS = 64
"""Rounding of a residual that is a sum of some differences, in units of the last place of what the loop carries."""


@rule("unreachable-tolerance", "are the tolerances of loops reached?", "warning", needs_trace_only=True)
def unreachable_tolerance(e: Evidence) -> Iterable[Finding]:
    closed = closed_jaxpr(e)
    program, loops = tolerance_loops(closed)
    if not loops:
        raise NotApplicable("no while_loop in it waits for a tolerance and counts its iterations")
    inputs = (*closed.consts, *e.data)
    if len(inputs) != len(program.inputs) or any(one is None for one in e.data):
        raise NotMeasured("what it was called with was not kept, which is done of small arrays")
    for loop in loops:
        run = run_loop(program, loop, inputs, LIMIT_S / len(loops))
        if (why := _why(loop, run)) is not None:
            yield _finding(e, program, loop, run, *why)


def _why(loop: ToleranceLoop, run: LoopRun) -> tuple[str, str] | None:
    """(what rounding does to it, why that is known); None where the tolerance is reached, or nothing is known of it."""
    if run.iterations < LEAST_ITERATIONS or not np.any(run.residual > run.tolerance):
        return None
    dtype, lowest = loop.residual.dtype, _short(float(np.max(run.lowest)))
    if run.has_ended and run.smallest is not None and run.smallest > float(np.max(run.tolerance)):
        return (
            f"which {dtype} does not resolve where the loop ends",
            (
                f"it measures differences of numbers that {dtype} has in steps: unless they are all 0, it is "
                f"{_short(run.smallest)} or more for numbers as large as at the end of this loop"
            ),
        )
    if (wasted := _wasted(loop, run)) is not None:
        why = f"it did not fall in the last {wasted} iterations, and is of the size of rounding in {dtype}"
        return f"and what it compares stops falling at {lowest}", why
    return None


def _wasted(loop: ToleranceLoop, run: LoopRun) -> int | None:
    """Iterations without progress; None where some row makes progress or is not near rounding, and where the noise may
    be drawn."""
    if any(word in step.equation.primitive.name for step in equations(_body(loop)) for word in ("random", "threefry")):
        return None
    eps = float(jnp.finfo(loop.residual.dtype).eps)
    is_stuck = (run.lowest > run.tolerance) & (run.lowest < run.highest / 2)
    is_rounding = (run.lowest <= math.sqrt(eps) * run.highest) | (run.lowest <= ULPS * eps * run.scale)
    wasted = run.iterations - int(np.max(run.fell_at))
    least = (WASTED if run.has_ended else WASTED_OF_STOPPED) * run.iterations
    return wasted if np.any(is_stuck & is_rounding) and wasted >= least else None


def _body(loop: ToleranceLoop) -> Any:
    return loop.step.equation.params["body_jaxpr"]


def _finding(e: Evidence, program: TracedProgram, loop: ToleranceLoop, run: LoopRun, what: str, why: str) -> Finding:
    i = int(np.argmax(np.where(run.lowest > run.tolerance, run.lowest, -np.inf)))
    tolerance, lowest = float(np.ravel(_like(run.tolerance, run.lowest))[i]), float(np.ravel(run.lowest)[i])
    dtype = loop.residual.dtype
    ended = "and ended without it" if run.has_ended else "and was stopped here, for it takes long"
    seen = [
        f"the loop{loop.step.at} did {run.iterations} iterations from the inputs of one call, {ended}",
        f"what is compared{loop.compared.at} was never below {_short(lowest)}; the loop waits for {_short(tolerance)}",
        why,
        f"run here, the loop took {seconds(run.elapsed_s)}; how many iterations are enough was not measured",
    ]
    return unreachable_tolerance.finding(
        f"waits for {_short(tolerance)}, {what}",
        seen,
        f"Choose a tolerance that {dtype} can reach, beside the size of the numbers that are compared: some "
        f"{_short(float(jnp.finfo(dtype).eps) * TIMES_EPS)} of it. Or compute in float64, with jax_enable_x64.",
        where=_where_written(program, loop, tolerance) or where_of(loop.compared.line) or e.def_where,
        severity="warning" if run.elapsed_s >= WARNED_S else "info",
    )


def _short(value: float) -> str:
    return f"{value:.3g}"


def _like(value: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.broadcast_to(value, other.shape)


# ---- where it is written ----------------------------------------------------------------------------------------


def _where_written(program: TracedProgram, loop: ToleranceLoop, tolerance: float) -> Where | None:
    """The one line of the user's file that has the number: of the lines that have it, the one that gives it a name that
    the comparison reads, where there is one."""
    compared = where_of(loop.compared.line)
    tree = tree_of(compared[0]) if compared is not None else None
    if compared is None or tree is None:
        return None
    lines = dict(_numbers(tree))
    for value in _candidates(program, loop, tolerance):
        found = {line for line, numbers in lines.items() if _is_in(value, numbers, loop.residual.dtype)}
        named = {line for line in found if _names(tree, line) & _names(tree, compared[1])}
        for chosen in (found, named):
            if len(chosen) == 1:
                return compared[0], chosen.pop()
    return None


def _candidates(program: TracedProgram, loop: ToleranceLoop, tolerance: float) -> Iterator[float]:
    """The tolerance, a factor of it, and what its square may be of."""
    yield tolerance
    literals = [
        float(v.literal) for v in behind_tolerance(program, loop) if v.literal is not None and np.ndim(v.literal) == 0
    ]
    yield from sorted({abs(x) for x in literals if 0 < abs(x) < 1})
    yield math.sqrt(abs(tolerance))


def _is_in(value: float, numbers: Iterable[float], dtype: Any) -> bool:
    """Is it one of them, as this dtype has it?"""
    with np.errstate(over="ignore", under="ignore"):
        one = np.asarray(value).astype(dtype)
        return any(np.asarray(each).astype(dtype) == one and value != 0 for each in numbers)


def _numbers(tree: ast.AST) -> Mapping[int, list[float]]:
    """The numbers that stand on each line, also as 10.0 ** -12."""
    found: dict[int, list[float]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.BinOp) and (value := _value(node)) is not None:
            found.setdefault(node.lineno, []).append(value)
    return found


def _value(node: ast.AST) -> float | None:
    match node:
        case ast.Constant(value=float() | int() as value) if not isinstance(value, bool):
            return float(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _value(operand)
            return None if inner is None else -inner
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            base, power = _value(left), _value(right)
            is_small = base is not None and power is not None and base > 0 and abs(power) < 100
            return base**power if is_small and base is not None and power is not None else None
    return None


def _names(tree: ast.AST, line: int) -> set[str]:
    """Names on a line: variables, attributes, parameters and keywords."""
    nodes = [node for node in ast.walk(tree) if getattr(node, "lineno", None) == line and holds(node, line)]
    parts = (getattr(n, "id", None) or getattr(n, "attr", None) or getattr(n, "arg", None) for n in nodes)
    return {part for part in parts if isinstance(part, str)}
