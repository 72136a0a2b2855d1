"""An argument static and traced: programs counted in a real worker, run times by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparisons_by_hand import compared
from labs_by_hand import ScriptedLab, outputs, swept

from benchax.case import make_case
from benchax.comparing.sequential import Effort
from benchax.errors import NotAvailable, UsageError
from benchax.experiments.experiment import run_experiment
from benchax.experiments.lab import WorkerLab
from benchax.experiments.variant import Asked
from benchax.experiments.variants import VARIANTS, sweeps
from benchax.experiments.variants.sweeps import (
    around,
    batched,
    beside_each_other,
    bucket,
    in_words,
    knee,
    points,
    read_batching,
    reading,
    resized,
    with_value,
)
from benchax.model import Block, Estimate, Failure, Numerics
from benchax.options import resolve


def power(x: Any, n: int) -> Any:
    return x**n


def branching(x: Any, n: int) -> Any:
    return x + 1 if n > 2 else x - 1


def by_type(x: Any, n: Any) -> Any:
    return x * 2 if isinstance(n, int) else x * 3


def test_each_static_value_has_its_program_and_traced_they_share_one() -> None:
    lab = ScriptedLab({"n=3": 0.5})
    rows, _ = swept(VARIANTS["static"], "n=2,3,4", power, "f32[8]", 2, lab=lab)

    assert rows["static: traced"].sentence.startswith("1 program for 3 values")
    assert rows["static"].sentence.startswith("3 programs for 3 values")
    assert rows["static"].sentence.endswith("same for n=2, n=4; faster for n=3")
    assert "pays after about" in dict(rows["static"].facts)["n=3"]
    one, other = lab.outputs("n=3")
    assert jnp.allclose(one, other, rtol=1e-5)
    assert lab.pairs["n=3"].one.static == ()
    assert lab.pairs["n=3"].other.static == (1,)


def test_a_function_that_needs_it_static_fails_traced_with_advice_and_the_other_row_stays() -> None:
    lab = ScriptedLab()
    rows, _ = swept(VARIANTS["static"], {"n": [1, 3]}, branching, "f32[8]", 2, lab=lab, static=("n",))

    assert rows["static: traced"].status == "failed"
    assert "TracerBoolConversionError" in rows["static: traced"].reason
    assert "static" in dict(rows["static: traced"].facts)["what to do"]
    assert rows["static"].status == "ok"
    assert "traced it fails" in rows["static"].reason
    assert not lab.pairs


def test_another_result_is_a_wrong_one_and_not_timed() -> None:
    lab = ScriptedLab()
    rows, _ = swept(VARIANTS["static"], "n=2", by_type, "f32[8]", 2, lab=lab)

    assert rows["static"].status == "wrong_result"
    assert not lab.pairs


@pytest.mark.parametrize(("told", "quoted"), [("m=1", "'m'"), ("n=", "''"), ("n", "None"), ("1,2", "''")])
def test_what_cannot_be_read_is_quoted(told: str, quoted: str) -> None:
    with pytest.raises(UsageError) as caught:
        swept(VARIANTS["static"], told, power, "f32[8]", 2)

    assert quoted in str(caught.value)


# ---- Exact, padded, in buckets: programs counted in a real worker, run times by hand ----


def product(x: Any, w: Any) -> Any:
    return x @ w


def centred(x: Any) -> Any:
    return x - x.mean()


def test_programs_are_counted_and_wasted_operations_estimated() -> None:
    lab = ScriptedLab({"bucketed 5": 0.5})
    rows, curves = swept(VARIANTS["shapes"], "x=5,6,8", product, "f32[4,16]", "f32[16,16]", lab=lab)

    assert rows["shapes: exact"].sentence.startswith("3 programs for 3 sizes")
    assert rows["shapes: padded"].sentence.startswith("1 program for 3 sizes")
    assert "26 % more operations" in rows["shapes: padded"].sentence  # 24 rows for 19
    assert rows["shapes: bucketed"].sentence.startswith("1 program for 3 sizes")
    assert [point.x for point in curves["shapes"].points] == [5, 6, 8]
    assert "faster" in dict(rows["shapes: bucketed"].facts)["x=5"]
    assert "bucketed 8" not in lab.pairs
    exact, padded = lab.outputs("padded 5")
    assert jnp.allclose(exact, padded[:5])
    assert padded.shape == (8, 16)


def test_calls_that_donate_their_arguments_are_counted() -> None:
    """The second call of each had an array that the first one had taken."""
    rows, _ = swept(VARIANTS["shapes"], "x=5,6", jax.jit(lambda x: 2 * x, donate_argnums=0), "f32[4]")

    assert {row.status for row in rows.values()} == {"ok"}
    assert rows["shapes: exact"].sentence.startswith("2 programs for 2 sizes")


def test_padding_that_changes_the_useful_part_is_wrong_and_not_timed() -> None:
    lab = ScriptedLab()
    rows, _ = swept(VARIANTS["shapes"], "x=5,7", centred, "f32[4]", lab=lab)

    assert rows["shapes: padded"].status == "wrong_result"
    assert "needs a mask" in rows["shapes: padded"].reason
    assert rows["shapes: exact"].status == "ok"
    assert not [name for name in lab.pairs if name.startswith(("padded", "bucketed"))]


def test_a_function_that_fails_is_a_row() -> None:
    rows, curves = swept(VARIANTS["shapes"], "x.1=5,7", product, "f32[4,16]", "f32[16,16]")

    assert rows["shapes: exact"].status == "failed"
    assert "TypeError" in rows["shapes: exact"].reason
    assert not curves


def test_a_bucket_is_the_power_of_two_that_holds_it() -> None:
    assert [bucket(size) for size in (1, 2, 3, 4, 5, 128, 129)] == [1, 2, 4, 4, 8, 128, 256]


# ---- Sizes around one size ----


def test_around_a_size_are_its_neighbours_and_what_it_would_be_padded_to() -> None:
    assert around(200) == {200: 200, 199: 199, 201: 201, 256: 200}
    assert around(300) == {300: 300, 299: 299, 301: 301, 384: 300, 512: 300}
    assert around(128) == {128: 128, 127: 127, 129: 129}
    assert around(1) == {1: 1, 2: 2, 128: 1}


def test_time_is_per_entry_that_is_of_use() -> None:
    lab = ScriptedLab({"256": 0.5})
    _, curves = swept(VARIANTS["alignment"], "x.1+w.0=200", product, "f32[4,16]", "f32[16,8]", lab=lab)

    points = {point.label: point for point in curves["alignment"].points}
    assert list(points) == ["199", "200", "201", "256 (padded)"]
    assert "25.0 ns, 0.500×" in dict(points["256 (padded)"].facts)["per useful entry:"]
    assert "0.995×" in dict(points["201"].facts)["per useful entry:"]
    assert curves["alignment"].sentence.startswith("next to 200, padded to 256: faster")
    exact, padded = lab.outputs("256")
    assert exact.shape == padded.shape
    assert abs(exact - padded).max() < 1e-3


def test_without_a_size_it_is_that_of_the_inputs() -> None:
    _, curves = swept(VARIANTS["alignment"], "x", product, "f32[4,16]", "f32[16,8]")

    assert [point.x for point in curves["alignment"].points] == [3, 4, 5, 128]


# ---- Batches of examples; run times by hand, functions for real ----


def layer(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)


def test_all_four_ways_give_the_same_for_every_example() -> None:
    lab = ScriptedLab()
    swept(VARIANTS["vmap"], "x=1..4", layer, "f32[8]", "f32[8,8]", lab=lab)

    for name in list(sweeps.TITLES)[1:]:
        loop, other = lab.outputs(f"{name}, batch 4")
        assert loop.shape == (4, 8)
        assert jnp.allclose(loop, other, rtol=1e-5)
    cases = {name: lab.pairs[f"{name}, batch 4"].other for name in list(sweeps.TITLES)[1:]}
    assert {name: case.jit for name, case in cases.items()} == {
        "vmap: eager": False, "vmap: jit(vmap)": True, "vmap: vmap(jit)": False
    }  # fmt: skip
    assert outputs(lab.pairs["batch 4"].one).shape == (2, 8)


def test_the_knee_comes_from_paired_steps() -> None:
    lab = ScriptedLab({"batch 2": 1.0, "batch 4": 1.1, "batch 8": 1.95, "batch 16": 2.0})
    _, curves = swept(VARIANTS["vmap"], "x=1..16", layer, "f32[8]", "f32[8,8]", lab=lab)

    curve = curves["vmap"]
    assert curve.knee == 4
    assert curve.sentence.startswith("knee at 4: no larger batch")
    assert [point.x for point in curve.points] == [1, 2, 4, 8, 16]
    assert "2.00× (1.98 – 2.02) as much as with 1" in dict(curve.points[1].facts)["throughput:"]


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ([2, 2, 2], None),
        ([2, 1.05, 1.01], 2),
        ([2, 0.8, 1.3], 2),
        ([2, 0.8, 1.5], None),  # what a later size makes up for was no knee
        ([1, 1, 1], 1),
        ([1.06, 1.06, 1.0], 2),
        ([2, None, 1], None),
        ([], None),
    ],
)
def test_a_knee_is_where_no_larger_size_has_a_tenth_more(gains: list[float | None], expected: int | None) -> None:
    assert knee([1, 2, 4, 8][: len(gains) + 1], gains) == expected


def test_where_throughput_still_grows_there_is_no_knee() -> None:
    _, curves = swept(VARIANTS["vmap"], "x=1,2", layer, "f32[8]", "f32[8,8]")

    assert curves["vmap"].knee is None
    assert "still grew at the last step, by 100 %" in curves["vmap"].sentence


def test_outputs_unlike_those_of_the_loop_are_wrong() -> None:
    wrong = compared(1, 0.5, numerics=Numerics("baseline", agrees=False, why="the output at [0] differs"))

    row = sweeps._judge_batch("vmap: eager", wrong, 4)  # pyright: ignore[reportPrivateUsage]

    assert (row.status, row.reason) == ("wrong_result", "the output at [0] differs")


def test_one_size_is_a_point_without_a_knee() -> None:
    rows, curves = swept(VARIANTS["vmap"], "4", lambda x: x + 1, "f32[8]")

    assert len(rows) == 4
    assert curves["vmap"].points[0].seconds == pytest.approx(1e-5)
    assert not curves["vmap"].sentence


def test_python_loops_run_at_three_sizes_at_most() -> None:
    assert beside_each_other([1, 2, 4, 8, 16]) == [1, 4, 16]
    assert beside_each_other([3]) == [3]


# ---- Shared arguments beside copies of them; looked at in a real worker, run times by hand ----


def shared_layer(x: Any, w: Any) -> Any:
    return x @ w


def unbatchable(x: Any, w: Any) -> Any:
    if x.sum() > 0:
        return x @ w
    return w


def test_shared_arguments_take_fewer_bytes_and_give_the_same() -> None:
    lab = ScriptedLab({"in_axes": 0.5})
    rows, _ = swept(VARIANTS["in_axes"], "x=32", shared_layer, "f32[16]", "f32[16,16]", lab=lab)

    copied, shared = rows["in_axes: copied"], rows["in_axes"]
    assert dict(copied.facts)["inputs"] == "f32[32,16], f32[32,16,16]"
    assert dict(shared.facts)["inputs"] == "f32[32,16], f32[16,16]"
    assert dict(shared.facts)["input bytes"] == "3.00 KiB"
    assert dict(copied.facts)["input bytes"] == "34.0 KiB"
    assert shared.sentence.startswith("saves 31.0 KiB")
    one, other = lab.outputs("in_axes")
    assert jnp.allclose(one, other, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "given", "row"), [("in_axes", "x=4", "in_axes: copied"), ("vmap", "4", "vmap: jit(vmap)")]
)
def test_a_number_of_python_gets_a_batch_axis_as_arrays_do(name: str, given: str, row: str) -> None:
    lab = ScriptedLab({"in_axes": 0.5})
    rows, _ = swept(VARIANTS[name], given, lambda x, w, b: x @ w + b, "f32[16]", "f32[16,16]", 0.5, lab=lab)

    assert rows[row].status == "ok", rows[row].reason


def test_a_function_that_vmap_cannot_take_is_a_row_with_its_reason() -> None:
    lab = ScriptedLab()
    rows, _ = swept(VARIANTS["in_axes"], "x=4", unbatchable, "f32[16]", "f32[16,16]", lab=lab)

    assert rows["in_axes: copied"].status == "failed"
    assert "TracerBoolConversionError" in rows["in_axes: copied"].reason
    assert not lab.pairs


@pytest.mark.parametrize(
    ("variant", "given", "kind", "why"),
    [
        ("in_axes", "32", UsageError, "names no argument with a batch axis"),
        ("in_axes", "x=2,4", UsageError, "in_axes is given 2 sizes"),
        ("in_axes", "x+w=32", NotAvailable, "every argument has a batch axis"),
        ("vmap", "y=1..4", UsageError, "'y'"),
        ("alignment", "x=3,4", UsageError, "one size"),
    ],
)
def test_what_cannot_be_swept_says_why(variant: str, given: str, kind: type[Exception], why: str) -> None:
    with pytest.raises(kind, match=why):
        swept(VARIANTS[variant], given, shared_layer, "f32[16]", "f32[16,16]")


# ---- Points of sweeps, and one sweep with real clocks ----


def test_a_reading_is_the_median_of_blocks_of_all_its_pairs_with_their_interval() -> None:
    one = compared(1, 1.0, blocks=tuple(Block(0, (9.0,), (float(n),)) for n in (1, 2, 3)))
    other = compared(1, 1.0, blocks=tuple(Block(0, (float(n),), (9.0,)) for n in (4, 5, 6)))

    assert reading((one, "candidate"), (other, "baseline")) == Estimate(3.5, 1.0, 6.0)
    assert reading((one, "candidate")) == Estimate(2.0)
    assert reading((None, "candidate")) is None


def test_a_point_that_failed_says_why_and_the_others_stay() -> None:
    broken = compared(1, None, failure=Failure("out_of_memory", "rounds", "no room"))

    first, second, third = points([1, 2, 3], "abc", {"b": compared(1, 2.0), "c": broken}, lambda size, s: ())

    assert (first.seconds, second.seconds, third.seconds) == (pytest.approx(1e-5), pytest.approx(2e-5), None)
    assert third.facts == (("not measured:", "no room"),)


def test_only_a_verdict_gives_a_speedup_in_words() -> None:
    assert in_words(compared(1, 0.5)) == "10.0 µs → 5.00 µs: faster, 2.00× (1.98 – 2.02)"
    assert in_words(compared(1, 1.0, why="within 1 %")) == "10.0 µs → 10.0 µs: same (within 1 %)"
    assert "2.00×" not in in_words(compared(1, 0.5, verdict="unclear", why="too noisy"))
    assert in_words(compared(1, None, failure=Failure("error", "build", "no"))) == "failed: no"


@pytest.mark.slow
def test_a_sweep_is_measured_from_end_to_end() -> None:
    case = make_case(power, ("f32[1000]", 3))

    found = run_experiment(case, ["static"], WorkerLab(resolve(), Effort(max_time_s=12.0)), {"static": "n=3"})

    assert found.row("static").sentence.startswith("1 program for 1 value")
    said = dict(found.row("static").facts)["n=3"]
    assert "→" in said or "unclear" in said


# ---- Inputs of other sizes hold the values that were given, and no others ----


X = jnp.arange(6.0).reshape(2, 3)


def test_an_axis_is_cropped_repeated_and_padded() -> None:
    case = make_case(lambda x: x, (X,))

    assert resized(case, 0, ((0, 1),), 2)[0][0].tolist() == [[0, 1], [3, 4]]
    assert resized(case, 0, ((0, 0),), 3)[0][0].tolist() == [[0, 1, 2], [3, 4, 5], [0, 1, 2]]
    assert resized(case, 0, ((0, 1),), 2, 4)[0][0].tolist() == [[0, 1, 0, 0], [3, 4, 0, 0]]


def test_examples_of_a_batch_are_alike_and_different() -> None:
    case = make_case(lambda x, w, n: x, (X, X, 3), static=("n",))

    (x, w), _ = batched(case, 0, (0,), 4)

    assert x.shape == (4, 2, 3)
    assert (x[0] == X).all()
    assert (np.sort(x.reshape(4, -1)) == np.arange(6)).all()
    assert not (x[0] == x[1]).all()
    assert (w == X).all()
    assert batched(case, 0, (0,), 4, is_spread=True)[0][1].shape == (4, 2, 3)


def test_keys_of_a_batch_differ() -> None:
    (keys,), _ = batched(make_case(lambda key: key, ("key",)), 0, (0,), 5)

    assert keys.shape == (5,)
    assert len(np.unique(jax.random.key_data(keys), axis=0)) == 5


def test_static_arguments_are_bound_and_names_kept() -> None:
    case = make_case(lambda x, n, *, w: x * n + w, (X, 3), {"w": X}, static=("n",))

    alone = read_batching(Asked(VARIANTS["vmap"], case, "x=2")).alone

    assert (alone.fn(X, 2 * X) == 5 * X).all()


def test_one_argument_has_another_value() -> None:
    case = make_case(lambda x, n, *, w: x, (1, 2), {"w": 3})

    assert with_value(case, 1, 9) == ((1, 9), {"w": 3})
    assert with_value(case, "w", 9) == ((1, 2), {"w": 9})
