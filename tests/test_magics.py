"""`%benchax` and `%%benchax`: what is measured of a call, an expression or a cell, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from benchax.errors import UsageError
from benchax.magics import function_of, measure, split_options
from benchax.model import Measurement

SHORT = {"timer": "wall", "max_time_s": 0.02, "min_time_s": 0.01, "memory": False, "verify": "off", "store": "off"}


def double(x: Any, times: int = 1) -> Any:
    return 2 * times * x


def names() -> dict[str, Any]:
    return {"double": double, "jnp": jnp, "x": jnp.arange(4.0), "w": np.ones(4, np.float32), "n": 3, "o": {"times": 2}}


@pytest.fixture
def shell(project: Path) -> Iterator[Any]:
    ipython = pytest.importorskip("IPython.core.interactiveshell")
    found = ipython.InteractiveShell()
    found.run_line_magic("load_ext", "benchax")
    found.user_ns |= names()
    yield found
    ipython.InteractiveShell.clear_instance()


def test_a_call_is_measured_as_bench_measures_it() -> None:
    m = measure("double(x + 1, **o)", SHORT, names())

    assert (m.case.name, m.failure) == ("double", None)
    assert m.signature.startswith("f32[4]")


def test_an_expression_is_a_function_of_the_arrays_that_it_reads() -> None:
    m = measure("jnp.tanh(x) @ w * n", SHORT, names())

    assert (m.case.name, m.signature, m.failure) == ("jnp.tanh(x) @ w * n", "f32[4], f32[4]", None)


def test_a_cell_returns_its_last_expression_or_all_that_it_assigns() -> None:
    from ast import parse

    space = names() | {"h": jnp.zeros(2)}
    value, given = function_of(parse("h = x * n\nh.sum() + w.sum()").body, space)
    all_of_it, _ = function_of(parse("h = x * n\ng = h + 1").body, space)

    assert given == ["x", "w"]
    assert float(value(space["x"], space["w"])) == 22.0
    np.testing.assert_array_equal(all_of_it(space["x"])[1], [1, 4, 7, 10])
    assert "cell" not in space


def test_options_stand_before_the_code() -> None:
    line = "--mode grad --max-time=0.5 --no-jit --work rows=8 --work bytes=1e3 f(x, -- y)"

    options, code = split_options(line)

    assert options == {"mode": "grad", "max_time_s": "0.5", "jit": False, "work": {"rows": 8.0, "bytes": 1e3}}
    assert code == "f(x, -- y)"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--tmer wall f(x)", "%benchax has no option '--tmer'"),
        ("--timer", "--timer has no value"),
        ("--work rows f(x)", "cannot read --work 'rows'"),
    ],
)
def test_options_that_there_are_not_are_refused(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        split_options(line)


@pytest.mark.parametrize(("code", "message"), [("", "nothing to measure"), ("f(x", "isn't Python")])
def test_what_is_no_code_is_refused(code: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        measure(code, SHORT, names())


def test_both_magics_work_in_ipython_and_give_the_row(shell: Any) -> None:
    line = "--store off --max-time 0.02 --timer wall"

    of_line = shell.run_line_magic("benchax", f"{line} double(x)")
    of_cell = shell.run_cell_magic("benchax", line, "y = x + w\n(y * y).sum()")

    assert isinstance(of_line, Measurement)
    assert [m.failure for m in (of_line, of_cell)] == [None, None]
    assert of_cell.case.name == "y = x + w (y * y).sum()"
    assert "y" not in shell.user_ns
