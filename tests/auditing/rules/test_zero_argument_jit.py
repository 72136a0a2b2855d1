"""Functions that compute from nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchax.auditing.audit import ask
from benchax.auditing.evidence import Evidence
from benchax.auditing.rules.waste import zero_argument_jit
from benchax.case import make_case
from benchax.results.audit import Checked, Finding

W = jnp.arange(64.0).reshape(8, 8)


def asked(fn: Callable[..., Any], *args: Any, **settings: Any) -> tuple[list[Finding], Checked]:
    return ask(zero_argument_jit, Evidence(make_case(fn, args, **settings)))


def closed() -> Any:
    return (W * 2).sum()


def test_what_computes_from_a_closure_alone_is_folded() -> None:
    (finding,), _ = asked(jax.jit(closed))

    assert finding.title == "has no arguments: what it computes is known before it runs"
    assert finding.seen[0] == "none of its 2 operations depends on an input"
    assert "the compiled program computes nothing: XLA did it all at compile time" in finding.seen
    assert finding.where is not None
    assert finding.where[0] == __file__


def test_a_static_argument_is_no_input() -> None:
    def filled(n: int) -> Any:
        return jnp.arange(n).sum()

    (finding,), _ = asked(filled, 8, static=("n",))

    assert finding.rule == "zero-argument-jit"


def test_a_function_of_an_argument_is_fine() -> None:
    findings, answer = asked(lambda x: W @ x, jnp.ones(8))

    assert (findings, answer.outcome) == ([], "fine")


def test_a_scalar_argument_is_an_input() -> None:
    assert asked(lambda x: W * x, 2.0)[0] == []
