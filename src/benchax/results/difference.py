"""`Difference`: what differs between two inspections. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchax.model import Absent
from benchax.results import Displayed

Unit = Literal["count", "flop", "bytes"]
Stage = Literal["jaxpr", "stablehlo", "hlo"]


@dataclass(frozen=True)
class NumberChange:
    """A number of both sides; None where it is not known."""

    name: str
    before: float | None
    after: float | None
    unit: Unit = "count"


@dataclass(frozen=True)
class TextDifference:
    """The same text of both sides, line by line."""

    stage: Stage
    is_same: bool
    """Up to names and source lines."""
    added: int = 0
    """Lines."""
    removed: int = 0
    unified: str = ""
    """As `diff -u`, of the texts without names and source lines: those of the first are given the names that the
    second has for the same thing; what the second does not have ends in an apostrophe."""


@dataclass(frozen=True)
class Difference(Displayed):
    """The differences. Each table holds only rows that differ."""

    before: str
    """The identity of the first: its signature, commit, or version of JAX."""
    after: str
    numbers: tuple[NumberChange, ...] = ()
    unchanged: tuple[str, ...] = ()
    """Names of numbers that both know and agree in."""
    primitives: tuple[NumberChange, ...] = ()
    """The primitives of the jaxpr: how often each."""
    opcodes: tuple[NumberChange, ...] = ()
    """The opcodes of the optimised program."""
    texts: tuple[TextDifference, ...] = ()
    absent: tuple[Absent, ...] = ()
    """Which texts could not be compared, and why."""
    line_flops: tuple[NumberChange, ...] = ()
    """Operations by the user's line, the largest change first."""
    line_bytes: tuple[NumberChange, ...] = ()
    """Bytes read and written, likewise."""

    @property
    def is_none(self) -> bool:
        """Nothing differs in what both sides know."""
        return not (self.numbers or self.primitives or self.opcodes) and all(text.is_same for text in self.texts)
