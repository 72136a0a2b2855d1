"""Gradients with checkpoints beside the gradient as it is. Looks are real, times by hand."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.ad_checkpoint import checkpoint_name
from labs_by_hand import ScriptedLab

from benchax.case import make_case
from benchax.errors import NotAvailable, UsageError
from benchax.experiments.variants import VARIANTS
from benchax.experiments.variants.gradients import (
    POLICIES,
    SEGMENTS,
    differentiate,
    micro_batched,
    read_recomputation,
    saved_residuals,
    segmented,
)
from benchax.measuring.inputs import make_inputs
from benchax.program.jaxpr import equations


def loss(ws, x):
    for w in ws:
        x = jnp.tanh(x @ w)
    return (x**2).mean()


CASE = make_case(loss, (["f32[16,16]"] * 6, "f32[32,16]"))


@pytest.fixture(scope="module")
def rows(optimized: None) -> dict[str, Any]:
    measure = VARIANTS["remat"].plan(CASE, "nothing_saveable, everything_saveable,segments")
    return {row.name: row for row in measure(ScriptedLab(usual=1.25))}


def test_each_policy_is_a_row_beside_the_gradient_as_it_is(rows) -> None:
    assert list(rows) == ["remat:none", "remat:nothing_saveable", "remat:everything_saveable", "remat:segments"]
    assert {row.status for row in rows.values()} == {"ok"}
    assert rows["remat:none"].comparison is None
    assert rows["remat:nothing_saveable"].comparison.verdict == "slower"
    assert "equal results" in rows["remat:nothing_saveable"].sentence
    # The compiler's plan and count, and what is kept between the passes.
    assert all(None not in (row.temp_bytes, row.peak_bytes, row.flops, row.compile_s) for row in rows.values())
    kept = {name: dict(row.facts)["kept between the passes"] for name, row in rows.items()}
    assert kept["remat:nothing_saveable"] == "nothing but arguments"
    # Since jax 0.11 the last tanh is not kept.
    expected = r"(13 arrays, 26\.0|12 arrays, 24\.0) KiB; the largest: f32\[32,16\] output of tanh"
    assert re.match(expected, kept["remat:none"])
    assert re.match(r"1[23] arrays, ", kept["remat:everything_saveable"])
    assert kept["remat:segments"].startswith("3 arrays, ")


def test_a_dtype_without_a_size_is_not_added_up() -> None:
    plain = differentiate(make_case(lambda x, key: (jax.random.normal(key, x.shape) * x).sum(), ("f32[4]", "key")), 0)

    def split(x, key):
        keys = jax.random.split(key)
        return (jax.random.normal(keys[0], x.shape) * x * x).sum()

    assert isinstance(saved_residuals(split, plain.inputs), tuple)


def test_what_is_no_loss_and_takes_no_gradient_is_refused() -> None:
    with pytest.raises(NotAvailable, match="pass the loss"):
        VARIANTS["remat"].plan(make_case(lambda w: (w, w.sum()), ("f32[4]",)))


def sgd_step(ws, x):
    value, grads = jax.value_and_grad(loss)(ws, x)
    return [w - 0.1 * g for w, g in zip(ws, grads, strict=True)], value


def test_a_step_that_takes_its_gradient_itself_is_recomputed_too() -> None:
    case = make_case(jax.jit(sgd_step), (["f32[16,16]"] * 6, "f32[32,16]"))
    measure = VARIANTS["remat"].plan(case, "nothing_saveable,segments=3,only=nothing_of_that_name")

    found = {row.name: row for row in measure(ScriptedLab())}

    assert [row.status for row in found.values()] == ["ok", "ok", "ok", "not_available"]
    # Another program, so it is timed; XLA may have made the same one of it again.
    assert found["remat:segments=3"].comparison is not None
    assert found["remat:none"].sentence == "the step, with its gradients as it takes them"


def test_among_other_variants_a_step_is_recomputed_in_the_first_way() -> None:
    case = make_case(sgd_step, (["f32[16,16]"] * 6, "f32[32,16]"))

    changed = VARIANTS["remat"].change(case, "segments=3,dots_saveable").case

    inputs = make_inputs(case, 0).args
    assert str(jax.make_jaxpr(changed.fn)(*inputs)).count("remat") == 3
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), changed.fn(*inputs), sgd_step(*inputs)
    )
    with pytest.raises(NotAvailable, match="its trace shows no gradient"):
        VARIANTS["remat"].change(CASE)


def layer1(w, x):
    return jnp.tanh(x @ w)


def layer2(w, x):
    return checkpoint_name(jnp.sin(x @ w), "hidden")


def layer3(w, x):
    return jnp.cos(x @ w)


def layered(ws, x):
    x = layer1(ws[0], x)
    x = layer2(ws[1], x)
    with jax.named_scope("head"):
        x = layer3(ws[2], x)
    return (x**2).mean()


LAYERED = (["f32[8,8]"] * 3, "f32[4,8]")


@pytest.mark.parametrize(
    ("way", "parts", "recomputed"),
    [
        ("segments=3", 3, ("tanh", "sin", "cos")),
        ("only=layer3", 1, ("sin",)),
        ("only=layer1+layer3", 2, ("tanh", "sin")),
        ("only=head", 1, ("sin",)),
        ("save=hidden", 1, ("tanh", "cos")),
    ],
)
def test_some_layers_or_all_but_marked_values_are_recomputed(way: str, parts: int, recomputed: Any) -> None:
    """The guide's "only this layer" and "recompute every N layers". What a layer's derivative needs is computed again:
    of a cosine the sine."""
    inputs = make_inputs(make_case(layered, LAYERED), 0).args
    of = read_recomputation("remat", way).of(layered)

    found, expected = jax.value_and_grad(of)(*inputs), jax.value_and_grad(layered)(*inputs)
    program = jax.make_jaxpr(jax.value_and_grad(of))(*inputs)

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, expected)
    again = [e.equation for e in equations(program) if "policy" in e.equation.params]
    inside = " ".join(str(each.params["jaxpr"]) for each in again)
    assert len(again) == parts
    assert {name for name in ("tanh", "sin", "cos") if f"{name} " in inside} >= set(recomputed)


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("only=layer9", "no function of its module and no named scope is called 'layer9': named scopes are head"),
        ("save=logits", "no value is marked as 'logits' by jax.ad_checkpoint.checkpoint_name: marked are hidden"),
        ("segments=99", "too few operations for segments, outside of loops"),
    ],
)
def test_layers_and_values_that_are_not_there_are_a_row_with_those_that_are(way: str, why: str) -> None:
    measure = VARIANTS["remat"].plan(make_case(layered, LAYERED), way)

    *_, row = measure(ScriptedLab())

    assert (row.name, row.status) == (f"remat:{way}", "not_available")
    assert row.reason.startswith(why)


def test_layers_of_flax_are_named_by_their_scopes() -> None:
    nn = pytest.importorskip("flax.linen")

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            for _ in range(3):
                x = nn.tanh(nn.Dense(8)(x))
            return x

    net, x = Net(), jnp.ones((4, 8))
    params = net.init(jax.random.key(0), x)
    measure = VARIANTS["remat"].plan(make_case(lambda p, x: net.apply(p, x).mean(), (params, x)), "only=Dense_1")

    rows = measure(ScriptedLab())

    assert [(row.name, row.status) for row in rows] == [("remat:none", "ok"), ("remat:only=Dense_1", "ok")]


@settings(max_examples=60, deadline=None)
@given(st.text("_,senb ", max_size=12) | st.sampled_from(["dots", "segments,", "save_only_these_names"]))
def test_any_text_names_policies_or_is_refused(text: str) -> None:
    words = [word.strip() for word in text.split(",")]
    if set(words) <= {*POLICIES, SEGMENTS}:
        VARIANTS["remat"].plan(CASE, text)
        return

    with pytest.raises(UsageError) as error:
        VARIANTS["remat"].plan(CASE, text)
    assert repr(text) in error.value.problem


# ---- Functions in segments: the same function, with less to keep ----


def chain(x, power=2, *, scale=1.0):
    for _ in range(8):
        x = jnp.tanh(jax.nn.relu(x) + scale)
    return {"y": (x**power).sum(), "scale": jnp.float32(scale)}


def ten(x):
    for _ in range(9):
        x = jnp.sin(x)
    return x.sum()


def test_each_segment_is_a_checkpoint_and_values_and_gradients_stay() -> None:
    x = jnp.linspace(-1, 1, 16)

    ours, expected = (jax.grad(lambda x, fn=fn: fn(x, 3, scale=0.5)["y"])(x) for fn in (segmented(chain), chain))

    np.testing.assert_allclose(ours, expected, rtol=1e-6)
    assert jax.tree.structure(segmented(chain)(x)) == jax.tree.structure(chain(x))
    assert [len(eqn.params["jaxpr"].eqns) for eqn in jax.make_jaxpr(segmented(ten))(jnp.ones(4)).eqns] == [4, 4, 2]


def test_an_input_that_is_returned_as_it_is_passes() -> None:
    def fn(x, y):
        return jnp.sin(jnp.sin(jnp.sin(jnp.sin(x)))), y, 3

    found = segmented(fn)(jnp.ones(2), jnp.zeros(2))

    np.testing.assert_array_equal(found[1], jnp.zeros(2))
    assert found[2] == 3


# ---- A function's gradient as a case: what is taken for a loss, and what the gradient is taken with respect to ----


def power_loss(w, x, power=2):
    return ((x @ w) ** power).mean()


@pytest.mark.parametrize(
    ("fn", "args", "argument", "name", "static"),
    [
        (power_loss, ("f32[4]", "f32[8,4]"), 0, "w", ()),
        (lambda n, w: (w * n).sum(), ("i32[]", "f32[4]"), 1, "w", ()),
        (jax.jit(power_loss, static_argnums=2), ("f32[4]", "f32[8,4]", 3), 0, "w", (2,)),
    ],
)
def test_it_is_jaxs_own_gradient_in_the_first_argument_of_floats(fn, args, argument, name, static) -> None:
    found = differentiate(make_case(fn, args), 0)

    inputs = make_inputs(found.case, 0)
    assert (found.argument, found.name, found.case.static) == (argument, name, static)
    ours, expected = (f(*inputs.args) for f in (found.case.fn, jax.value_and_grad(found.loss, argument)))
    jax.tree.map(np.testing.assert_array_equal, ours, expected)


@pytest.mark.parametrize(
    ("fn", "spec", "why"),
    [
        (lambda x: x, "f32[4]", r"returns float32\[4\]"),
        (lambda x: x.sum() > 0, "f32[4]", r"returns bool\[\]"),
        (lambda x: (x.sum(), x), "f32[4]", "returns 2 arrays in a structure"),
        (lambda x: {"loss": x.sum()}, "f32[4]", "returns 1 arrays in a structure"),
        (lambda x: jnp.float32(0) * x.sum(), "i32[4]", "no positional argument consists of floats"),
    ],
)
def test_what_is_no_loss_of_floats_is_refused(fn, spec: str, why: str) -> None:
    with pytest.raises(NotAvailable, match=why):
        differentiate(make_case(fn, (spec,)), 0)


# ---- Micro-batches: the same gradient where the loss is a mean, and a wrong result where it is not ----


SPECS = ({"w": "f32[64,64]", "b": "f32[64]"}, "f32[256,64]", "f32[256]")


def errors(weights, x, y):
    return ((x @ weights["w"] + weights["b"]).sum(-1) - y) ** 2


def mean_loss(weights, x, y):
    return errors(weights, x, y).mean()


def sum_loss(weights, x, y):
    return errors(weights, x, y).sum()


def accumulated_rows(fn: Any, counts: str) -> dict[str, Any]:
    return {row.name: row for row in VARIANTS["accumulate-gradients"].plan(make_case(fn, SPECS), counts)(ScriptedLab())}


def test_of_a_mean_the_result_is_equal_and_memory_less() -> None:
    found = accumulated_rows(mean_loss, "8,3")

    row, whole = found["accumulate-gradients:8"], found["accumulate-gradients:1"]
    assert row.status == "ok"
    assert row.temp_bytes < whole.temp_bytes
    assert row.errors.max_rel < 1e-4
    assert dict(row.facts)["batch"].startswith("the 256 rows of x, y, guessed: with more of them the outputs keep")
    assert dict(row.facts)["batch"].endswith("; in 8 parts")
    assert row.flops == pytest.approx(whole.flops, rel=0.1)  # in eight trips of a loop
    assert found["accumulate-gradients:3"].reason == "256 rows of x, y do not divide into 3 equal micro-batches"


def test_of_a_sum_the_result_is_wrong_and_is_not_timed() -> None:
    row = accumulated_rows(sum_loss, "4")["accumulate-gradients:4"]

    assert row.status == "wrong_result"
    assert row.comparison is None
    assert ("equal", "only where the loss is a mean over the rows") in row.facts


@pytest.mark.parametrize(("batched", "by_name"), [((1, 2), False), ((1, "y"), True)])
def test_micro_batches_give_jaxs_own_gradient(batched: Any, by_name: bool) -> None:
    random = np.random.default_rng(0)
    weights = {"w": jnp.asarray(random.normal(size=(8, 3)), jnp.float32), "b": jnp.zeros(3)}
    x, y = jnp.asarray(random.normal(size=(16, 8)), jnp.float32), jnp.ones(16)
    given = ((weights, x), {"y": y}) if by_name else ((weights, x, y), {})

    ours = micro_batched(jax.value_and_grad(mean_loss), count=4, batched=batched)(*given[0], **given[1])

    expected = jax.value_and_grad(mean_loss)(weights, x, y)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), ours, expected)


@pytest.mark.parametrize(
    ("fn", "specs", "batch", "rows"),
    [
        (
            lambda w, table, x, y: (table.sum() + (x @ w - y) ** 2).mean(),
            ("f32[4]", "f32[99,2]", "f32[8,4]", "f32[8]"),
            "",
            "8 rows of x, y",
        ),
        (mean_loss, SPECS, "x", "256 rows of x"),
    ],
)
def test_the_batch_is_what_most_arguments_have_in_front_or_what_is_named(fn, specs, batch: str, rows: str) -> None:
    measure = VARIANTS["accumulate-gradients"].plan(make_case(fn, specs), "3", batch=batch)

    (row,) = measure(ScriptedLab())

    assert row.reason == f"{rows} do not divide into 3 equal micro-batches"


def test_without_a_batch_it_says_so() -> None:
    with pytest.raises(NotAvailable, match="no argument but w is a batch"):
        VARIANTS["accumulate-gradients"].plan(make_case(lambda w: w.sum(), ("f32[4]",)))


@settings(max_examples=60, deadline=None)
@given(st.text("0123,-² .", max_size=5))
def test_any_text_is_numbers_above_one_or_is_refused(text: str) -> None:
    case = make_case(mean_loss, SPECS)
    words = [word.strip() for word in text.split(",")]
    if all(word and set(word) <= set("0123") and int(word) > 1 for word in words):
        VARIANTS["accumulate-gradients"].plan(case, text)
        return

    with pytest.raises(UsageError) as error:
        VARIANTS["accumulate-gradients"].plan(case, text)
    assert repr(text) in error.value.problem
