"""docs/about/requirements.md names tests and pages; they are there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "about" / "requirements.md"
PLANNED = set[int]()
"""Requirements that may have no row yet."""


def rows() -> dict[int, str]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return {int(line.split()[1][1:]): line for line in lines if re.match(r"\| R\d+ ", line)}


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings, and as they are made of the names that a page of the reference lists."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    names = [name for line in re.findall(r"^```\{names\} (.*)$", text, re.MULTILINE) for name in line.split()]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in [*headings, *names]}


def test_every_test_that_the_page_names_exists() -> None:
    texts = [file.read_text(encoding="utf-8") for file in TESTS.rglob("test_*.py")]
    there = {name for text in texts for name in re.findall(r"^ *def (test_\w+)\(", text, re.MULTILINE)}
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8")))

    assert named - there == set()


def test_each_requirement_points_at_a_page_and_a_test() -> None:
    found = rows()

    assert {n for n, line in found.items() if "`test_" not in line or "](" not in line} == set()
    assert [*found] == sorted(found)
    assert found.keys() | PLANNED == set(range(1, 79))


def test_every_page_and_heading_that_it_points_at_is_there() -> None:
    links = re.findall(r"\]\(([\w/.-]+\.md)(?:#([^)]*))?\)", PAGE.read_text(encoding="utf-8"))

    missing = [page for page, _ in links if not (PAGE.parent / page).is_file()]
    assert missing == []
    assert [f"{page}#{a}" for page, a in links if a and a not in anchors(PAGE.parent / page)] == []
