"""Boxes on a page: unfolded by keys and pointers, found by a search, readable by all, and quick where they are many."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from browser_pages import Opened, start_browser

from benchax.reporting.document import Document, Heading
from benchax.reporting.inspection import make_outline
from benchax.reporting.pages.page import save_page
from benchax.results.inspection import HloOperation, HloOperations

pytestmark = pytest.mark.slow
ATTACK = "<img src=x onerror=alert(1)></script>"
DARK = {"color_scheme": "dark"}
NARROW = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with start_browser() as started:
        yield started


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """Opens a page of operations, and complains at the end of what it said or asked for."""
    pages: list[Opened] = []

    def open_page(listed: tuple[HloOperation, ...], folder: Path, **looks: Any) -> Any:
        file = folder / "page.html"
        save_page(file, [Document((Heading("f(f32[8])", 1), make_outline(HloOperations(listed))))])
        pages.append(Opened(browser, file, **looks))
        page = pages[-1].page
        page.locator("section.outline").scroll_into_view_if_needed()
        page.wait_for_selector("section.outline[data-drawn]")
        return page

    yield open_page
    for page in pages:
        page.close()
        assert page.messages == []
        assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []


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


def test_keys_unfold_fold_and_move_as_in_every_tree(opened: Any, tmp_path: Path) -> None:
    page = opened(PROGRAM, tmp_path)

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


def test_a_click_unfolds_and_says_what_reads_what(opened: Any, tmp_path: Path) -> None:
    page = opened(PROGRAM, tmp_path)

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
def test_a_search_unfolds_what_it_finds_and_hides_the_rest(
    text: str, found: list[str], opened: Any, tmp_path: Path
) -> None:
    page = opened(PROGRAM, tmp_path)

    page.get_by_label("Find operations").fill(text)
    page.keyboard.press("Enter")

    assert page.locator(".found > .row .name").all_inner_texts() == found
    assert "layer1" not in names(page)
    assert page.locator(".outline [role=status]").inner_text() == f"{len(found)} of 8 boxes"
    page.get_by_text("Fold all").click()
    assert names(page) == ["layer0", "layer1"]


@pytest.mark.parametrize("looks", [{}, DARK, NARROW], ids=["light", "dark", "narrow"])
def test_nobody_is_kept_out(looks: dict[str, Any], opened: Any, tmp_path: Path) -> None:
    axe = pytest.importorskip("axe_playwright_python", reason="pip install axe-playwright-python")
    page = opened(PROGRAM, tmp_path, **looks)

    page.get_by_label("Find operations").fill("inner")
    page.keyboard.press("Enter")
    page.evaluate((files(axe) / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run().then((run) => run.violations)")

    assert [(each["id"], [node["html"][:200] for node in each["nodes"]][:3]) for each in found] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_paper_and_a_page_without_scripts_have_a_table(opened: Any, browser: Any, tmp_path: Path) -> None:
    page = opened(PROGRAM, tmp_path)
    assert not page.locator(".folded").is_visible()
    page.emulate_media(media="print")
    assert page.locator(".folded td").first.is_visible()
    assert not page.locator(".boxes").is_visible()

    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto((tmp_path / "page.html").absolute().as_uri())

    assert "loop loop.1" in plain.locator(".folded").inner_text()
    context.close()


def test_of_ten_thousand_operations_those_are_boxes_that_are_looked_at(opened: Any, tmp_path: Path) -> None:
    many = tuple(one(f"dot.{i}", f"layer{i // 10}", reads=(i - 1,) if i else ()) for i in range(10_000))
    page = opened(many, tmp_path)

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
