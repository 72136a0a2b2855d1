"""The array that github-action-benchmark reads as customSmallerIsBetter."""

from __future__ import annotations

from exported_rows import BARE, FAILED, FULL, document


def test_each_entry_has_the_keys_that_the_action_takes() -> None:
    """extract.ts: name, value, unit; range and extra are optional texts."""
    entries = document("github-action")

    assert entries
    for entry in entries:
        assert {"name", "value", "unit"} <= entry.keys() <= {"name", "value", "unit", "range", "extra"}
        assert isinstance(entry["value"], int | float)


def test_every_metric_is_a_series_of_its_own_with_a_fixed_unit() -> None:
    found = {entry["name"]: (entry["value"], entry["unit"]) for entry in document("github-action", (FULL,))}

    label = "fft[n=256, dtype=f32] #new"
    assert found == {
        label: (120_000.0, "ns"),
        f"{label} · compile": (250.0, "ms"),
        f"{label} · peak memory": (2097152, "B"),
        f"{label} · planned peak": (2097164, "B"),
        f"{label} · constants": (16, "B"),
        f"{label} · operations": (1.3e6, "FLOP"),
    }


def test_the_range_is_the_interval_of_the_median() -> None:
    full, bare = document("github-action", (FULL,))[0], document("github-action", (BARE,))[0]

    assert full["range"] == "95 %: 110 – 130 µs"
    assert "range" not in bare


def test_a_failed_case_is_left_out() -> None:
    assert document("github-action", (FAILED,)) == []
