"""The workloads: they bring inputs that fit, compute what they say, and are found by name without any."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import benchax
from benchax import workloads
from benchax.case import Case
from benchax.discovery import target_cases
from benchax.errors import UsageError
from benchax.measuring.inputs import Inputs, make_inputs

NAMES = ["mlp", "selu", "transformer", "rnn", "train_step", "fft"]
LAYERS = ["(64, 256)", "(256, 256)", "(256, 10)"]


@lru_cache
def inputs_of(name: str) -> Inputs:
    return make_inputs(case_of(name), seed=0)


@lru_cache
def compiled(name: str) -> Callable[..., Any]:
    return jax.jit(getattr(workloads, name))


def case_of(name: str) -> Case:
    return next(case for case in workloads.cases() if case.id.label == name)


def test_all_workloads_are_listed() -> None:
    assert [case.id.label for case in workloads.cases()] == NAMES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("mlp", ["(1024, 12)"]),
        ("selu", ["(1000000,)"]),
        ("transformer", ["(4, 128, 128)"]),
        ("rnn", ["(100, 16, 64)"]),
        ("train_step", [*LAYERS, *LAYERS, "()", *LAYERS, "()"]),
        ("fft", ["(64, 4096)"]),
    ],
)
def test_inputs_fit_and_the_result_is_finite(name: str, shapes: list[str]) -> None:
    outputs = jax.tree.leaves(compiled(name)(*inputs_of(name).args))

    assert [str(each.shape) for each in outputs] == shapes
    assert all(np.isfinite(each).all() for each in outputs)


def test_the_multilayer_perceptron_is_that_of_the_tutorial() -> None:
    layers, x = inputs_of("mlp").args

    assert inputs_of("mlp").signature == "(f32[128,4], f32[4,8], f32[8,12]), f32[1024,128]"
    hidden = np.maximum(np.maximum(x @ layers[0], 0) @ layers[1], 0)
    np.testing.assert_allclose(workloads.mlp(layers, x), hidden @ layers[2], rtol=1e-4, atol=1e-4)


def test_selu_is_the_one_that_jax_has() -> None:
    x = jnp.linspace(-5, 5, 101)

    np.testing.assert_allclose(workloads.selu(x), jax.nn.selu(x), rtol=5e-3, atol=1e-6)


def test_attention_sees_all_that_came_before_and_nothing_else() -> None:
    weights, x = inputs_of("transformer").args
    run = compiled("transformer")
    one, early, late = run(weights, x), run(weights, x.at[:, 0].add(1.0)), run(weights, x.at[:, 64:].add(1.0))

    assert (np.abs(one - early).max(axis=-1) > 0).all()
    np.testing.assert_array_equal(one[:, :64], late[:, :64])
    assert np.abs(one[:, 64:] - late[:, 64:]).min(axis=-1).max() > 0


def test_the_rnn_does_what_a_plain_loop_does() -> None:
    weights, xs = inputs_of("rnn").args
    h = np.zeros((16, 64), np.float32)
    expected = []
    for x in xs[:5]:
        h = np.tanh(x @ weights["w_x"] + h @ weights["w_h"])
        expected.append(h)

    np.testing.assert_allclose(compiled("rnn")(weights, xs)[:5], expected, rtol=1e-3, atol=1e-4)


def test_training_learns_and_its_state_can_be_donated() -> None:
    state, x, y = inputs_of("train_step").renewed()[0]
    step = jax.jit(workloads.train_step, donate_argnums=0)
    before = state

    losses = []
    for _ in range(30):
        state, loss = step(state, x, y)
        losses.append(float(loss))

    assert losses[-1] < losses[0] / 2
    assert int(state["step"]) == 30
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(before))


def test_adam_is_algorithm_1() -> None:
    """Its parameter, after each of three steps, by the text of the paper and NumPy in float64."""
    state = {"step": jnp.int32(0), **{name: [jnp.zeros(1)] for name in ("weights", "mean", "square")}}
    w = m = v = 0.0
    for t, slope in enumerate((0.5, -2.0, 1.0), start=1):
        m, v = 0.9 * m + 0.1 * slope, 0.999 * v + 0.001 * slope**2
        w -= 1e-3 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)

        state = workloads._adam(state, [jnp.array([slope])])

        assert float(state["weights"][0][0]) == pytest.approx(w, rel=1e-4)


def test_a_workload_is_a_target_with_inputs_of_its_own_or_the_user_s_and_without_parameters() -> None:
    (own,), (users,) = target_cases("benchax.workloads:selu", []), target_cases("benchax.workloads:selu", ["f32[7]"])

    assert own.id.label == "selu"
    assert make_inputs(own, seed=0).signature == inputs_of("selu").signature
    assert make_inputs(users, seed=0).signature == "f32[7]"
    with pytest.raises(UsageError, match="benchmark 'mlp' has no parameter 'n'"):
        target_cases("benchax.workloads:mlp", [], {"n": [1, 2]})


def test_reading_results_does_not_load_jax_for_the_sake_of_workloads() -> None:
    program = "import sys, benchax.workloads as w; w.cases(); print('jax' in sys.modules)"

    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert out == "False\n"


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit])
def test_a_workload_brings_its_inputs_in_python_too_unless_the_caller_has_some(wrap: Any) -> None:
    found = benchax.inspect(wrap(workloads.mlp))

    assert found.signature == "(f32[128,4], f32[4,8], f32[8,12]), f32[1024,128]"
    weights = (jnp.ones((3, 2)),)
    assert benchax.inspect(wrap(workloads.mlp), weights, "f32[5,3]").signature == "(f32[3,2]), f32[5,3]"


def test_other_functions_are_no_workloads() -> None:
    assert workloads.benchmark_of(len) is None
    assert workloads.benchmark_of(workloads.fft) is not None
