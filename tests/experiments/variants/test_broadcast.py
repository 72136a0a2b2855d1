"""Shared arguments beside copies of them; looked at in a real worker, run times by hand."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from labs_by_hand import ScriptedLab, swept

from benchax.errors import NotAvailable, UsageError
from benchax.experiments.variants.broadcast import InAxes


def layer(x: Any, w: Any) -> Any:
    return x @ w


def unbatchable(x: Any, w: Any) -> Any:
    if x.sum() > 0:
        return x @ w
    return w


def test_shared_arguments_take_fewer_bytes_and_give_the_same() -> None:
    lab = ScriptedLab({"in_axes": 0.5})
    rows, _ = swept(InAxes(), "x=32", layer, "f32[16]", "f32[16,16]", lab=lab)

    copied, shared = rows["in_axes: copied"], rows["in_axes"]
    assert dict(copied.facts)["inputs"] == "f32[32,16], f32[32,16,16]"
    assert dict(shared.facts)["inputs"] == "f32[32,16], f32[16,16]"
    assert dict(shared.facts)["input bytes"] == "3.00 KiB"
    assert dict(copied.facts)["input bytes"] == "34.0 KiB"
    assert shared.sentence.startswith("saves 31.0 KiB")
    one, other = lab.outputs("in_axes")
    assert jnp.allclose(one, other, rtol=1e-4)


def test_a_function_that_vmap_cannot_take_is_a_row_with_its_reason() -> None:
    lab = ScriptedLab()
    rows, _ = swept(InAxes(), "x=4", unbatchable, "f32[16]", "f32[16,16]", lab=lab)

    assert rows["in_axes: copied"].status == "failed"
    assert "TracerBoolConversionError" in rows["in_axes: copied"].reason
    assert not lab.pairs


def test_where_no_batch_axis_is_named_it_says_what_vmap_would_do() -> None:
    with pytest.raises(UsageError, match="names no argument with a batch axis") as caught:
        swept(InAxes(), "32", layer, "f32[16]", "f32[16,16]")

    assert "some of x, w" in caught.value.expected
    assert "first axis of every argument" in caught.value.hint


def test_one_size_is_enough() -> None:
    with pytest.raises(UsageError, match="in_axes is given 2 sizes"):
        swept(InAxes(), "x=2,4", layer, "f32[16]", "f32[16,16]")


def test_with_nothing_shared_there_is_nothing_to_compare() -> None:
    with pytest.raises(NotAvailable, match="every argument has a batch axis"):
        swept(InAxes(), "x+w=32", layer, "f32[16]", "f32[16,16]")
