"""Models whose leaves are not all arrays: measured, stored and compared as functions of arrays are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen

import benchax
from benchax.case import in_mode, make_case
from benchax.experiments.variants import VARIANTS
from benchax.inspecting.inspect import inspect_case
from benchax.measuring import paired
from benchax.measuring.exported import exported
from benchax.measuring.paired import PairedRequest, Side, take_blocks
from benchax.measuring.prepare import prepare
from benchax.model import Measurement
from benchax.static_leaves import hide_all, reveal

X, KEY = "f32[4,8]", "key"


class Net(eqx.Module):
    """Holds functions, bools and floats among its leaves."""

    attention: eqx.nn.MultiheadAttention
    dropout: eqx.nn.Dropout
    activation: Any

    def __call__(self, x: jax.Array, key: jax.Array) -> jax.Array:
        return self.activation(self.dropout(self.attention(x, x, x), key=key))


def net() -> Net:
    attention = eqx.nn.MultiheadAttention(2, 8, key=jax.random.key(0))
    return Net(attention, eqx.nn.Dropout(0.1), jax.nn.tanh)


def loss(model: Any, x: jax.Array, key: jax.Array) -> jax.Array:
    return jnp.mean(model(x, key) ** 2)


def train(model: Any, state: Any, optimizer: Any, x: jax.Array, key: jax.Array) -> Any:
    value, gradient = eqx.filter_value_and_grad(loss)(model, x, key)
    updates, state = optimizer.update(gradient, state)
    return eqx.apply_updates(model, updates), state, value


def step(model: Any, x: jax.Array, key: jax.Array) -> Any:
    gradient = eqx.filter_grad(loss)(model, x, key)
    return eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, gradient))


def equinox_call() -> tuple[Any, ...]:
    model, optimizer = net(), optax.adam(1e-3)
    return model, optimizer.init(eqx.filter(model, eqx.is_array)), optimizer, X, KEY


def linen_step() -> tuple[Any, ...]:
    model = linen.Sequential([linen.Dense(4), linen.relu, linen.Dense(2)])
    params = model.init(jax.random.key(0), jnp.ones((4, 8)))

    def step(model: Any, params: Any, x: jax.Array) -> Any:
        gradient = jax.grad(lambda p: jnp.mean(model.apply(p, x) ** 2))(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)

    return step, model, params, X


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: (train, *equinox_call()), marks=pytest.mark.slow),
        lambda: (eqx.filter_jit(train), *equinox_call()),
        linen_step,
    ],
    ids=["equinox", "filter_jit", "linen"],
)
def test_a_training_step_is_measured_by_all_timers_verified_and_stored(
    make: Callable[[], tuple[Any, ...]], bench: Callable[..., Measurement]
) -> None:
    fn, *args = make()

    m = bench(fn, *args, options={"timer": "wall,pipelined,in_graph,loop", "store": "memory", "memory": False})

    assert m.failure is None
    assert m.numerics is not None
    assert m.numerics.agrees
    assert m.samples_of("wall")
    assert m.samples_of("pipelined")
    # Of a step as small as this a timer may see nothing. An exception would be named as the reason.
    reasons = [m.why_absent(f"samples.{timer}") for timer in ("in_graph", "loop")]
    assert not [why for why in reasons if why and "Error" in why]
    assert m.program is not None, m.why_absent("program")


@pytest.mark.slow
@pytest.mark.parametrize("wrap", [lambda fn: fn, eqx.filter_jit], ids=["plain", "filter_jit"])
def test_the_stored_program_of_a_model_runs_on_the_inputs_of_the_function(
    wrap: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paired, "WARMUP_S", 0.001)
    monkeypatch.setattr(paired, "BLOCK_NS", 5_000_000)
    case = make_case(wrap(step), (net(), X, KEY))
    prepared = prepare(case)
    program = exported(prepared.trace().subject).content

    document = take_blocks(
        PairedRequest((Side("stored", program=program), Side("now", case)), blocks=1), lambda stage, **facts: None
    )

    assert document.failure is None
    assert document.not_exported == [None, None]
    assert document.sides[1].agreement.agrees


def test_functions_texts_and_dtypes_inside_an_argument_are_static(bench: Callable[..., Measurement]) -> None:
    def scale(config: Any, x: jax.Array, activation: Any) -> Any:
        assert config["mode"] == "double"
        return {"y": activation(x.astype(config["dtype"]) * config["factor"]), "mode": config["mode"]}

    config = {"mode": "double", "dtype": jnp.float32, "factor": "f32[8]"}
    m = bench(scale, config, X, jnp.tanh)

    assert m.failure is None
    assert m.signature == "{dtype: float32, factor: f32[8], mode: 'double'}, f32[4,8], tanh"
    assert m.numerics is not None
    assert m.numerics.agrees
    (remark,) = [r.message for r in m.remarks if r.code == "not-jitted"]
    assert "static config['dtype'], config['mode'], activation" in remark


def test_another_static_leaf_makes_another_program() -> None:
    def scale(config: Any, x: jax.Array) -> jax.Array:
        return config["scale"](x)

    case = make_case(scale, ({"scale": jnp.negative}, jnp.ones(3)))
    prepared = prepare(case)
    first = prepared.call_first().subject.outputs
    other = prepared.on_inputs_of(make_case(scale, ({"scale": jnp.exp}, jnp.ones(3))), 0).call_first().subject.outputs

    np.testing.assert_array_equal(first, -jnp.ones(3))
    np.testing.assert_allclose(other, np.e * jnp.ones(3), rtol=1e-6)


def test_the_gradient_of_a_loss_is_taken_with_respect_to_the_arrays_of_a_model(
    bench_case: Callable[..., Measurement],
) -> None:
    heard: dict[str, Any] = {}

    m = bench_case(in_mode(loss, "grad"), net(), X, KEY, listen=heard.__setitem__)

    assert m.failure is None
    assert isinstance(heard["outputs"], Net)
    assert heard["outputs"].attention.query_proj.weight.shape == (8, 8)


@pytest.mark.slow
def test_a_model_is_inspected_and_changed_by_variants() -> None:
    case = make_case(step, (net(), X, KEY))
    changed = VARIANTS["bf16"].change(case, None, 0)  # pyright: ignore[reportAttributeAccessIssue]

    assert inspect_case(case).signature == "Net(4 arrays), f32[4,8], key"
    outputs = prepare(changed.case).call_first().subject.outputs
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(outputs)} == {"bfloat16"}


def test_a_check_of_a_grid_is_given_the_model_itself() -> None:
    def check(output: Any, model: Any, x: jax.Array) -> bool:
        return callable(output["activation"]) and callable(model.activation)

    def apply(model: Any, x: jax.Array) -> Any:
        return {"y": jax.vmap(model)(x), "activation": model.activation}

    data = {"small": (eqx.nn.MLP(8, 2, 4, 1, key=jax.random.key(0)), jnp.ones((4, 8)))}
    found = benchax.grid([apply], data, check=check, trials=1, store=False, progress=False)

    assert [cell.status for cell in found.cells] == ["ok"]


def test_a_compiled_grid_takes_a_model() -> None:
    found = benchax.compiled_grid([loss], repeats=1, progress=False)((net(), jnp.ones((4, 8)), jax.random.key(0)))

    assert found.status_names == ["ok"]


@pytest.mark.filterwarnings("ignore:Python iterable type")
@pytest.mark.parametrize(
    ("fn", "make_args", "message"),
    [
        (jax.jit(loss), lambda: (net(), X, KEY), "TypeError: jax.jit does not take model.activation, a PjitFunction"),
        (
            lambda x, rows: x + next(rows),
            lambda: (X, iter([1.0])),
            "TypeError: jax.jit does not take rows, a list_iterator",
        ),
    ],
    ids=["jitted by its author", "iterator"],
)
def test_what_cannot_be_jitted_is_named_in_one_sentence(
    fn: Any, make_args: Callable[[], tuple[Any, ...]], message: str, bench: Callable[..., Measurement]
) -> None:
    failure = bench(fn, *make_args()).failure

    assert failure is not None
    assert failure.message == message
    assert failure.advice.count(". ") == 0
    assert ("equinox.filter_jit" in failure.advice) == ("activation" in message)


def test_a_setting_of_another_type_is_another_program() -> None:
    def scaled(x: Any, setting: Any) -> Any:
        return x / 2 if setting is True else x // 2 if isinstance(setting, int) else x * 0

    jitted = jax.jit(lambda *call: scaled(*reveal(call)))

    assert [float(jitted(*hide_all((jnp.float32(3), setting)))) for setting in (1, True, 1.0)] == [1.0, 1.5, 0.0]
