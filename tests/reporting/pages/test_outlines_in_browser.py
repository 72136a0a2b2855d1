"""Boxes on a page: unfolded by keys and pointers, found by a search, readable by all, and quick where they are many."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser_pages import LOOKS, Opened

from benchax.reporting.document import Document, Heading
from benchax.reporting.html import save_page
from benchax.reporting.inspection import make_outline
from benchax.results.inspection import HloOperation, HloOperations

pytestmark = pytest.mark.slow
ATTACK = "<img src=x onerror=alert(1)></script>"


@pytest.fixture
def draw(opened: Any, tmp_path: Path) -> Any:
    """Opens a page of operations."""

    def open_page(listed: tuple[HloOperation, ...], **looks: Any) -> Opened:
        save_page(tmp_path / "page.html", [Document((Heading("f(f32[8])", 1), make_outline(HloOperations(listed))))])
        page = opened(tmp_path / "page.html", **looks)
        page.page.locator("section.outline").scroll_into_view_if_needed()
        page.page.wait_for_selector("section.outline[data-drawn]")
        return page

    return open_page


def one(name: str, scope: str, inside: int | None = None, reads: tuple[int, ...] = (), **others: Any) -> HloOperation:
    of = {"opcode": "dot", "source": "m.py:1", "part": "", "flops": 1e6} | others
    where = (of["source"], scope, inside, of["part"])
    return HloOperation(name, of["opcode"], "f32[8]{0}", *where, of["flops"], 0.0, 64.0, "", reads)


PROGRAM = (
    one("first", "layer0"),
    one("loop.1", "layer0/rnn", opcode="while", reads=(0,), flops=5e6),
    one(ATTACK, "layer1", reads=(1,), flops=None),
    one("inner", "layer0/rnn/cell", 1, part="body", source="cell.py:7"),
)


def chosen(page: Any) -> str:
    return page.evaluate("document.activeElement.getAttribute('aria-label')")


def names(page: Any) -> list[str]:
    return page.locator(".tree .name").all_inner_texts()


def test_keys_unfold_fold_and_move_as_in_every_tree(draw: Any) -> None:
    page = draw(PROGRAM).page

    assert names(page) == ["layer0", "layer1"]
    page.locator(".tree > .box").first.focus()
    page.keyboard.press("ArrowRight")
    assert names(page) == ["layer0", "first", "rnn", "layer1"]
    page.keyboard.press("ArrowRight")
    assert chosen(page) == "dot first, 1.00 MFLOP, 64 B, f32[8], m.py:1"
    for key in ("ArrowDown", "Enter", "ArrowDown", " ", "ArrowDown"):
        page.keyboard.press(key)
    assert names(page) == ["layer0", "first", "rnn", "loop.1", "cell", "layer1"]
    assert chosen(page) == "scope cell, 1.00 MFLOP, 64 B, 1 operation"
    for key in ("ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowLeft"):
        page.keyboard.press(key)
    assert names(page) == ["layer0", "first", "rnn", "layer1"]
    page.keyboard.press("End")
    assert chosen(page) == "scope layer1, not known operations, 64 B, 1 operation"
    assert page.locator(".tree [tabindex='0']").count() == 1


def test_a_click_unfolds_and_says_what_reads_what(draw: Any) -> None:
    page = draw(PROGRAM).page

    page.locator(".name", has_text="layer0").click()
    page.locator(".name", has_text="first").click()
    assert page.locator(".about .more").inner_text() == "layer0 / first"
    page.get_by_role("button", name="loop loop.1").click()
    assert chosen(page).startswith("loop loop.1, 5.00 MFLOP")
    page.get_by_role("button", name=f"dot {ATTACK}").click()

    assert chosen(page).startswith(f"dot {ATTACK}, not known operations")
    assert page.locator(".about button").all_inner_texts() == ["loop loop.1"]


@pytest.mark.parametrize(
    ("text", "found"),
    [("INNER", ["inner"]), ("cell.py", ["inner"]), ("layer0/rnn", ["rnn"]), ("while", []), ("loop", ["loop.1"])],
)
def test_a_search_unfolds_what_it_finds_and_hides_the_rest(text: str, found: list[str], draw: Any) -> None:
    page = draw(PROGRAM).page

    page.get_by_label("Find operations").fill(text)
    page.keyboard.press("Enter")

    assert page.locator(".found > .row .name").all_inner_texts() == found
    assert "layer1" not in names(page)
    assert page.locator(".outline [role=status]").inner_text() == f"{len(found)} of 8 boxes"
    page.get_by_text("Fold all").click()
    assert names(page) == ["layer0", "layer1"]


@pytest.mark.parametrize("look", LOOKS)
def test_nobody_is_kept_out(look: str, draw: Any) -> None:
    opened = draw(PROGRAM, **LOOKS[look])

    opened.page.get_by_label("Find operations").fill("inner")
    opened.page.keyboard.press("Enter")
    assert opened.find_barriers("") == []


def test_paper_and_a_page_without_scripts_have_a_table(draw: Any, browser: Any, tmp_path: Path) -> None:
    page = draw(PROGRAM).page
    assert not page.locator(".folded").is_visible()
    page.emulate_media(media="print")
    assert page.locator(".folded td").first.is_visible()
    assert not page.locator(".boxes").is_visible()

    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto((tmp_path / "page.html").absolute().as_uri())

    assert "loop loop.1" in plain.locator(".folded").inner_text()
    context.close()


def test_of_ten_thousand_operations_those_are_boxes_that_are_looked_at(draw: Any, tmp_path: Path) -> None:
    many = tuple(one(f"dot.{i}", f"layer{i // 10}", reads=(i - 1,) if i else ()) for i in range(10_000))
    page = draw(many).page

    assert (tmp_path / "page.html").stat().st_size < 1_500_000
    assert page.locator(".box").count() == 101
    page.keyboard.press("Tab")
    page.get_by_text("900 more: show 100").click()
    assert page.locator(".box").count() == 201
    assert chosen(page).startswith("scope layer100,")
    page.get_by_label("Find operations").fill("dot.")
    page.keyboard.press("Enter")
    status = page.locator(".outline [role=status]").inner_text()
    assert status == "10000 of 11000 boxes, of which the first 300 are here"
    assert page.locator(".found").count() == 300
