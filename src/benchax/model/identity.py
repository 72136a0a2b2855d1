"""Which case was measured, how, where, and as which program: what tells one row from another."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Scalar = str | int | float | bool | None


@dataclass(frozen=True)
class Opaque:
    """A parameter value that JSON has no word for: its type and a text that identifies it."""

    type: str
    text: str


@dataclass(frozen=True)
class CaseId:
    """The stored identity of a case. Any Unicode text of any length, kept unchanged."""

    name: str
    params: tuple[tuple[str, Any], ...] = ()
    variant: str = ""
    tag: str = ""

    @property
    def label(self) -> str:
        """matmul[n=256, dtype=bf16] eager #tag: for people; two ids may share a label, never an id."""
        params = (
            f"[{', '.join(f'{k}={v.text if isinstance(v, Opaque) else v}' for k, v in self.params)}]"
            if self.params
            else ""
        )
        rest = [self.variant] if self.variant else []
        rest += [f"#{self.tag}"] if self.tag else []
        return " ".join([self.name + params, *rest])


NOT_COMPARED = frozenset({"commit", "branch", "is_dirty", "benchax"})
"""Fields that can differ between environments whose times are compared."""


@dataclass(frozen=True)
class Environment:
    """Where it ran. `None` means unknown.

    Example:
        >>> row = benchax.bench(abs, "f32[8]", stages="build", store="off")
        >>> row.environment.backend == jax.default_backend()
        True
    """

    host: str
    os: str
    python: str
    processor: str | None = None
    cores: int | None = None
    affinity: tuple[int, ...] | None = None
    memory_bytes: int | None = None
    governor: str | None = None
    huge_pages: str | None = None
    virtual_machine: bool | None = None
    benchax: str | None = None
    jax: str | None = None
    jaxlib: str | None = None
    numpy: str | None = None
    backend: str | None = None
    device_kind: str | None = None
    device_count: int | None = None
    process_count: int | None = None
    platform_version: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """JAX settings that change programs or their speed."""
    flags: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment variables that change programs or their speed (XLA_FLAGS, JAX_*, ...)."""
    commit: str | None = None
    branch: str | None = None
    is_dirty: bool | None = None

    @property
    def fake_devices(self) -> int:
        """How many devices one processor pretends to be, over all processes; 0 where they are real. On a CPU each
        process has one that is."""
        count = self.device_count or 0
        return count if self.backend == "cpu" and count > (self.process_count or 1) else 0

    @cached_property  # a history asks it of each of its comparisons
    def fingerprint(self) -> str:
        """12 hex digits, equal for rows whose times may be put side by side. Commit and process do not enter."""
        facts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in NOT_COMPARED}
        # The order in which settings were read does not matter.
        facts |= {"config": sorted(self.config.items()), "flags": sorted(self.flags.items())}
        text = repr(sorted(facts.items()))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Program:
    """The measured function as StableHLO, exported by `jax.export`: a function of its array leaves alone. A baseline is
    kept as such a program, and runs again together with the candidate; stored times are not compared."""

    sha256: str
    size_bytes: int
    content: bytes | None = field(default=None, repr=False, compare=False, metadata={"is_stored_apart": True})
    """Only where it was just made; a store keeps it once for all rows that have it."""
    source: str = field(default="", repr=False, compare=False, metadata={"is_stored_apart": True})
    """Digest of the program's source. A store finds the program again by it; empty if it is not known."""


@dataclass(frozen=True)
class WorkPerCall:
    """The work of one call, as its author states it, and the rate of this machine to compare it with."""

    amounts: Mapping[str, float] = field(default_factory=dict[str, float])
    """The work of one call, by name: {"samples": 32, "tokens": 4096, "bytes": 1e6}; each above 0."""
    peak_bytes_per_s: float | None = None
    """The highest rate that a program reached here with as much memory (`machine/peaks.py`). None if it was never
    measured, or the bytes are not known."""
