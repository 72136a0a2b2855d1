"""A run time is judged in its own test: by the stored program of the reference, beside the one of now."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pytest_jax_bench import JaxBench, side_by_side
from pytest_jax_bench.options import PluginSettings

EXECUTABLES = 0.04
"""Standard deviation between two executables of one program, as in recordings."""


def simulated(count: int, change: float, noise: float, seed: int, comparisons: int = 400) -> list[str]:
    """Verdicts on pairs whose noise has the heavy tails of a busy machine (Student's t with 2 degrees of freedom)."""
    rng = np.random.default_rng(seed)
    found = list[str]()
    for _ in range(comparisons):
        centre = np.log(change) + rng.normal(0, EXECUTABLES)
        wall = centre + noise * rng.standard_t(2, count)
        processor = centre + 0.3 * noise * rng.standard_t(2, count)
        found.append(side_by_side.decide(wall.tolist(), processor.tolist()).verdict)
    return found


@pytest.mark.parametrize("count", [8, 30, 200])
@pytest.mark.parametrize("noise", [0.02, 0.1, 0.4])
def test_unchanged_code_is_called_changed_in_one_percent_at_most(count: int, noise: float) -> None:
    assert 400 - simulated(count, 1.0, noise, seed=count).count("unclear") <= 4


@pytest.mark.parametrize(("change", "verdict"), [(2.0, "slower"), (0.5, "faster"), (1.4, "slower")])
def test_a_change_of_two_fifths_is_found(change: float, verdict: str) -> None:
    assert simulated(30, change, 0.1, seed=1).count(verdict) >= 380


class Sessions:
    """Benchmarks of one name outside of pytest; each is a session of its own."""

    def __init__(self, **settings: Any) -> None:
        self.records, self.settings = list[dict[str, Any]](), PluginSettings(**settings)

    def run(self, fn: Any, x: Any, **rounds: Any) -> list[str]:
        """The verdict on the run time, and why."""
        bench = JaxBench(path="x", **{"jit_rounds": 20, "jit_warmup": 1} | rounds)
        for name, value in (("keep", self.records.append), ("settings", self.settings)):
            object.__setattr__(bench.context, name, value)
        bench.measure(None, fn, x)
        return self.records[-1]["verdicts"].get("jit", ["", ""])


def steps(count: int, calls: list[int] | None = None):
    @jax.jit
    def run(x):
        if calls is not None:
            calls.append(count)
        return jax.lax.fori_loop(0, 1000 * count, lambda i, y: y * 0.999 + 1e-6, x)

    return run


@pytest.mark.serial
def test_a_function_made_much_faster_is_shown_as_that_without_calling_it_again(
    project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("CALL_LIMIT_S", "BUILD_LIMIT_S"):  # however busy this machine is
        monkeypatch.setattr(side_by_side, limit, 20 * getattr(side_by_side, limit))
    x, sessions, traces = jnp.ones(8), Sessions(), list[int]()
    sessions.run(steps(60), x)

    verdict, why = sessions.run(steps(36, traces), x)

    assert (verdict, why[:13]) == ("faster", "side by side "), why
    counted = len(traces)
    without, other = list[int](), Sessions(no_judge=True)
    assert other.run(steps(36, without), x)[0] == "unclear"
    assert len(without) == counted
    assert sessions.run(steps(60), x) == ["same", "the program is the same"]
    assert "side by side" not in sessions.run(steps(36), x, calls_per_round=1)[1]
