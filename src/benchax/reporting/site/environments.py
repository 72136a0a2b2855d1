"""Environments as a site tells them: all facts of the fingerprint as texts, and a name for lists."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchax.model import NOT_COMPARED, Environment
from benchax.printable import cap, show_line
from benchax.units import size

LONGEST_FACT = 400


def describe_facts(env: Environment) -> dict[str, str]:
    """By name: host, jax, memory, XLA_FLAGS. Unknown ones are left out."""
    return {name: cap(show_line(text), LONGEST_FACT) for name, text in _facts(env) if text}


def _facts(env: Environment) -> Iterator[tuple[str, str]]:
    for f in dataclasses.fields(Environment):
        value: Any = getattr(env, f.name)
        if f.name in NOT_COMPARED or value is None:
            continue
        if isinstance(value, Mapping):
            yield from ((str(key), str(setting)) for key, setting in value.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        elif f.name == "memory_bytes":
            yield "memory", size(value)
        elif f.name == "affinity":
            yield "affinity", ", ".join(map(str, value))
        else:
            yield f.name.replace("_", " "), str(value)


def split_common(facts: Sequence[Mapping[str, str]]) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Returns the facts that all environments have in common, and the other facts of each."""
    first: Mapping[str, str] = facts[0] if facts else {}
    common = {name: text for name, text in first.items() if all(each.get(name) == text for each in facts)}
    return common, [{name: text for name, text in each.items() if name not in common} for each in facts]


def name_environment(fingerprint: str, facts: Mapping[str, str]) -> str:
    """node-17 · cpu · AMD EPYC · jax 0.10.2 · 3f2a1b"""
    backend = facts.get("backend", "")
    device = facts.get("processor" if backend == "cpu" else "device kind", "")
    jax = f"jax {facts['jax']}" if "jax" in facts else ""
    parts = (facts.get("host", "host unknown"), backend, device, jax, fingerprint[:6])
    return " · ".join(cap(part, 60) for part in parts if part)


def name_briefly(facts: Mapping[str, str]) -> str:
    """node-17, jax 0.10.2"""
    jax = f"jax {facts['jax']}" if "jax" in facts else ""
    return ", ".join(cap(part, 40) for part in (facts.get("host", ""), facts.get("backend", ""), jax) if part)
