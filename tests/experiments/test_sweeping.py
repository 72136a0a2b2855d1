"""Points of sweeps, and one sweep with real clocks."""

from __future__ import annotations

from typing import Any

import pytest
from comparisons_by_hand import compared

from benchax.case import make_case
from benchax.comparing.sequential import Effort
from benchax.experiments.experiment import run_experiment
from benchax.experiments.lab import WorkerLab
from benchax.experiments.sweeping import in_words, points, reading
from benchax.model import Block, Failure
from benchax.options import resolve


def test_a_reading_is_the_median_of_blocks_of_all_its_pairs_with_their_interval() -> None:
    one = compared(1, 1.0, blocks=tuple(Block(0, (9.0,), (float(n),)) for n in (1, 2, 3)))
    other = compared(1, 1.0, blocks=tuple(Block(0, (float(n),), (9.0,)) for n in (4, 5, 6)))

    assert reading((one, "candidate"), (other, "baseline")) == (3.5, 1.0, 6.0)
    assert reading((one, "candidate")) == (2.0, None, None)
    assert reading((None, "candidate")) is None


def test_a_point_that_failed_says_why_and_the_others_stay() -> None:
    broken = compared(1, None, failure=Failure("out_of_memory", "rounds", "no room"))

    first, second, third = points([1, 2, 3], "abc", {"b": compared(1, 2.0), "c": broken}, lambda size, s: ())

    assert (first.seconds, second.seconds, third.seconds) == (pytest.approx(1e-5), pytest.approx(2e-5), None)
    assert third.facts == (("not measured:", "no room"),)


def test_only_a_verdict_gives_a_speedup_in_words() -> None:
    assert in_words(compared(1, 0.5)) == "10.0 µs → 5.00 µs: faster, 2.00× (1.98 – 2.02)"
    assert in_words(compared(1, 1.0, why="within 1 %")) == "10.0 µs → 10.0 µs: same (within 1 %)"
    assert "2.00×" not in in_words(compared(1, 0.5, verdict="unclear", why="too noisy"))
    assert in_words(compared(1, None, failure=Failure("error", "build", "no"))) == "failed: no"


def power(x: Any, n: int) -> Any:
    return x**n


@pytest.mark.slow
def test_a_sweep_is_measured_from_end_to_end() -> None:
    case = make_case(power, ("f32[1000]", 3))

    found = run_experiment(case, ["static"], WorkerLab(resolve(), Effort(max_time_s=6.0)), {"static": "n=3"})

    assert found.row("static").sentence.startswith("1 program for 1 value")
    said = dict(found.row("static").facts)["n=3"]
    assert "→" in said or "unclear" in said
