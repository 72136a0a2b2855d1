"""What a side is compared with."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchax.case import make_case
from benchax.experiments.study import StudySide, look_at_all

KEY = jax.random.key(0)


def noisy(x: Any) -> Any:
    return x + jax.random.normal(KEY, x.shape, x.dtype)


def looked_at(*sides: StudySide) -> Any:
    return look_at_all((sides, 0, ""), lambda text: None)


def test_of_random_numbers_that_float64_has_others_of_the_baseline_is_the_reference() -> None:
    case = make_case(noisy, (jnp.ones(100),))
    same = make_case(lambda x: noisy(x) + 1e-3, (jnp.ones(100),))

    found = looked_at(StudySide("as it is", case), StudySide("same", same))

    (absent,) = [one for one in found.seen["as it is"].absent if one.what == "errors"]
    assert absent.why == "in float64 it draws other random numbers"
    assert found.seen["same"].errors.reference == "baseline"
    assert found.seen["same"].errors.max_rel < 0.01


def test_a_side_that_draws_other_numbers_is_compared_with_nothing() -> None:
    case = make_case(noisy, (jnp.ones(100),))
    half = make_case(lambda x: noisy(x.astype(jnp.bfloat16)).astype(x.dtype), (jnp.ones(100),))

    found = looked_at(StudySide("as it is", case), StudySide("half", half))

    (absent,) = [one for one in found.seen["half"].absent if one.what == "errors"]
    assert absent.why == "it draws other random numbers than what it would be compared with"


def test_what_draws_nothing_is_compared_with_a_run_in_float64() -> None:
    found = looked_at(StudySide("as it is", make_case(jnp.sin, (jnp.ones(100),))))

    assert found.seen["as it is"].errors.reference == "float64"
