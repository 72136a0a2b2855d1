"""Validates the work of one call, as its author states it: amounts by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from benchax.errors import UsageError
from benchax.kinds import check_text


def check_work(work: Any) -> Any:
    """`work`, if it can be the amounts of one call.

    Raises:
        UsageError: neither a function nor amounts by name, each a finite number above 0.
    """
    if work is None or callable(work):
        return work
    expected = 'amounts of one call by name, such as {"samples": 32}, or a function of the inputs that returns them'
    if not isinstance(work, Mapping) or not work:
        raise UsageError(f"work={work!r} cannot be", expected)
    for what, amount in cast("Mapping[Any, Any]", work).items():
        is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
        if not isinstance(what, str) or not what or not is_number or not 0 < amount < math.inf:
            raise UsageError(f"work={work!r} holds {what!r}: {amount!r}", f"{expected}; each above 0")
        check_text(what, "the name in work")
    return {what: float(amount) for what, amount in cast("Mapping[str, float]", work).items()}
