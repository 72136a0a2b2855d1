"""`max_time_ms` and `min_time_ms` of the marker."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from pytest_sessions import rows_in

from pytest_jax_bench import JaxBench
from pytest_jax_bench.fixture import TimeLimitExceeded


def measure(marker: dict[str, float]) -> None:
    bench = JaxBench(path="x", jit_rounds=20, jit_warmup=1)
    object.__setattr__(bench.context, "marker", marker)
    bench.measure(None, jnp.sin, jnp.ones(3))


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ({"max_time_ms": 1e-5}, "a jit run took .* more than max_time_ms=1e-05"),
        ({"min_time_ms": 1e5}, "a jit run took .* less than min_time_ms=100000"),
    ],
)
def test_a_time_beyond_its_limit_fails_the_test_after_its_row_was_kept(project, marker, message: str) -> None:
    with pytest.raises(TimeLimitExceeded, match=message):
        measure(marker)

    assert len(rows_in(project / "x.csv")) == 1


def test_a_time_within_its_limits_passes(project) -> None:
    measure({"max_time_ms": 1e5, "min_time_ms": 1e-5})

    assert len(rows_in(project / "x.csv")) == 1
