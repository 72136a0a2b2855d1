"""Throughput: what one call gets done, and the rates that a row has of it, or the reason why it has none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from measurement_strategies import measured

import benchax
from benchax import kept_peaks
from benchax.case import benchmark
from benchax.errors import UsageError
from benchax.model import Failure, Samples, WorkPerCall
from benchax.results.roofline import Peaks

SHORT: dict[str, Any] = {
    "timer": "wall", "max_time_s": 0.02, "min_time_s": 0.01, "memory": False, "verify": "off", "store": "off",
}  # fmt: skip


def test_a_rate_is_the_amount_by_the_time_with_the_ends_of_its_interval() -> None:
    m = benchax.bench(jnp.sort, "f32[4096]", work={"samples": 32, "tokens": 4096}, **SHORT)

    s = m.summary()
    samples, tokens = m.rates()
    assert (samples.what, samples.per_s, samples.timer) == ("samples", 32 / s.median_s, "wall")
    assert (tokens.what, tokens.low_per_s, tokens.high_per_s) == ("tokens", 4096 / s.high_s, 4096 / s.low_s)


def test_a_function_of_the_inputs_says_it_for_each_case() -> None:
    made = benchmark(lambda x: x + 1, name="add", args=lambda n: (f"f32[{n},2]",), n=[8, 16],
                     work=lambda x: {"rows": len(x)})  # fmt: skip

    rows = [benchax.api.run([case], call=SHORT) for case in made.cases()]

    assert [row.work.amounts for (row,) in rows] == [{"rows": 8.0}, {"rows": 16.0}]


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (lambda x: {"rows": x.nothing}, "its function raised AttributeError"),
        (lambda x: {"rows": 0}, "its function returned what says no amounts"),
        (lambda x: None, ""),
    ],
)
def test_a_function_that_does_not_say_it_costs_the_rates_and_not_the_row(work: Any, why: str) -> None:
    m = benchax.bench(jnp.sort, "f32[64]", work=work, **SHORT)

    assert m.failure is None
    assert m.summary() is not None
    assert m.rates() == ()
    assert (m.why_absent("work") or "").startswith(why)


@pytest.mark.parametrize(
    "work", ["many", {}, {"rows": 0}, {"rows": -1}, {"rows": float("nan")}, {"rows": "3"}, {1: 2}, 3]
)
def test_what_are_no_amounts_is_refused_before_anything_runs(work: Any) -> None:
    def never(x: Any) -> Any:
        raise AssertionError("nothing runs")

    with pytest.raises(UsageError, match="work"):
        benchax.bench(never, "f32[8]", work=work)


def test_without_a_time_there_is_no_rate() -> None:
    m = replace(measured(), work=WorkPerCall({"rows": 3.0}))

    assert [rate.per_s for rate in m.rates()] == [1.5]
    assert replace(m, samples=()).rates() == ()
    assert replace(m, failure=Failure("error", "compile", "no")).rates() == ()
    assert replace(m, samples=(Samples("loop", 1, (1.0, 1.0), overhead_s=2.0),)).rates() == ()
    assert m.rates("loop") == ()


def test_the_rate_of_this_machine_is_beside_bytes_where_it_was_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kept_peaks.platformdirs, "user_cache_dir", lambda _: str(tmp_path))
    before = benchax.bench(jnp.sort, "f32[64]", work={"bytes": 512}, **SHORT)
    found = Peaks(2e10, 2**26, 1e11, 2**18, {"f32": 1e11})
    kept_peaks.keep_peaks(tmp_path / "peaks" / f"{before.environment.fingerprint}.json", found)

    after = benchax.bench(jnp.sort, "f32[64]", work={"bytes": 512}, **SHORT)

    assert (before.work.peak_bytes_per_s, after.work.peak_bytes_per_s) == (None, 1e11)  # 512 bytes are in a cache
