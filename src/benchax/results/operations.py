"""The operations of an optimised program, one by one, as `Inspection.operations` lists them. Plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HloOperation:
    """An operation of the optimised program; its work is that of one call of the program, by the rules of `Counts`."""

    name: str
    """In the HLO."""
    opcode: str
    """Of a custom call its target."""
    shape: str
    source: str
    """file.py:12, as in `LineWork`. Empty: the compiler's own."""
    scope: str
    """The named scopes around it: layer0/attention. Empty: none."""
    inside: int | None
    """The place, in `HloOperations.listed`, of the fusion, loop, conditional or call that it stands in."""
    part: str
    """Of a loop its body or its condition; of a conditional the branch."""
    flops: float | None
    """All that is inside is in it. None: nobody can look into it, or into something inside of it."""
    transcendentals: float | None
    bytes_accessed: float | None
    """0 inside of a fusion, where values stay in registers."""
    remark: str = ""
    """What restricts the numbers; of a loop its trip count."""
    reads: tuple[int, ...] = ()
    """The places of those, beside it, whose results it reads."""


@dataclass(frozen=True)
class HloOperations:
    """What does work: parameters, constants, tuples and bitcasts are left out."""

    listed: tuple[HloOperation, ...]
    left_out: int = 0
    """So many more are beyond the limit, at least: what is inside of those was not counted."""
