"""The operations of an optimised program, one by one, as `Inspection.operations` lists them. Plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HloOperation:
    """An operation of the optimised program; its work is that of one call of the program, by the rules of `Counts`."""

    name: str
    """In the HLO."""
    opcode: str
    """The opcode; for a custom call, its target."""
    shape: str
    source: str
    """file.py:12, as in `LineWork`. Empty: the compiler's own."""
    scope: str
    """The named scopes around it: layer0/attention. Empty: none."""
    inside: int | None
    """The place, in `HloOperations.listed`, of the fusion, loop, conditional or call around it."""
    part: str
    """For a loop, its body or its condition; for a conditional, the branch."""
    flops: float | None
    """It includes all operations inside it. None: benchax cannot inspect it, or something inside it."""
    transcendentals: float | None
    bytes_accessed: float | None
    """0 inside of a fusion, where values stay in registers."""
    remark: str = ""
    """What restricts the numbers; of a loop its trip count."""
    reads: tuple[int, ...] = ()
    """The places of the operations at the same level whose results it reads."""


@dataclass(frozen=True)
class HloOperations:
    """The operations that do work: without parameters, constants, tuples and bitcasts."""

    listed: tuple[HloOperation, ...]
    left_out: int = 0
    """The least number of operations beyond the limit: the operations inside them were not counted."""
