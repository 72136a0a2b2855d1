"""Exact, padded, in buckets: programs counted in a real worker, run times by hand."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from labs_by_hand import ScriptedLab, swept

from benchax.experiments.variants.shapes import ShapeBuckets, bucket


def product(x: Any, w: Any) -> Any:
    return x @ w


def centred(x: Any) -> Any:
    return x - x.mean()


def test_programs_are_counted_and_wasted_operations_estimated() -> None:
    lab = ScriptedLab({"bucketed 5": 0.5})
    rows, curves = swept(ShapeBuckets(), "x=5,6,8", product, "f32[4,16]", "f32[16,16]", lab=lab)

    assert rows["shapes: exact"].sentence.startswith("3 programs for 3 sizes")
    assert rows["shapes: padded"].sentence.startswith("1 program for 3 sizes")
    assert "26 % more operations" in rows["shapes: padded"].sentence  # 24 rows for 19
    assert rows["shapes: bucketed"].sentence.startswith("1 program for 3 sizes")
    assert [point.x for point in curves["shapes"].points] == [5, 6, 8]
    assert "faster" in dict(rows["shapes: bucketed"].facts)["x=5"]
    assert "2.00 µs → 1.00 µs per useful entry" in dict(rows["shapes: bucketed"].facts)["x=5"]
    assert "bucketed 8" not in lab.pairs
    exact, padded = lab.outputs("padded 5")
    assert jnp.allclose(exact, padded[:5])
    assert padded.shape == (8, 16)


def test_padding_that_changes_the_useful_part_is_wrong_and_not_timed() -> None:
    lab = ScriptedLab()
    rows, _ = swept(ShapeBuckets(), "x=5,7", centred, "f32[4]", lab=lab)

    assert rows["shapes: padded"].status == "wrong_result"
    assert "needs a mask" in rows["shapes: padded"].reason
    assert rows["shapes: exact"].status == "ok"
    assert not [name for name in lab.pairs if name.startswith(("padded", "bucketed"))]


def test_a_function_that_fails_is_a_row() -> None:
    rows, curves = swept(ShapeBuckets(), "x.1=5,7", product, "f32[4,16]", "f32[16,16]")

    assert rows["shapes: exact"].status == "failed"
    assert "TypeError" in rows["shapes: exact"].reason
    assert not curves


def test_a_bucket_is_the_power_of_two_that_holds_it() -> None:
    assert [bucket(size) for size in (1, 2, 3, 4, 5, 128, 129)] == [1, 2, 4, 4, 8, 128, 256]
