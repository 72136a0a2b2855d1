"""Rules can read every kind of loop."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from benchax.auditing.audit import ask
from benchax.auditing.evidence import Evidence
from benchax.auditing.rules import rules
from benchax.case import make_case

X, XS = "f32[8,8]", "f32[20,8,8]"


def recurrent(w: Any, xs: Any) -> Any:
    return lax.scan(lambda h, x: (jnp.tanh(h @ w + x), h.sum()), xs[0], xs)


def mapped(w: Any, xs: Any) -> Any:
    return lax.map(lambda x: x @ w, xs)


def counting(w: Any, xs: Any) -> Any:
    total = lax.fori_loop(0, 20, lambda i, h: h + xs[i] @ w, jnp.zeros((8, 8)))
    return lax.fori_loop(0, 20, lambda i, rows: rows.at[i].set(total[0]), jnp.zeros((20, 8)))


def summing_low(w: Any, xs: Any) -> Any:
    xs = xs.astype(jnp.bfloat16)
    return lax.scan(lambda total, x: (total + x[0, 0] * w[0, 0], None), jnp.bfloat16(0), xs)[0]


def until(w: Any, xs: Any) -> Any:
    def turn(h: Any, x: Any) -> Any:
        return lax.while_loop(lambda h: h.sum() < w.sum(), lambda h: jnp.sqrt(h - x) + w, h), None

    return lax.scan(turn, xs[0], xs)[0]


def every_loop(w: Any, xs: Any) -> Any:
    low = summing_low(w.astype(jnp.bfloat16), xs)
    return recurrent(w, xs), mapped(w, xs), counting(w, xs), low, until(w, xs)


def derivative(w: Any, xs: Any) -> Any:
    return jax.grad(lambda w: jax.vmap(recurrent, (None, 1))(w, xs)[0].sum())(w)


@pytest.mark.parametrize("fn", [every_loop, derivative])
def test_no_rule_that_reads_programs_fails_on_a_loop(fn: Any) -> None:
    evidence = Evidence(make_case(fn, (X, XS)), max_time_s=0)

    answers = [ask(rule, evidence)[1] for rule in rules().values() if rule.traced]

    assert [each for each in answers if "the rule failed" in each.why] == []
