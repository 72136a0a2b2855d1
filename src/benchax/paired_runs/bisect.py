"""Finds the first bad one in a row that begins well and ends badly, by a judge that may not be able to tell.

Where the middle is unclear its neighbours are asked; where they are unclear too the search ends, and says which range
is left. Nothing here knows what is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchax.errors import UsageError
from benchax.stats.verdicts import Verdict

Judge = Callable[[str], Verdict]
"""The verdict on one of the row, compared with its first."""
NEIGHBOURS = 4
"""The number of commits to try instead of an unclear one. Each can take a minute."""


@dataclass(frozen=True)
class Bisected:
    """The result of a bisection: the remaining part of the row."""

    last_good: str
    left: tuple[str, ...]
    """The first bad one is among these; the last of them is bad."""
    verdicts: dict[str, Verdict] = field(default_factory=dict[str, Verdict])
    """All that were asked for, in that order."""

    @property
    def first_bad(self) -> str | None:
        """None if several are left."""
        return self.left[0] if len(self.left) == 1 else None


def bisect(row: Sequence[str], judge: Judge) -> Bisected:
    """Asks the judge for about log2 n of the row, where it can tell.

    Args:
        row: without repetitions. The first is good, and is not asked for; the last is asked for first.
        judge: "slower" is bad, "same" and "faster" are good.

    Raises:
        UsageError: the last one is not slower, so that there is nothing to be found.
    """
    verdicts: dict[str, Verdict] = {}

    def asked(one: str) -> Verdict:
        if one not in verdicts:
            verdicts[one] = judge(one)
        return verdicts[one]

    good, bad = 0, len(row) - 1
    if bad < 1 or asked(row[bad]) != "slower":
        found = f": {verdicts[row[bad]]}" if verdicts else ""
        raise UsageError(
            f"{row[bad]} is not slower than {row[good]}{found}", "two versions, of which the second is slower"
        )
    while good + 1 < bad:
        near = _from_the_middle(good, bad)[: NEIGHBOURS + 1]
        clear = next((i for i in near if asked(row[i]) != "unclear"), None)
        if clear is None:
            break
        good, bad = (good, clear) if asked(row[clear]) == "slower" else (clear, bad)
    return Bisected(row[good], tuple(row[good + 1 : bad + 1]), verdicts)


def _from_the_middle(good: int, bad: int) -> list[int]:
    """All between them, those near the middle first."""
    middle = (good + bad) // 2
    return sorted(range(good + 1, bad), key=lambda i: (abs(i - middle), i))
