"""Pages in a real browser: they draw, say nothing, ask for nothing, and answer to keys as to pointers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser_pages import LOOKS, Opened
from comparisons_by_hand import compared, series, stepping
from measurement_strategies import RICH
from results_by_hand import every_result

from benchax.comparing.history import history
from benchax.comparing.ranking import Comparisons
from benchax.model import CaseId, Failure, Samples
from benchax.reporting import display
from benchax.reporting.document import Axis, Branch, Chart, Document, Heading, Points, Tree, describe_value
from benchax.reporting.html import save_page
from benchax.reporting.inspection import make_outline
from benchax.results.inspection import HloOperation, HloOperations
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
    ends = (0.9e-6, None, None), (1.1e-6, None, None)
    values = Points((1.0, 2.0, 4.0), (1e-6, 2e-6, 4e-6), *ends, texts=("a", ATTACK, ""))
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


# ---- boxes on a page ------------------------------------------------------------------------------------------------

MARKUP = "<img src=x onerror=alert(1)></script>"


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
    one(MARKUP, "layer1", reads=(1,), flops=None),
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
    page.get_by_role("button", name=f"dot {MARKUP}").click()

    assert chosen(page).startswith(f"dot {MARKUP}, not known operations")
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
