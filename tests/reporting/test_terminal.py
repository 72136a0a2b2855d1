"""How measurements look in terminals, pipes and narrow windows: nothing is lost, no colour goes astray."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measurement_strategies import RICH, measured
from rendered_documents import too_wide
from rich.console import Console
from rich.text import Text

from benchax.model import Absent, CaseId, Failure, Measurement, Remark
from benchax.reporting import terminal
from benchax.reporting.document import (
    Block,
    Code,
    Document,
    Facts,
    Heading,
    List,
    Paragraph,
    Section,
    Sparkline,
    Style,
    TableColumn,
    TextRow,
    tabulate,
)
from benchax.reporting.measurement import document, list_measurements
from benchax.reporting.tables import CASE, REMARKS
from benchax.reporting.terminal import break_lines

ESCAPE = "\x1b["
RED = "\x1b[1;31m"

# Without the NUL of RICH, which no terminal shows.
PLAIN = replace(RICH, case=CaseId("fft", (("n", 256),)))
FAILED = replace(
    measured("slow"), samples=(), failure=Failure("out_of_memory", "first run", "no 3 TiB here", "buy memory")
)


def on_terminal(content: Document, width: int = 100) -> str:
    """What a terminal that knows colours is sent."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system="standard", highlight=False)
    console.print(terminal.render(content, width), soft_wrap=True)
    return console.file.getvalue()  # type: ignore[attr-defined]


def solid(text: str) -> str:
    """`text` without spaces and line breaks, which folding may put anywhere."""
    return re.sub(r"\s", "", text)


def line_with(word: str, text: str) -> str:
    (line,) = [line for line in text.splitlines() if word in line]
    return line


# ---- one measurement --------------------------------------------------------------------------------------------


def test_what_is_printed_is_plain_text_also_where_colours_are_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")

    text = str(PLAIN)

    assert ESCAPE not in text
    assert "fft[n=256]" in text.splitlines()[0]
    assert [line for line in text.splitlines() if line != line.rstrip()] == []


def test_what_is_printed_in_a_notebook_is_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich would show it below the cell in pieces, and `str(m)` was empty lines."""
    outside = str(RICH)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)

    assert str(RICH) == outside
    assert "every call" in outside


REMARKED = replace(
    measured(),
    remarks=(Remark("a", "error", "it broke"), Remark("b", "warning", "too much"), Remark("c", "info", "by the way")),
    not_measured=(Absent("cost", "it was raining"),),
)


def test_failures_are_red_what_is_absent_is_faint_and_each_severity_has_a_mark() -> None:
    assert repr(on_terminal(document(FAILED))).count(repr(RED)[1:-1]) == 3
    shown = on_terminal(document(REMARKED))
    assert f"{RED}✗\x1b[0m {RED}it broke" in shown
    assert "\x1b[33m!\x1b[0m too much" in shown
    assert "\x1b[2m·\x1b[0m by the way" in shown
    assert "\x1b[2mnot measured: operations" in shown
    listed = on_terminal(list_measurements([measured("f"), FAILED]))
    assert f"{RED}slow" in listed
    assert f"{RED}out of memory in first run: no 3 TiB here" in listed
    assert f"{RED}f" not in listed


def test_an_endless_signature_takes_one_line() -> None:
    m = replace(measured(), signature=", ".join(["f32[8]"] * 1000))

    text = terminal.to_text(document(m), 80)

    assert line_with("f32[8]", text).endswith("…")


# ---- many measurements ------------------------------------------------------------------------------------------


def grid(*lines: tuple[str, ...]) -> Document:
    return Document((tabulate((CASE, "wall", REMARKS), lines),))


def test_what_is_printed_in_a_terminal_is_as_wide_as_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    class Window(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Window())
    monkeypatch.setenv("COLUMNS", "40")

    assert terminal.to_printed(grid(("f" * 300, "1.00 s", "busy"))).splitlines()[1].startswith("ffffff")
    assert max(map(len, terminal.to_printed(grid(("f" * 300, "1.00 s", "busy"))).splitlines())) == 40
    assert len(terminal.to_text(grid(("f" * 300, "1.00 s", "busy"))).splitlines()[1]) > 300  # as in a file


def test_a_narrow_window_leaves_columns_out_before_it_cuts_a_name_and_names_them() -> None:
    optional = [TableColumn(name, is_optional=True) for name in ("peak", "compile")]
    table = tabulate((CASE, "wall", *optional), [("abcdefghijklmnopqrstuvwxyz", "1.00 s", "2.00 MiB", "30.0 ms")])

    shown = {width: terminal.to_text(Document((table,)), width).splitlines() for width in (60, 50, 40)}

    assert shown[60][0].split() == ["case", "wall", "peak", "compile"]
    assert shown[50][0].split() == ["case", "wall", "peak"]
    assert shown[50][2:] == ["Hidden at this width: compile."]
    assert shown[40][1:] == ["abcdefghijklmnopqrstuvwxyz  1.00 s", "Hidden at this width: peak, compile."]


def test_the_overview_explains_failures_and_warnings_below_and_a_busy_machine_once(snapshot: Any) -> None:
    busy = Remark("busy", "warning", "too much")
    one = [replace(measured("f"), remarks=(busy, Remark("x", "info", "by the way"))), FAILED, measured("h")]

    assert terminal.to_text(list_measurements(one)) == snapshot(name="one case")
    every = [replace(measured(name), remarks=(busy,)) for name in ("f", "g", "h")]
    assert terminal.to_text(list_measurements(every)) == snapshot(name="all cases")


# ---- sections and sentences -------------------------------------------------------------------------------------


SECTION = Section("environment", (TextRow("flags", "XLA_FLAGS=--one --two", "set by you"), TextRow("host", "h")))
SENTENCE = Paragraph("a sentence")
NOTED = tabulate(("n",), [("8",)], note="a note")
BLOCKS: dict[str, tuple[int | None, tuple[Block, ...]]] = {
    "words begin at the left and numbers end at the right": (
        None, grid(("f", "1.00 s", "busy"), ("matmul", "20.0 ms", "")).blocks
    ),
    "names are cut in their middle, and numbers are not": (
        38, grid(("abcdefghijklmnopqrstuvwxyz", "1.00 s", "busy")).blocks
    ),
    "both ends of a name stay beside its parameters": (
        52, grid(*((f"benchmark_of_{x}[n=64, dtype=f32]", "1.00 s", "") for x in ("attention_1", "product_2"))).blocks
    ),
    "a head folds between its words before the texts below it fold": (
        24, (tabulate(("of roofline", TableColumn("verdict", "words", 12)), [("51 %", "results differ")]),)
    ),
    "wide characters do not shift columns, and names are no markup": (
        None, grid(("数学", "1.00 s", ""), ("[bold]x[/bold]", "1.00 s", "")).blocks
    ),
    "a column that need not fold does not": (
        60,
        (tabulate((TableColumn("case", "names", 10), TableColumn("remarks", "words", 12)), [("f g", "busy " * 20)]),),
    ),
    "without remarks no heading announces them": (80, document(replace(REMARKED, remarks=())).blocks),
    "a measurement of nothing": (
        80, document(Measurement(CaseId(""), measured().environment, measured().options, "", "")).blocks
    ),
    "where columns do not fit, each row becomes a block": (
        24, grid(("matmul[n=8]", "1.00 s", "busy"), ("f", "", "in trace")).blocks
    ),
    "a line break in a cell stays in its column": (
        None, grid(("two\nlines", "1.00 s", ""), ("one", "2.00 s", "")).blocks
    ),
    "texts fold in their own column": (22, (Facts((SECTION,), "words"),)),
    "a sentence is no markup": (None, (Paragraph("f[n=8]: pays"),)),
    "blocks are apart, and what is below a heading is indented": (
        None,
        (
            Heading("title", 1, ("where",)), SENTENCE, Heading("part"), SENTENCE, NOTED, Heading("part"), NOTED,
        ),
    ),
    "items of a list are close together": (None, (Heading("why"), List((Paragraph("one"), Paragraph("two", "bad"))))),
    "a table whose columns have no names has no head": (
        None, (tabulate((TableColumn("", "words"), TableColumn("", "words", 8)), [("a", "one"), ("", "two")]),)
    ),
    "names of columns are no markup": (None, (tabulate(("f[bold]",), [("1 s",)]),)),
    "a chart is a line of bars with what they span": (
        None,
        (
            Sparkline((1.0, 2.0, None, 1.0), "1 to 2", breaks=(3,)),
            Sparkline((0.0, 50.0, 99.0, None), "to 99", is_linear=True),
        ),
    ),
    "nothing takes no line": (None, ()),
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_are_laid_out(name: str, snapshot: Any) -> None:
    width, blocks = BLOCKS[name]

    assert terminal.to_text(Document(blocks), width) == snapshot


@pytest.mark.parametrize("style", ["good", "bad", "warning", "info", "faint", "title"])
def test_each_style_can_be_seen(style: Style) -> None:
    for block in (Paragraph("text", style), List((Paragraph("text", style),))):
        assert ESCAPE in on_terminal(Document((block,)))


def test_a_program_keeps_its_lines_tabs_and_spaces() -> None:
    code = Code("hlo", "a\tb  \n" + "[red]x" * 50, "hlo")

    assert terminal.to_text(Document((Paragraph("before"), code)), 40) == f"before\n\nhlo\n{code.text}"
    assert solid("[red]x" * 50) in on_terminal(Document((code,)), 40).splitlines()


def test_a_path_that_is_wider_than_its_column_goes_on_in_the_next_line_at_a_joint() -> None:
    columns = (TableColumn("what", "names", 20, breaks_words=True), "size")
    path = "result[1][0].mu['params']['Dense_0']['kernel']"

    lines = terminal.to_text(Document((tabulate(columns, [(path, "1.53 MiB")]),)), 34).splitlines()

    assert "".join(line[:24].rstrip() for line in lines[1:]) == path
    assert lines[1].startswith("result[1][0].mu")
    assert too_wide("\n".join(lines), 34) == []


PATH = "/home/somebody/.cache/benchax/profiles/2026-11-23/plugins/profile/vm.xplane.pb"
WORDS = [PATH, "jit(step)/transpose(jvp(main))/broadcast_in_dim", "bench_models/crashes/bench_fft.py::fft[n=1024,k=3]"]
NUMBERS = ["1.23 ms", "± 1.2 %", "0.990 – 1.01", "512 MiB", "3.4 GFLOP"]


def everything(words: list[str]) -> Document:
    """The words in every block that folds, beside enough others to be broken somewhere."""
    long = "a few words " * 6
    sentence = " and then ".join([long + word for word in words])
    facts = Section("part", tuple(TextRow("label", "1.00 s", f"{long}{word}", "") for word in words))
    settings = Section("environment", tuple(TextRow("flags", f"{long}{word}", word) for word in words))
    columns = ("time", TableColumn("where", "words", 12), TableColumn("remarks", "words", 12))
    table = tabulate(columns, [("1.00 s", f"{long}{word}", f"{word} {long}") for word in words], note=sentence)
    failed = replace(
        measured("f"), failure=Failure("error", "trace", sentence), remarks=(Remark("x", "info", sentence),)
    )
    return Document(
        (
            Heading(sentence, 1, (sentence,)),
            Paragraph(sentence),
            Facts((facts,)),
            Facts((settings,), "words"),
            table,
            *document(failed).blocks,
            *list_measurements([failed]).blocks,
        )
    )


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_no_word_path_or_number_is_broken(width: int) -> None:
    shown = terminal.to_text(everything(WORDS + NUMBERS), width)

    lines = shown.splitlines()
    for word in WORDS + NUMBERS:
        # In the title, below it, in the sentence, in both facts (the second twice), in the table (twice, and its note),
        # and in what a failure and a remark say, twice.
        assert sum(line.count(word) for line in lines) >= 11, word


@given(st.lists(st.text("abc/._-1", min_size=1, max_size=50), min_size=1), st.integers(10, 120))
def test_broken_lines_have_the_same_words_and_fit(words: list[str], width: int) -> None:
    lines = [line.plain for line in break_lines(Text(" ".join(words)), width)]

    assert [word for line in lines for word in line.split()] == words
    assert all(len(line) <= width or " " not in line for line in lines)


def test_a_file_with_a_line_is_a_link_where_the_file_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    table = tabulate((TableColumn("where", "words"),), [("train.py:12",), ("gone.py:3",)])

    shown = on_terminal(Document((Paragraph(f"see {tmp_path / 'train.py'}:7 and 10:30"), table)))

    link = (tmp_path / "train.py").as_uri()
    assert shown.count(f";{link}\x1b\\") == 2
    assert "train.py:12\x1b]8;;\x1b\\" in shown
    assert "gone.py:3" in shown
    assert "\x1b" not in terminal.to_text(Document((table,)))


def test_names_of_strangers_do_nothing_to_the_terminal() -> None:
    name = "f\x1b]0;mine\x07\u202eevil\rx\nsecond"
    m = replace(measured(name), signature=name, remarks=(Remark("x", "warning", name),))

    for shown in (terminal.to_text(document(m)), terminal.to_text(list_measurements([m, m])), on_terminal(document(m))):
        assert "\x1b]0" not in shown
        assert "\u202e" not in shown
        assert "\r" not in shown
        assert r"f\x1b]0;mine\x07\u202eevil" in shown
