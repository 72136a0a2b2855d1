"""Sizes around one size."""

from __future__ import annotations

from typing import Any

import pytest
from labs_by_hand import ScriptedLab, swept

from benchax.errors import UsageError
from benchax.experiments.variants.alignment import Alignment, around


def product(x: Any, w: Any) -> Any:
    return x @ w


def test_around_a_size_are_its_neighbours_and_what_it_would_be_padded_to() -> None:
    assert around(200) == {200: 200, 199: 199, 201: 201, 256: 200}
    assert around(300) == {300: 300, 299: 299, 301: 301, 384: 300, 512: 300}
    assert around(128) == {128: 128, 127: 127, 129: 129}
    assert around(1) == {1: 1, 2: 2, 128: 1}


def test_time_is_per_entry_that_is_of_use() -> None:
    lab = ScriptedLab({"256": 0.5})
    _, curves = swept(Alignment(), "x.1+w.0=200", product, "f32[4,16]", "f32[16,8]", lab=lab)

    points = {point.label: point for point in curves["alignment"].points}
    assert list(points) == ["199", "200", "201", "256 (padded)"]
    assert "25.0 ns, 0.500×" in dict(points["256 (padded)"].facts)["per useful entry:"]
    assert "0.995×" in dict(points["201"].facts)["per useful entry:"]
    assert curves["alignment"].sentence.startswith("beside 200, padded to 256: faster")
    exact, padded = lab.outputs("256")
    assert exact.shape == padded.shape
    assert abs(exact - padded).max() < 1e-3


def test_without_a_size_it_is_that_of_the_inputs() -> None:
    _, curves = swept(Alignment(), "x", product, "f32[4,16]", "f32[16,8]")

    assert [point.x for point in curves["alignment"].points] == [3, 4, 5, 128]


def test_two_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match="one size"):
        swept(Alignment(), "x=3,4", product, "f32[4,16]", "f32[16,8]")
