"""Experiments: real looks in a worker, and times by hand but for one that is real from end to end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from comparisons_by_hand import compared
from labs_by_hand import ScriptedLab
from measurement_strategies import measured

import benchax
from benchax.case import make_case
from benchax.errors import NotAvailable
from benchax.experiments.experiment import compare_eager, describe_program, find_pairs, run_experiment
from benchax.experiments.lab import WorkerLab
from benchax.experiments.variant import Variant
from benchax.experiments.variants import VARIANTS
from benchax.experiments.variants.sweeps import LOOKS
from benchax.model import CaseId, Stages
from benchax.options import DEFAULTS
from benchax.results.experiment import Curve, Experiment, Point


def tried(fn: Any, *args: Any, variants: Sequence[str] | None, lab: Any = None, **more: Any) -> Experiment:
    return run_experiment(make_case(fn, args), variants, lab or ScriptedLab(), **more)


def test_a_variant_is_looked_at_compared_and_told_in_a_sentence() -> None:
    found = tried(lambda x: x + 1, "f32[262144]", variants=["donate"], lab=ScriptedLab({"donate": 0.5}))

    row = found.row("donate")
    assert row.sentence == "saves 1.00 MiB and 5.00 µs (2.00×, 1.98 – 2.02); equal results"
    assert dict(row.facts)["donated"] == "x; outputs reuse 1.00 MiB of them"
    assert found.signature == "f32[262144]"


def test_the_same_program_is_not_timed() -> None:
    lab = ScriptedLab()

    found = tried(lambda x: x @ x, "f32[64,64]", variants=["highest", "tf32"], lab=lab)

    assert [row.sentence for row in found.rows] == ["does nothing here: the compiled program is the same"] * 2
    assert lab.pairs == {}


def test_a_wrong_result_is_a_row_with_its_reason_and_is_not_timed() -> None:
    lab = ScriptedLab()

    found = tried(lambda x: jnp.exp(x * 0) * 70000.0 * x * x, "f32[64]", variants=["f16", "bf16"], lab=lab)

    assert found.row("f16").status == "wrong_result"
    assert "infinite where the run in float64 has finite ones" in found.row("f16").reason
    assert list(lab.pairs) == ["bf16"]


def picky(x: jax.Array) -> jax.Array:
    if x.dtype == jnp.bfloat16:
        raise ValueError("no bfloat16 here")
    return x * 2


def deadly(x: jax.Array) -> jax.Array:
    if x.dtype == jnp.bfloat16:
        os._exit(7)
    return x * 2


@pytest.mark.parametrize(("fn", "why"), [(picky, "no bfloat16 here"), (deadly, "crashed in check")])
def test_a_variant_that_fails_or_kills_its_process_is_a_row_and_the_others_go_on(fn: Any, why: str) -> None:
    found = tried(fn, "f32[8]", variants=["bf16", "f16"])

    assert (found.row("bf16").status, found.row("f16").status) == ("failed", "ok")
    assert why in found.row("bf16").reason


def test_a_function_that_fails_itself_has_no_variants() -> None:
    """What fails in all of them alike is told once where none was asked for."""

    def broken(x: jax.Array) -> jax.Array:
        return x.reshape(7)

    found = tried(broken, "f32[8]", variants=["donate", "f16"])

    assert found.baseline.status == "failed"
    assert "ended" not in found.baseline.reason
    assert "reshape" in found.baseline.reason
    assert [row.name for row in tried(broken, "f32[8]", variants=None).rows if row.status == "failed"] == []


def test_without_float64_the_errors_are_against_the_function_itself() -> None:
    def narrow(x: jax.Array) -> jax.Array:
        if x.dtype == jnp.float64:
            raise TypeError("float64 is not for me")
        return x * 3

    found = tried(narrow, "f32[8]", variants=["f16"])

    errors = found.row("f16").errors
    assert errors is not None
    assert errors.reference == "baseline"
    assert found.baseline.errors is None
    assert "float64 is not for me" in {a.what: a.why for a in found.baseline.absent}["errors"]


def test_what_was_asked_for_and_cannot_be_had_is_a_row_and_else_it_is_left_out() -> None:
    asked = tried(lambda n: n + 1, "i32[8]", variants=["bf16"])
    every = tried(lambda n: n + 1, "i32[8]", variants=None)

    assert (asked.row("bf16").status, asked.row("bf16").reason) == ("not_available", "no input is a float array")
    assert "bf16" not in [row.name for row in every.rows]


def test_where_no_variant_applies_a_remark_says_why() -> None:
    step = eqx.filter_jit(jax.tree_util.Partial(jnp.multiply, jnp.ones(2)))

    found = tried(step, jnp.ones(2), variants=None)

    assert (found.baseline.status, found.rows) == ("ok", ())
    messages = {remark.code: remark.message for remark in found.remarks}
    assert "donate" in messages["nothing-tried"]
    assert "holds arrays itself" in messages["wrapper-stays"]


def test_a_step_under_a_filtering_jit_is_tried_as_one_under_jax_jit() -> None:
    step = eqx.filter_jit(lambda model, x: (model, model(x)))
    lab = ScriptedLab({"donate": 0.8})

    found = tried(step, eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0)), jnp.ones(2), variants=None, lab=lab)

    assert {"donate", "bf16"} <= {row.name for row in found.rows}
    assert "without-wrapper" in [remark.code for remark in found.remarks]


def test_all_at_once_and_each_off_in_turn() -> None:
    lab = ScriptedLab({"bf16": 0.8, "f16": 0.5, "all": 0.4, "all but donate": 1.25})

    found = tried(
        lambda x: x @ x,
        "f32[64,64]",
        variants=["bf16", "f16", "accumulate-f32", "donate"],
        lab=lab,
        ablation=True,
    )

    assert found.rows[-1].title == "f16 + accumulate-f32 + donate"
    assert [one.name for one in found.ablation or ()] == ["f16", "accumulate-f32", "donate"]
    assert lab.pairs["all but donate"].one_label == "all"
    assert found.ablation is not None
    assert found.ablation[-1].sentence.startswith("saves 2.50 µs")


def test_no_combination_of_one() -> None:
    found = tried(lambda x: x + 1, "f32[8]", variants=["donate"], combine=True)

    assert [remark.message for remark in found.remarks] == ["there is no combination: only donate can be on"]


def test_arguments_are_chosen_by_name_in_a_combination_too() -> None:
    def step(w: jax.Array, x: jax.Array) -> jax.Array:
        return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)

    names, given = ["highest", "unroll", "remat", "donate"], {"donate": "w"}
    found = tried(step, "f32[4,4]", "f32[2,4]", variants=names, given=given, combine=True)

    assert (found.rows[-1].title, found.remarks) == ("highest + remat + donate", ())


def test_float64_is_on_for_both_sides_and_off_again() -> None:
    lab = ScriptedLab()

    found = tried(lambda x: x @ x, "f32[16,16]", variants=["f64", "donate"], lab=lab, combine=True)

    assert lab.pairs["f64"].settings == {"jax_enable_x64": True}
    assert dict(found.row("f64").facts)["outputs"] == "f64[16,16]"
    assert not jax.config.jax_enable_x64


def sweep(outcome: Any, *, only_by_name: bool = False) -> Variant:
    def measure(lab: Any) -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return (outcome,)

    return Variant("sweep", "a sweep", measures=lambda asked: measure, only_by_name=only_by_name)


@pytest.mark.parametrize(("fn", "status"), [(abs, "ok"), (lambda x: jnp.reshape(x, (7,)), "failed")])
def test_a_variant_that_measures_by_itself_may_help_a_function_that_fails(fn, status: str, monkeypatch) -> None:
    curve = Curve("sweep", "a sweep", "n", (Point(1.0, "1", 1e-3),))
    monkeypatch.setitem(VARIANTS, "sweep", sweep(curve))

    found = tried(fn, "f32[64]", variants=["sweep"])

    assert found.baseline.status == status
    assert found.curves == (curve,)


@pytest.mark.parametrize(("names", "expected"), [(None, 0), (["sweep"], 1)])
def test_what_takes_many_processes_has_to_be_asked_for_by_name(names, expected: int) -> None:
    curve = Curve("sweep", "a sweep", "n", (Point(1.0, "1", 1e-3),))

    # Not by monkeypatch: it puts deleted items back in another order, which combinations depend on.
    with patch.dict(VARIANTS, {"sweep": sweep(curve, only_by_name=True)}, clear=True):
        assert len(tried(abs, "f32[8]", variants=names).curves) == expected


def test_the_processes_of_a_sweep_are_few() -> None:
    lab = ScriptedLab()

    tried(jnp.sin, "f32[8]", variants=["alignment"], given={"alignment": "4"}, lab=lab)

    assert lab.looks == LOOKS


@pytest.mark.parametrize(
    ("error", "status"), [(NotAvailable("there is one device"), "not_available"), (ValueError("oh"), "failed")]
)
def test_a_variant_that_fails_to_measure_is_a_row(error, status, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VARIANTS, "sweep", sweep(error))

    assert tried(abs, "f32[8]", variants=["sweep"]).row("sweep").status == status


@pytest.mark.slow
@pytest.mark.serial
def test_end_to_end_operation_by_operation_is_slower_and_says_when_compiling_pays() -> None:
    def many(x: jax.Array) -> jax.Array:
        for _ in range(20):
            x = x * 1.01 + 0.5
        return x

    told: list[benchax.ProgressEvent] = []
    found = benchax.experiment(many, "f32[64]", variants=["eager"], max_time_s=20, progress=told.append)

    row = found.row("eager")
    assert row.comparison is not None
    assert row.comparison.verdict == "slower"
    assert row.comparison.confirmed
    assert row.sentence.startswith("costs")
    assert dict(row.facts)["break-even"].startswith("Compiling (")
    assert "check of eager" in [event.item for event in told]
    assert any(event.item.startswith("process 1: 1 of 1") for event in told)
    assert "many" in str(found)


# ---- ablation --------------------------------------------------------------------------------------------------------


OPTIMIZER = optax.adam(1e-3)


def random(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)


@jax.jit
def train_step(params: Any, state: Any, batch: Any) -> Any:
    """As the guide's: a batch of x and y, a model that is mapped over it, an optimizer."""

    def loss_fn(params: Any) -> Any:
        return jnp.mean((jax.vmap(params)(batch["x"]) - batch["y"]) ** 2)

    loss, grads = eqx.filter_value_and_grad(loss_fn)(params)
    updates, state = OPTIMIZER.update(grads, state)
    return eqx.apply_updates(params, updates), state, loss


@pytest.fixture(scope="module")
def found(optimized: None) -> Any:
    # A model of equinox holds functions, which are no data: its arrays are the parameters.
    model = eqx.nn.MLP(16, 4, 64, 2, activation=jax.nn.relu, key=jax.random.key(0))
    arrays, static = eqx.partition(model, eqx.is_array)

    def step(arrays: Any, state: Any, batch: Any) -> Any:
        model, state, loss = train_step.__wrapped__(eqx.combine(arrays, static), state, batch)
        return eqx.filter(model, eqx.is_array), state, loss

    case = make_case(jax.jit(step), (arrays, OPTIMIZER.init(arrays), {"x": random(32, 16), "y": random(32, 4)}))
    lab = ScriptedLab({"all": 0.5, "donate": 1.25, "mixed-bf16": 1.25, "remat": 0.8}, usual=0.8)
    given = {"remat": "nothing_saveable,segments=2", "donate": "arrays,state"}
    found = run_experiment(case, ["mixed-bf16", "remat", "donate"], lab, given, ablation=True)
    # jaxlib 0.10.2 on processors of Intel with products of bf16 of their own: "Unsupported element type for DotThunk".
    if "UNIMPLEMENTED" in found.row("mixed-bf16").reason:
        pytest.skip("XLA has no product of BF16 x BF16 = F32 for this processor")
    return found


@pytest.mark.slow
def test_each_variant_has_right_results_and_its_contribution(found: Any) -> None:
    rows = {row.name: row.status for row in found.rows}

    names = ["mixed-bf16", "donate", "remat:none", "remat:nothing_saveable", "remat:segments=2", "all"]
    assert rows == dict.fromkeys(names, "ok")
    assert found.rows[-1].title == "mixed-bf16 + remat + donate"
    assert [one.name for one in found.ablation] == ["mixed-bf16", "remat", "donate"]
    assert all(one.comparison is not None for one in found.ablation)
    assert dict(found.row("donate").facts)["donated"].startswith("arrays, state")


# ---- eager calls -----------------------------------------------------------------------------------------------------


def broken(x: Any) -> Any:
    raise ValueError("it is broken")


@pytest.mark.parametrize(
    ("fn", "specs", "start", "end"),
    [
        (
            nn.selu,
            ("i32[1000]",),
            "An eager call starts ",
            "the compiled program has 1 fusion. It takes i32[1000] and gives f32[1000].",
        ),
        (
            lambda a, b, c, d: jax.lax.sort(a),
            ("f32[64,64]",) * 4,
            "An eager call starts 1 operation one by one; the compiled program has no fusion. ",
            "It takes f32[64,64], f32[64,64], f32[64,64], and 1 more and gives f32[64,64].",
        ),
        (broken, ("f32[8]",), "Its operations and fusions are not known, because ", ""),
    ],
)
def test_operations_fusions_and_types_are_told(fn: Any, specs: Any, start: str, end: str) -> None:
    text = describe_program(make_case(fn, specs))

    assert text.startswith(start)
    assert text.endswith(end)


def test_with_several_functions_each_sentence_names_its_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brackets included, which a renderer might take for markup."""
    cases, rows = [], []
    for n in (4, 8):
        row = measured("f", n=n)
        jitted = replace(make_case(jnp.sin, ("f32[8]",)), id=row.case)
        cases += [jitted.eager(), jitted]
        rows += [replace(row, case=cases[-2].id), replace(row, stages=Stages(lower_s=1.0, compile_s=1.0))]
    slow = compared(0, None, why="timeout in rounds: it took too long")
    times = {"f[n=4]": compared(0, 0.5), "f[n=8]": slow}
    monkeypatch.setattr(WorkerLab, "time_pairs", lambda lab, pairs: {pair.name: times[pair.name] for pair in pairs})
    pairs = find_pairs(cases, rows)
    found, sentences = compare_eager(pairs, rows, dict.fromkeys(pairs, DEFAULTS), lambda event: None)

    assert list(found.values()) == list(times.values())
    assert [sentence.partition(": ")[0] for sentence in sentences] == ["f[n=4]", "f[n=8]"] * 2
    assert sentences[0].partition(": ")[2].startswith("Compiling (2.00 s) pays from 400,000 calls on ")
    assert sentences[1].partition(": ")[2] == (
        "Whether compiling (2.00 s) pays was not measured, because timeout in rounds: it took too long"
    )


def test_without_a_pair_there_is_no_sentence() -> None:
    alone = replace(measured("f"), case=CaseId("f", (), "eager"))

    assert find_pairs([make_case(jnp.sin, ("f32[8]",))], [alone, measured("g")]) == {}
