"""Micro-batches: the same gradient where the loss is a mean, and a wrong result where it is not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labs_by_hand import ScriptedLab

from benchax.case import make_case
from benchax.errors import NotAvailable, UsageError
from benchax.experiments.gradients import Gradient
from benchax.experiments.variants.gradient_accumulation import AccumulatedGradients, MicroBatched

SPECS = ({"w": "f32[64,64]", "b": "f32[64]"}, "f32[256,64]", "f32[256]")


def errors(weights, x, y):
    return ((x @ weights["w"] + weights["b"]).sum(-1) - y) ** 2


def mean_loss(weights, x, y):
    return errors(weights, x, y).mean()


def sum_loss(weights, x, y):
    return errors(weights, x, y).sum()


def rows(fn: Any, counts: str) -> dict[str, Any]:
    return {row.name: row for row in AccumulatedGradients().plan(make_case(fn, SPECS), counts)(ScriptedLab())}


def test_of_a_mean_the_result_is_equal_and_memory_less() -> None:
    found = rows(mean_loss, "8,3")

    row, whole = found["accumulate-gradients:8"], found["accumulate-gradients:1"]
    assert row.status == "ok"
    assert row.temp_bytes < whole.temp_bytes
    assert row.errors.max_rel < 1e-4
    assert dict(row.facts)["batch"].startswith("the 256 rows of x, y, guessed: with more of them the outputs keep")
    assert dict(row.facts)["batch"].endswith("; in 8 parts")
    assert (row.flops, row.absent[-1].why) == (None, "XLA counts the body of a loop once")
    assert found["accumulate-gradients:3"].reason == "256 rows of x, y do not divide into 3 equal micro-batches"


def test_of_a_sum_the_result_is_wrong_and_is_not_timed() -> None:
    row = rows(sum_loss, "4")["accumulate-gradients:4"]

    assert row.status == "wrong_result"
    assert row.comparison is None
    assert ("equal", "only where the loss is a mean over the rows") in row.facts


def test_micro_batches_give_jaxs_own_gradient() -> None:
    random = np.random.default_rng(0)
    weights = {"w": jnp.asarray(random.normal(size=(8, 3)), jnp.float32), "b": jnp.zeros(3)}
    x, y = jnp.asarray(random.normal(size=(16, 8)), jnp.float32), jnp.ones(16)

    ours = MicroBatched(Gradient(mean_loss, 0), 4, (1, 2))(weights, x, y)

    expected = jax.value_and_grad(mean_loss)(weights, x, y)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), ours, expected)


def test_the_batch_is_what_most_arguments_have_in_front() -> None:
    case = make_case(
        lambda w, table, x, y: (table.sum() + (x @ w - y) ** 2).mean(), ("f32[4]", "f32[99,2]", "f32[8,4]", "f32[8]")
    )
    measure = AccumulatedGradients().plan(case, "3")

    (row,) = measure(ScriptedLab())

    assert row.reason == "8 rows of x, y do not divide into 3 equal micro-batches"


def test_the_batch_can_be_named() -> None:
    measure = AccumulatedGradients(batch="x").plan(make_case(mean_loss, SPECS), "3")

    (row,) = measure(ScriptedLab())

    assert row.reason == "256 rows of x do not divide into 3 equal micro-batches"


def test_without_a_batch_it_says_so() -> None:
    with pytest.raises(NotAvailable, match="no argument but w is a batch"):
        AccumulatedGradients().plan(make_case(lambda w: w.sum(), ("f32[4]",)))


@settings(max_examples=60, deadline=None)
@given(st.text("0123,-² .", max_size=5))
def test_any_text_is_numbers_above_one_or_is_refused(text: str) -> None:
    case = make_case(mean_loss, SPECS)
    words = [word.strip() for word in text.split(",")]
    if all(word and set(word) <= set("0123") and int(word) > 1 for word in words):
        AccumulatedGradients().plan(case, text)
        return

    with pytest.raises(UsageError) as error:
        AccumulatedGradients().plan(case, text)
    assert repr(text) in error.value.problem
