"""Finds loops over many small items that do not depend on each other, which `jax.vmap` would compute at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from benchax.auditing.dataflow import GRADIENT, Body, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import rule
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, closed_jaxpr, first_of_each_line, flow
from benchax.auditing.work import DEAR, bodies_of, count_operations, operations
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.units import count, seconds, size

PRODUCT = "dot_general"
LEAST_FLOPS, MOST_FLOPS = 1 << 11, {"alone": 1 << 21, "with a derivative": 1 << 16}
"""Of one product of one item; smaller ones do not count. Of 1000 items, `jax.lax.map` took 0.17 to 1.6 µs longer for
each than `jax.vmap`, 1.6 to 10 times as long in all; of 256 items with products of 0.26 to 2 MFLOP 2.2 to 4 times as
long, but with their derivative both took about as long (float32, jaxlib 0.10.2, CPU, two cores). Without products,
items of a few operations were no slower in a loop than at once."""
LOST_S = 0.17e-6
"""At least, with each product of each item."""
LEAST_LOST_S = 2e-4
MOST_BYTES = 32 << 20
"""Of all that is made for all items: with more, a loop may be there to save memory."""
LEAST_SHARE = 0.5
"""Of an item's operations, in such products."""


@dataclass(frozen=True)
class _IndependentItems:
    step: TracedEquation
    items: int
    products: int
    """Of each item."""
    flops: float
    """Of each item."""
    size_bytes: int
    """Of what is made for all items, at most."""
    lost_s: float


@rule("sequential-map", "are small independent items computed at once?", "info", needs_trace_only=True)
def sequential_map(e: Evidence) -> Iterable[Finding]:
    every = list(bodies(closed_jaxpr(e)))
    is_derived = any(step.name == "scan" and GRADIENT in step.scope for body in every for step in body.program.steps)
    most = MOST_FLOPS["with a derivative" if is_derived else "alone"]
    found = [loop for body in every for loop in _loops(body, most) if loop.lost_s >= LEAST_LOST_S]
    if found and e.platform != "cpu":
        raise NotMeasured(f"what an iteration takes is known of CPUs, not of {e.platform}")
    yield from (_finding(e, one) for one in first_of_each_line(found))


def _loops(body: Body, most_flops: int) -> Iterator[_IndependentItems]:
    for step in body.program.steps:
        is_scan = step.name == "scan" and GRADIENT not in step.scope
        if not is_scan or step.equation.effects or step.split_operands(step.reads).carry:
            continue
        inside, n = _steps_of_items(step), step.equation.params["length"]
        products = [operations(one) for one in inside if one.name == PRODUCT]
        # Nested loops and branches, factorisations and sorts are no cheaper for a batch.
        is_plain = not any(bodies_of(one.equation.params) or one.name in DEAR - {PRODUCT} for one in inside)
        total, made = count_operations(inside), sum(value.size_bytes for one in inside for value in one.makes) * n
        is_small = all(flops <= most_flops for flops in products) and made <= MOST_BYTES
        products = [flops for flops in products if flops >= LEAST_FLOPS]
        if products and is_plain and is_small and sum(products) >= LEAST_SHARE * total:
            lost_s = LOST_S * n * len(products) * (body.trips or 1)
            yield _IndependentItems(step, n, len(products), total, made, lost_s)


def _steps_of_items(scan: TracedEquation) -> list[TracedEquation]:
    """Those that differ by item; XLA does others once, before the loop."""
    program, found = flow(scan.equation.params["jaxpr"]), list[TracedEquation]()
    varying = {id(value) for value in scan.split_operands(program.inputs).xs}
    for step in program.steps:
        if any(id(value) in varying for value in step.reads):
            varying |= {id(value) for value in step.makes}
            found.append(step)
    return found


def _finding(e: Evidence, loop: _IndependentItems) -> Finding:
    return sequential_map.finding(
        f"loops over {loop.items} small items one by one",
        [
            (
                f"each takes {count(loop.flops, 'FLOP')}, of which most go into {count(loop.products)} small "
                f"product{'s' if loop.products > 1 else ''}, and none reads what another has made"
            ),
            f"at once, no more than {size(loop.size_bytes)} are made for all of them",
            (
                f"{seconds(LOST_S)} or more were lost with each such product where loops of this kind were measured on "
                f"a CPU, about {seconds(loop.lost_s)} of a call here; not measured in this function"
            ),
        ],
        "Compute them at once: jax.vmap(f)(xs) in place of jax.lax.map(f, xs), or jax.lax.map(f, xs, batch_size=256) "
        "to make no more than so many at a time.",
        where=where_of(loop.step.line) or e.def_where,
    )
