"""Finds scans that stack an output of each step where a few rows, or something small of each, would do."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from benchax.auditing.dataflow import GRADIENT, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.indexed_results import indexed_results
from benchax.auditing.rule import Gain, Tried, gain_of_part, list_some, rule, try_variant, with_bytes
from benchax.auditing.stacks import Need, Stack, scans, stacks_of
from benchax.auditing.syntax import def_of, tree_of, where_of
from benchax.auditing.traced import TracedEquation, closed_jaxpr, first_of_each_line
from benchax.auditing.work import operations
from benchax.case import make_case
from benchax.program.arguments import size_bytes
from benchax.results.audit import Finding, Where
from benchax.source_files import owner_of
from benchax.units import size

LEAST_BYTES = 8 << 20
"""Of the stacks of one loop. Stacking 300 arrays of 1 MiB, and reading them once, takes 0.3 s on two cores where the
same loop without it takes 0.02 s; of 16 KiB, 0.6 ms where it takes 0.2 ms (jaxlib 0.10.2, CPU)."""
LEAST_SHARE = 0.5
"""Of all arguments and results of the function: less is not what its memory is full of."""
LEAST_ROW = 4096
"""Bytes of a row that is reduced: of a smaller one the operation in the body may cost more than the memory."""
MOST_OPERATIONS = 256.0
"""Of the loop for each byte that it stacks. A byte that is written to fresh memory and read takes about a nanosecond,
which is less than a twentieth of these; then memory is all that is saved."""
_ADVICE = {
    "rows": "Take what is read out of the carry, which holds the last step's when the loop has ended; for every k-th "
    "step, a scan over the k steps inside of a scan. ",
    "indexed": "Return the carry, which holds the last step's when the loop has ended; for every k-th step, stack "
    "those alone, by a scan over the k steps inside of a scan. ",
    "total": "Accumulate it in the carry: carry, total + y. ",
    "each": "Compute that in the body, and return it in place of the whole: return carry, small(y). ",
}


@dataclass(frozen=True)
class _Stacked:
    step: TracedEquation
    """The scan."""
    stacks: tuple[Stack, ...]

    @property
    def size_bytes(self) -> int:
        return sum(stack.value.size_bytes for stack in self.stacks)

    @property
    def needed_bytes(self) -> int:
        return sum(stack.needed_bytes for stack in self.stacks)

    @property
    def row_bytes(self) -> int:
        return self.size_bytes // self.step.equation.params["length"]


@rule("stacked-outputs", "do loops stack only what is read?", "warning", needs_trace_only=True)
def stacked_outputs(e: Evidence) -> Iterable[Finding]:
    closed = closed_jaxpr(e)
    held = sum(size_bytes(aval.shape, aval.dtype) or 0 for aval in (*closed.in_avals, *closed.out_avals))
    found: list[_Stacked] = []
    indexed = indexed_results(where_of(e.called_at), len(closed.out_avals))
    for i, body in enumerate(bodies(closed)):
        # A backward pass stacks what the transpose needs; its loop has no line of its own.
        for step in (step for step in scans(body) if GRADIENT not in step.scope):
            wasteful = tuple(
                stack for stack in stacks_of(body, step, () if i else indexed) if stack.is_wasteful and _is_long(stack)
            )
            found.append(_Stacked(step, wasteful))
    large = (one for one in found if one.size_bytes >= max(LEAST_BYTES, LEAST_SHARE * held))
    yield from (_finding(e, one, indexed) for one in first_of_each_line(large))


def _is_long(stack: Stack) -> bool:
    is_reduced = any(need.kind != "rows" for need in stack.needs)
    return not is_reduced or stack.value.size_bytes >= LEAST_ROW * stack.value.shape[0]


def _finding(e: Evidence, found: _Stacked, indexed: Mapping[int, int]) -> Finding:
    tried = _try_less(e, found)
    kinds = {need.kind for stack in found.stacks for need in stack.needs}
    stacks = sorted(found.stacks, key=lambda stack: -stack.value.size_bytes)
    loop = f"the scan is{found.step.at}" if found.step.line else "a scan"
    is_light = operations(found.step) < MOST_OPERATIONS * found.size_bytes
    saved = found.size_bytes - found.needed_bytes
    read = (
        f"nothing else in it reads them, and its caller takes a row alone, at line {min(indexed.values())}"
        if "indexed" in kinds
        else "nothing else reads them, and they are no results of the function"
    )
    return stacked_outputs.finding(
        f"stacks {size(found.size_bytes)} in a scan, of which {size(found.needed_bytes)} would do",
        [
            *list_some([_describe(stack) for stack in stacks], 3, "outputs"),
            f"{loop}; {read}",
            tried.sentence,
        ],
        "".join(text for kind, text in _ADVICE.items() if kind in kinds).rstrip(),
        where=_where_returned(found) or where_of(found.step.line) or e.def_where,
        gain=with_bytes(_gain(e, tried), saved, f"estimated: at most {size(saved)} of memory"),
        severity=None if is_light else "info",
    )


def _gain(e: Evidence, tried: Tried) -> Gain | None:
    return gain_of_part(e, tried.gain, "a loop that does nothing else with rows of this size")


def _describe(stack: Stack) -> str:
    used = list_some([_describe_need(need) for need in stack.needs], 3)
    value = stack.value
    return f"{value.spec}, {size(value.size_bytes)}, is read only for {', '.join(dict.fromkeys(used))}"


def _describe_need(need: Need) -> str:
    if need.kind == "indexed":
        return f"a row of it, {size(need.size_bytes)}"
    made = f"{need.value.spec}, {size(need.size_bytes)}"
    return f"{made} ({need.step.name}{need.step.at})" if need.step is not None else made


def _where_returned(found: _Stacked) -> Where | None:
    """Where the body gives it out: the user's `return`, or what stands in it. None where that is not told: of
    `jax.lax.map`, and in a JAX that does not say where a traced function is (0.6 to 0.10.2 do)."""
    info = getattr(found.step.equation.params["jaxpr"].jaxpr, "debug_info", None)
    where = where_of(str(getattr(info, "func_src_info", "")).rpartition(" at ")[2])
    if where is None or owner_of(where[0]) != "user":
        return None
    function = def_of(tree_of(where[0]), where[1])
    given = [function.body] if isinstance(function, ast.Lambda) else _returned(function.body if function else ())
    if len(given) != 1:
        return None
    value = given[0]
    return where[0], value.elts[1].lineno if isinstance(value, ast.Tuple) and len(value.elts) == 2 else value.lineno


def _returned(nodes: Sequence[ast.AST]) -> list[ast.expr]:
    """What a function returns, without the functions that are made in it."""
    found: list[ast.expr] = []
    for node in nodes:
        if isinstance(node, ast.Return) and node.value is not None:
            found.append(node.value)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            found += _returned(tuple(ast.iter_child_nodes(node)))
    return found


def _try_less(e: Evidence, found: _Stacked) -> Tried:
    """A loop of as many steps, with and without stacking as many bytes."""
    inputs = (f"float32[{max(1, found.row_bytes // 4)}]", found.step.equation.params["length"])
    whole, less = (make_case(fn, inputs, name=fn.__name__.strip("_"), static=(1,)) for fn in (_stack, _reduce))
    return try_variant(e, "reduced in the body", less, whole)


def _advance(x: jax.Array) -> jax.Array:
    return 0.9 * x + 1.0


def _stack(x: jax.Array, steps: int) -> Any:
    x, rows = jax.lax.scan(lambda x, _: (_advance(x), x), x, None, length=steps)
    return x, jnp.mean(rows, axis=1)


def _reduce(x: jax.Array, steps: int) -> Any:
    return jax.lax.scan(lambda x, _: (_advance(x), jnp.mean(x)), x, None, length=steps)
