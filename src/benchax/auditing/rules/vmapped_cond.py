"""Finds `lax.cond` under vmap whose condition is the same in all rows: all branches run for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from benchax.auditing.dataflow import Body, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import rule
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr
from benchax.auditing.work import count_operations
from benchax.results.audit import Finding
from benchax.units import count

LEAST_SHARE, LEAST_OPERATIONS = 0.2, 1 << 20
"""Of the body that it is in, and of the dearer branch."""
ELEMENTWISE = (
    "add", "and", "div", "eq", "ge", "gt", "le", "lt", "max", "min", "mul", "ne", "neg", "not", "or", "rem", "select_n",
    "sign", "sub", "xor",
)  # fmt: skip
CONVERTS = ("convert_element_type", "copy", "reshape", "squeeze", "stop_gradient")


@dataclass(frozen=True)
class _BranchSelect:
    """What was a cond: all of its results are chosen by one condition."""

    chosen: TracedEquation
    branches: tuple[tuple[TracedEquation, ...], ...]
    """What each branch does, and nothing else needs."""


@rule("vmapped-cond", "does lax.cond under vmap run one branch?", "warning", needs_trace_only=True)
def vmapped_cond(e: Evidence) -> Iterable[Finding]:
    told: set[str] = set()
    for body in bodies(closed_jaxpr(e)):
        total = None
        for choice in _branch_selects(body):
            total = count_operations(body.program.steps) if total is None else total
            most = max(count_operations(steps) for steps in choice.branches)
            if most >= max(LEAST_OPERATIONS, LEAST_SHARE * total) and choice.chosen.line not in told:
                told.add(choice.chosen.line)
                yield _finding(e, choice, total)


def _branch_selects(body: Body) -> Iterator[_BranchSelect]:
    groups: dict[int, list[TracedEquation]] = {}
    for step in body.program.steps:
        if step.name == "select_n" and _is_of_cond(step) and (root := _scalar_behind(body, step.reads[0])) is not None:
            groups.setdefault(id(root), []).append(step)
    for selects in groups.values():
        sides = range(1, len(selects[0].reads))
        branches = tuple(tuple(_only_for(body, selects, side)) for side in sides)
        yield _BranchSelect(selects[0], branches)


def _is_of_cond(step: TracedEquation) -> bool:
    """Was it made by the rule that batches `cond`? As frames of JAX tell, which it does not document (jax 0.10.2)."""
    try:
        frames = step.equation.source_info.traceback.frames
        names = {frame.function_name.rpartition(".")[2] for frame in frames}
    except AttributeError:
        return False
    return "vmap(" in step.scope and any("cond" in name and "batching" in name for name in names)


def _scalar_behind(body: Body, value: TracedValue) -> TracedValue | None:
    """What the conditions of all rows are: one number that was broadcast, or what was computed of such; None where each
    row may have its own."""
    while (step := body.maker(value)) is not None and step.name in (*CONVERTS, "broadcast_in_dim", "clamp"):
        # The bounds of a clamp are numbers of `switch`; its second operand is the index.
        value = step.reads[1 if step.name == "clamp" else 0]
    return value if value.literal is None and _is_same_in_all(body, value) else None


def _is_same_in_all(body: Body, value: TracedValue) -> bool:
    """Under vmap, what has no axis is one for all rows."""
    if not value.shape:
        return True
    step = body.maker(value)
    is_of_its_inputs = step is not None and step.name in (*CONVERTS, *ELEMENTWISE, "broadcast_in_dim")
    return step is not None and is_of_its_inputs and all(_is_same_in_all(body, read) for read in step.reads)


def _only_for(body: Body, selects: list[TracedEquation], side: int) -> Iterator[TracedEquation]:
    """Steps whose results reach nothing but this side of the choice."""
    allowed = {id(select.reads[side]) for select in selects}
    others = {id(value) for value in body.program.outputs}
    others |= {id(value) for select in selects for i, value in enumerate(select.reads) if i != side}
    for step in reversed(body.program.steps):
        made = {id(value) for value in step.makes}
        is_only = bool(made & allowed) and not made & others and all(select is not step for select in selects)
        if is_only:
            yield step
            allowed |= {id(value) for value in step.reads}
        elif all(select is not step for select in selects):
            others |= {id(value) for value in step.reads}


def _finding(e: Evidence, choice: _BranchSelect, total: float) -> Finding:
    each = [count_operations(steps) for steps in choice.branches]
    rows = count(max(choice.chosen.reads[0].shape[:1]))
    return vmapped_cond.finding(
        "runs all branches of lax.cond for each row, though the condition is the same in all",
        [
            (
                f"the branches take {' and '.join(count(n) for n in each)} operations, counted from the shapes, of "
                f"{count(total)} of what is around them: one of them would do"
            ),
            f"the condition comes of one number that was repeated for {rows} rows",
            "gain not measured, because it depends on how often each branch is needed",
        ],
        "Do not batch the condition: in_axes=None for it in jax.vmap, or close over it; then one branch runs. jax.vmap "
        "makes a jnp.where of a cond whose condition has a batch axis.",
        where=where_of(choice.chosen.line) or e.def_where,
    )
