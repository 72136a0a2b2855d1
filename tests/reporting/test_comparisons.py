"""How comparisons read: words, tables and HTML; whatever is missing is left out, not printed as None or nan."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from comparisons_by_hand import compared
from hypothesis import given
from hypothesis import strategies as st
from measurement_strategies import RICH
from rich.cells import cell_len

from benchax.comparing.error_rates import ErrorRates, Trial
from benchax.comparing.ranking import Comparisons, Rank
from benchax.errors import UsageError
from benchax.model import Block, CaseId, Comparison, Failure, Noise, Numerics, Remark, Version
from benchax.reporting import (
    comparisons,  # what plot needs
    terminal,
)
from benchax.reporting.comparisons import (
    LOOKS,
    MOST_WORDS,
    case_grid,
    change_name,
    chart,
    document_of_error_rates,
    figure,
    function_grid,
    ticks,
    to_plain_data,
)
from benchax.reporting.document import Shade
from benchax.reporting.figures import SYMBOLS

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
    "a function with a different result has a line and no place": functions(
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
    "operations are counted": functions(
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


def test_wrong_and_failed_lines_are_red() -> None:
    wrong = SHOWN["a function with a different result has a line and no place"]
    failed = SHOWN["a function that failed has a line with its reason"]
    case = SHOWN["a wrong result comes first in the verdict"]

    assert [function_grid(found).rows[-1][0].style for found in (wrong, failed)] == ["bad", "bad"]
    assert case_grid(case).rows[0][-1].style == "bad"


@pytest.mark.parametrize("label", ["f" * 2000, "数学 🦊 " * 40, "two\nlines"])
def test_a_column_has_a_short_name(label: str) -> None:
    named = replace(SLOWER, baseline=Version(label), candidate=Version(label))

    for grid in (case_grid(several(named)), function_grid(Comparisons((named,), (), (label, label)))):
        assert all(cell_len(name) <= 32 and "\n" not in name for name in grid.names)


# ---- whatever there is ------------------------------------------------------------------------------------------


def version(label: str, ratio: float | None, **changed: Any) -> Comparison:
    return replace(compared(0, ratio, **changed), candidate=Version(label), baseline=Version("naive"))


def suite(count: int) -> Comparisons:
    cases = [CaseId("matmul", (("n", n),)) for n in range(count)]
    return Comparisons(tuple(compared(1, 1 + 0.001 * n, case=case) for n, case in enumerate(cases)))


def drawn_as(drawn: Any, kind: str) -> bytes:
    with io.BytesIO() as buffer:
        drawn.savefig(buffer, format=kind, dpi=40)
        return buffer.getvalue()


def names(drawn: Any) -> list[str]:
    return [label.get_text() for label in drawn.axes[0].get_yticklabels()]


def words(drawn: Any) -> list[str]:
    (beside,) = drawn.axes[0].child_axes
    return [label.get_text() for label in beside.get_yticklabels()]


def markers(drawn: Any) -> list[Any]:
    return [line for line in drawn.axes[0].lines if line.get_marker() in {SYMBOLS[mark] for _, mark in LOOKS.values()}]


def test_versions_of_one_case_are_named_by_their_labels() -> None:
    found = Comparisons((version("fused", 0.8), version("copy", 1.0)))
    drawn = found.plot()

    assert names(drawn) == ["fused", "copy"]
    assert words(drawn) == ["faster  -20 % (-21 to -19 %)", "same  +0 % (-1.0 to +1.0 %)"]
    assert drawn.axes[0].get_xlabel() == "← faster    as fast as naive    slower →   (grey: same, within 5.0 %)"
    title = drawn.axes[0].get_title(loc="left")
    assert title.splitlines()[0] == "matmul[n=256]: run time against naive"
    assert comparisons.heading(found) in title
    assert "wall, paired" in title
    assert drawn_as(drawn, "png")


def test_cases_are_named_by_their_parameters_and_more_lines_than_words_fit_have_a_legend() -> None:
    drawn, many = suite(40).plot(), suite(MOST_WORDS + 1).plot()

    assert names(drawn)[:2] == ["matmul[n=0]", "matmul[n=1]"]
    assert drawn.axes[0].get_title(loc="left").splitlines()[0] == "run time of now against v1.2"
    assert len(words(drawn)) == 40
    assert many.axes[0].child_axes == []
    assert {text.get_text() for text in many.axes[0].get_legend().get_texts()} == {"same", "slower"}


def test_each_verdict_has_a_mark_of_its_own() -> None:
    """Not everybody sees the colours."""
    assert len({mark for _, mark in LOOKS.values()}) == len(LOOKS)

    drawn = figure(Comparisons(tuple(version(v, 1.1, verdict=v) for v in LOOKS)))

    assert [m.get_marker() for m in markers(drawn)] == [SYMBOLS[mark] for _, mark in LOOKS.values()]


def test_what_counts_as_the_same_is_shaded_where_that_is_one_thing() -> None:
    one, finer = version("a", 1.0), replace(version("b", 1.0), resolution=0.01)

    shaded = [[m for m in chart(Comparisons(runs)).marks if isinstance(m, Shade)] for runs in ((one,), (one, finer))]

    assert shaded == [[Shade("x", 1 / 1.05, 1.05)], []]


def test_what_was_not_measured_has_no_mark_and_words_say_what_is_to_be_known() -> None:
    wrong = replace(version("wrong", 0.8), numerics=Numerics("baseline", agrees=False))
    far = version("far", 0.001, low=0.0009, high=0.0011)
    drawn = figure(Comparisons((version("broken", None), version("copy", 40.0), wrong, far)))

    assert sorted(place for marker in markers(drawn) for place in marker.get_ydata()) == [1, 2, 3]
    assert [text.get_text() for text in drawn.axes[0].texts] == ["not measured"]
    assert words(drawn) == [
        "no verdict",
        "slower  × 40.0 (39.6 – 40.4)",  # -100 % would be a time of zero
        "result differs (faster)  -20 % (-21 to -19 %)",
        "faster  × 0.00100 (0.000900 – 0.00110)",
    ]


def test_one_wild_interval_does_not_squeeze_the_others() -> None:
    drawn = figure(Comparisons((version("a", 1.05), version("b", 1.0, low=1e-9, high=1e9, verdict="unclear"))))

    low, high = drawn.axes[0].get_xlim()
    assert 0.2 < low < 1 < high < 5


def test_names_are_no_formulas_and_keep_their_ends() -> None:
    drawn = figure(Comparisons((version(r"$\frac$", 1.0), version("v" * 100 + "[n=7]", 1.0))))

    assert names(drawn)[1].endswith("v[n=7]")
    assert len(names(drawn)[1]) < 50
    assert drawn_as(drawn, "svg")


def test_without_run_times_there_is_nothing_to_draw() -> None:
    with pytest.raises(UsageError, match="nothing to draw"):
        Comparisons((compared(0, 1.0, metric="compile"),)).plot()


@given(st.floats(1e-6, 1 / 1.1), st.floats(1.1, 1e6))
def test_one_is_marked_on_every_axis_and_no_mark_twice(low: float, high: float) -> None:
    places = ticks(low, high)

    named = [change_name(place) for place in places]
    assert "1" in named
    assert len(set(named)) == len(named) <= 20
    assert all(low <= place <= high for place in places)


# ---- Sentences about error rates: what is claimed, how far it holds, and what is not known --------------------------


def rates(*ratios: float, planted: float = 0.0) -> ErrorRates:
    return ErrorRates(tuple(Trial("sum", planted, compared(n, r)) for n, r in enumerate(ratios)), 10.0 * len(ratios))


NOT_RUN = Trial("sum", 0.1, replace(compared(0, None), failure=Failure("error", "build", "no")))
ERROR_RATES = {
    "no false alarm in few comparisons is no promise": rates(*[1.0] * 10),
    "false alarms": rates(1.0, 1.1, 1.1, 0.9),
    "what is found, with the least share that it shows": rates(*[1.05] * 9, 1.0, planted=0.05),
    "what could not be run is not judged": ErrorRates((NOT_RUN,), 10.0),
    "what the machine does not tell is not zero": replace(rates(1.0), noise=Noise()),
}


@pytest.mark.parametrize("name", ERROR_RATES)
def test_error_rates_come_with_counts_intervals_and_what_they_promise(name: str, snapshot: Any) -> None:
    assert terminal.to_text(document_of_error_rates(ERROR_RATES[name])) == snapshot


def test_plain_data_is_json_with_none_for_what_is_unknown() -> None:
    data = json.loads(json.dumps(to_plain_data(rates(1.0, 1.1)), allow_nan=False))

    (change,) = data["changes"]
    assert (change["judged"], change["slower"], change["same"]) == (2, 1, 1)
    assert change["intervals"]["faster"][0] == 0.0
    assert data["noise"]["load_1m"] is None
    assert data["effects"][0]["planted"] == 0.0
