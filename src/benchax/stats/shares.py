"""How often something happens, judged from how often it was seen."""

from __future__ import annotations


def share_interval(hits: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Exact two-sided interval for the probability of what happened `hits` times in `n` independent trials.

    Clopper & Pearson, Biometrika 26 (1934); the true coverage is at least `level`. Without trials it is (0, 1).
    """
    tail = (1 - level) / 2
    return _lower(hits, n, tail), _upper(hits, n, tail)


def upper_limit(hits: int, n: int, level: float = 0.95) -> float:
    """The exact one-sided limit: where the probability is above it, so few hits come in less than 1 - `level`."""
    return _upper(hits, n, 1 - level)


def _lower(hits: int, n: int, tail: float) -> float:
    return _beta(hits, n - hits + 1, tail) if hits else 0.0


def _upper(hits: int, n: int, tail: float) -> float:
    return _beta(hits + 1, n - hits, 1 - tail) if hits < n else 1.0


def _beta(a: int, b: int, probability: float) -> float:
    """The quantile of the beta distribution."""
    # Here, because SciPy takes 0.1 s to import, and few commands need a share.
    from scipy.special import betaincinv  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]

    return float(betaincinv(a, b, probability))
