"""`benchmark.stats`: the statistics of a measurement, by the names of pytest-benchmark, in seconds per call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_jax_bench.benchmark_fixture import BenchmarkFixture


NAMES = ("name", "fullname", "group", "param", "params", "extra_info", "has_error")


class BenchmarkStats:
    """`stats["mean"]`, `stats.stats.mean` and `stats.iterations`."""

    def __init__(self, fixture: BenchmarkFixture | SimpleNamespace, times_s: Sequence[float], iterations: int) -> None:
        self.fixture, self.times_s, self.iterations = fixture, list(times_s), iterations

    @cached_property
    def stats(self) -> SimpleNamespace:
        # With it come all exports, 0.2 s for who asks for no statistics.
        from benchax.reporting.exports.pytest_benchmark import stats as statistics_of

        return SimpleNamespace(**statistics_of(self.times_s), data=self.times_s)

    def __getitem__(self, key: str) -> Any:
        return getattr(self if key in (*NAMES, "iterations", "stats") else self.stats, key)

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except AttributeError:
            return default

    def __getattr__(self, name: str) -> Any:
        if name in NAMES:
            return getattr(self.fixture, name)
        raise AttributeError(f"the statistics of benchmark have no {name!r}; they are in .stats")

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self.stats))
