"""JSON: everything."""

from __future__ import annotations

import json

from exported_rows import ROWS, SLOWER, document

from benchax.codec import decode_comparison, from_document


def test_measurements_and_comparisons_come_back_whole() -> None:
    found = document("json", ROWS, (SLOWER,))

    assert [from_document(m) for m in found["measurements"]] == list(ROWS)
    assert [decode_comparison(json.dumps(c)) for c in found["comparisons"]] == [SLOWER]


def test_summaries_stand_beside_the_readings() -> None:
    full, _, failed = document("json")["measurements"]

    assert (full["summary"]["median_s"], full["summary"]["low_s"], full["timer"]) == (1.2e-4, 1.1e-4, "wall")
    assert (failed["summary"], failed["why"]) == (None, "it ended with timeout in compile: over 3 s")
