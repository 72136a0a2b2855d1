"""Python that decides by the value of a traced argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.auditing.audit import ask
from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.rules.tracing import branch_on_value
from benchax.case import make_case
from benchax.results.audit import Checked, Finding
from benchax.results.watch import Watch


def asked(fn: Callable[..., Any], *args: Any, **settings: Any) -> tuple[list[Finding], Checked]:
    return ask(branch_on_value, Evidence(make_case(fn, args, **settings)))


def condition(x: Any) -> Any:
    if x > 0:
        return x
    return 2 * x


def repeat(x: Any, n: Any) -> Any:
    i = 0
    while i < n:
        i += 1
    return x + i


def counted(x: Any, n: Any) -> Any:
    for _ in range(n):
        x = x + 1
    return x


def chosen(x: Any) -> Any:
    return x if x > 0 else -x


@pytest.mark.parametrize(
    ("fn", "args", "text", "what", "argument", "remedy"),
    [
        (condition, (1.0,), "if x > 0", "if", "x", "jnp.where"),
        (repeat, (1.0, 3), "while i < n", "while", "n", "jax.lax.while_loop"),
        (counted, (1.0, 3), "for _ in range(n)", "the loop", "n", "jax.lax.fori_loop"),
        (chosen, (1.0,), "if x > 0", "if", "x", "jnp.where"),
    ],
)
def test_the_argument_the_line_and_the_remedies_are_told(
    fn: Any, args: tuple[Any, ...], text: str, what: str, argument: str, remedy: str
) -> None:
    (finding,), _ = asked(fn, *args)

    lines, first = inspect.getsourcelines(fn)
    line = first + next(i for i, each in enumerate(lines) if text in each)
    assert finding.title == f"{what} needs the value of argument {argument}, which is not known while tracing"
    assert finding.where == (__file__, line)
    assert text in finding.seen[0]
    assert finding.advice.split(".")[0].startswith("Here: jax" if remedy[:4] == "jax." else "Here: jnp")
    assert remedy in finding.advice
    assert all(way in finding.advice for way in ("static_argnames", "jax.lax.cond", "jit only the inner part"))


@pytest.mark.parametrize(
    ("fn", "title", "remedy"),
    [
        (lambda x, n: jnp.concatenate([x] * n), "[x] * n needs a size from the value of argument n", "dynamic_slice"),
        (lambda x, n: x[:n], "x[:n] needs a size from the value of argument n", "dynamic_slice"),
        (lambda x, n: np.sin(x), "np.sin(x) needs the value of argument x", "Use jnp.sin"),
        (lambda x, n: x[x > n], "x[x > n] selects a number of elements that is not known while tracing", "jnp.where"),
    ],
    ids=["repeated list", "slice", "numpy", "mask"],
)
def test_what_is_no_branch_is_told_by_its_expression_with_its_own_remedies(fn: Any, title: str, remedy: str) -> None:
    (finding,), _ = asked(jax.jit(fn), jnp.ones(4), 3)

    assert finding.title.startswith(title)
    assert finding.severity == "error"
    assert remedy in finding.advice
    assert "jax.lax.cond" not in finding.advice


def test_it_is_an_error_of_what_is_jitted_and_a_warning_else() -> None:
    (plain,), _ = asked(condition, 1.0)
    (jitted,), _ = asked(jax.jit(condition), 1.0)

    assert (plain.severity, jitted.severity) == ("warning", "error")


def test_a_condition_on_a_shape_or_on_a_static_argument_is_fine() -> None:
    def by_rank(x: Any) -> Any:
        return x.sum() if x.ndim == 2 else x

    assert asked(by_rank, jnp.ones((2, 2)))[1].outcome == "fine"
    assert asked(repeat, 1.0, 3, static=("n",))[1].outcome == "fine"


def test_another_error_is_not_its_business() -> None:
    def wrong(x: Any) -> Any:
        raise RuntimeError("no")

    findings, answer = asked(wrong, 1.0)

    assert (findings, answer.outcome) == ([], "not applicable")
    assert "RuntimeError: no" in answer.why


def test_a_program_is_not_its_business() -> None:
    findings, answer = ask(branch_on_value, ProgramEvidence("python train.py", Watch()))

    assert (findings, answer.outcome) == ([], "not applicable")
    assert answer.why.startswith("a program is audited")
