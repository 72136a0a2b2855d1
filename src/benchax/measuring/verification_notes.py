"""What a verification leaves beside its verdict. Apart from it, because all rows are made of this, and what evaluates
jaxprs in other precisions, which few measurements need, takes 0.1 s to load.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from benchax.errors import NotMeasured


class Undecided(NotMeasured):
    """The outputs were compared, and whether they are right cannot be told."""


@dataclass
class Notes:
    """What was seen of a stateful function beside its verdict, by name."""

    dropped: list[str] = field(default_factory=list)
    """What the eager call changes in place and the compiled one does not."""
    undetermined: list[str] = field(default_factory=list)
    """New state that rounding alone decides, and that the verdict does not speak of."""
