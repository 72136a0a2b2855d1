"""docs/how-to/performance-guide.md is what examples/performance_guide.py writes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import warm_python

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "how-to" / "performance-guide.md"
QUICK = "1. Compilation: what compiles again"
"""A section that takes a second."""


@pytest.fixture
def guide_page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """With the sections of the guide."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import guide_page
    import performance_guide

    assert performance_guide.PAGE == PAGE
    return guide_page


def test_the_page_has_every_section_with_its_present_code(guide_page: ModuleType) -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == [one.title for one in guide_page.SECTIONS]
    for one in guide_page.SECTIONS:
        assert guide_page.before_output(one) in page, f"write it anew: --only {one.title!r}"


def test_a_section_written_anew_has_the_structure_of_the_committed_one_and_the_others_stay(
    tmp_path: Path, guide_page: ModuleType
) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\n## 6. Profiling\n\nas it was\n", encoding="utf-8")

    command = [sys.executable, "examples/performance_guide.py", "--only", QUICK, "--output", str(page)]
    warm_python.run(command, cwd=ROOT, check=True)

    assert without_numbers(guide_page.of_page(page)[QUICK]) == without_numbers(guide_page.of_page(PAGE)[QUICK])
    assert list(guide_page.of_page(page)) == [QUICK, "6. Profiling"]
    assert guide_page.of_page(page)["6. Profiling"] == "## 6. Profiling\n\nas it was\n"


def without_numbers(text: str) -> list[list[str]]:
    """The words of each line; order of the table's lines apart, which is by time."""
    words = [re.sub(r"[\d.,]+ ?(ns|µs|ms|s|%)?", "0", line).split() for line in text.splitlines()]
    return sorted(words)
