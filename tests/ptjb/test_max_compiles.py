"""The marker's `max_compiles`: a test that compiles more fails with the reasons; what `jax_bench` compiles is free."""

from __future__ import annotations

from pytest_sessions import Project

TESTS = """
import numpy as np
step = jax.jit(lambda x: x * 2)

@pytest.mark.ptjb(max_compiles=1)
def test_too_many():
    for n in (3, 4):
        step(np.ones(n, np.float32))

@pytest.mark.ptjb(max_compiles=1)
def test_enough():
    step(np.ones(5, np.float32))
    step(np.ones(5, np.float32))

@pytest.mark.ptjb(max_compiles=0)
def test_bench_only(jax_bench):
    jax_bench(jit_rounds=3).measure(fn_jit=jax.jit(lambda x: x * 3), x=np.ones(4, np.float32))

@pytest.mark.ptjb(max_compiles=0)
def test_own_line_beside_a_bench(jax_bench):
    jax_bench(jit_rounds=3).measure(fn_jit=jax.jit(lambda x: x * 5), x=np.ones(4, np.float32))
    step(np.ones(6, np.float32))

@pytest.mark.ptjb(max_compiles=0)
def test_own_failure():
    step(np.ones(7, np.float32))
    raise ZeroDivisionError("mine")

@pytest.mark.ptjb(max_compiles=-1)
def test_wrong_limit():
    pass
"""


def test_a_limit_holds_for_the_lines_of_the_test(ptjb: Project) -> None:
    ptjb.write(test_it=TESTS)

    text = ptjb.run(code=1).text

    assert "2 programs were compiled inside max_compiles(1)" in text
    assert "x: shape f32[3] → f32[4]" in text
    assert "FAILED test_it.py::test_own_line_beside_a_bench" in text
    assert "1 program was compiled inside max_compiles(0)" in text
    assert "ZeroDivisionError: mine" in text
    assert "invalid max_compiles=-1 of the marker ptjb" in text
    assert "a whole number from 0 up" in text
    assert "3 failed, 2 passed, 1 error" in text
