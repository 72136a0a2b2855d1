"""docs/requirements.md names tests; they are there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "requirements.md"


def test_every_test_that_the_page_names_exists() -> None:
    texts = [file.read_text(encoding="utf-8") for file in TESTS.rglob("test_*.py")]
    there = {name for text in texts for name in re.findall(r"^ *def (test_\w+)\(", text, re.MULTILINE)}
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8")))

    assert named - there == set()


def test_each_requirement_points_at_a_test() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| R\d+ ", line)]

    assert [line for line in lines if "`test_" not in line] == []
    assert [int(line.split()[1][1:]) for line in lines] == list(range(1, 71))
