"""Results that are observed rather than timed, as plain data: inspections, profiles, watches.

No JAX: both halves know these types.

Results show themselves, as rows do: `print(p)` and, in a notebook, `p`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from benchax.renderers import SelfRendering


class Displayed(SelfRendering):
    """A dataclass that shows itself, and becomes plain data."""

    def asdict(self) -> dict[str, Any]:
        """For JSON; tuples become lists there."""
        result: Any = self  # each of them is a dataclass
        return dataclasses.asdict(result)
