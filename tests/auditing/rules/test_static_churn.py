"""Static arguments that take many values."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import benchax
from benchax.auditing.audit import ask
from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.rules.static_churn import static_churn
from benchax.results.audit import Checked, Finding
from benchax.results.watch import Compile, Reason, Watch

X = np.ones(3, np.float32)


def asked(values: Iterable[Any], f: Callable[..., Any]) -> tuple[list[Finding], Checked]:
    """Of a program that calls f with each value, static."""
    jitted = jax.jit(f, static_argnames="n")
    with benchax.watch() as seen:
        for n in values:
            jitted(X, n=n)
    return ask(static_churn, ProgramEvidence("python train.py", seen))


def multiply_by(n: float) -> Callable[[Any], Any]:
    return lambda x: x * n


def test_each_of_many_values_is_told() -> None:
    (finding,), _ = asked([1, 2, 3, 4], lambda x, n: x + n)

    assert finding.title == "static argument n of <lambda> took 4 values"
    assert finding.seen[0].startswith("4 programs for 4 values; all but the first took ")
    assert "static n: 1 → 2" in finding.seen[1]
    assert finding.where is not None
    assert finding.where[0] == __file__
    assert finding.advice.startswith("Pass n as an array")


@pytest.mark.parametrize(
    ("values", "severity"), [([1, 2, 3], "info"), (range(8), "warning"), ([0.1, 0.2, 0.3], "warning")], ids=str
)
def test_a_few_whole_numbers_that_mostly_are_sizes_are_an_info(values: Any, severity: str) -> None:
    (finding,), _ = asked(values, lambda x, n: x + n)

    assert finding.severity == severity


def test_a_function_that_is_made_anew_is_to_be_made_once() -> None:
    (finding,), _ = asked(map(multiply_by, range(4)), lambda x, n: n(x))

    assert finding.advice.startswith("Define the function that n is or holds once")


def test_of_a_function_of_a_package_the_line_that_calls_it_is_named() -> None:
    package = f"{sysconfig.get_path('purelib')}/diffrax/_integrate.py:888"
    reasons = (Reason("static", "static field: 1 → 2 (each value is compiled on its own)"),)
    one = Compile("diffeqsolve", package, "train.py:6", False, False, 0.1, 0.1, 0.1, "", reasons, "main")

    (finding,), _ = ask(static_churn, ProgramEvidence("", Watch("all", compiles=[one] * 3)))

    assert finding.where == (str(Path("train.py").absolute()), 6)


def test_what_a_package_makes_anew_for_itself_is_no_warning() -> None:
    package = f"{sysconfig.get_path('purelib')}/numpyro/util.py:316"
    text = "static _body_fn: <PjitFunction of <function fori_collect.<locals>._body_fn at 0x7f>> → another"
    one = Compile("_loop", package, "train.py:6", False, False, 0.1, 0.1, 0.1, "", (Reason("static", text),), "main")

    (finding,), _ = ask(static_churn, ProgramEvidence("", Watch("all", compiles=[one] * 3)))

    assert (finding.severity, finding.where) == ("info", (str(Path("train.py").absolute()), 6))
    assert finding.advice.startswith("_loop is a package's, which makes _body_fn anew in each call of yours")


def test_what_a_library_takes_as_static_is_told_at_the_line_that_passes_it(tmp_path: Path) -> None:
    train = tmp_path / "train.py"
    train.write_text("@eqx.filter_jit\ndef step(x, t):\n    return x * t\n\nfor i in range(9):\n    step(x, i / 9)\n")
    reasons = (Reason("static", "static t: 0.1 → 0.2 (each value is compiled on its own)"),)
    one = Compile("step", f"{train}:1", f"{train}:6", False, False, 0.1, 0.1, 0.1, "", reasons, "main")

    def where(text: str) -> Any:
        train.write_text(text)
        ((finding,), _) = ask(static_churn, ProgramEvidence("", Watch("all", compiles=[one] * 3)))
        assert finding.where is not None
        return finding.where[1], finding.advice[:22]

    text = train.read_text()
    assert where(text) == (6, "Give t as an array, jn")
    assert where(text.replace("@eqx.filter_jit", '@jax.jit(static_argnames="t")')) == (1, "Pass t as an array and")
    assert where(f'{text.replace("@eqx.filter_jit", "#")}    f = jax.jit(step, static_argnames="t")\n')[0] == 7


def test_a_limited_set_of_values_is_fine() -> None:
    findings, answer = asked([1, 2, 1, 2], lambda x, n: x + n)

    assert (findings, answer.outcome) == ([], "fine")


def test_shapes_are_no_static_values() -> None:
    f = jax.jit(lambda x: x + 1)

    with benchax.watch() as seen:
        for n in (3, 4, 5, 6):
            f(np.ones(n, np.float32))

    assert ask(static_churn, ProgramEvidence("", seen))[0] == []


def test_equal_settings_without_equality_are_told_apart_from_many_values() -> None:
    class Settings:
        scale = 2.0

    (finding,), _ = asked((Settings() for _ in range(4)), lambda x, n: x * n.scale)

    assert "__eq__ and __hash__" in finding.advice


def test_a_lambda_that_is_made_anew_is_told_where_it_is_made(tmp_path: Path) -> None:
    train = tmp_path / "train.py"
    train.write_text("def orbit(mu):\n    term = ODETerm(lambda t: mu * t)\n    return solve(term)\n")
    name = "<function orbit.<locals>.<lambda> at 0x7f48>"
    reasons = (Reason("static", f"static terms.field: {name} → {name} (each value is compiled on its own)"),)
    one = Compile("solve", f"{train}:9", f"{train}:3", False, False, 0.1, 0.1, 0.1, "", reasons, "main")

    (finding,), _ = ask(static_churn, ProgramEvidence("", Watch("all", compiles=[one] * 3)))

    assert finding.where == (str(train), 2)
