"""A site in a real browser, from disk: charts draw, links lead somewhere, two versions stand side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser_pages import SIZE, Opened
from comparisons_by_hand import CASE, commit_of
from site_stores import make_store, page_of

from benchax.reporting.site import pages as site_pages
from benchax.reporting.site.publishing import publish

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("of site ü")
    publish(make_store(folder / "store"), folder / "site")
    return folder / "site"


@pytest.fixture
def open_page(opened: Any, site: Path) -> Any:
    """Opens a page of the site."""

    def start(file: Path | str, **looks: Any) -> Opened:
        # From its first page on: nothing outside the site is asked for.
        page = opened(site / "index.html", **looks)
        page.go(site / file)
        return page

    return start


# Waiting is by selectors throughout: `wait_for_function` evaluates a text in the page, which the page's own policy
# forbids from the second try on, so that such a test passes only where the first try is late enough.
THIRD_VERSION_CHOSEN = "#before-version option:nth-child(3):checked"


def wait_for_text(page: Any, selector: str, text: str) -> None:
    page.locator(selector, has_text=text).wait_for()


def choose(page: Any, id: str, text: str) -> None:
    """By its words."""
    options = page.eval_on_selector_all(f"#{id} option", "(all) => all.map((one) => [one.value, one.textContent])")
    (value,) = [value for value, words in options if text in words]
    page.select_option(f"#{id}", value)


def cells(page: Any, label: str) -> list[str]:
    rows = page.eval_on_selector_all(
        "#side-by-side tbody tr", "(all) => all.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    return next((row[1:] for row in rows if row[0] == label), [])


NARROW = {"width": 390, "height": 800}


@pytest.mark.parametrize(("color_scheme", "viewport"), [("light", SIZE), ("dark", NARROW)], ids=["wide", "narrow"])
def test_every_page_draws_fits_leads_to_pages_that_are_there_and_keeps_nobody_out(
    open_page: Any, site: Path, color_scheme: str, viewport: dict[str, int]
) -> None:
    """With all parts open, and two versions side by side."""
    pages, links = sorted(site.rglob("*.html")), set[str]()
    opened = open_page("index.html", color_scheme=color_scheme, viewport=viewport)
    for file in pages:
        opened.go(file)

        assert opened.draw_all() == [], file.name
        links |= set(opened.page.eval_on_selector_all("a", "(all) => all.map((one) => one.href.split('#')[0])"))
        if file.name == "compare.html":
            opened.page.wait_for_selector("#side-by-side table")
        # It would read the styles as files, which the page's policy forbids.
        found = opened.find_barriers("{ preload: false, resultTypes: ['violations'] }")
        assert (file.name, found) == (file.name, [])

    there = {file.as_uri() for file in site.rglob("*") if file.is_file()}
    assert links <= there
    assert {file.as_uri() for file in site.rglob("*.html")} <= links


def test_paper_has_all_of_a_page_on_white_and_no_links_to_others(open_page: Any, site: Path) -> None:
    for file in ("index.html", "cases.html", page_of(site, CASE)):
        page = open_page(file, color_scheme="dark").page
        page.wait_for_selector("html[data-read], html:not(:has(figure))", state="attached")

        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")

        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert not page.locator("nav").first.is_visible()
        assert page.locator("details.part:not([open])").count() == 0
        assert page.locator("figure:not([data-drawn])").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_change_leads_to_the_page_of_its_case(open_page: Any, site: Path) -> None:
    page = open_page("index.html").page

    page.click("text=matmul[n=256] >> nth=0")

    assert page.url == page_of(site, CASE).as_uri()
    assert page.text_content("h1") == "matmul[n=256]"


def test_two_versions_stand_side_by_side(open_page: Any) -> None:
    page = open_page("compare.html").page
    page.wait_for_selector("#after-version")
    choose(page, "before-version", commit_of(0)[:8])
    choose(page, "after-version", commit_of(2)[:8])
    wait_for_text(page, "#side-by-side tbody", "3.00 ×")

    before, after, ratio, overlap, *ratios = cells(page, "matmul[n=256]")

    assert (before, after) == ("10.0 µs (9.80 µs – 10.2 µs)", "30.0 µs (29.4 µs – 30.6 µs)")
    assert (ratio, overlap) == ("3.00 ×", "apart")
    assert len(ratios) == 2
    assert all(text.endswith((" same", " unclear")) for text in ratios)
    assert "ratio of medians, not judged" in page.text_content("#side-by-side thead")


def test_another_jax_gets_no_ratio_of_times_and_another_backend_nothing(open_page: Any) -> None:
    page = open_page("compare.html").page
    page.wait_for_selector("#after-version")
    for id in ("before-version", "after-version"):
        choose(page, id, commit_of(3)[:8])
    choose(page, "before-where", "AMD EPYC 9654 · jax 0.10")
    choose(page, "after-where", "jax 0.6.0")
    wait_for_text(page, "#side-by-side", "environments differ")

    said = page.text_content("#side-by-side")
    assert "2 differences: jax, jaxlib" in said
    assert "ratio of medians" not in said
    assert "slower" not in said

    choose(page, "after-where", "NVIDIA H100")
    wait_for_text(page, "#side-by-side", "Not compared")
    assert page.text_content("#side-by-side") == "Not compared: one was measured on cpu, the other on gpu."


def test_what_was_chosen_stays_in_the_address_and_keys_choose(open_page: Any) -> None:
    page = open_page("compare.html").page
    page.wait_for_selector("#side-by-side table")
    before = page.url
    page.focus("#before-version")
    page.keyboard.press("ArrowDown")
    page.wait_for_url(lambda url: url != before)  # it has read the version's numbers by then, which takes its time
    chosen = page.eval_on_selector_all("select", "(all) => all.map((one) => one.value)")

    page.reload()
    page.wait_for_selector("#side-by-side")

    page.wait_for_selector(THIRD_VERSION_CHOSEN, state="attached")
    assert page.eval_on_selector_all("select", "(all) => all.map((one) => one.value)") == chosen


def test_the_filter_finds_cases_on_other_pages_of_the_list(
    opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_pages, "CASES_ON_A_PAGE", 3)
    publish(make_store(tmp_path / "store"), tmp_path / "site")
    page = opened(tmp_path / "site" / "cases.html").page

    page.focus("#filter-cases")
    page.keyboard.type("matmul")
    page.wait_for_selector("#elsewhere a")

    assert page.text_content("#elsewhere p") == "1 on other pages:"
    assert page.text_content("#elsewhere a") == "matmul[n=256]"
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    page.wait_for_selector("#elsewhere a", state="detached")


def test_the_list_of_cases_is_filtered_by_keyboard(open_page: Any) -> None:
    page = open_page("cases.html").page
    page.focus("#filter-cases")
    page.keyboard.type("MATMUL")

    assert page.text_content("[role=search] [role=status]") == "1 of 4"
    assert page.eval_on_selector_all("tbody tr", "(all) => all.filter((one) => !one.hidden).length") == 1
