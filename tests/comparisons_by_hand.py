"""Comparisons of one case with a pinned baseline, commit by commit, made by hand."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from measurement_strategies import RICH

from benchax.model import Block, CaseId, Comparison, Metric, Version
from benchax.stats.verdicts import Verdict

HOST = replace(RICH.environment, commit=None, branch=None, is_dirty=None, flags={}, config={})
BASELINE = Version("v1.2", "a" * 40, False, HOST.jax, "f" * 64)


CASE = CaseId("matmul", (("n", 256),))


def commit_of(n: int) -> str:
    return hashlib.sha1(str(n).encode()).hexdigest()


def compared(
    n: int,
    ratio: float | None,
    *,
    case: CaseId = CASE,
    metric: Metric = "run",
    verdict: Verdict | None = None,
    **changed: Any,
) -> Comparison:
    """The comparison of commit number n, with an interval of 1 % to both sides."""
    if verdict is None:
        verdict = "unclear" if ratio is None else "slower" if ratio > 1.02 else "faster" if ratio < 0.98 else "same"
    made = Comparison(
        case,
        metric,
        BASELINE,
        Version("now", commit_of(n), False, HOST.jax),
        verdict,
        ratio=ratio,
        low=ratio and 0.99 * ratio,
        high=ratio and 1.01 * ratio,
        baseline_value=1e-5,
        candidate_value=ratio and 1e-5 * ratio,
        blocks=(Block(0, (1e-5,), (1e-5 * ratio,)),) if ratio else (),
        environment=HOST,
        compared_at=f"2026-01-{1 + n % 28:02}T03:15:00.000000+00:00",
    )
    return replace(made, **changed)


def counted(n: int, size_bytes: float | None, **changed: Any) -> Comparison:
    """Of the planned peak of memory, with a baseline of 1 MiB."""
    ratio = None if size_bytes is None else size_bytes / 2**20
    return compared(
        n, ratio, metric="peak", method="counted", low=None, high=None, blocks=(), baseline_value=2.0**20,
        candidate_value=size_bytes, **changed,
    )  # fmt: skip


def stepping(levels: Sequence[tuple[int, float]], sd: float = 0.01, seed: int = 0) -> list[float]:
    """Ratios with noise: so many at each level."""
    dice = np.random.default_rng(seed)
    return [float(level * np.exp(sd * dice.standard_normal())) for count, level in levels for _ in range(count)]


def series(ratios: Sequence[float | None], **changed: Any) -> list[Comparison]:
    return [compared(n, ratio, **changed) for n, ratio in enumerate(ratios)]
