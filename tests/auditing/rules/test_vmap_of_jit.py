"""vmap outside of jit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from evidence_by_hand import ScriptedEvidence

from benchax.auditing.audit import ask
from benchax.auditing.evidence import Evidence
from benchax.auditing.rules.whole_calls import is_vmap, vmap_of_jit
from benchax.case import make_case
from benchax.model import CaseId, Comparison, Version

X = jnp.ones((8, 4))


@jax.jit
def double(x: Any) -> Any:
    return jnp.sin(x) * 2


def plain(x: Any) -> Any:
    return jnp.sin(x) * 2


def by_name(x: Any) -> Any:
    return jax.vmap(double)(x)


def written_out(x: Any) -> Any:
    return jax.vmap(jax.jit(plain))(x)


def not_jitted_at_all(x: Any) -> Any:
    return jax.vmap(plain)(x)


def of(fn: Callable[..., Any]) -> ScriptedEvidence:
    """With a comparison that was made elsewhere."""
    versions = Version("as it is"), Version("jax.jit")
    made = Comparison(CaseId("f"), "run", *versions, "faster", ratio=0.1, baseline_value=2e-4, low=0.09, high=0.11)
    return ScriptedEvidence(Evidence(make_case(fn, (X,))), compare=lambda name: made)


@pytest.mark.slow
@pytest.mark.parametrize("fn", [jax.vmap(double), by_name, written_out])
def test_it_is_found_and_compared_with_jit_outside(fn: Callable[..., Any]) -> None:
    e = of(fn)

    (finding,), _ = ask(vmap_of_jit, e)

    assert [(variant.jit, baseline.jit) for baseline, variant in e.pairs] == [(True, False)]
    assert finding.gain is not None
    assert finding.gain.startswith("measured: 200 µs → 20.0 µs per call")
    assert finding.where is not None
    assert finding.where[0] == __file__
    assert "jax.jit(jax.vmap(f))" in finding.advice


@pytest.mark.parametrize(
    ("fn", "outcome"),
    [
        (jax.jit(jax.vmap(plain)), "not applicable"),
        (jax.jit(by_name), "not applicable"),
        (not_jitted_at_all, "not applicable"),
        (functools.partial(plain), "not applicable"),
        (jax.grad(lambda x: double(x).sum()), "not applicable"),
    ],
)
def test_jit_outside_or_no_jit_inside_is_none_of_it(fn: Callable[..., Any], outcome: str) -> None:
    findings, answer = ask(vmap_of_jit, of(fn))

    assert (findings, answer.outcome) == ([], outcome)


@pytest.mark.slow
def test_a_comparison_that_could_not_tell_is_no_nothing_found() -> None:
    versions = Version("as it is"), Version("jax.jit")
    unclear = Comparison(CaseId("f"), "run", *versions, "unclear", "the processes differ", ratio=0.05)
    e = ScriptedEvidence(Evidence(make_case(written_out, (X,))), compare=lambda name: unclear)

    findings, answer = ask(vmap_of_jit, e)

    assert (findings, answer.outcome) == ([], "not checked")


def test_a_vmap_is_told_from_other_transformations() -> None:
    assert is_vmap(jax.vmap(double))
    assert not is_vmap(jax.grad(double))
    assert not is_vmap(double)
