"""Change points: published examples, the formula by its definition, and rates by simulation with fixed seeds."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import fmean

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchax.stats.changepoints import ChangePoint, change_points, jump

LEAST = math.log(1.03)
STEP = math.log(1.10)

# tests/analysis_test.py and tests/change_point_divisive_test.py of Apache Otava 0.8, the code of Hunter.
ONE_CHANGE = [
    1.02, 0.95, 0.99, 1.00, 1.12, 1.00, 1.01, 0.98, 1.01, 0.96,
    0.50, 0.51, 0.48, 0.48, 0.55, 0.50, 0.49, 0.51, 0.50, 0.49,
]  # fmt: skip
TWO_CHANGES = [0.3, 2.4, 1.5, -0.9, -0.5, 99.7, 98.3, 99.1, 149.0, 149.7, 149.5, 149.1, 148.8, 150.0]

# The first 120 values of tests/tigerbeetle_test.py there: a database's speed over commits, with an outlier at 10.
TIGERBEETLE = [
    26705, 26475, 26641, 26806, 26835, 26911, 26564, 26812, 26874, 26682, 15672, 26745, 26460, 26977, 26851,
    23412, 23547, 23674, 23519, 23670, 23662, 23462, 23750, 23717, 23524, 23588, 23687, 23793, 23937, 23715,
    23570, 23730, 23690, 23699, 23670, 23860, 23988, 23652, 23681, 23798, 23728, 23604, 23523, 23412, 23685,
    23773, 23771, 23718, 23409, 23739, 23674, 23597, 23682, 23680, 23711, 23660, 23990, 23938, 23742, 23703,
    23536, 24363, 24414, 24483, 24509, 24944, 24235, 24560, 24236, 24667, 24730, 28346, 28437, 28436, 28057,
    28217, 28456, 28427, 28398, 28250, 28331, 28222, 28726, 28578, 28345, 28274, 28514, 28590, 28449, 28305,
    28411, 28788, 28404, 28821, 28580, 27483, 26805, 27487, 27124, 26898, 27295, 26951, 27312, 27660, 27154,
    27050, 26989, 27193, 27503, 27326, 27375, 27513, 27057, 27421, 27574, 27609, 27123, 27824, 27644, 27394,
]  # fmt: skip


def places(points: tuple[ChangePoint, ...]) -> list[int]:
    return [point.index for point in points]


# ---- published --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "window", "p", "expected"),
    [
        (ONE_CHANGE, 10, 0.0001, [10]),
        (TWO_CHANGES, 50, 0.01, [5, 8]),
        # What Otava says of these 120; its tests list [15, 61, 71, 95, 117, ...] for all 366.
        (TIGERBEETLE, 30, 0.001, [15, 61, 71, 95]),
    ],
)
def test_published_examples(values: list[float], window: int, p: float, expected: list[int]) -> None:
    assert places(change_points(values, window=window, p=p)) == expected


def test_p_is_that_of_the_t_test() -> None:
    """The series is in tests/analysis_test.py there; the reference is SciPy's test with a pooled variance."""
    from scipy.stats import ttest_ind  # here: it takes each process that reads this file half a second

    values = [1.00, 1.02, 1.05, 0.95, 0.98, 0.80, 0.82, 0.85, 0.79, 0.77]

    (point,) = change_points(values)

    expected = float(ttest_ind(values[:5], values[5:]).pvalue)
    assert point == ChangePoint(5, pytest.approx(1.0), pytest.approx(0.806), pytest.approx(expected))


def by_definition(x: list[float]) -> int:
    """The place of the greatest Q (Matteson & James 2014), written as it is defined there."""

    def mean_within(v: list[float]) -> float:
        pairs = len(v) * (len(v) - 1) / 2
        return sum(abs(a - b) for i, a in enumerate(v) for b in v[i + 1 :]) / pairs if pairs else 0.0

    best = (-math.inf, 0)
    for split in range(2, len(x) - 1):
        for end in range(split + 1, len(x) + 1):
            one, other = x[:split], x[split:end]
            n, m = len(one), len(other)
            mean_between = sum(abs(a - b) for a in one for b in other) / (n * m)
            divergence = n * m / (n + m) * (2 * mean_between - mean_within(one) - mean_within(other))
            best = max(best, (divergence, split), key=lambda found: found[0])
    return best[1]


@pytest.mark.parametrize("seed", range(20))
def test_a_series_is_split_where_the_definition_says(seed: int) -> None:
    dice = np.random.default_rng(seed)
    values = (dice.standard_normal(12) + 30 * (np.arange(12) >= dice.integers(3, 9))).tolist()

    found = places(change_points(values, p=0.01))

    assert by_definition(values) in found


# ---- properties -------------------------------------------------------------------------------------------------

VALUES = st.lists(st.floats(-1e6, 1e6), max_size=80)


@given(VALUES)
@example([])
@example([0.1] * 60)
@example([0.0] * 30 + [1.0] * 30)
def test_points_lie_inside_and_know_the_means_beside_them(values: list[float]) -> None:
    found = change_points(values, window=20)

    ends = [0, *places(found), len(values)]
    assert ends == sorted(set(ends)) or not values
    for (a, at), (_, b), point in zip(pairwise(ends), pairwise(ends[1:]), found, strict=False):
        assert (point.before, point.after) == (fmean(values[a:at]), fmean(values[at:b]))
        assert point.p <= 0.001


def test_a_change_that_is_too_small_has_no_name_however_steady_it_is() -> None:
    values = [0.0, 0.001] * 20 + [0.02, 0.021] * 20

    assert places(change_points(values)) == [40]
    assert change_points(values, least_change=0.03) == ()


def test_a_single_value_apart_is_no_level() -> None:
    dice = np.random.default_rng(5)
    values = (0.01 * dice.standard_normal(40)).tolist()

    assert change_points([*values, 0.2]) == ()
    assert change_points([*values[:20], 0.2, *values[20:]]) == ()
    assert places(change_points([*values, 0.2, 0.2])) == [40]


# ---- rates ------------------------------------------------------------------------------------------------------


def noise(dice: np.random.Generator, sd: float, tails: str, n: int = 80) -> list[float]:
    values = dice.standard_normal(n) if tails == "normal" else dice.standard_t(3, n) / math.sqrt(3)
    return (sd * values).tolist()


@pytest.mark.parametrize(("sd", "tails"), [(0.015, "normal"), (0.03, "normal"), (0.015, "heavy"), (0.03, "heavy")])
def test_fewer_than_one_in_a_hundred_commits_is_called_a_change_where_none_is(sd: float, tails: str) -> None:
    """Commit by commit, as somebody sees it who looks after each: a point that goes away again counts as well."""
    dice = np.random.default_rng(1)
    alarms = jumps = commits = 0
    for _ in range(20):
        values, seen = noise(dice, sd, tails), set[int]()
        for n in range(20, len(values) + 1):
            commits += 1
            now = set(places(change_points(values[:n], least_change=LEAST)))
            alarms += bool(now - seen)
            jumps += jump(values[:n]) is not None
            seen |= now

    assert alarms <= 0.01 * commits
    assert jumps <= {0.015: 0.01, 0.03: 0.03}[sd] * commits


@pytest.mark.parametrize("sd", [0.015, 0.0266])
def test_a_step_of_a_tenth_is_found_within_ten_commits(sd: float) -> None:
    """1.5 % is what ratios to a baseline scatter by on a busy machine, 2.66 % what times do on hosted ones."""
    dice = np.random.default_rng(2)
    found = 0
    for _ in range(60):
        values = [v + STEP * (i >= 40) for i, v in enumerate(noise(dice, sd, "normal", 50))]
        seen = [change_points(values[:n], least_change=LEAST) for n in range(41, 51)]
        found += any(abs(point.index - 40) <= 1 and point.change > 0 for points in seen for point in points)

    assert found >= 0.95 * 60


def test_every_one_of_several_steps_is_found() -> None:
    """Up and down again: the rest of a series is not one level to compare with."""
    dice = np.random.default_rng(4)
    found = false = 0
    for _ in range(40):
        cuts = sorted(dice.choice(np.arange(5, 95, 6), 4, replace=False).tolist())
        signs = dice.choice([-1, 1], 4)
        level = [sum(sign * STEP for cut, sign in zip(cuts, signs, strict=True) if i >= cut) for i in range(100)]
        values = [a + b for a, b in zip(level, noise(dice, 0.01, "normal", 100), strict=True)]

        points = places(change_points(values, least_change=LEAST))

        found += sum(any(abs(i - cut) <= 1 for i in points) for cut in cuts)
        false += sum(all(abs(i - cut) > 1 for cut in cuts) for i in points)

    assert found >= 0.98 * 160
    assert false <= 1


def test_a_newest_value_a_tenth_above_is_told_at_once() -> None:
    dice = np.random.default_rng(3)

    found = [jump([*noise(dice, 0.015, "normal", 30), STEP]) for _ in range(200)]

    assert sum(value is not None for value in found) >= 190
    assert fmean(v for v in found if v is not None) == pytest.approx(STEP, abs=0.005)


@pytest.mark.parametrize(
    "values",
    [[], [1.0], [0.0] * 9 + [1.0], [0.0] * 30 + [0.04], [0.0] * 30 + [-1.0], [0.0, 0.2] * 15 + [0.4]],
    ids=["none", "one", "too few before", "below 5 %", "downward", "within its spread"],
)
def test_no_jump(values: list[float]) -> None:
    assert jump(values) is None
    assert jump([5.0] * 50 + [0.0] * 30 + [0.1]) == pytest.approx(0.1)  # it is taken from the newest thirty
