"""Finds `jax.checkpoint` that computes much again to save little memory."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from benchax.auditing.dataflow import Body, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable, rule
from benchax.auditing.syntax import callee_name, last_name, tree_of, where_of
from benchax.auditing.traced import TracedEquation, closed_jaxpr
from benchax.auditing.work import count_operations, operations
from benchax.program.jaxpr import own_line
from benchax.results.audit import Finding, Where
from benchax.units import count, percent, size

REMATS = ("checkpoint", "remat", "remat2")
AGAIN = "rematted_computation"
"""The scope that JAX gives to what is done again (0.6.2 to 0.12.0.1)."""
LEAST_SHARE = 0.1
"""Of a call's operations."""
MOST_BYTES = 256 << 20
"""What is saved: with more, memory may well be what is short."""


@dataclass
class _Region:
    """What one use of it computes again, in all its iterations."""

    equation: Any
    operations: float = 0.0
    saved: dict[int, float] = field(default_factory=dict[int, float])
    """Bytes of what is made anew and read by the derivative, by value."""


@rule("needless-remat", "does what is computed again save memory that is short?", "info", needs_trace_only=True)
def needless_remat(e: Evidence) -> Iterable[Finding]:
    every = list(bodies(closed_jaxpr(e)))
    regions: dict[str, _Region] = {}
    for body in every:
        _add_regions(body, regions)
    if not regions:
        raise NotApplicable("no derivative in it computes anything again by jax.checkpoint")
    again = sum(one.operations for one in regions.values())
    saved = sum(sum(one.saved.values()) for one in regions.values())
    total = count_operations(every[0].program.steps)
    if again >= LEAST_SHARE * total and saved <= MOST_BYTES:
        yield _finding(e, regions, (again, total), saved)


def _add_regions(body: Body, regions: dict[str, _Region]) -> None:
    trips = body.trips or 1
    for step in body.program.steps:
        remat = _remat(step)
        if remat is None or AGAIN not in step.scope:
            continue
        region = regions.setdefault(own_line(remat), _Region(remat))
        region.operations += operations(step) * trips
        for value in step.makes:
            if any(AGAIN not in reader.scope for reader in body.readers(value)):
                region.saved[id(value)] = value.size_bytes * trips


def _remat(step: TracedEquation) -> Any:
    """The equation of a derivative that it was inlined for; None of none."""
    regions = (one for one in step.calls if one.primitive.name in REMATS)
    return next((one for one in regions if one.params.get("differentiated")), None)


def _finding(e: Evidence, regions: dict[str, _Region], counts: tuple[float, float], saved: float) -> Finding:
    dearest = max(regions.values(), key=lambda one: one.operations)
    of_all = " of ".join(map(count, counts))
    line = where_of(own_line(dearest.equation))
    return needless_remat.finding(
        f"computes {percent(counts[0] / counts[1])} of its operations again, to keep {size(saved)} less",
        [
            f"{of_all} operations of a call are done again for the derivative, counted from the shapes",
            f"without jax.checkpoint about {size(saved)} would be kept from the forward pass; XLA may fuse some of it",
        ],
        "Where there is memory enough, leave jax.checkpoint (jax.remat, nn.remat) out; or let it keep products, which "
        "are dear to compute again: policy=jax.checkpoint_policies.dots_saveable.",
        where=_asked_at(line) or line or e.def_where,
    )


def _asked_at(called: Where | None) -> Where | None:
    """The one line of the file that asks for it: a decorator, or a call."""
    tree = tree_of(called[0]) if called is not None else None
    lines = set(_lines(tree)) if tree is not None else set[int]()
    return (called[0], lines.pop()) if called is not None and len(lines) == 1 else None


def _lines(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and callee_name(node) in (*REMATS, "filter_checkpoint"):
            yield node.lineno
        elif isinstance(node, ast.FunctionDef):
            yield from (one.lineno for one in node.decorator_list if last_name(one) in (*REMATS, "filter_checkpoint"))
