"""CSV: one line per case."""

from __future__ import annotations

import csv
import io
import json

from exported_rows import ROWS, SLOWER, text


def lines() -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text("csv", ROWS, (SLOWER,)), newline="")))


def test_numbers_come_back_without_loss() -> None:
    full = lines()[0]

    assert (float(full["median_s"]), float(full["low_s"]), float(full["compile_s"])) == (1.2e-4, 1.1e-4, 0.25)
    assert (full["n"], full["iterations"], full["timer"], full["is_dirty"]) == ("6", "1", "wall", "true")
    assert json.loads(full["params"]) == {"n": 256, "dtype": "f32"}


def test_the_comparison_of_run_times_stands_beside_them() -> None:
    full, bare, _ = lines()

    assert (full["verdict"], full["baseline"], full["ratio"], full["ratio_high"]) == ("slower", "v1", "1.2", "1.3")
    assert (bare["verdict"], bare["ratio"]) == ("", "")


def test_what_is_done_in_a_second_has_columns_of_its_own_behind_the_others() -> None:
    full, bare, _ = lines()

    assert list(full)[-2:] == ["samples_per_s", "bytes_per_s"]
    assert float(full["samples_per_s"]) == 32 / float(full["median_s"])
    assert bare["samples_per_s"] == ""


def test_what_was_not_measured_is_empty_and_says_why() -> None:
    _, bare, failed = lines()

    assert (bare["median_s"], bare["low_s"], bare["compile_s"], bare["why"]) == ("2e-06", "", "", "")
    assert (failed["status"], failed["median_s"], failed["n"]) == ("timeout", "", "")
    assert failed["why"] == "it ended with timeout in compile: over 3 s"
