"""Batches that could be larger."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

from benchax.auditing.rules import whole_calls

ID = "small-batch"
SHAPES = ("f32[64,64]", "f32[4,64]")


@pytest.fixture(autouse=True)
def any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of a test are short."""
    monkeypatch.setattr(whole_calls, "SHORT_CALL_S", 0.0)


def layer(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w)


def test_twice_the_batch_in_hardly_more_time_is_told_per_element(ask_about: Any, result_of: Any) -> None:
    answered = ask_about(ID, layer, *SHAPES, ratio=1.1)

    assert answered.one.title == "a batch of 8 takes 1.10 times as long as one of 4"
    assert answered.one.gain == "measured: 250 µs → 138 µs per element of the batch"
    ((one, two),) = answered.pairs
    (before,), (after,) = result_of(one), result_of(two)
    assert after.shape == (8, 64)
    assert jnp.allclose(after[:4], before, rtol=1e-4)


@pytest.mark.parametrize("ratio", [1.5, 2.0])
def test_a_batch_that_takes_longer_with_its_size_is_fine(ask_about: Any, ratio: float) -> None:
    assert ask_about(ID, layer, *SHAPES, ratio=ratio).outcome == "fine"


def test_an_interval_on_both_sides_of_the_limit_is_undecided(ask_about: Any) -> None:
    answered = ask_about(ID, layer, *SHAPES, ratio=whole_calls.LITTLE)

    assert (answered.findings, answered.outcome) == ([], "not checked")
    assert answered.why == "undecided: batch 4: 1.00 ms per call; batch 8: 1.40×, 1.39 – 1.41"


def test_without_a_batch_it_does_not_apply(ask_about: Any) -> None:
    assert ask_about(ID, lambda x: (x @ x).sum(), "f32[64,64]").outcome == "not applicable"


def test_without_time_for_a_comparison_it_was_not_checked(ask_about: Any) -> None:
    assert ask_about(ID, layer, *SHAPES).outcome == "not checked"


def test_arguments_that_have_the_batch_in_common_grow_together(ask_about: Any) -> None:
    answered = ask_about(ID, lambda x, y: x * y, "f32[4,64]", "f32[4,64]", ratio=1.0)

    ((_, two),) = answered.pairs
    assert [leaf.shape for leaf in two.inputs()[0]] == [(8, 64), (8, 64)]


def test_a_call_that_is_mostly_dispatch_says_nothing_of_its_batch(ask_about: Any, monkeypatch) -> None:
    monkeypatch.setattr(whole_calls, "SHORT_CALL_S", 10.0)

    answered = ask_about(ID, layer, *SHAPES, ratio=1.1)

    assert (answered.outcome, answered.pairs) == ("not applicable", [])
