"""A loop in Python beside a compiled grid: the same functions, data and readings, in turns."""

from __future__ import annotations

from statistics import median

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from benchax.compiled_grids.compiled import compiled_grid
from benchax.errors import NotMeasured, UsageError

pytestmark = pytest.mark.usefixtures("optimized")  # durations are looked at

X = jnp.linspace(0.1, 1.0, 64)


def endless(x):
    return lax.while_loop(lambda c: True, lambda c: jnp.sin(c) + 1, x)


@pytest.mark.slow
def test_both_ways_are_timed_and_each_says_what_a_run_takes():
    h = compiled_grid({"relu": jax.nn.relu, "softmax": jax.nn.softmax}, repeats=20)

    found = h.compare_python_loop({"64": X, "8 × 8": X.reshape(8, 8)}, rounds=3)

    assert [*found.python.run_s] == [("relu", "64"), ("softmax", "64"), ("relu", "8 × 8"), ("softmax", "8 × 8")]
    assert len(found.python.took_s) == len(found.compiled.took_s) == len(found.ratios) == 3
    assert found.python.runs == 80
    assert found.compiled.runs > 80
    # A call has the function in it, and its own dispatch: on any machine more than the function alone.
    known = {key: run_s for key, run_s in found.compiled.run_s.items() if run_s is not None}  # a busy machine hides one
    assert known
    assert all(found.python.run_s[key] > run_s > 0 for key, run_s in known.items())
    assert found.python.first_s > min(found.python.took_s)
    assert found.compiled.first_s > min(found.compiled.took_s)
    assert median(found.ratios) > 1  # a neighbour may disturb one of the rounds
    text = str(found)
    assert f"The comparison took {found.elapsed_s:.2f} seconds." in text
    assert "\n64: f32[64]\n8 × 8: f32[8,8]" in text
    assert text.startswith("A run costs ")
    assert "times as much in the Python loop as in the compiled one" in text


def test_what_never_ends_is_left_out_of_the_python_loop_with_its_reason():
    h = compiled_grid([jnp.sin, endless], repeats=5, timeout_s=[60, 0.02])

    found = h.compare_python_loop({"x": X}, rounds=1)

    assert [*found.python.run_s] == [("sin", "x")]
    assert found.left_out == {("endless", "x"): "a single call did not end within 20.0 ms"}
    assert "endless, x: left out, because a single call did not end within 20.0 ms" in str(found)


def test_without_a_function_that_ends_there_is_nothing_to_compare():
    with pytest.raises(NotMeasured, match=r"no function ends within its limit: a single call did not end"):
        compiled_grid([endless], repeats=5, timeout_s=0.02).compare_python_loop({"x": X}, rounds=1)


@pytest.mark.parametrize("data", [X, {}, [X]])
def test_data_are_given_by_label(data):
    with pytest.raises(UsageError, match="expected a mapping from labels to data"):
        compiled_grid([jnp.sin]).compare_python_loop(data)
