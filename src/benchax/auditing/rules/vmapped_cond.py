"""Finds `lax.cond` under vmap: all branches run for each row, also where the condition is the same in all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from benchax.auditing.choices import only_for
from benchax.auditing.dataflow import Body, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import rule
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr
from benchax.auditing.work import count_operations
from benchax.program.jaxpr import frames_of, line_of_vmap
from benchax.results.audit import Finding
from benchax.units import count

LEAST_SHARE, LEAST_OPERATIONS = 0.2, 1 << 20
"""Of the body that it is in, and of the dearer branch."""
ELEMENTWISE = (
    "add", "and", "div", "eq", "ge", "gt", "le", "lt", "max", "min", "mul", "ne", "neg", "not", "or", "rem", "select_n",
    "sign", "sub", "xor",
)  # fmt: skip
FEW_ROWS = 10.0
"""So many times as dear as the other branch is one that rows with a condition of their own are told of."""
CONVERTS = ("convert_element_type", "copy", "reshape", "squeeze", "stop_gradient")


@dataclass(frozen=True)
class _BranchSelect:
    """What was a cond: all of its results are chosen by one condition."""

    chosen: TracedEquation
    branches: tuple[tuple[TracedEquation, ...], ...]
    """What each branch does, and nothing else needs."""
    is_one_for_all: bool
    """Is the condition the same in all rows?"""


@rule("vmapped-cond", "does lax.cond under vmap run one branch?", "warning", needs_trace_only=True)
def vmapped_cond(e: Evidence) -> Iterable[Finding]:
    told: set[str] = set()
    for body in bodies(closed_jaxpr(e)):
        total = None
        for choice in _branch_selects(body):
            total = count_operations(body.program.steps) if total is None else total
            each = sorted(count_operations(steps) for steps in choice.branches)
            is_dear = each[-1] >= max(LEAST_OPERATIONS, LEAST_SHARE * total)
            is_rare = choice.is_one_for_all or each[-1] >= FEW_ROWS * each[-2]
            if is_dear and is_rare and choice.chosen.line not in told:
                told.add(choice.chosen.line)
                yield (_finding if choice.is_one_for_all else _of_rows)(e, choice, total)


def _branch_selects(body: Body) -> Iterator[_BranchSelect]:
    groups: dict[tuple[int, bool], list[TracedEquation]] = {}
    for step in body.program.steps:
        if step.name == "select_n" and _is_of_cond(step):
            root = _scalar_behind(body, step.reads[0])
            own = body.through(step.reads[0], (*CONVERTS, "broadcast_in_dim"))
            groups.setdefault((id(own if root is None else root), root is not None), []).append(step)
    for (_, is_one_for_all), selects in groups.items():
        sides = range(1, len(selects[0].reads))
        branches = tuple(tuple(only_for(body, selects, side)) for side in sides)
        yield _BranchSelect(selects[0], branches, is_one_for_all)


def _is_of_cond(step: TracedEquation) -> bool:
    """Was it made by the rule that batches `cond`? As frames of JAX tell, which it does not document (jax 0.10.2)."""
    names = {frame.function_name.rpartition(".")[2] for frame in frames_of(step.equation)}
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


def _finding(e: Evidence, choice: _BranchSelect, total: float) -> Finding:
    # What makes the condition one for each row is the call of vmap, not the cond.
    batched = line_of_vmap(choice.chosen.outermost) or choice.chosen.line
    each = [count_operations(steps) for steps in choice.branches]
    rows = count(max(choice.chosen.reads[0].shape[:1]))
    return vmapped_cond.finding(
        "runs all branches of lax.cond for each row, though the condition is the same in all",
        [
            (
                f"the branches take {' and '.join(count(n) for n in each)} operations, counted from the shapes, of "
                f"{count(total)} of what is around them: one of them would do"
            ),
            f"lax.cond is{choice.chosen.at}; its condition comes of one number that was repeated for {rows} rows",
            "gain not measured, because it depends on how often each branch is needed",
        ],
        "Do not batch the condition: in_axes=None for it in jax.vmap, or close over it; then one branch runs. jax.vmap "
        "makes a jnp.where of a cond whose condition has a batch axis.",
        where=where_of(batched) or e.def_where,
    )


def _of_rows(e: Evidence, choice: _BranchSelect, total: float) -> Finding:
    each = [count_operations(steps) for steps in choice.branches]
    return vmapped_cond.finding(
        "runs all branches of lax.cond for each row",
        [
            f"lax.cond is{choice.chosen.at}",
            f"the branches take {' and '.join(count(n) for n in each)} operations, of {count(total)} around them",
            "jax.vmap makes a jnp.where of a cond whose condition has a batch axis",
            "gain not measured, because it depends on how many rows need the dear branch",
        ],
        "Where few rows need the dear branch: take one row after the other with jax.lax.map, which runs one branch for "
        "each; or collect the rows that need it, up to a fixed number, and compute them by themselves.",
        where=where_of(line_of_vmap(choice.chosen.outermost) or choice.chosen.line) or e.def_where,
        severity="info",
    )
