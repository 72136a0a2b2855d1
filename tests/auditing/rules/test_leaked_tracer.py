"""Values of a trace that outlive it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchax.auditing.audit import ask
from benchax.auditing.evidence import Evidence
from benchax.auditing.rules.tracing import leaked_tracer
from benchax.case import make_case
from benchax.results.audit import Checked, Finding

kept: list[Any] = []
numbers: list[Any] = []


def asked(fn: Callable[..., Any]) -> tuple[list[Finding], Checked]:
    return ask(leaked_tracer, Evidence(make_case(fn, (jnp.ones((3, 4)),))))


def keeps(x: Any) -> Any:
    kept.append(x * 2)
    return x


def uses(x: Any) -> Any:
    if kept:
        return x + kept[-1]
    kept.append(x * 2)
    return x


@pytest.fixture
def unfrozen() -> Iterator[None]:
    """The collector of garbage knows who holds what, but not of what `conftest.py` has put aside."""
    gc.unfreeze()
    yield
    gc.collect()
    gc.freeze()


@pytest.mark.slow
@pytest.mark.usefixtures("unfrozen")
def test_a_traced_value_in_a_global_is_found_and_its_holder_named() -> None:
    (finding,), _ = asked(jax.jit(keeps))
    kept.clear()

    assert finding.severity == "error"
    assert "a traced value float32[3,4] is still held after the trace" in finding.seen
    assert any(text.startswith("held by ") and text.endswith(".kept") for text in finding.seen)
    assert finding.where is not None
    assert finding.where[0] == __file__


def test_a_value_of_an_earlier_trace_that_is_used_is_found() -> None:
    jax.jit(uses).trace(jnp.ones((3, 4)))

    (finding,), _ = asked(uses)
    kept.clear()

    assert finding.title == "uses a value of a trace that is over"


def test_a_number_kept_in_a_global_is_no_leak() -> None:
    def notes(x: Any) -> Any:
        numbers.append(x.shape)
        return x * 2

    findings, answer = asked(jax.jit(notes))

    assert (findings, answer.outcome, answer.why) == ([], "fine", "")


def test_inner_transformations_are_no_leak() -> None:
    def nested(x: Any) -> Any:
        loss = jax.checkpoint(lambda y: jax.lax.scan(lambda c, r: (c + r, r), y[0], y)[0].sum())
        return jax.vmap(jnp.sin)(jax.grad(loss)(x))

    assert asked(nested)[1].outcome == "fine"


def test_what_jax_itself_keeps_of_callbacks_in_differentiated_loops_is_no_leak() -> None:
    def loss(x: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            carry = jnp.tanh(carry)
            jax.debug.callback(numbers.append, carry.sum())
            return carry, None

        return jax.lax.scan(step, x, length=3)[0].sum()

    findings, answer = asked(jax.jit(jax.grad(loss)))

    assert findings == []
    assert answer.outcome in ("fine", "not checked")
