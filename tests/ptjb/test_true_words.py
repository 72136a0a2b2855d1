"""What a session says of good rows, of few rounds, and on which terminals: in real sessions."""

from __future__ import annotations

FILE = """
import numpy as np

inner = jax.jit(double)
x = jnp.ones(100)

def outer(x):
    return inner(x) + 1

def callback(x):
    return jax.pure_callback(lambda v: np.asarray(v) + 1, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

def test_jit_inside(jax_bench):
    jax_bench(jit_rounds=5, eager_rounds=5).measure(fn=outer, fn_jit=jax.jit(outer), x=x)

def test_callback(jax_bench):
    jax_bench(jit_rounds=5, eager_rounds=5).measure(fn=callback, fn_jit=jax.jit(callback), x=x)

def test_lambda(jax_bench):
    assert jax_bench(lambda: jax.block_until_ready(inner(x)))[0] == double(x)[0]
"""


def test_rows_whose_results_were_right_are_not_called_wrong(ptjb) -> None:
    ptjb.write(test_a=FILE)

    session = ptjb.run()

    assert "wrong result" not in session.text
    assert "compiled while timed" in session.line("test_callback")
    lambda_row = next(row for row in session.rows() if row["jit_rounds"] == 20)
    assert lambda_row["compile_ms"] > 0
    assert lambda_row["eager_median_ms"] != lambda_row["eager_median_ms"]
    assert "–" in session.line("test_jit_inside")  # of 5 rounds


IN_A_TERMINAL = """
import pytest

@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    config.pluginmanager.get_plugin("terminalreporter").isatty = lambda: True
"""


def test_the_table_fits_the_terminal_and_is_there_with_q(ptjb, monkeypatch) -> None:
    ptjb.write(test_a=FILE)
    ptjb.run()

    ptjb.pytester.makeconftest(IN_A_TERMINAL)
    for width in (80, 100):
        monkeypatch.setenv("COLUMNS", str(width))
        session = ptjb.run("-q")

        assert any("test_lambda" in line for line in session.table)
        table = [line for line in session.table if not line.startswith("ptjb")]  # how to ask for more may be longer
        assert [line for line in table if len(line) > width] == []
        assert "the machine was busy" not in session.text  # the table alone
