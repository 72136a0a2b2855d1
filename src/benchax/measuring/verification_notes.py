"""The notes of a row about its result, besides the verdict. All rows use this, so it is separate from
`verification.py`, which takes 0.1 s to load.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from benchax.errors import NotMeasured


class Undecided(NotMeasured):
    """The outputs were compared, and whether they are right cannot be decided."""


@dataclass
class Notes:
    """Observations about the result of a function, besides its verdict. State is listed by name."""

    dropped: list[str] = field(default_factory=list)
    """State that the eager call changes in place and the compiled one does not."""
    undetermined: list[str] = field(default_factory=list)
    """New state that rounding alone decides, and that the verdict does not speak of."""
    nonfinite: str = ""
    """What of the result is not finite (`numerics.describe_nonfinite`); empty if all of it is, or if it was not
    verified."""
    returns_nothing: bool = False
    """Neither a result nor new state has come of a call."""
