"""What an experiment tries where nothing is named: what can help here, the most promising first, in a minute."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from labs_by_hand import ScriptedLab

from benchax.case import make_case
from benchax.experiments.experiment import choose_variants, run_experiment, time_limit
from benchax.experiments.variants import VARIANTS, choose_promising


@pytest.mark.parametrize(
    ("backend", "left_out"),
    [("cpu", {"eager", "f64", "default", "tf32", "high", "highest"}), ("gpu", {"eager", "f64"})],
)
def test_what_cannot_help_on_a_backend_is_left_out(backend: str, left_out: set[str]) -> None:
    assert set(VARIANTS) - set(choose_promising(backend)) == left_out


def test_the_most_promising_come_first() -> None:
    assert list(choose_promising("cpu"))[:5] == ["jit", "hoist", "unroll", "accumulate-gradients", "donate"]


def test_what_is_named_is_tried_whatever_it_promises() -> None:
    assert choose_variants(["eager", "f64"]) == ({"eager": VARIANTS["eager"], "f64": VARIANTS["f64"]}, True)


@pytest.mark.parametrize(
    ("asked_s", "names", "limit_s"),
    [(None, None, 60.0), (5.0, None, 5.0), (None, ["bf16"], None), (5.0, ["bf16"], 5.0)],
)
def test_a_minute_is_the_limit_where_nothing_was_asked_for(asked_s: Any, names: Any, limit_s: Any) -> None:
    assert time_limit(asked_s, names) == limit_s


def logistic(x: jax.Array) -> jax.Array:
    """The logistic map, in which a difference doubles with each iteration."""
    return jax.lax.fori_loop(0, 100, lambda i, x: 3.9999 * x * (1 - x), x)


def test_a_chaotic_function_is_said_to_be_one() -> None:
    case = make_case(logistic, (jnp.linspace(0.1, 0.9, 64),))

    found = run_experiment(case, ["donate"], ScriptedLab())

    (remark,) = found.remarks
    assert remark.code == "chaotic"
    assert "chaotic systems" in remark.message
    assert "errors of variants say nothing" in remark.message


def test_a_function_that_is_exact_is_not() -> None:
    assert run_experiment(make_case(jnp.sin, ("f32[64]",)), ["donate"], ScriptedLab()).remarks == ()
