"""Student's distribution, as far as intervals need it."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1024)
def student_quantile(level: float, degrees: int) -> float:
    """The value that a share `level` of Student's distribution with `degrees` degrees of freedom lies below."""
    # Here, because SciPy takes 0.1 s to import, and few commands need it.
    from scipy.special import stdtrit  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]

    return float(stdtrit(degrees, level))
