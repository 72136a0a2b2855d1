"""Functions that are made and jitted again and again."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.auditing.audit import ask
from benchax.auditing.evidence import Evidence
from benchax.auditing.rules.compiling import jit_in_loop
from benchax.case import make_case
from benchax.results.audit import Checked, Finding

X = np.ones(3, np.float32)


def asked(fn: Callable[..., Any]) -> tuple[list[Finding], Checked]:
    return ask(jit_in_loop, Evidence(make_case(fn, (X,))))


def line_of(fn: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(fn)
    return first + next(i for i, line in enumerate(lines) if text in line)


def add(x: Any, n: Any) -> Any:
    return x + n


def lambdas(x: Any) -> Any:
    for n in range(5):
        step = jax.jit(lambda y, n=n: y + n)
        x = step(x)
    return x


def partials(x: Any) -> Any:
    while x[0] < 5:
        x = jax.jit(functools.partial(add, n=2))(x)
    return x


def inner(x: Any) -> Any:
    def double(y: Any) -> Any:
        return y * 2

    return jax.jit(double)(x)


def made_around_a_loop(x: Any) -> Any:
    def double(y: Any) -> Any:
        return y * 2

    step = jax.jit(double)
    for _ in range(2):
        x = step(x)
    return x


def decorated_around_a_loop(x: Any) -> Any:
    @jax.jit
    def step(y: Any) -> Any:
        return y * 2

    for _ in range(2):
        x = step(x)
    return x


def one_function(x: Any) -> Any:
    for n in range(5):
        x = jax.jit(add)(x, jnp.float32(n))
    return x


def rarely(x: Any) -> Any:
    if x[0] > 1000:
        for n in range(5):
            x = jax.jit(lambda y, n=n: y + n)(x)
    return x


def test_a_lambda_in_a_loop_is_found_at_its_line() -> None:
    (finding,), _ = asked(lambdas)

    assert finding.where == (__file__, line_of(lambdas, "jax.jit"))
    assert finding.title == "<lambda> is made and jitted again and again, and compiled each time"
    assert finding.seen[0].startswith("14 recompiles took")


def test_a_partial_in_a_while_loop_is_found() -> None:
    (finding,), _ = asked(partials)

    assert finding.where == (__file__, line_of(partials, "jax.jit"))
    assert finding.severity == "warning"


def test_an_inner_function_jitted_in_each_call_is_found() -> None:
    (finding,), _ = asked(inner)

    assert finding.where == (__file__, line_of(inner, "jax.jit"))
    assert "double of" in finding.seen[1]


def test_one_that_a_loop_inside_calls_is_found_where_it_is_made() -> None:
    (by_call,), _ = asked(made_around_a_loop)
    (by_decorator,), _ = asked(decorated_around_a_loop)

    assert by_call.where == (__file__, line_of(made_around_a_loop, "jax.jit"))
    assert by_decorator.where == (__file__, line_of(decorated_around_a_loop, "@jax.jit"))
    assert ("called here", __file__, line_of(decorated_around_a_loop, "step(x)")) in by_decorator.related


def test_jit_of_one_function_in_a_loop_is_fine() -> None:
    """JAX finds what it compiled by the function object."""
    findings, answer = asked(one_function)

    assert (findings, answer.outcome) == ([], "fine")


def test_what_did_not_run_is_read_from_the_source() -> None:
    (finding,), _ = asked(rarely)

    assert finding.severity == "info"
    assert finding.where == (__file__, line_of(rarely, "jax.jit"))
    assert finding.seen[1] == "seen in the source; the calls did not show it"


def test_a_loop_inside_of_a_jitted_function_is_part_of_one_program() -> None:
    assert asked(jax.jit(lambdas))[0] == []


def factory(n: int) -> Any:
    @jax.jit
    def shifted(y: Any) -> Any:
        return y + n

    return shifted


def made_by_a_function() -> None:
    for n in range(4):
        shifted = factory(n)
        shifted(X)


def train(n: int) -> Any:
    @jax.jit
    def trained(x: Any) -> Any:
        return x + n

    return trained(X)
