"""What is seen rather than timed, as plain data: inspections, profiles, watches.

No JAX: both halves know these types.

Results show themselves, as rows do: `print(p)` and, in a notebook, `p`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from benchax.model import RENDERERS


class Displayed:
    """A dataclass that is shown by what `benchax.reporting.display` has put into `RENDERERS`."""

    def __str__(self) -> str:
        # Empty where no public name was imported: then nothing has taught results to show themselves.
        return RENDERERS["text"](self) if "text" in RENDERERS else repr(self)

    def _repr_html_(self) -> str | None:
        return RENDERERS["html"](self) if "html" in RENDERERS else None

    def asdict(self) -> dict[str, Any]:
        """For JSON; tuples become lists there."""
        result: Any = self  # each of them is a dataclass
        return dataclasses.asdict(result)
