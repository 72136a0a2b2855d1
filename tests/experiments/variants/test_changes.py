"""Variants that change a case, and loops in five ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparisons_by_hand import compared
from hypothesis import given as given_by_hypothesis
from hypothesis import settings
from hypothesis import strategies as st
from jax import value_and_grad
from labs_by_hand import ScriptedLab, outputs

from benchax import workloads
from benchax.case import Case, make_case
from benchax.discovery import target_cases
from benchax.errors import NotAvailable, NotMeasured, UsageError
from benchax.experiments import loops
from benchax.experiments.lab import Observation, WorkerLab
from benchax.experiments.variants import VARIANTS
from benchax.experiments.variants.changes import MOST_UNROLLED, WrittenLoop, measure_loop
from benchax.measuring.inputs import make_inputs
from benchax.model import Memory
from benchax.results.experiment import Errors, Experiment, VariantRow

CASE = make_case(lambda x: x + 1, ("f32[4]",))


def seen(build_s: float | None) -> Observation:
    return Observation("f32[4]", build_s, "", Memory(), None, "f32[4]", None, 0.0, None)


@pytest.mark.parametrize(
    ("name", "case", "builds", "ratio", "told"),
    [
        # 10 µs jitted, 20 µs operation by operation (1 % up and down), 1 ms to compile
        (
            "eager",
            CASE,
            (1e-3, None),
            2.0,
            "Compiling (1.00 ms) pays from 100 calls on (95 %: 99 – 103): 20.0 µs eager, 10.0 µs jitted",
        ),
        ("jit", CASE.eager(), (None, 1e-3), 0.5, "Compiling (1.00 ms) pays from 200 calls on"),
    ],
)
def test_compiling_pays_after_its_time_over_what_a_call_saves(name, case, builds, ratio, told) -> None:
    changed = VARIANTS[name].change(case)

    ((label, text),) = changed.facts(*map(seen, builds), compared(1, ratio))

    assert changed.case.jit is not case.jit
    assert label == "break-even"
    assert text.startswith(told)
    assert changed.facts(*map(seen, builds), None) == ()


@pytest.mark.parametrize(("variant", "case"), [(VARIANTS["jit"], CASE), (VARIANTS["eager"], CASE.eager())])
def test_what_it_is_already_shows_nothing(variant, case) -> None:
    with pytest.raises(NotMeasured, match=r"is already jitted|is not jitted"):
        variant.change(case)


# ---- Precisions of inputs and of matrix products ----


def test_inputs_by_name_are_converted_too() -> None:
    case = make_case(lambda x, *, y: x + y, ("f32[4]",), {"y": "f32[4]"})
    args, kwargs = VARIANTS["bf16"].change(case).case.inputs()

    assert args[0].dtype == kwargs["y"].dtype == jnp.bfloat16


@pytest.mark.parametrize(("name", "dtype"), [("bf16", jnp.bfloat16), ("f16", jnp.float16)])
def test_float_inputs_are_converted_before_anything_runs(name: str, dtype) -> None:
    case = make_case(lambda x, n, axis: x.sum(axis) + n, ({"w": "f32[2,3]"}, "i32[]", 0), static=(2,))

    changed = VARIANTS[name].change(case)

    inputs = make_inputs(changed.case, 0)
    assert inputs.args[0]["w"].dtype == dtype
    assert inputs.args[1].dtype == jnp.int32
    assert inputs.args[2] == 0


@pytest.mark.parametrize(
    ("name", "spec", "kind", "why"),
    [
        ("bf16", "i32[4]", NotAvailable, "no input is a float array"),
        ("f32", "f32[4]", NotMeasured, "are already f32"),
    ],
)
def test_where_there_is_nothing_to_convert_it_says_so(name, spec, kind, why) -> None:
    with pytest.raises(kind, match=why):
        VARIANTS[name].change(make_case(abs, (spec,)))


def test_the_precision_of_products_is_part_of_the_program_and_of_nothing_else() -> None:
    changed = VARIANTS["highest"].change(make_case(lambda x: x @ x, ("f32[4,4]",)))

    traced = str(jax.make_jaxpr(changed.case.fn)(jnp.ones((4, 4))))

    assert "HIGHEST" in traced
    assert jax.config.jax_default_matmul_precision is None


# ---- Accumulating in float32: what is rewritten, what is left, and that the function stays the same function ----


def wide(fn, *args):
    return VARIANTS["accumulate-f32"].change(make_case(fn, args)).case.fn


def test_a_running_sum_is_closer_to_float64_than_in_bfloat16() -> None:
    x = jnp.asarray(np.random.default_rng(0).random(2000), jnp.bfloat16)
    exact = np.cumsum(np.asarray(x, np.float64))

    ours = np.asarray(wide(jnp.cumsum, x)(x), np.float64)

    assert abs(ours - exact).max() < abs(np.asarray(jax.jit(jnp.cumsum)(x), np.float64) - exact).max()


def test_products_in_inner_jits_loops_branches_and_checkpoints_are_reached() -> None:
    def steps(x, is_twice):
        x = jax.lax.fori_loop(0, 3, lambda i, y: y @ y, x)
        x = jax.lax.while_loop(lambda y: y.sum() < 0, lambda y: y @ y, x)
        x = jax.lax.cond(is_twice, lambda y: y @ y, lambda y: y, x)
        return {"y": jax.jit(lambda y: y @ y)(jax.checkpoint(lambda y: y @ y)(x))}

    x = jnp.eye(4, dtype=jnp.bfloat16)

    fn = wide(steps, x, True)

    text = str(jax.make_jaxpr(fn)(x, True))
    assert text.count("preferred_element_type=float32") == text.count("dot_general") == 5
    assert fn(x, True)["y"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(fn(x, True)["y"], x)


def by_scan(x):
    return jax.lax.scan(lambda total, each: (total + each, total), jnp.zeros((), x.dtype), x)[0]


def by_scan_in_a_tree(x):
    def add(state, each):
        return {"count": state["count"] + 1, "total": each + state["total"]}, None

    start = {"count": 0, "total": jnp.zeros((), x.dtype)}
    return jax.lax.scan(add, start, x)[0]["total"]


def by_while(x):
    def add(state):
        return state[0] + 1, state[1] + x[state[0]]

    return jax.lax.while_loop(lambda s: (s[0] < len(x)) & (s[1] < 1e6), add, (0, jnp.zeros((), x.dtype)))[1]


def by_fori(x):
    return jax.lax.fori_loop(0, len(x), lambda i, total: total + x[i], jnp.zeros((), x.dtype))


@pytest.mark.parametrize("fn", [by_scan, by_scan_in_a_tree, by_while, by_fori])
def test_what_a_loop_adds_up_is_carried_in_float32(fn) -> None:
    """In bf16 10,000 ones are 256: from there on 1 is less than half a digit."""
    ones = jnp.ones(10_000, jnp.bfloat16)

    assert (fn(ones), wide(fn, ones)(ones)) == (256, jnp.bfloat16(10_000))


def test_the_sums_so_far_are_wide_too() -> None:
    def cumulated(x):
        return jax.lax.scan(lambda total, each: (total + each,) * 2, jnp.zeros((), x.dtype), x)[1]

    ones = jnp.ones(1000, jnp.bfloat16)

    np.testing.assert_array_equal(wide(cumulated, ones)(ones), jnp.arange(1, 1001).astype(jnp.bfloat16))


def test_gradients_that_a_loop_adds_up_are_wide() -> None:
    def grads(w, xs):
        def add(total, x):
            return jax.tree.map(jnp.add, total, jax.grad(lambda w: (w * x).sum())(w)), None

        return jax.lax.scan(add, jnp.zeros_like(w), xs)[0]

    w, xs = jnp.ones(4, jnp.bfloat16), jnp.ones((2000, 4), jnp.bfloat16)

    np.testing.assert_array_equal(wide(grads, w, xs)(w, xs), jnp.full(4, 2000, jnp.bfloat16))


def decayed(x):
    return jax.lax.scan(lambda c, each: (c * each, None), jnp.ones((), x.dtype), x)[0]


@pytest.mark.parametrize(("fn", "args"), [(decayed, ("bf16[8]",)), (jnp.dot, ("f32[4,4]", "f32[4,4]"))])
def test_carries_that_are_no_sums_and_float32_have_nothing_to_widen(fn, args) -> None:
    with pytest.raises(NotAvailable, match="no product and no sum of bf16 or f16"):
        wide(fn, *args)


def test_the_median_errors_before_and_now_are_facts_of_a_wider_sum() -> None:
    changed = VARIANTS["accumulate-f32"].change(make_case(jnp.dot, ("bf16[4,4]", "bf16[4,4]"), {}))
    before, now = (replace(seen(None), errors=Errors("float64", 1.0, e)) for e in (1.234e-3, 4.567e-5))

    assert dict(changed.facts(before, now, None))["median error"] == "0.0012 before, 0.000046 now"


def test_static_arguments_and_other_objects_pass_through() -> None:
    case = make_case(
        lambda x, axis, name=None: (x @ x.T).sum(axis), ("bf16[2,3]", 1), {"name": "a"}, static=(1, "name")
    )

    changed = VARIANTS["accumulate-f32"].change(case)

    inputs = make_inputs(changed.case, 0)
    assert changed.case.fn(*inputs.args, **inputs.kwargs).shape == (2,)


# ---- Products in bf16 and f16, and everything else in float32; on programs of other authors, too ----


BF16, F16 = VARIANTS["mixed-bf16"], VARIANTS["mixed-f16"]


def changed(variant: Any, fn: Any, *args: Any, given: Any = None) -> Any:
    return variant.change(make_case(fn, args), given).case.fn


def random(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape), jnp.float32)


def loss(params: Any, x: Any, y: Any) -> Any:
    return jnp.mean((jnp.tanh(x @ params["in"]) @ params["out"] - y) ** 2)


def sgd_step(params: Any, x: Any, y: Any) -> Any:
    value, grads = value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def step_with_metrics(params: Any, x: Any, y: Any) -> Any:
    def with_metrics(params: Any) -> Any:
        found = loss(params, x, y)
        return found, {"loss": found}

    grads, metrics = jax.grad(with_metrics, has_aux=True)(params)
    return grads, metrics


PARAMS = {"in": random(16, 32), "out": random(32, 4)}
DATA = random(64, 16), random(64, 4)


@pytest.mark.slow
@pytest.mark.parametrize("variant", [BF16, F16], ids=lambda variant: variant.name)
@pytest.mark.parametrize("fn", [loss, sgd_step, step_with_metrics])
def test_products_are_rounded_and_all_that_comes_out_is_float32(variant: Any, fn: Any) -> None:
    ours = changed(variant, fn, PARAMS, *DATA)

    text = str(jax.make_jaxpr(ours)(PARAMS, *DATA))
    assert text.count("preferred_element_type=float32") == text.count("dot_general[") > 1
    assert ("bf16[" if variant is BF16 else "f16[") in text
    found, expected = ours(PARAMS, *DATA), fn(PARAMS, *DATA)
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {jnp.dtype(jnp.float32)}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0.05, atol=0.05), found, expected)


def test_products_in_loops_are_reached() -> None:
    def recurrent(w: Any, xs: Any) -> Any:
        return jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), xs[0], xs)[0]

    args = random(8, 8), random(5, 3, 8)

    ours = changed(BF16, recurrent, *args)

    assert "bf16[8,8]" in str(jax.make_jaxpr(ours)(*args))
    np.testing.assert_allclose(ours(*args), recurrent(*args), atol=0.05)


def tiny_step(w: Any, x: Any) -> Any:
    """Its cotangents are below what f16 can hold."""
    return jax.grad(lambda w: 1e-7 * jnp.mean(x @ w))(w)


def test_the_loss_is_scaled_where_f16_would_lose_its_gradients() -> None:
    args = random(4, 4), random(4, 4)

    usual, unscaled = changed(F16, tiny_step, *args), changed(F16, tiny_step, *args, given=1)

    np.testing.assert_allclose(usual(*args), tiny_step(*args), rtol=0.05)
    np.testing.assert_array_equal(unscaled(*args), jnp.zeros((4, 4)))
    assert jax.value_and_grad is value_and_grad  # put back


@pytest.mark.slow
def test_a_step_of_equinox_and_optax_keeps_its_parameters_in_float32() -> None:
    eqx, optax = pytest.importorskip("equinox"), pytest.importorskip("optax")
    model = eqx.nn.MLP(4, 1, 16, 2, key=jax.random.key(0))
    optimizer = optax.adam(1e-3)
    arrays, static = eqx.partition(model, eqx.is_array)
    state = optimizer.init(arrays)

    def step(arrays: Any, state: Any, x: Any, y: Any) -> Any:
        @eqx.filter_value_and_grad
        def of(model: Any) -> Any:
            return jnp.mean((jax.vmap(model)(x) - y) ** 2)

        value, grads = of(eqx.combine(arrays, static))
        updates, state = optimizer.update(grads, state)
        return eqx.apply_updates(arrays, updates), state, value

    args = arrays, state, random(32, 4), random(32, 1)

    found = F16.change(make_case(step, args))

    assert dict(found.facts(*[type("Seen", (), {"outputs": ""})] * 2, None))["loss scale"] == "1024"
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0.05, atol=0.01), found.case.fn(*args), step(*args))


@pytest.mark.parametrize("given", ["0", "3", "x", "-2", "2.0", str(2**30)])
def test_what_is_no_power_of_two_is_no_scale(given: str) -> None:
    with pytest.raises(UsageError, match="mixed-f16=") as error:
        F16.change(make_case(loss, (PARAMS, *DATA)), given)

    assert error.value.expected == "a power of two up to 16777216: the loss scale, 1 for none"


def test_without_products_there_is_nothing_to_round() -> None:
    with pytest.raises(NotAvailable, match="no matrix product and no convolution"):
        BF16.change(make_case(jnp.tanh, ("f32[4]",)))
    with pytest.raises(NotAvailable, match="no matrix product and no convolution"):
        BF16.change(make_case(jnp.matmul, ("bf16[4,4]", "bf16[4,4]")))


# ---- What a scan computes of its inputs alone, before it ----


W, XS = "f32[16,16]", "f32[12,8,16]"


def recurrent(w: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = jnp.tanh(x @ w + h @ w)
        return h, (h.sum(), x.sum())

    return jax.lax.scan(step, jnp.zeros((8, 16)), xs)


def of_state_alone(w: Any, xs: Any) -> Any:
    return jax.lax.scan(lambda h, x: (jnp.tanh((h + x) @ w), None), jnp.zeros((8, 16)), xs)


def backwards(w: Any, xs: Any) -> Any:
    return jax.lax.scan(lambda h, x: (h * 0.5 + x @ w, h), jnp.zeros((8, 16)), xs, reverse=True)


def noisy(key: Any, xs: Any) -> Any:
    w = jnp.eye(16)
    keys = jax.random.split(key, 12)
    return jax.lax.scan(lambda h, x: (h + x[0] @ w + jax.random.normal(x[1], h.shape), None), xs[0], (xs, keys))


def result(fn: Any, case: Any) -> list[Any]:
    made = make_inputs(case, 0)
    return jax.tree.leaves(jax.jit(lambda *args: fn(*args))(*made.args))


@pytest.mark.slow
@pytest.mark.parametrize("variant", [VARIANTS["hoist"], VARIANTS["unroll"]])
@pytest.mark.parametrize(
    "fn", [recurrent, backwards, jax.jit(recurrent), jax.grad(lambda w, xs: recurrent(w, xs)[0].sum())]
)
def test_the_results_are_those_of_the_function(variant: Any, fn: Any) -> None:
    case = make_case(fn, (W, XS))

    changed = variant.change(case)

    for ours, theirs in zip(result(changed.case.fn, case), result(fn, case), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_product_leaves_the_loop_and_random_numbers_stay() -> None:
    case = make_case(noisy, (jax.random.key(0), XS))
    drawn = VARIANTS["hoist"].change(case)
    np.testing.assert_allclose(result(drawn.case.fn, case)[0], result(noisy, case)[0], rtol=1e-4, atol=1e-4)

    changed = VARIANTS["hoist"].change(make_case(recurrent, (W, XS)))

    (scan,) = [
        eqn
        for eqn in jax.make_jaxpr(changed.case.fn)(jnp.ones((16, 16)), jnp.ones((12, 8, 16))).jaxpr.eqns
        if eqn.primitive.name == "scan"
    ]
    assert str(scan.params["jaxpr"]).count("dot_general") == 1
    assert changed.facts is not None
    assert changed.facts(None, None, None) == (("hoist", "1 product of each iteration"),)  # pyright: ignore


def test_iterations_are_written_out_as_many_as_are_asked_for() -> None:
    changed = VARIANTS["unroll"].change(make_case(recurrent, (W, XS)), "3")

    assert "unroll=3" in str(jax.make_jaxpr(changed.case.fn)(jnp.ones((16, 16)), jnp.ones((12, 8, 16))))


def test_what_has_nothing_to_hoist_says_why() -> None:
    with pytest.raises(NotAvailable, match="each product in its loops needs"):
        VARIANTS["hoist"].change(make_case(of_state_alone, (W, XS)))
    for variant in (VARIANTS["hoist"], VARIANTS["unroll"]):
        with pytest.raises(NotMeasured, match="no loop of scan"):
            variant.change(make_case(jnp.sin, (W,)))


@pytest.mark.parametrize("given", ["1", "x", "2.5", 0])
def test_a_number_of_iterations_that_cannot_be_is_quoted(given: Any) -> None:
    with pytest.raises(UsageError, match=f"unroll={given!r}"):
        VARIANTS["unroll"].change(make_case(recurrent, (W, XS)), given)


# ---- Which arguments are donated ----


def donated(fn, *args, given=None, **named):
    return VARIANTS["donate"].change(make_case(fn, args, **named), given).case.donate


@pytest.mark.parametrize(
    ("fn", "args", "given", "chosen"),
    [
        (lambda x, y: x + y.sum(), ("f32[4]", "f32[8]"), None, (0,)),
        (lambda x, y: x + y, ("f32[4]", "f32[4]"), None, (0,)),  # an output takes one argument over
        (lambda x, y: x + y, ("f32[4]", "f32[4]"), "1", (1,)),
    ],
)
def test_an_argument_like_an_output_is_donated_or_the_one_that_is_given(fn, args, given, chosen) -> None:
    assert donated(fn, *args, given=given) == chosen


def test_of_a_training_step_the_state_is_donated() -> None:
    (case,) = [case for case in workloads.cases() if case.id.name == "train_step"]

    assert VARIANTS["donate"].change(case).case.donate == (0,)


@pytest.mark.parametrize("given", ["2", "z", "-1", "", "0;1"])
def test_an_argument_that_there_is_not_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match=f"donate is given the argument {given!r}") as error:
        donated(lambda x, y: x + y, "f32[4]", "f32[4]", given=given)

    assert error.value.expected == "one of: x, y"


def moved(params, grads):
    return {"w": params["w"] - 0.1 * grads}


@pytest.mark.parametrize("given", ["params", "0", " params "])
def test_an_argument_is_named_as_its_author_calls_it(given: str) -> None:
    """docs/how-to/experiments.md has `--given donate=state`; positions are what jax.jit is given."""
    assert donated(jax.jit(moved), {"w": "f32[4]"}, "f32[4]", given=given) == (0,)


@settings(max_examples=40, deadline=None)
@given_by_hypothesis(st.text("0123,- xé²", max_size=6))
def test_any_text_names_arguments_or_is_refused(text: str) -> None:
    case = make_case(lambda x, y: x + y, ("f32[4]", "f32[4]"))
    try:
        chosen = VARIANTS["donate"].change(case, text).case.donate
    except UsageError:
        return

    assert set(chosen) <= {0, 1}
    assert chosen


@pytest.mark.parametrize(
    ("fn", "jit", "kind", "why"),
    [
        (lambda x: x.sum(), True, NotAvailable, "no output could reuse"),
        (jax.jit(lambda x: x + 1, donate_argnums=0), True, NotMeasured, "already donates arguments"),
        (lambda x: x + 1, False, NotAvailable, "only a jitted function"),
    ],
)
def test_where_nothing_can_be_donated_it_says_why(fn, jit: bool, kind, why: str) -> None:
    with pytest.raises(kind, match=why):
        donated(fn, "f32[4]", jit=jit)


# ---- loops -----------------------------------------------------------------------------------------------------------

WAYS = ["loop:inner-jit", "loop:lax-loop", "loop:unrolled", "loop:scan"]
FILE = """
ITERATIONS = 2

def grow(i, s):
    return s * 2 + i

def unfinished(s):
    return s < 100
"""


def step(i: Any, state: Any) -> Any:
    return jnp.sin(state) + i


def measured(case: Case, given: Any, lab: ScriptedLab | None = None) -> dict[str, VariantRow]:
    found = VARIANTS["loop"].plan(case, given)(lab or ScriptedLab())
    return {row.name: row for row in found if isinstance(row, VariantRow)}


@pytest.mark.parametrize("told", ["3", 3])
def test_each_way_is_a_row_beside_the_python_loop(told: Any) -> None:
    lab = ScriptedLab({"loop:scan": 0.5})

    rows = measured(make_case(step, (7, "f32[8]"), static=(0,)), told, lab)

    assert list(rows) == ["loop:python", *WAYS]
    assert {row.status for row in rows.values()} == {"ok"}
    assert rows["loop:python"].reason == "the baseline of the others"
    assert "3 iterations, i from 0 on" in rows["loop:python"].sentence
    assert rows["loop:scan"].comparison is not None
    assert rows["loop:scan"].comparison.verdict == "faster"


def test_the_state_that_goes_round_is_that_of_the_call_and_a_jitted_step_is_taken_out_of_its_jit() -> None:
    lab = ScriptedLab()
    state = np.linspace(0, 1, 4, dtype=np.float32)

    measured(make_case(jax.jit(step), (0, state)), 2, lab)

    assert lab.pairs["loop:scan"].one.fn.step is step
    expected = np.sin(np.sin(state)) + 1
    for result in lab.outputs("loop:lax-loop"):
        np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("told", ["code.py:unfinished", lambda s: s < 100])
def test_a_condition_is_a_function_or_the_name_of_one(told: Any, project: Path) -> None:
    (project / "code.py").write_text(FILE)
    (case,) = target_cases("code.py:grow", ["0", "1.0"])
    lab = ScriptedLab()

    rows = measured(case, told, lab)

    assert {name: row.status for name, row in rows.items()} == {
        "loop:python": "ok", "loop:inner-jit": "ok", "loop:lax-loop": "ok", "loop:unrolled": "not_available",
        "loop:scan": "not_available",
    }  # fmt: skip
    assert "not known while tracing" in rows["loop:scan"].reason
    assert "while " in rows["loop:python"].sentence
    assert outputs(lab.pairs["loop:lax-loop"].other) >= 100


def test_a_step_that_fails_is_a_row() -> None:
    rows = measured(make_case(lambda i, s: s.nothing, (0, "f32[8]")), 2)

    assert [row.status for row in rows.values()] == ["failed"]
    assert "nothing" in rows["loop:python"].reason


def test_untold_it_says_what_it_has_to_be_told() -> None:
    with pytest.raises(NotMeasured, match=r"loop=50, or a condition of the state, loop=model\.py:unfinished"):
        VARIANTS["loop"].plan(make_case(step, (0, "f32[8]")))


@pytest.mark.parametrize("told", ["0", "-1", "1.5", "True", "f", "", 0, True, 2.0, [1]])
def test_what_is_no_trip_count_is_quoted(told: Any) -> None:
    with pytest.raises(UsageError, match="trip count from 1 up, or a condition") as caught:
        VARIANTS["loop"].plan(make_case(step, (0, "f32[8]")), told)

    assert f"loop={told!r}" in caught.value.problem


def test_a_name_of_something_else_is_refused(project: Path) -> None:
    (project / "code.py").write_text("ITERATIONS = [1]\n")

    with pytest.raises(UsageError, match=r"loop='code\.py:ITERATIONS' names an object of the type list"):
        VARIANTS["loop"].plan(make_case(step, (0, "f32[8]")), "code.py:ITERATIONS")


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("f32[8]",), {}),
        (("f32[8]", 0), {}),
        ((0,), {"state": "f32[8]"}),
        ((0, "f32[8]", 1), {}),
        ((True, "f32[8]"), {}),
    ],
)
def test_other_inputs_than_those_of_a_step_are_refused(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    case = make_case(lambda *args, **kwargs: args, args, kwargs, name="mine")

    with pytest.raises(UsageError, match=r"as of step\(i, state\)") as caught:
        VARIANTS["loop"].plan(case, 5)

    assert "mine(" in caught.value.problem


# ---- A loop in five ways; looked at in a real worker, run times by hand ----


def found(step: Any, init: Any, n: int | Callable[[Any], Any], lab: WorkerLab) -> Experiment:
    return measure_loop(make_case(WrittenLoop(step, n), (init,), name="step", jit=False), step, n, lab)


def test_five_ways_give_the_same_state() -> None:
    lab = ScriptedLab({"lax-loop": 0.1})
    e = found(step, "f32[8]", 5, lab)

    assert [row.name for row in e.rows] == ["inner-jit", "lax-loop", "unrolled", "scan"]
    assert {row.status for row in e.rows} == {"ok"}
    assert e.row("lax-loop").comparison is not None
    plain, _ = lab.outputs("scan")
    state = None
    for name in ("inner-jit", "lax-loop", "unrolled", "scan"):
        state = outputs(lab.pairs[name].other)
        assert jnp.allclose(state, plain, rtol=1e-5)
    assert {name: pair.other.jit for name, pair in lab.pairs.items()} == {
        "inner-jit": False, "lax-loop": True, "unrolled": True, "scan": True
    }  # fmt: skip
    assert e.baseline.errors is not None
    assert e.baseline.errors.reference == "float64"
    assert e.row("unrolled").flops <= e.row("scan").flops < 3 * e.row("unrolled").flops  # which counts its trips


def test_a_body_that_cannot_be_traced_fails_in_its_rows_and_the_loop_itself_stays() -> None:
    e = found(lambda i, s: s + 1 if s.sum() > 0 else s - 1, "f32[8]", 3, ScriptedLab())

    assert e.baseline.status == "ok"
    assert {row.status for row in e.rows} == {"failed"}
    assert "TracerBoolConversionError" in e.row("scan").reason


def test_long_loops_are_not_unrolled() -> None:
    e = found(step, "f32[2]", MOST_UNROLLED + 1, ScriptedLab())

    assert e.row("unrolled").status == "not_available"
    assert str(MOST_UNROLLED + 1) in e.row("unrolled").reason


@pytest.mark.parametrize("n", [0, -1, True, 1.5, "3"])
def test_a_trip_count_is_checked(n: Any) -> None:
    with pytest.raises(UsageError, match="trip count") as caught:
        loops(step, "f32[8]", n)

    assert repr(n) in str(caught.value)
