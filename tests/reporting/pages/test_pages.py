"""Pages without a browser: what is in the file, what is not, and that there is a whole one or none."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measurement_strategies import RICH
from rendered_documents import Reader, missing, texts_of
from results_by_hand import every_result

from benchax.errors import UsageError
from benchax.model import CaseId, Samples
from benchax.reporting import display, measurement
from benchax.reporting.document import Axis, Bars, Cells, Chart, Document, Heading, Points, Table, Tree
from benchax.reporting.html import ASSETS, Shared, asset_text, encode_numbers, render_page
from benchax.reporting.measurement import thin
from benchax.reporting.profile import chart_timeline, chart_trees
from benchax.results.profile import Device, Gap, Lane, Op, Profile
from benchax.store.load import Rows

ATTACK = "</script><script>alert(1)</script>' onmouseover=x &amp; \ud800"
RESULTS = {kind: made for kind, made in every_result(ATTACK).items() if kind != "ErrorRates"}


def page_of(result: Any) -> str:
    return render_page("title", display.documents_of(result))


def data_of(page: str) -> list[dict[str, Any]]:
    """The charts of a page, as its script unpacks them."""
    packed = re.findall("<script type='text/plain'>(.*?)</script>", page)
    return [json.loads(zlib.decompress(base64.b64decode(text))) for text in packed]


@pytest.mark.parametrize("kind", RESULTS)
def test_a_page_says_all_that_its_documents_say_and_takes_no_name_for_markup(kind: str) -> None:
    page = page_of(RESULTS[kind])
    ours = [asset_text(name) for name in ASSETS]
    markup = page
    for asset in ours:
        markup = markup.replace(asset, "")

    read = Reader(re.sub("<!doctype html>|<meta[^>]*>|<link[^>]*>", "", markup))
    blocks = [block for document in display.documents_of(RESULTS[kind]) for block in document.blocks]
    texts = [text for block in blocks if not isinstance(block, Chart) for text in texts_of(block) if text.strip()]
    assert missing(texts, "".join(read.texts)) == []
    assert not {"onmouseover", "onload", "style", "onclick"} & read.attributes


def test_the_policy_names_every_script_and_style_of_the_page_and_nothing_else() -> None:
    page = page_of(RESULTS["Measurement"])

    (policy,) = re.findall('Content-Security-Policy" content="([^"]*)"', page)
    scripts = list(re.findall("<script>(.*?)</script>", page, re.DOTALL))
    styles = re.findall("<style>(.*?)</style>", page, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts + styles]
    assert len(scripts) == 2
    assert re.findall("'sha256-([^']*)'", policy) == hashes
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy


def test_a_site_shares_its_scripts() -> None:
    page = render_page("t", display.documents_of(RESULTS["Measurement"]), Shared("../assets"))

    assert re.findall(r"(?:src|href)='([^']*)'", page) == [
        "data:,", "../assets/page.css", "#content", "../assets/echarts.js", "../assets/page.js",
    ]  # fmt: skip
    assert len(page) < 30_000


def test_a_page_without_charts_does_not_carry_their_library() -> None:
    page = render_page("words", [Document((Heading("words", 1),))])

    assert asset_text("echarts.js") not in page
    assert len(page) < 80_000


def test_no_documents_are_a_page_with_a_heading() -> None:
    assert "<h1>nothing</h1>" in render_page("nothing", [])
    assert "There is nothing in this run." in page_of(Rows())


@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False, width=32), max_size=30))
def test_numbers_keep_their_digits(values: list[float | None]) -> None:
    coded = encode_numbers(values)
    decoded = coded
    if isinstance(coded, dict):
        decoded = [None if v is None else float(f"{v}e{coded['e']}") for v in coded["v"]]

    assert [v is None for v in decoded] == [v is None for v in values]
    largest = max((abs(v) for v in values if v is not None), default=0.0)
    for before, after in zip(values, decoded, strict=True):
        if before is not None:
            assert after == pytest.approx(before, rel=1e-5, abs=1e-8 * largest)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=300), st.integers(2, 50))
def test_thinning_keeps_the_least_and_the_greatest(values: list[float], most: int) -> None:
    shown = thin(values, most)

    assert len(shown) <= max(most, 2) or len(values) <= most
    assert shown == sorted(set(shown))
    assert {min(values), max(values)} <= {values[i] for i in shown}


def test_very_many_readings_are_thinned_and_the_page_says_so() -> None:
    times = (*(1e-6 * (1 + i % 7) for i in range(99_999)), 5e-3)
    m = replace(RICH, samples=(Samples("wall", 1, times),))

    page = page_of(m)

    assert "of 100000 readings are drawn" in page
    assert "1 reading beyond the axis: 5.00 ms" in page
    assert len(page) < 900_000
    assert max(v for mark in data_of(page)[0]["marks"] if mark["type"] == "Points" for v in mark["values"]["v"])


def test_stages_that_were_not_measured_have_no_bar() -> None:
    chart = measurement.chart_stages(replace(RICH.stages, lower_s=None))

    assert chart is not None
    (bars,) = (mark for mark in chart.marks if isinstance(mark, Bars))
    assert len(bars.places) == 5
    assert 2.0 not in bars.places
    assert [mark.text for mark in chart.marks if not isinstance(mark, Bars)] == ["not measured"]


def test_very_many_cases_are_all_named_and_some_detailed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "MOST_DETAILS", 100)
    bare = replace(RICH, samples=(), remarks=(), failure=None)
    rows = Rows(tuple(replace(bare, case=CaseId(f"case{i}")) for i in range(1000)))

    overview, *parts = display.documents_of(rows)

    (table,) = (block for block in overview.blocks if isinstance(block, Table))
    assert len(table.rows) == 1000
    assert len(parts) == 100
    assert any("Details of 100 of 1000 cases" in text for block in overview.blocks for text in texts_of(block))


def test_charts_are_data_with_null_for_what_is_no_number_and_words_for_what_is_missing() -> None:
    cells = Cells(((1e-6, None),), (("", "timeout"),), (("", "warning"),))
    points = Points((0, 1, 2), (None, float("inf"), float("nan")), (0.0, None, None), (float("inf"), None, None))
    (chart,) = data_of(render_page("t", [Document((Chart(Axis(), Axis(), (cells, points)),))]))

    assert chart["marks"] == [
        {"type": "Cells", "values": [[1e-6, None]], "words": [["", "timeout"]], "styles": [["", "warning"]]},
        {
            "type": "Points", "places": [0, 1, 2], "values": [None] * 3,
            "lows": [0, None, None], "highs": [None] * 3,
        },
    ]  # fmt: skip


# ---- files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["missing/report.html", "", "a\0b"])
def test_a_name_that_no_file_can_have_is_an_error_that_quotes_it(name: str, project: Path) -> None:
    with pytest.raises(UsageError, match="cannot write to"):
        RICH.to_html(name)

    assert list(project.iterdir()) == []


# ---- profiles ---------------------------------------------------------------------------------------------------


def test_a_timeline_has_a_row_for_each_depth_of_a_thread_and_for_idle_times() -> None:
    outer, inner = (0.0, 1.0, 0), (0.2, 0.4, 1)
    starts, ends, depths = zip(outer, inner, strict=True)
    lane = Lane("cpu:0", "worker", ("while", "dot"), starts, ends, depths, n_calls=5)
    device = Device("cpu:0", 1.0, 0.5, (Gap(1.0, 0.5, "while", "copy"),))

    chart = chart_timeline(Profile("p", "cpu", (), (device,), lanes=(lane,)))

    assert chart is not None
    assert [tick.text for tick in chart.y.ticks] == ["cpu:0 idle", "cpu:0 worker", "… inside 1"]
    bars = [(bar.lows, bar.highs, bar.texts) for bar in chart.marks if isinstance(bar, Bars)]
    assert bars[0] == ((1.0,), (1.5,), ("idle 500 ms, between while and copy",))
    assert bars[1:] == [((0.0,), (1.0,), ("while",)), ((0.2,), (0.4,), ("dot",))]
    assert "the longest 2 of 5 calls" in chart.note


def test_time_adds_up_along_scopes() -> None:
    ops = [
        Op("dot.1", "jit_f", "dot", 2, 0.3, 0.3, 0.6, scope="jit(f)/layer/dot"),
        Op("sin.1", "jit_f", "sin", 1, 0.2, 0.2, 0.4, scope="jit(f)/layer/sin"),
    ]

    (chart,) = chart_trees(ops)

    (tree,) = (mark for mark in chart.marks if isinstance(mark, Tree))
    (root,) = tree.roots
    assert (root.name, root.value) == ("jit_f", 0.5)
    assert [(part.name, part.value) for part in root.parts[0].parts] == [("dot", 0.3), ("sin", 0.2)]
