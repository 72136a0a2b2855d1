"""What a notebook shows: complete, escaped, and legible in a real browser."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from measurement_strategies import RICH
from rendered_documents import Reader

from benchax.model import CaseId
from benchax.reporting.document import (
    Axis,
    Chart,
    Code,
    Document,
    Paragraph,
    Points,
    Style,
    Table,
    TableCell,
    TableColumn,
    in_python,
)
from benchax.reporting.html import fragment
from benchax.reporting.measurement import document

RED = "rgb(224, 62, 62)"


def test_it_is_what_a_notebook_asks_for() -> None:
    assert RICH._repr_html_() == fragment(in_python(document(RICH)))


CHART = Chart(Axis("n"), Axis("time", "seconds"), (Points((1, 2), (1e-3, 2e-3)),), "f over n")


def test_a_chart_stands_in_the_page_as_text_and_lines() -> None:
    """Searchable, with a name for those who do not see it, and the same for the same chart."""
    drawn = fragment(Document((CHART,)))

    assert {"f over n", "n", "time"} <= set(Reader(drawn).texts)
    assert "aria-label='f over n'" in drawn
    assert drawn == fragment(Document((CHART,)))
    # A style sheet inside of an element would hold for all others, too.
    assert not {"style", "metadata", "script"} & Reader(drawn).tags


def test_where_matplotlib_is_missing_a_line_says_what_would_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    (text,) = Reader(fragment(Document((CHART,)))).texts

    assert text.startswith("chart: f over n\n")
    assert "pip install matplotlib" in text


def test_a_program_is_unfolded_under_its_title() -> None:
    drawn = fragment(Document((Code("hlo", "a\n  b", "HLO"), Code("hlo", "c"))))

    assert (
        "<details><summary>HLO</summary><pre style='overflow-x:auto;margin:0;'><code>a\n  b</code></pre></details>"
        in drawn
    )
    assert drawn.count("<details>") == 1


def test_a_table_without_names_has_no_head() -> None:
    assert "<th" not in fragment(Document((Table((TableColumn(""),), ((TableCell("x"),),)),)))


def luminance(color: str) -> float:
    """Relative luminance (WCAG 2.2) of #rrggbb."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("background", ["#ffffff", "#1e1e1e"])
def test_colours_are_legible_on_light_and_dark_backgrounds(background: str) -> None:
    styles: tuple[Style, ...] = ("good", "bad", "warning", "info", "faint", "title")
    drawn = fragment(Document(tuple(Paragraph("text", style) for style in styles)))
    colors = set(re.findall("color:(#[0-9a-f]{6})", drawn))

    contrasts = []
    for color in colors:
        low, high = sorted((luminance(color), luminance(background)))
        contrasts.append((high + 0.05) / (low + 0.05))
    assert len(colors) == 4
    assert min(contrasts) > 3.5


@pytest.mark.slow
def test_a_browser_shows_it(opened: Any, tmp_path: Path) -> None:
    """A script in a name would change the title."""
    name = "<script>document.title = 'attacked'</script>fft"
    m = replace(RICH, case=CaseId(name, (("n", 256),)))
    file = tmp_path / "page.html"
    file.write_text(f"<!doctype html><meta charset='utf-8'><title>t</title>{m._repr_html_()}", encoding="utf-8")

    page = opened(file).page

    seen = page.inner_text(".benchax").splitlines()
    assert page.title() == "t"
    assert seen[0] == f"{name}[n=256]"
    assert "\twrong output\tin verify: off by 0.1" in seen
    assert "cpu · AMD EPYC 9654 · jax 0.10.2 · f32[1024,128], key, axis=0" in seen
    assert "wall\t120 µs\t(110–130) 95 % interval for this process" in seen
    failed = page.locator("tr", has_text="off by 0.1").first.locator("td").last
    assert failed.evaluate("(cell) => [getComputedStyle(cell).color, getComputedStyle(cell).opacity]") == [RED, "1"]
