"""What is seen rather than timed, as plain data: inspections, profiles, watches.

No JAX: both halves know these types.

Results show themselves, as rows do: `print(p)` and, in a notebook, `p`.
"""

from benchax.model import RENDERERS


class Displayed:
    """Drawn by what `benchax.reporting.display` has put into `RENDERERS` for this type."""

    def __str__(self) -> str:
        render = RENDERERS.get(type(self).__name__)
        return render(self) if render else repr(self)

    def _repr_html_(self) -> str | None:
        render = RENDERERS.get(f"{type(self).__name__} html")
        return render(self) if render else None
