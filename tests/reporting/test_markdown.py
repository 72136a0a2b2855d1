"""Documents as GitHub's Markdown: each kind of block, and that no text formats anything."""

from __future__ import annotations

from typing import Any

import pytest

from benchax.model import Remark
from benchax.reporting.document import (
    Block,
    Code,
    Document,
    Facts,
    Heading,
    Paragraph,
    Remarks,
    Section,
    Sparkline,
    TableColumn,
    TextRow,
    list_lines,
    tabulate,
)
from benchax.reporting.markdown import escape, render

TABLE = tabulate((TableColumn("case", "names"), "wall", TableColumn("why", "words")), [("f[n=8]", "1 s", "")], note="n")
FACTS = (TextRow("compile", "250 ms", "missed\nthe cache"), TextRow("", "and more"))
SHOWN: dict[str, tuple[Block, ...]] = {
    "headings, sentences, and lists": (
        Heading("f", 1, ("cpu", "jax 0.10.2")), Heading("why", aside="a.py:3"), Paragraph("a\nb"),
        *list_lines(["one", "two"]),
    ),
    "numbers of a table end at the right, and names are code": (TABLE,),
    "facts and remarks are lists": (Facts((Section("once", FACTS),)), Remarks((Remark("x", "warning", "noisy"),))),
    "a program is in a fence that it cannot close": (Code("hlo", "a ```` b\n  c", "HLO"), Code("diff", "+a")),
    "a chart is a line of bars": (Sparkline((1.0, 2.0), "1 to 2"),),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_each_kind_of_block_has_its_markdown(name: str, snapshot: Any) -> None:
    assert render(Document(SHOWN[name])) == snapshot


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("*a* _b_ `c`", "&#42;a&#42; &#95;b&#95; &#96;c&#96;"),
        ("<b>", "&#60;b&#62;"),
        ("- a", "&#45; a"),
        ("---", "&#45;--"),
        ("-50 %", "-50 %"),
        ("1. a", "1&#46; a"),
        ("1.00 s", "1.00 s"),
        ("@me #1 http://x", "&#64;me &#35;1 http&#58;//x"),
        ("a\n\tb\x00", "a b&#92;x00"),
    ],
)
def test_a_text_formats_nothing(written: str, expected: str) -> None:
    assert escape(written) == expected
