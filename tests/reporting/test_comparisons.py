"""How comparisons read: words, tables and HTML; whatever is missing is left out, not printed as None or nan."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from html_reader import Reader
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from measurement_strategies import RICH, values_of
from rendered_documents import DRAWN, too_wide
from rich.cells import cell_len

from benchax.comparing.ranking import Comparisons, Rank
from benchax.model import Block, CaseId, Comparison, Failure, Numerics, Remark, Version
from benchax.reporting import (
    display,  # noqa: F401  # what print needs
    terminal,
)
from benchax.reporting.comparisons import case_grid, document, function_grid, ranking_grid, summary, verdict

FIVE = (1e-4,) * 5
EQUAL = Numerics("baseline", agrees=True)
ENVIRONMENT = replace(RICH.environment, processor="EPYC", jax="0.10.2", backend="cpu")
SLOWER = Comparison(
    CaseId("fft", (("n", 8),)),
    "run",
    Version("naive"),
    Version("fused"),
    "slower",
    ratio=1.1,
    low=1.05,
    high=1.152,
    baseline_value=1e-4,
    candidate_value=1.1e-4,
    blocks=(Block(0, FIVE, FIVE), Block(1, FIVE, FIVE)),
    confirmed=True,
    environment=ENVIRONMENT,
)
SAME = replace(
    SLOWER,
    candidate=Version("third"),
    verdict="same",
    why="within 5.0 %",
    ratio=0.999,
    low=0.99,
    high=1.01,
    confirmed=None,
)
FAILED = Comparison(
    CaseId("broken"),
    "run",
    Version("naive"),
    Version("fused"),
    "unclear",
    "error in build: it is broken",
    failure=Failure("error", "build", "it is broken", "mend it"),
)
PEAK = replace(
    SLOWER, metric="peak", method="counted", ratio=2.0, low=None, high=None, baseline_value=2**20, candidate_value=2**21
)
RANKED = Comparisons(
    (SLOWER, SAME),
    (
        Rank(1, "third", 0.999e-4, 1.0, None, None),
        Rank(1, "naive", 1e-4, 1.001, 0.99, 1.01),
        Rank(3, "fused", 1.1e-4, 1.101, 1.05, 1.152),
    ),
    ("naive", "fused", "third"),
)
COMPILE = replace(SLOWER, metric="compile", verdict="unclear", baseline_value=0.1, candidate_value=0.2)


def several(*comparisons: Comparison) -> Comparisons:
    return Comparisons(comparisons)


def functions(*comparisons: Comparison, **changed: Any) -> Comparisons:
    return replace(RANKED, comparisons=comparisons, **changed)


def solid(text: str) -> str:
    return re.sub(r"\s", "", text)


FIRST, SECOND, THIRD = RANKED.ranking
DIFFERS = replace(EQUAL, agrees=False, why="the output is 1 where the reference has 2")
CONSTANTS = replace(PEAK, metric="constants")
LIMIT = Remark("inline-limit", "warning", "on different sides")
REMARKED = replace(SLOWER, remarks=(Remark("outputs-differ", "error", "fused gives another result"), LIMIT))

CHANGES = ((1.032, 1.021, 1.044), (0.5, 0.45, 0.56), (1.0, 0.99, 1.01), (3.5, 3.4, 3.6), (2.0, None, None), (None,) * 3)

SHOWN: dict[str, Comparisons] = {
    "functions have a table, a ranking with shared places, and a summary": RANKED,
    "one winner": functions(SLOWER, SAME, ranking=(FIRST, replace(SECOND, place=2, low=None, high=None), THIRD)),
    "no winner": functions(SLOWER, SAME, ranking=tuple(replace(rank, place=1) for rank in RANKED.ranking)),
    "one that was not compared with the fastest has no number": functions(
        SLOWER, SAME, ranking=(FIRST, replace(SECOND, ratio=None))
    ),
    "functions have times to compile, memory, and equal results": Comparisons(
        (replace(SLOWER, numerics=EQUAL), COMPILE, PEAK), labels=("naive", "fused")
    ),
    "results that agree show by how much they differ": Comparisons(
        (replace(SLOWER, numerics=replace(EQUAL, max_abs=5e-4, max_rel=1.2e-4)),), labels=("naive", "fused")
    ),
    "a function that failed has a line with its reason": functions(
        SLOWER, replace(FAILED, case=SLOWER.case, candidate=Version("broken")), SAME, labels=(*RANKED.labels, "broken")
    ),
    "a function with another result has a line and no place": functions(
        SLOWER, SAME, replace(SLOWER, candidate=Version("wrong"), verdict="faster", numerics=DIFFERS),
        labels=(*RANKED.labels, "wrong"),
    ),
    "where all results differ from the baseline, it can be the baseline that is wrong": Comparisons(
        (replace(SLOWER, numerics=DIFFERS),), (Rank(1, "naive", 1e-4, 1.0, None, None),), ("naive", "fused")
    ),
    "a baseline beside which nothing ran has no number": Comparisons((FAILED,), labels=("naive", "fused")),
    "what has no column is told of all functions at once": functions(
        SLOWER, SAME, PEAK, CONSTANTS, replace(CONSTANTS, candidate=Version("third"), candidate_value=3 * 2**20)
    ),
    "a count of operations says what it leaves out": functions(
        SLOWER, SAME, replace(PEAK, metric="flops", baseline_value=7.0, candidate_value=40e3)
    ),
    "the inputs that all share are in the heading": functions(
        replace(SLOWER, signature="f32[8]"), replace(SAME, signature="f32[8]")
    ),
    "a case with the name of a function is not named again": functions(replace(SLOWER, case=CaseId("naive")), SAME),
    "cases, a failure with its advice, and memory": several(SLOWER, FAILED, PEAK),
    "of several cases no number of pairs is told": several(SLOWER, replace(SLOWER, case=CaseId("g"))),
    "inputs that differ have a column": several(
        *(replace(SLOWER, case=CaseId(name), signature=f"{name}[8]") for name in ("f32", "bf16"))
    ),
    "where versions differ the columns are called by their part": several(SLOWER, SAME),
    "changes with their intervals": several(
        *(
            replace(SLOWER, case=CaseId(f"f{i}"), ratio=ratio, low=low, high=high)
            for i, (ratio, low, high) in enumerate(CHANGES)
        )
    ),
    "process pairs are named in the heading": several(replace(SLOWER, method="process pairs")),
    "one program is the same and has no numbers": several(
        replace(
            SAME, ratio=None, low=None, high=None, blocks=(), baseline_value=None, candidate_value=None,
            method="same program", why="the same program: nothing was timed",
        )
    ),
    "a wrong result comes first in the verdict": several(
        replace(SLOWER, verdict="faster", numerics=Numerics("baseline", agrees=False, why="0 instead of 1"))
    ),
    "metrics in sentences: more, less, slower": several(
        SLOWER, PEAK, replace(PEAK, verdict="faster", confirmed=None, metric="constants"),
        replace(SLOWER, metric="compile", confirmed=None),
    ),
    "metrics that did not change take no lines": several(SLOWER, replace(PEAK, verdict="same")),
    "remarks of one case": several(REMARKED, replace(REMARKED, metric="peak")),
    "remarks of several cases name them": several(REMARKED, replace(REMARKED, case=CaseId("g"))),
    "new cases and notes": Comparisons(
        (SLOWER,), new=(CaseId("a<b"),), notes=("with the benchmark files of now",)
    ),
    "nothing": Comparisons(),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_comparisons_are_shown(name: str, snapshot: Any) -> None:
    assert str(SHOWN[name]) == snapshot


def test_what_is_counted_is_more_or_less_not_slower_or_faster() -> None:
    assert [verdict(replace(PEAK, verdict=word, confirmed=None)) for word in ("slower", "faster", "same")] == [
        "more",
        "less",
        "same",
    ]


def test_wrong_and_failed_lines_are_red() -> None:
    wrong = SHOWN["a function with another result has a line and no place"]
    failed = SHOWN["a function that failed has a line with its reason"]
    case = SHOWN["a wrong result comes first in the verdict"]

    assert [function_grid(found).rows[-1][0].style for found in (wrong, failed)] == ["bad", "bad"]
    assert case_grid(case).rows[0][-1].style == "bad"


@pytest.mark.parametrize("width", [30, 40, 72, 100])
@pytest.mark.parametrize("found", [RANKED, several(SLOWER, FAILED, PEAK)], ids=["ranking", "cases"])
def test_no_window_is_too_narrow(width: int, found: Comparisons) -> None:
    shown = terminal.to_text(document(found), width)

    assert too_wide(shown, width) == []
    for part in ("fused", "100 µs", "+10 % (+5.0 to +15 %)", "slower, confirmed"):
        assert solid(part) in solid(shown)


@pytest.mark.parametrize("label", ["f" * 2000, "数学 🦊 " * 40, "two\nlines", "[bold]x[/bold]", "<b>&amp;"])
def test_any_label_is_shown_whole_and_as_it_is(label: str) -> None:
    named = replace(SLOWER, case=CaseId(label), candidate=Version(label))
    ranking = (RANKED.ranking[1], replace(RANKED.ranking[2], label=label))

    for found in (several(named), Comparisons((named,), ranking, ("naive", label))):
        shown = solid(terminal.to_text(document(found), 60))
        assert solid(label) in shown
        for part in ("110 µs", "+10 % (+5.0 to +15 %)", "slower,", "confirmed"):
            assert solid(part) in shown


@pytest.mark.parametrize("label", ["f" * 2000, "数学 🦊 " * 40, "two\nlines"])
def test_a_column_has_a_short_name(label: str) -> None:
    named = replace(SLOWER, baseline=Version(label), candidate=Version(label))

    for grid in (case_grid(several(named)), function_grid(Comparisons((named,), (), (label, label)))):
        assert all(cell_len(name) <= 32 and "\n" not in name for name in grid.names)


# ---- HTML -------------------------------------------------------------------------------------------------------


def test_the_fragment_holds_what_the_text_holds() -> None:
    read = Reader(RANKED._repr_html_())

    lines = (*function_grid(RANKED).lines, *ranking_grid(RANKED).lines)
    assert [cell for line in lines for cell in line if cell and cell not in read.texts] == []
    assert summary(RANKED) in read.texts


def test_names_are_no_html() -> None:
    evil = "<script>alert('x')</script>&lt;"
    named = replace(SLOWER, case=CaseId(evil), candidate=Version(evil), remarks=(Remark("x", "info", evil),))
    ranking = (RANKED.ranking[1], replace(RANKED.ranking[2], label=evil))

    for found in (
        several(named, FAILED),
        several(replace(FAILED, why=evil)),
        Comparisons((named,), ranking, ("naive", evil)),
    ):
        read = Reader(found._repr_html_())
        assert read.tags <= DRAWN
        assert any(evil in t for t in read.texts)


# ---- whatever there is ------------------------------------------------------------------------------------------


NUMBERS = st.none() | st.floats(1e-12, 1e12)


@pytest.mark.slow
@given(
    comparisons=st.lists(
        st.builds(
            replace,
            values_of(Comparison),
            **dict.fromkeys(("ratio", "low", "high", "smallest_effect", "baseline_value", "candidate_value"), NUMBERS),
            why=st.just(""),
            remarks=st.just(()),
            failure=st.none(),
            case=st.just(CaseId("f")),
            baseline=st.just(Version("a")),
            candidate=st.just(Version("b")),
            environment=st.just(ENVIRONMENT),
        ),
        max_size=3,
    )
)
@settings(max_examples=10, suppress_health_check=list(HealthCheck))
def test_what_is_missing_is_never_printed(comparisons: list[Comparison]) -> None:
    found = Comparisons(tuple(comparisons))

    for shown in (str(found), found._repr_html_()):
        assert "None" not in shown
        assert "nan" not in shown
