"""`Checklist`: the advice that everybody gives, ticked off for one function by what was measured. Plain data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from benchax.model import Environment
from benchax.results.shown import Displayed

Answer = Literal["yes", "no", "not applicable", "not checked"]


@dataclass(frozen=True)
class Tick:
    """One piece of advice."""

    section: str
    text: str
    """The advice: "Enable buffer donation"."""
    answer: Answer
    """Is it followed, or not needed?"""
    why: str
    """What was measured; or why it does not apply, or was not checked."""
    by: tuple[str, ...] = ()
    """Rules and variants that answered."""


@dataclass(frozen=True)
class Checklist(Displayed):
    """All of it, for one function."""

    name: str
    signature: str
    ticks: tuple[Tick, ...]
    elapsed_s: float = 0.0
    environment: Environment | None = None

    def asdict(self) -> dict[str, Any]:
        """For JSON; tuples become lists there."""
        return dataclasses.asdict(self)
