"""The table of transfers, from results made by hand."""

from __future__ import annotations

from typing import Any

from benchax.model import Remark
from benchax.reporting import display  # noqa: F401  # what print needs
from benchax.results.transfers import Direction, ObservedTransfer, Transfers

BOTH: tuple[Direction, ...] = ("host to device", "device to host")


def made(*listed: ObservedTransfer, sees: tuple[Direction, ...] = BOTH) -> Transfers:
    found = Transfers(sees=sees)
    for transfer in listed:
        found.add(transfer)
    return found


def up(where: str | None, size: int) -> ObservedTransfer:
    return ObservedTransfer("host to device", where, "NumPy f32[4]", "step", 1, size, None)


def down(where: str, elapsed_s: float) -> ObservedTransfer:
    return ObservedTransfer("device to host", where, "f32[]", "__float__", 1, 4, elapsed_s)


def test_transfers_of_one_line_are_one_row_and_the_most_bytes_come_first(snapshot: Any) -> None:
    found = made(up("a.py:1", 16), up("b.py:2", 64), up("a.py:1", 16), down("c.py:3", 0.25), down("c.py:3", 0.5))

    assert [(t.where, t.count, t.size_bytes) for t in found.of("host to device")] == [
        ("b.py:2", 1, 64),
        ("a.py:1", 2, 32),
    ]
    assert str(found) == snapshot


def test_none_and_not_seen_are_two_things(snapshot: Any) -> None:
    assert str(made(sees=("host to device",))) == snapshot


def test_of_very_many_lines_the_greatest_are_shown_and_the_rest_is_counted() -> None:
    shown = str(made(*(up(f"file.py:{n}", 4 * n) for n in range(1, 31))))

    assert "file.py:30:" in shown
    assert "file.py:10:" not in shown
    assert "and 10 more that moved less" in shown


def test_a_line_that_cannot_be_seen_is_said_to_be_one(snapshot: Any) -> None:
    assert str(made(up(None, 4))) == snapshot


def test_any_path_is_shown_as_it_is_and_the_end_of_a_long_one() -> None:
    shown = str(made(up("[red]é\n.py:1", 4), up("x" * 10_000 + "/train.py:7", 8)))

    assert "[red]é .py:1" in shown
    assert "xxx/train.py:7: step" in shown
    assert max(map(len, shown.splitlines())) < 200


def test_a_notebook_gets_both_tables_with_text_escaped() -> None:
    found = made(up("<b>.py:1", 4), down("c.py:3", 0.25))
    found.remarks.append(Remark("x", "info", "a < b"))

    shown = found._repr_html_() or ""

    assert "&lt;b&gt;.py:1" in shown
    assert "250 ms" in shown
    assert "a &lt; b" in shown
