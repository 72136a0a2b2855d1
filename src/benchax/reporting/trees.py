"""Trees from paths: what is made of many parts, each of which says where it belongs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benchax.reporting.chart import Branch


@dataclass
class _Growing:
    value: float = 0.0
    parts: dict[str, _Growing] = field(default_factory=dict[str, "_Growing"])
    detail: str = ""


def grow(leaves: Iterable[tuple[Sequence[str], float, str]]) -> tuple[Branch, ...]:
    """Adds up (path from the root, value, detail); what has no value is left out."""
    whole = _Growing()
    for path, value, detail in leaves:
        if value <= 0:
            continue
        node = whole
        for name in path:
            node = node.parts.setdefault(name, _Growing())
            node.value += value
        node.detail = detail
    return _branches(whole)


def _branches(node: _Growing) -> tuple[Branch, ...]:
    return tuple(Branch(name, part.value, _branches(part), part.detail) for name, part in node.parts.items())
