"""Files of pictures: what matplotlib makes of the charts is tested where they are drawn."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ptjb_rows import in_runs, measured, rows

from benchax.reporting.figures import draw_together
from pytest_jax_bench.plots.draw_all import save_charts
from pytest_jax_bench.plots.pictures import history

TEST = "tests/test_x.py::test_full"


@pytest.mark.slow
@settings(max_examples=4)
@given(st.text(st.characters(), max_size=30) | st.sampled_from([r"$\frac{", "$", "_hidden", "測試", "-->", "\x00<&"]))
def test_any_tag_and_any_name_can_be_drawn(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("any") / "main.svg"
    data = in_runs(measured(2, tag=text, commit=text), measured(2, tag="other"))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save_charts(history(data, f"t.py::test[{text}]"), path)

    assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "begin"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_the_suffix_is_the_format_and_equal_rows_give_equal_files(tmp_path: Path, suffix: str, begin: bytes) -> None:
    files = [tmp_path / "new" / f"{i}.{suffix}" for i in range(2)]
    for file in files:
        save_charts(history(measured(3), TEST), file)

    first, second = (file.read_bytes() for file in files)

    assert first.startswith(begin)
    assert first == second
    assert b"http://fonts" not in first


def test_charts_of_one_picture_are_equally_wide_and_one_below_the_other() -> None:
    figure = draw_together(history(measured(30), TEST))

    figure.draw_without_rendering()
    parts = [part.bbox for part in figure.subfigs]
    assert len(parts) == 3
    assert {(part.x0, part.x1) for part in parts} == {(figure.bbox.x0, figure.bbox.x1)}
    assert all(above.y0 >= below.y1 for above, below in itertools.pairwise(parts))


def test_a_test_without_any_number_has_a_picture_that_says_so(tmp_path: Path) -> None:
    charts = history(rows(2, status="timeout"), TEST)

    save_charts(charts, tmp_path / "main.png")

    assert "Not measured, because 2 of 2 rows failed: timeout (2 ×)." in charts[0].title.replace("\n", " ")
    assert (tmp_path / "main.png").stat().st_size


def test_settings_of_the_user_neither_change_nor_are_changed(tmp_path: Path) -> None:
    """text.usetex would need TeX, and fail."""
    with mpl.rc_context({"text.usetex": True, "figure.facecolor": "black", "font.size": 31}):
        save_charts(history(measured(3), TEST), tmp_path / "theirs.png")

        assert mpl.rcParams["font.size"] == 31
    save_charts(history(measured(3), TEST), tmp_path / "plain.png")
    assert (tmp_path / "theirs.png").read_bytes() == (tmp_path / "plain.png").read_bytes()
