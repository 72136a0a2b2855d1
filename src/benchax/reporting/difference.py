"""Shows what differs between two inspections: numbers, operations, and the texts as `diff -u` does."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from rich.console import Group, RenderableType
from rich.text import Text

from benchax.reporting import terminal
from benchax.reporting.document import TableColumn, tabulate
from benchax.reporting.program_text import diff_text
from benchax.results.difference import Difference, NumberChange, TextDifference
from benchax.units import count, percent, size

TITLES = {"jaxpr": "jaxpr", "stablehlo": "StableHLO", "hlo": "optimised HLO"}


def parts(found: Difference, show: Sequence[str] = (), *, full: bool = False) -> list[RenderableType]:
    """What is to be printed, one after the other.

    Args:
        show: of which stages the texts are shown; of none: the first that differs.
    """
    heads: list[RenderableType] = [Text(f"before  {found.before}"), Text(f"after   {found.after}")]
    if found.is_none:
        return [*heads, Text(), Text("no difference in what both know", style="bold"), *_texts(found, show, full)]
    tables = [
        _table("numbers", found.numbers),
        _table("primitives of the jaxpr", found.primitives),
        _table("operations of the optimised program", found.opcodes),
    ]
    same = [Text(), Text(f"unchanged: {', '.join(found.unchanged)}", style="dim")] if found.unchanged else []
    return [*heads, *(part for table in tables for part in table), *same, *_texts(found, show, full)]


def text(found: Difference) -> str:
    return terminal.to_text(Group(*parts(found)))


def html(found: Difference) -> str:
    return f"<div class='benchax'><pre>{escape(text(found))}</pre></div>"


def _table(title: str, changes: Sequence[NumberChange]) -> list[RenderableType]:
    if not changes:
        return []
    lines = tuple((c.name, _value(c, c.before), _value(c, c.after), _by(c)) for c in changes)
    grid = tabulate((TableColumn("what", "names"), "before", "after", "change"), lines)
    return [Text(), Text(title, style="bold"), terminal.grid(grid)]


def _value(change: NumberChange, value: float | None) -> str:
    if value is None:
        return "not known"
    if change.unit == "bytes":
        return size(value)
    # Whole numbers as they are: of 5000 operations, one less is news.
    return str(int(value)) if change.unit == "count" else count(value, "FLOP", digits=4)


def _by(change: NumberChange) -> str:
    """Added, removed, or by how much."""
    if change.before is None or change.after is None:
        return ""
    if change.before == 0:
        return "new"
    if change.after == 0:
        return "gone"
    more = change.after / change.before - 1
    return f"{'+' if more > 0 else ''}{percent(more)}"


def _texts(found: Difference, show: Sequence[str], full: bool) -> list[RenderableType]:
    drawn: list[RenderableType] = []
    first = next((each.stage for each in found.texts if not each.is_same), None)
    for each in found.texts:
        is_shown = each.stage in show if show else each.stage == first
        drawn += [Text(), Text.assemble((TITLES[each.stage], "bold"), f": {_describe(each, is_shown)}")]
        if is_shown and not each.is_same:
            drawn.append(diff_text(each.unified, full))
    for absent in found.absent:
        drawn += [Text(), Text(f"{TITLES.get(absent.what, absent.what)}: not compared, because {absent.why}")]
    return drawn


def _describe(each: TextDifference, is_shown: bool) -> str:
    if each.is_same:
        return "the same"
    where = "" if is_shown else f"; --show {each.stage} shows them"
    return f"{each.added} {'line' if each.added == 1 else 'lines'} added, {each.removed} removed{where}"
