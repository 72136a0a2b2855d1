"""Pages in a real browser: they draw, say nothing, ask for nothing, and answer to keys as to pointers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser_pages import LOOKS
from comparisons_by_hand import compared, series, stepping
from measurement_strategies import RICH
from results_by_hand import every_result

from benchax.comparing.history import history
from benchax.comparing.ranking import Comparisons
from benchax.model import CaseId, Failure, Samples
from benchax.reporting import display
from benchax.reporting.document import Axis, Branch, Chart, Document, Heading, Points, Tree, describe_value
from benchax.reporting.html import save_page
from benchax.store.load import Rows

pytestmark = pytest.mark.slow
ATTACK = "<script>document.title = 'attacked'</script></script><!-- &amp; \u202e \ud800"


def run_of(n: int, readings: int = 60) -> Rows:
    """Cases with readings of two timers in two processes, some preempted, one far out; every tenth failed."""
    times = [1e-5 * (1 + 0.1 * math.sin(i)) for i in range(readings)] + [3e-3]
    disturbed = tuple(i % 7 == 0 for i in range(len(times)))
    samples = tuple(
        Samples(timer, 1, tuple(times), disturbed, process=process) for timer in ("wall", "loop") for process in (0, 1)
    )
    ok = replace(RICH, samples=samples, remarks=())
    failed = replace(RICH, failure=Failure("error", "trace", ATTACK), samples=(), remarks=())
    cases = [CaseId(f"case{i}", (("n", 2**i),)) for i in range(n)]
    return Rows(tuple(replace(failed if i % 10 == 9 else ok, case=case) for i, case in enumerate(cases)))


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One page with every kind of chart there is."""
    comparisons = Comparisons((*(compared(i, 1 + 0.02 * i, case=CaseId(f"f{i}")) for i in range(4)), compared(9, None)))
    tree = Tree((Branch("jit_f", 1.0, (Branch("mm", 0.7, (Branch("dot", 0.5),)), Branch(ATTACK, 0.2, detail="x:1"))),))
    parts = [
        *display.documents_of(run_of(2)),
        *display.documents_of(comparisons),
        *display.documents_of(history(series([*stepping([(12, 1.0), (12, 1.2)]), None]))),
        Document((Heading("tree", 1), Chart(Axis(), Axis(), (tree,), "where the time goes"))),
    ]
    file = tmp_path_factory.mktemp("everything") / "page.html"
    save_page(file, parts)
    return file


@pytest.mark.parametrize("look", LOOKS)
def test_every_chart_draws_and_nothing_keeps_anybody_out(look: str, opened: Any, everything: Path) -> None:
    page = opened(everything, **LOOKS[look])

    assert page.draw_all() == []
    page.page.evaluate("document.querySelector('figure details').open = true")
    assert page.find_barriers() == []


def test_every_result_has_a_page_on_which_its_names_are_names(opened: Any, tmp_path: Path) -> None:
    results = {kind: result for kind, result in every_result(ATTACK).items() if kind != "ErrorRates"}
    for kind, result in results.items():
        result.to_html(tmp_path / f"{kind}.html")
    page = opened(tmp_path / f"{kind}.html")
    for kind in results:
        page.go(tmp_path / f"{kind}.html")

        assert page.draw_all() == [], kind
        assert page.page.title() != "attacked"
        assert page.page.locator("h1").count() == 1, kind
        assert "</script><!-- &amp;" in page.page.inner_text("main"), kind


def test_keys_move_over_values_zoom_and_say_what_stands_there(opened: Any, tmp_path: Path) -> None:
    values = Points((1.0, 2.0, 4.0), (1e-6, 2e-6, 4e-6), ((0.9e-6, 1.1e-6), None, None), texts=("a", ATTACK, ""))
    chart = Chart(Axis("n"), Axis("time", "seconds"), (values,), "f over n")
    save_page(tmp_path / "page.html", [Document((Heading("keys", 1), chart))])
    page = opened(tmp_path / "page.html").page
    chart_box, spoken = page.locator(".canvas"), page.locator("figure [role=status]")
    page.wait_for_selector("figure[data-drawn]")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement === document.querySelector('.canvas')")
    page.keyboard.press("ArrowRight")
    assert spoken.inner_text() == "a, 1.000 µs at 1, 95 % 900.0 ns to 1.100 µs (1 of 3)"
    page.keyboard.press("ArrowRight")
    assert page.locator(".tip.on div").first.inner_text().startswith("<script>document.title")
    page.keyboard.press("End")
    assert spoken.inner_text() == "4.000 µs at 4 (3 of 3)"
    before = page.evaluate(SHOWN)
    page.keyboard.press("+")
    assert page.evaluate(SHOWN) < before
    page.keyboard.press("0")
    assert page.evaluate(SHOWN) == pytest.approx(before)
    chart_box.hover()
    page.keyboard.press("Escape")
    assert page.locator(".tip.on").count() == 0


SHOWN = """() => {
  const { start, end } = echarts.getInstanceByDom(document.querySelector('.canvas')).getOption().dataZoom[0];
  return end - start;
}"""


def test_a_pointer_near_a_value_is_near_enough(opened: Any, tmp_path: Path) -> None:
    chart = Chart(Axis("n"), Axis("time", "seconds"), (Points((0.0, 1.0), (1e-6, 2e-6)),), "f over n")
    save_page(tmp_path / "page.html", [Document((Heading("pointer", 1), chart))])
    page = opened(tmp_path / "page.html").page
    page.wait_for_selector("figure[data-drawn]")

    x, y = page.evaluate(
        "echarts.getInstanceByDom(document.querySelector('.canvas')).convertToPixel({gridIndex: 0}, [1, 2e-6])"
    )
    box = page.locator(".canvas").bounding_box()
    page.mouse.move(box["x"] + x - 9, box["y"] + y + 9)

    assert page.locator(".tip.on").inner_text() == "2.000 µs at 1"


def test_the_numbers_of_a_chart_can_be_read_and_copied(opened: Any, tmp_path: Path) -> None:
    chart = Chart(Axis("n"), Axis("time", "seconds"), (Points((0.0, 1.0), (1.5e-6, None), texts=('a "b"', "c")),), "f")
    save_page(tmp_path / "page.html", [Document((Heading("copy", 1), chart))])
    page = opened(tmp_path / "page.html").page
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")

    page.get_by_text("Copy CSV").click()
    assert page.evaluate("copied") == 'n,time,what\n0,0.0000015,"a ""b"""\n1,,c'
    page.get_by_text("Copy JSON").click()
    assert json.loads(page.evaluate("copied")) == [{"n": 0, "time": 1.5e-6, "what": 'a "b"'}, {"n": 1, "what": "c"}]
    page.get_by_text("Numbers").click()
    assert page.locator(".numbers td").all_inner_texts() == ["0", "0.0000015", 'a "b"', "1", "", "c"]


def test_parts_open_by_link_and_are_found_by_name(opened: Any, tmp_path: Path) -> None:
    run_of(12).to_html(tmp_path / "page.html")
    page = opened(tmp_path / "page.html").page

    assert page.locator("details.part[open]").count() == 0
    page.get_by_role("link", name="case3[n=8]").click()
    assert page.locator("details.part[open] h2").all_inner_texts() == ["case3[n=8]"]
    # Charts are drawn as they come into view, and what stands in front of the first may fill a window.
    page.locator("details.part[open] figure").first.scroll_into_view_if_needed()
    page.wait_for_selector("details.part[open] figure[data-drawn]")
    page.get_by_label("Show only").fill("CASE1")
    assert page.locator("details.part:visible").count() == 3
    assert page.get_by_text("3 of 12").is_visible()


def test_paper_has_all_parts_on_white(opened: Any, tmp_path: Path) -> None:
    run_of(8).to_html(tmp_path / "page.html")
    page = opened(tmp_path / "page.html", **LOOKS["dark"]).page

    page.wait_for_selector("html[data-read]")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")

    assert page.locator("details.part[open]").count() == 8
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("figure[data-drawn]").count() == page.locator("figure").count() > 8
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details.part[open]").count() == 0


def test_numbers_read_as_in_a_terminal(opened: Any, tmp_path: Path) -> None:
    """Two programs write them, in two languages. What lies in the middle of two numbers is rounded either way."""
    values = [0.0, 1.0, -2.7, 9.996, 999.6, 1000.0, *(1.23456 * 10**e for e in range(-11, 14))]
    quantities = ["seconds", "bytes", "flop", ""]
    changes = [1.0, 1.05, 0.123456, 2.0]
    save_page(tmp_path / "page.html", [Document((Chart(Axis(), Axis(), ()),))])
    page = opened(tmp_path / "page.html").page

    written = page.evaluate("([vs, qs]) => qs.map((q) => vs.map((v) => writeValue(v, q)))", [values, quantities])

    shares = page.evaluate("(vs) => vs.map((v) => writeValue(v, 'change'))", changes)
    assert written == [[describe_value(v, q) for v in values] for q in quantities]  # type: ignore[arg-type]
    assert shares == [describe_value(v, "change") for v in changes]


@pytest.mark.serial
def test_a_case_more_costs_no_more_than_the_ones_before_it(browser: Any, tmp_path: Path) -> None:
    """By the processor time of the browser's own thread until a page is there. What is folded costs next to nothing:
    a script that looked at all of it would take minutes of a thousand cases."""
    few, many = (processor_time(browser, run_of(n), tmp_path / f"{n}.html") for n in (60, 600))

    assert many < 20 * few
    assert (tmp_path / "60.html").stat().st_size < 1_250_000


def processor_time(browser: Any, rows: Rows, file: Path) -> float:
    rows.to_html(file)
    page = browser.new_page()
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(file.as_uri())
    found = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    page.close()
    return found["TaskDuration"]
