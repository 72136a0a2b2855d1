"""Lines are broken between words only, at any width; what a name leads to is a link; what a name would do is spelt."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measurement_strategies import measured
from rich.console import Console
from rich.text import Text

from benchax.model import Failure, Remark
from benchax.reporting import terminal
from benchax.reporting.document import Document, Facts, Heading, Paragraph, Section, TableColumn, TextRow, tabulate
from benchax.reporting.measurement import document, list_measurements
from benchax.reporting.terminal import break_lines

PATH = "/home/somebody/.cache/benchax/profiles/2026-11-23/plugins/profile/vm.xplane.pb"
WORDS = [PATH, "jit(step)/transpose(jvp(main))/broadcast_in_dim", "bench_models/crashes/bench_fft.py::fft[n=1024,k=3]"]
NUMBERS = ["1.23 ms", "± 1.2 %", "0.990 – 1.01", "512 MiB", "3.4 GFLOP"]


def on_terminal(content: Document, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system="standard", highlight=False)
    console.print(terminal.render(content), crop=False)
    return console.file.getvalue()  # type: ignore[attr-defined]


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


def test_a_column_that_need_not_fold_does_not() -> None:
    table = tabulate((TableColumn("case", "names", 10), TableColumn("remarks", "words", 12)), [("f g", "busy " * 20)])

    assert terminal.to_text(Document((table,)), 60).splitlines()[1].startswith("f g   busy busy")


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
