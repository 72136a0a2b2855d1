"""Gradients with checkpoints beside the gradient as it is. Looks are real, times by hand."""

from __future__ import annotations

import re
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
from benchax.experiments.checkpoints import POLICIES, SEGMENTS, Checkpointed
from benchax.experiments.gradients import differentiate
from benchax.experiments.variants.remat import Remat, saved_residuals


def loss(ws, x):
    for w in ws:
        x = jnp.tanh(x @ w)
    return (x**2).mean()


CASE = make_case(loss, (["f32[16,16]"] * 6, "f32[32,16]"))


@pytest.fixture(scope="module")
def rows() -> dict[str, Any]:
    measure = Remat().plan(CASE, "nothing_saveable, everything_saveable,segments")
    return {row.name: row for row in measure(ScriptedLab(usual=1.25))}


def test_each_policy_is_a_row_beside_the_gradient_as_it_is(rows) -> None:
    assert list(rows) == ["remat:none", "remat:nothing_saveable", "remat:everything_saveable", "remat:segments"]
    assert {row.status for row in rows.values()} == {"ok"}
    assert rows["remat:none"].comparison is None
    assert rows["remat:nothing_saveable"].comparison.verdict == "slower"
    assert "equal results" in rows["remat:nothing_saveable"].sentence


def test_each_row_has_the_compilers_plan_and_count(rows) -> None:
    assert all(None not in (row.temp_bytes, row.peak_bytes, row.flops, row.compile_s) for row in rows.values())


def test_what_is_kept_between_the_passes_is_told(rows) -> None:
    kept = {name: dict(row.facts)["kept between the passes"] for name, row in rows.items()}

    assert kept["remat:nothing_saveable"] == "nothing but arguments"
    # Since jax 0.11 the last tanh is not kept.
    expected = r"(13 arrays, 26\.0|12 arrays, 24\.0) KiB; the largest: f32\[32,16\] output of tanh"
    assert re.match(expected, kept["remat:none"])
    assert re.match(r"1[23] arrays, ", kept["remat:everything_saveable"])
    assert kept["remat:segments"].startswith("3 arrays, ")


@pytest.mark.parametrize("policy", [*POLICIES, "no_policy"])
def test_policies_are_looked_up_by_name(policy: str) -> None:
    x = jnp.ones((4, 4))
    checkpointed = Checkpointed(lambda x, axis: jnp.sin(x).sum(axis), (policy,))
    if policy not in POLICIES:
        with pytest.raises(AttributeError):
            checkpointed(x, 0)
        return

    np.testing.assert_array_equal(checkpointed(x, 0), jnp.sin(x).sum(0))


def test_a_dtype_without_a_size_is_not_added_up() -> None:
    plain = differentiate(make_case(lambda x, key: (jax.random.normal(key, x.shape) * x).sum(), ("f32[4]", "key")), 0)

    def split(x, key):
        keys = jax.random.split(key)
        return (jax.random.normal(keys[0], x.shape) * x * x).sum()

    assert isinstance(saved_residuals(split, plain), tuple)


def test_a_step_that_differentiates_itself_is_refused() -> None:
    with pytest.raises(NotAvailable, match="give the loss"):
        Remat().plan(make_case(lambda w: (w, w.sum()), ("f32[4]",)))


def test_too_few_operations_for_segments_are_a_row_and_the_others_go_on() -> None:
    case = make_case(lambda x: jnp.sin(x).sum(), ("f32[64]",))
    measure = Remat().plan(case, "segments,nothing_saveable")

    found = {row.name: row for row in measure(ScriptedLab())}

    assert found["remat:segments"].status == "not_available"
    assert "too few operations for segments" in found["remat:segments"].reason
    assert found["remat:nothing_saveable"].status == "ok"


@settings(max_examples=60, deadline=None)
@given(st.text("_,senb ", max_size=12) | st.sampled_from(["dots", "segments,", "save_only_these_names"]))
def test_any_text_names_policies_or_is_refused(text: str) -> None:
    words = [word.strip() for word in text.split(",")]
    if set(words) <= {*POLICIES, SEGMENTS}:
        Remat().plan(CASE, text)
        return

    with pytest.raises(UsageError) as error:
        Remat().plan(CASE, text)
    assert repr(text) in error.value.problem
