"""What a notebook shows: complete, escaped, and legible in a real browser."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from html_reader import Reader
from measurement_strategies import RICH, measured

from benchax.model import CaseId, Failure, Measurement, Remark
from benchax.reporting import display  # noqa: F401  # what a notebook asks for _repr_html_
from benchax.reporting.chart import Axis, AxisTick, Chart, Points
from benchax.reporting.document import (
    Block,
    Code,
    Document,
    Facts,
    Heading,
    List,
    Paragraph,
    Remarks,
    Section,
    Sparkline,
    Style,
    Table,
    TableCell,
    TableColumn,
    TextRow,
)
from benchax.reporting.html import fragment
from benchax.reporting.measurement import document
from benchax.reporting.python_words import in_python

ATTACK = '<script>alert(1)</script>\' onmouseover="x" &amp;'
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# As root in a container there is no sandbox, and nothing may be asked of the network.
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--window-size=1000,800",
]


def shown(m: Measurement) -> str:
    return fragment(document(m))


def test_it_is_what_a_notebook_asks_for() -> None:
    assert RICH._repr_html_() == fragment(in_python(document(RICH)))


def test_a_failure_is_coloured_and_so_is_its_message() -> None:
    m = replace(measured(), failure=Failure("error", "trace", "it broke", "mend it"))

    rows = re.findall("<tr.*?</tr>", shown(m))

    (failed,) = [row for row in rows if "it broke" in row]
    assert "color:#e03e3e" in failed.partition("<td")[0]
    assert "opacity" not in failed
    (advice,) = [row for row in rows if "mend it" in row]
    assert "color:" not in advice


def test_without_remarks_there_is_no_heading_for_them() -> None:
    assert "remarks" not in shown(measured())


EVERY: tuple[Block, ...] = (
    Heading(ATTACK, 1, (ATTACK,), ATTACK, "info"),
    Paragraph(ATTACK, "good"),
    List((Paragraph(ATTACK, "bad"),)),
    Table((TableColumn(ATTACK),), ((TableCell(ATTACK, "warning", ATTACK),),), ATTACK),
    Facts((Section(ATTACK, (TextRow(ATTACK, ATTACK, ATTACK),)),), "words"),
    Remarks((Remark("x", "info", ATTACK),)),
    Code("hlo", ATTACK, ATTACK),
    Sparkline((1.0, None, 2.0), ATTACK, breaks=(2,)),
    Chart(
        Axis(ATTACK, ticks=(AxisTick(0, ATTACK),)),
        Axis(ATTACK),
        (Points((0,), (1.0,), label=ATTACK),),
        ATTACK,
        has_legend=True,
    ),
)


def test_no_block_takes_a_text_for_html() -> None:
    """Attributes included: what leaves one is an element or an attribute of its own."""
    read = Reader(fragment(Document(EVERY)))

    assert "".join(read.texts).count(ATTACK) == 21
    assert not {"script", "onmouseover", "onload"} & (read.tags | read.attributes)


CHART = Chart(Axis("n"), Axis("time", "seconds"), (Points((1, 2), (1e-3, 2e-3)),), "f over n")


def test_a_chart_stands_in_the_page_as_text_and_lines() -> None:
    """Searchable, with a name for those who do not see it, and the same for the same chart."""
    drawn = fragment(Document((CHART,)))

    assert {"f over n", "n", "time"} <= set(Reader(drawn).texts)
    assert "aria-label='f over n'" in drawn
    assert drawn == fragment(Document((CHART,)))


def test_a_chart_changes_nothing_else_of_the_page() -> None:
    """A style sheet inside of an element holds for all others, too."""
    assert not {"style", "metadata", "script"} & Reader(fragment(Document((CHART,)))).tags


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
@pytest.mark.skipif(BROWSER is None, reason="needs Chromium: apt-get install chromium")
def test_a_browser_shows_it(tmp_path: Path) -> None:
    """The page tells in its title what can be seen of it; a script in a name would take its place."""
    name = "<script>document.title = 'attacked'</script>fft"
    m = replace(RICH, case=CaseId(name, (("n", 256),)))
    tell = "<script>document.title = document.querySelector('.benchax').innerText</script>"
    file = tmp_path / "page.html"
    file.write_text(f"<!doctype html><meta charset='utf-8'>{m._repr_html_()}{tell}", encoding="utf-8")

    dumped = browse(tmp_path, "--dump-dom", file.as_uri())
    browse(tmp_path, f"--screenshot={tmp_path / 'page.png'}", file.as_uri())

    (title,) = re.findall("<title>(.*?)</title>", dumped, re.DOTALL)
    seen = html.unescape(title).splitlines()
    assert seen[0] == f"{name}[n=256]"
    assert "\twrong output\tin verify: off by 0.1" in seen
    assert "cpu · AMD EPYC 9654 · jax 0.10.2 · f32[1024,128], key, axis=0" in seen
    assert "wall\t120 µs\t(110–130) 95 % interval for this process" in seen
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def browse(folder: Path, *arguments: str) -> str:
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={folder / 'user'}", *arguments]
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", timeout=60, env=os.environ | {"HOME": str(folder)}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
