"""Numbers that 32 bits cannot tell apart, and those that are rounded without harm."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from benchax.auditing.recorder.hooks import find_lost_digits

RNG = np.random.default_rng(0)
DATES = 2459580.5 + RNG.uniform(0, 60, 1440)
UNIX = 1.7e9 + np.arange(100.0)
TABLE = np.column_stack([RNG.normal(size=100), UNIX])


@pytest.mark.parametrize("given", [DATES, DATES[::-1], list(DATES), TABLE, TABLE[:, None], -DATES, DATES - 0.5])
def test_numbers_with_a_large_offset_are_found(given: Any) -> None:
    lost = find_lost_digits(given, np.float32)

    assert lost is not None
    assert lost.left < 0.5 * lost.distinct


def test_what_is_told_are_the_numbers_and_how_far_apart_float32_has_them() -> None:
    lost = find_lost_digits(np.array([*DATES, np.nan, np.inf]), np.float32)

    assert lost is not None
    assert lost.sentences[0].startswith("of 1440 different numbers from 2459580.5")
    assert lost.sentences[0].endswith(f"{lost.left} are left in f32")
    assert lost.sentences[1] == "f32 holds a number of this size to 0.25"
    assert lost.step == np.spacing(np.float32(DATES.max()))


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(RNG.normal(size=5000), id="of any kind"),
        pytest.param(20.0 + RNG.normal(size=5000), id="of a moderate offset"),
        pytest.param(np.exp(-(np.linspace(-20, 20, 5001) ** 2)), id="with tails"),
        pytest.param(300.0 + np.sin(np.linspace(0, 200 * np.pi, 5001)), id="equal but for their rounding"),
        pytest.param(np.ones(100) + 1e-15 * RNG.normal(size=100), id="all the same"),
        pytest.param(DATES[:20], id="few"),
        pytest.param(np.full(50, np.nan), id="none"),
        pytest.param(np.zeros((0, 3)), id="no elements"),
        pytest.param(DATES.astype(np.float32), id="in 32 bits"),
        pytest.param(np.arange(100, dtype=np.uint64) << 40, id="unsigned"),
        pytest.param(np.arange(100), id="small integers"),
        pytest.param(["a"] * 50, id="text"),
    ],
)
def test_numbers_that_stay_as_different_as_they_are_of_use_are_not_found(given: Any) -> None:
    to = np.int32 if np.asarray(given).dtype.kind in "iu" else np.float32

    assert find_lost_digits(given, to) is None


def test_with_64_bits_nothing_is_lost() -> None:
    assert find_lost_digits(DATES, np.float64) is None


@pytest.mark.parametrize("to", [np.float16, jnp.bfloat16])
def test_numbers_of_16_bits_are_few(to: Any) -> None:
    assert find_lost_digits(1000 + RNG.uniform(0, 90, 500), to) is not None


def test_integers_that_do_not_fit_are_found_and_their_limit_is_told() -> None:
    lost = find_lost_digits(np.arange(100) + 2**40, np.int32)

    assert lost is not None
    assert lost.sentences == ["the numbers go from 1.09951162778e+12 to 1.09951162788e+12; i32 ends at 2147483647"]
