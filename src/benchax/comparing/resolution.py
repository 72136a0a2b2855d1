"""How small a change a comparison is to see: read from what the user writes, and said where it is too coarse."""

from __future__ import annotations

import re
from collections.abc import Iterable

from benchax.errors import UsageError
from benchax.model import Comparison
from benchax.stats.verdicts import SAME_WITHIN, least_change

FINEST, COARSEST = 0.005, 0.20
"""Below the first, buffers and executables alone differ by as much, however many of them are drawn."""
_SHARE = re.compile(r"(\d+\.?\d*|\.\d+)\s*(%?)")


def resolution_of(given: float | str | None) -> float:
    """0.01 of 0.01, "0.01" and "1%"; the usual 5 % of None.

    Raises:
        UsageError: no share, or one that is not between 0.5 % and 20 %.
    """
    if given is None:
        return SAME_WITHIN
    match = _SHARE.fullmatch(str(given).strip())
    share = float(match[1]) / (100 if match[2] else 1) if match else None
    if share is None or not FINEST <= share <= COARSEST:
        raise UsageError(
            f"the resolution {given!r} cannot be",
            f"a share between {100 * FINEST:g} % and {100 * COARSEST:g} %: 1%, or 0.01",
        )
    return share


def blind_spot(comparisons: Iterable[Comparison]) -> str:
    """What "same" does not tell from no change: changes up to 2 % are called same, with 5 %.

    Empty where nothing is called the same, or so little that no less can be asked for.
    """
    within = [c.resolution for c in comparisons if c.metric == "run" and c.verdict == "same" and c.ratio is not None]
    coarsest = max(within, default=0.0)
    missed = least_change(coarsest)
    if missed / 2 < FINEST:
        return ""
    return (
        f"up to +{100 * missed:.2g} % would be called same (within {100 * coarsest:.2g} %): "
        f"--resolution {50 * missed:.2g}% tells that from no change"
    )
