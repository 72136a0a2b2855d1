"""Who measured what: a line for each node of a run that was spread over several, and their table in reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchax.clusters.agents import Node
from benchax.clusters.dispatcher import Dispatcher
from benchax.reporting.document import Table, tabulate
from benchax.stats.verdicts import grade
from benchax.units import number, percent


@dataclass(frozen=True)
class NodeShare:
    """Facts about a node, and the work that it did."""

    node: Node
    done: int
    """Calls that it has ended."""
    lost: str = ""
    """Why it is no longer there; empty if it is."""


def shares(dispatcher: Dispatcher[Any] | None) -> tuple[NodeShare, ...]:
    """Returns the shares of all nodes, in the order of their names; empty if only this program's own pool worked."""
    if dispatcher is None:
        return ()
    found = [
        NodeShare(node, dispatcher.done[id], dispatcher.lost.get(id, ""))
        for id, node in dispatcher.seen.items()
        if node.examination is not None
    ]
    return tuple(sorted(found, key=lambda share: share.node.label))


def tabulate_shares(found: Sequence[NodeShare], what: str) -> Table:
    """node · cells · speed · noise · CPU: `what` is what was done, in the plural."""
    paces_s = [share.node.examination.pace_s for share in found if share.node.examination]
    rows = [(share.node.label, str(share.done), *_describe(share, min(paces_s))) for share in found]
    return tabulate(("node", what, "speed", "noise", "machine", "jax", ""), rows)


def _describe(share: NodeShare, best_s: float) -> tuple[str, ...]:
    examination, environment = share.node.examination, share.node.environment
    assert examination is not None
    effect = examination.smallest_effect
    noise = "not measured" if effect is None else f"{grade(effect)}: finds {percent(effect)}"
    machine = environment.device_kind or environment.processor or environment.os
    if environment.backend == "cpu" and environment.processor:
        machine = environment.processor
    speed = f"{number(best_s / examination.pace_s)} ×"
    return speed, noise, machine, environment.jax or "none", f"lost: {share.lost}" if share.lost else ""


def differing(nodes: Sequence[Node]) -> Mapping[str, Sequence[str]]:
    """The values that are not the same on all nodes (versions, backend, processor): {what: values}."""
    facts = ("python", "jax", "jaxlib", "numpy", "backend", "device_kind", "processor")
    values = {fact: sorted({str(getattr(node.environment, fact)) for node in nodes}) for fact in facts}
    return {fact: found for fact, found in values.items() if len(found) > 1}
