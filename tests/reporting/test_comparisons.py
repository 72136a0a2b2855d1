"""How comparisons read: words, tables and HTML; whatever is missing is left out, not printed as None or nan."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

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
from benchax.reporting.comparisons import (
    case_grid,
    document,
    function_grid,
    heading,
    interval,
    others,
    ranking_grid,
    remarks,
    sentence,
    summary,
    verdict,
)

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


def solid(text: str) -> str:
    return re.sub(r"\s", "", text)


# ---- words ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "low", "high", "said"),
    [
        (1.032, 1.021, 1.044, "+3.2 % (+2.1 to +4.4 %)"),
        (0.5, 0.45, 0.56, "-50 % (-55 to -44 %)"),
        (1.0, 0.99, 1.01, "+0 % (-1.0 to +1.0 %)"),
        (3.5, 3.4, 3.6, "+250 % (+240 to +260 %)"),
        (2.0, None, None, "+100 %"),
        (None, None, None, ""),
    ],
)
def test_a_change_with_its_interval(ratio: float | None, low: float | None, high: float | None, said: str) -> None:
    assert interval(replace(SLOWER, ratio=ratio, low=low, high=high)) == said


def test_a_verdict_says_whether_it_was_confirmed_and_why() -> None:
    assert verdict(SLOWER) == "slower, confirmed"
    assert verdict(SAME) == "same: within 5.0 %"
    assert verdict(FAILED) == "unclear: error in build: it is broken"


def test_what_is_counted_is_more_or_less_not_slower_or_faster() -> None:
    assert [verdict(replace(PEAK, verdict=word, confirmed=None)) for word in ("slower", "faster", "same")] == [
        "more",
        "less",
        "same",
    ]


def test_other_metrics_in_a_sentence() -> None:
    assert sentence(PEAK) == "peak memory of fft[n=8]: 2.00 MiB in fused, 1.00 MiB in naive"
    assert sentence(replace(SLOWER, metric="compile", confirmed=None)) == (
        "compiling of fft[n=8]: fused slower, +10 % (+5.0 to +15 %)"
    )


def test_the_summary_names_the_fastest_with_ties_and_how_many_times_as_long_the_others_take() -> None:
    assert summary(RANKED) == (
        "third and naive are fastest, and cannot be told apart; fused takes 1.10 (1.05 – 1.15) times as long."
    )


def test_the_summary_of_one_winner_and_of_none() -> None:
    first, second, third = RANKED.ranking
    winner = replace(RANKED, ranking=(first, replace(second, place=2, low=None, high=None), third))
    tie = replace(RANKED, ranking=tuple(replace(rank, place=1) for rank in RANKED.ranking))

    assert summary(winner) == (
        "third is fastest; naive takes 1.00 times as long; fused takes 1.10 (1.05 – 1.15) times as long."
    )
    assert summary(tie) == "third, naive and fused are fastest, and cannot be told apart."


# ---- where, and with how much data ------------------------------------------------------------------------------


TIMER = "wall, paired: the versions in turns in one process"


def test_the_heading_names_the_timer() -> None:
    pairs = several(replace(SLOWER, method="process pairs"))

    assert heading(several(SLOWER)).splitlines()[1] == TIMER
    assert heading(pairs).splitlines()[1] == "wall, paired: whole processes in turns on one core"


def test_what_would_be_called_the_same_is_said_where_something_is() -> None:
    said = 'up to +2 % would be called same (within 5 %): resolution="1%" tells that from no change'

    assert said in str(RANKED)
    assert said in unescape(RANKED._repr_html_() or "")
    assert "would be called same" not in str(several(SLOWER))


def test_one_program_is_the_same_and_has_no_numbers() -> None:
    same = replace(SAME, ratio=None, low=None, high=None, blocks=(), baseline_value=None, candidate_value=None,
                   method="same program", why="the same program: nothing was timed")  # fmt: skip

    assert case_grid(several(same)).lines[0][1:] == ("", "", "", "same: the same program: nothing was timed")


def test_the_heading_says_where_and_how_many_pairs() -> None:
    assert heading(RANKED) == "fft[n=8]: cpu · EPYC · jax 0.10.2 · 10 pairs in 2 processes\n" + TIMER


def test_the_heading_has_the_inputs_that_all_share() -> None:
    one, other = replace(SLOWER, signature="f32[8]"), replace(SAME, signature="f32[8]")

    assert heading(replace(RANKED, comparisons=(one, other))).splitlines()[1:] == ["f32[8]", TIMER]


def test_inputs_that_differ_have_a_column() -> None:
    cases = [replace(SLOWER, case=CaseId(name), signature=f"{name}[8]") for name in ("f32", "bf16")]

    assert heading(several(*cases)).splitlines()[1:] == [TIMER]
    assert case_grid(several(*cases)).names[:2] == ("case", "inputs")
    assert [line[1] for line in case_grid(several(*cases)).lines] == ["f32[8]", "bf16[8]"]
    assert case_grid(several(SLOWER)).names[1] == "naive"


def test_a_case_that_has_the_name_of_a_function_is_not_named_above_them() -> None:
    found = replace(RANKED, comparisons=(replace(SLOWER, case=CaseId("naive")), SAME))

    assert heading(found) == "cpu · EPYC · jax 0.10.2 · 10 pairs in 2 processes\n" + TIMER


def test_of_several_cases_each_has_its_own_number_of_pairs_so_none_is_told() -> None:
    other = replace(SLOWER, case=CaseId("g"))

    assert heading(several(SLOWER, other)) == "cpu · EPYC · jax 0.10.2\n" + TIMER


def test_without_data_there_is_no_heading() -> None:
    assert heading(several(FAILED)) == ""
    assert heading(Comparisons()) == ""


# ---- tables -----------------------------------------------------------------------------------------------------


def test_functions_as_a_table() -> None:
    grid = function_grid(RANKED)

    assert grid.names == ("case", "time", "against naive", "verdict")
    assert grid.lines == (
        ("naive", "100 µs", "baseline", ""),
        ("fused", "110 µs", "+10 % (+5.0 to +15 %)", "slower, confirmed"),
        ("third", "110 µs", "-0.10 % (-1.0 to +1.0 %)", "same: within 5.0 %"),
    )


def test_functions_have_their_times_to_compile_memory_and_whether_results_are_equal() -> None:
    grid = function_grid(Comparisons((replace(SLOWER, numerics=EQUAL), COMPILE, PEAK), labels=("naive", "fused")))

    assert grid.names == ("case", "time", "against naive", "result", "compile", "peak", "verdict")
    assert [line[3:6] for line in grid.lines] == [("", "100 ms", "1.00 MiB"), ("equal", "200 ms", "2.00 MiB")]


def test_results_that_agree_show_by_how_much_they_differ() -> None:
    near = replace(SLOWER, numerics=Numerics("baseline", agrees=True, max_abs=5e-4, max_rel=1.2e-4))

    grid = function_grid(Comparisons((near,), labels=("naive", "fused")))

    assert grid.lines[1][grid.names.index("result")] == "agrees to 1.2e-04"


def test_the_verdict_on_a_wrong_result_begins_with_the_result() -> None:
    wrong = replace(SLOWER, verdict="faster", numerics=Numerics("baseline", agrees=False, why="0 instead of 1"))

    (row,) = case_grid(several(wrong)).rows
    assert (row[-1].text, row[-1].style) == ("result differs (faster, confirmed)", "bad")


def test_the_ranking_as_a_table_with_a_mark_at_shared_places() -> None:
    grid = ranking_grid(RANKED)

    assert grid.names == ("place", "case", "times the fastest")
    assert grid.lines == (
        ("1=", "third", "1"),
        ("1=", "naive", "1.00 (0.990 – 1.01)"),
        ("3", "fused", "1.10 (1.05 – 1.15)"),
    )


def test_one_that_was_not_compared_with_the_fastest_has_no_number() -> None:
    found = replace(RANKED, ranking=(RANKED.ranking[0], replace(RANKED.ranking[1], ratio=None)))

    assert ranking_grid(found).lines[1] == ("1=", "naive", "not compared")


def test_a_function_that_could_not_be_run_has_a_line_with_its_reason() -> None:
    broken = replace(FAILED, case=SLOWER.case, candidate=Version("broken"))
    found = replace(RANKED, comparisons=(SLOWER, broken, SAME), labels=(*RANKED.labels, "broken"))

    assert function_grid(found).lines[-1] == ("broken", "", "", "failed: error in build: it is broken")
    assert function_grid(found).rows[-1][0].style == "bad"
    assert summary(found).endswith(" No place for broken: failed.")


def test_a_function_with_another_result_has_a_line_and_no_place() -> None:
    differ = replace(EQUAL, agrees=False, why="the output is 1 where the reference has 2")
    wrong = replace(SLOWER, candidate=Version("wrong"), verdict="faster", numerics=differ)
    found = replace(RANKED, comparisons=(SLOWER, SAME, wrong), labels=(*RANKED.labels, "wrong"))

    assert function_grid(found).lines[-1] == (
        "wrong",
        "110 µs",
        "+10 % (+5.0 to +15 %)",
        "differs",
        "result differs (faster, confirmed)",
    )
    assert function_grid(found).rows[-1][0].style == "bad"
    assert summary(found).endswith(" times as long. No place for wrong: another result than naive.")


def test_where_nobody_has_the_baselines_result_it_may_be_the_baseline_that_is_wrong() -> None:
    differ = replace(SLOWER, numerics=replace(EQUAL, agrees=False, why="too short"))
    found = Comparisons((differ,), (Rank(1, "naive", 1e-4, 1.0, None, None),), ("naive", "fused"))

    assert summary(found) == (
        "No place for fused: another result than naive. If naive is the one that is wrong, make another the baseline."
    )
    assert "place  case" not in str(found)


def test_a_baseline_beside_which_nothing_ran_has_no_number() -> None:
    found = Comparisons((FAILED,), labels=("naive", "fused"))

    assert function_grid(found).lines[0] == ("naive", "baseline", "not measured, because nothing else ran beside it")


def test_what_has_no_column_is_told_of_all_functions_at_once() -> None:
    constants = replace(PEAK, metric="constants")
    third = replace(constants, candidate=Version("third"), candidate_value=3 * 2**20)
    found = replace(RANKED, comparisons=(SLOWER, SAME, PEAK, constants, third))

    assert others(found) == ["constants: 1.00 MiB in naive, 2.00 MiB in fused, 3.00 MiB in third"]


def test_a_count_of_operations_says_what_it_leaves_out() -> None:
    flops = replace(PEAK, metric="flops", baseline_value=7.0, candidate_value=40e3)

    assert others(replace(RANKED, comparisons=(SLOWER, SAME, flops))) == [
        "operations: 7 FLOP in naive, 40.0 kFLOP in fused (XLA's count: the body of a loop once)"
    ]


def test_cases_as_a_table() -> None:
    grid = case_grid(several(SLOWER, FAILED, PEAK))

    assert grid.names == ("case", "naive", "fused", "change", "verdict")
    assert grid.lines == (
        ("fft[n=8]", "100 µs", "110 µs", "+10 % (+5.0 to +15 %)", "slower, confirmed"),
        ("broken", "", "", "", "unclear: error in build: it is broken"),
    )


def test_where_versions_differ_from_case_to_case_the_columns_are_called_by_their_part() -> None:
    assert case_grid(several(SLOWER, SAME)).names[1:3] == ("baseline", "candidate")


def test_everything_in_one_text() -> None:
    lines = str(several(SLOWER, FAILED, PEAK)).splitlines()

    assert lines[0] == "cpu · EPYC · jax 0.10.2"
    assert solid("fft[n=8] 100 µs 110 µs +10 % (+5.0 to +15 %) slower, confirmed") in map(solid, lines)
    assert "peak memory of fft[n=8]: 2.00 MiB in fused, 1.00 MiB in naive" in lines


def test_a_failure_tells_what_to_do() -> None:
    for shown in (str(several(SLOWER, FAILED)), several(SLOWER, FAILED)._repr_html_()):
        assert "error in build: it is broken" in shown
        assert "mend it" in shown


def test_metrics_that_did_not_change_take_no_lines() -> None:
    assert "peak" not in str(several(SLOWER, replace(PEAK, verdict="same")))


def test_remarks_are_told_once_and_name_the_case_only_where_there_are_several() -> None:
    differ = Remark("outputs-differ", "error", "fused gives another result")
    limit = Remark("inline-limit", "warning", "on different sides")
    one = replace(SLOWER, remarks=(differ, limit))
    other = replace(one, case=CaseId("g"))

    assert [r.message for r in remarks([one, replace(one, metric="peak")])] == [differ.message, limit.message]
    assert [r.message for r in remarks([one, other])] == [
        "inline-limit: both cases; on different sides",
        "fft[n=8]: fused gives another result",
        "g: fused gives another result",
    ]
    assert "fused gives another result" in str(several(one))


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


def test_nothing_can_be_shown_too() -> None:
    assert "None" not in str(Comparisons())
    assert Comparisons()._repr_html_().startswith("<div")


def test_what_is_about_no_comparison_is_printed_too() -> None:
    found = Comparisons((SLOWER,), new=(CaseId("a<b"),), notes=("with the benchmark files of now",))

    assert str(found).endswith("with the benchmark files of now\nnew: a<b")
    assert ">new: a&lt;b</div>" in found._repr_html_()


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
