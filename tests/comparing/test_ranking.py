"""Who is fastest, with ties where nothing tells versions apart: by hand-made comparisons."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations

import pytest

from benchax import codec
from benchax.comparing.ranking import Comparisons, Rank, rank_versions
from benchax.model import CaseId, Comparison, Failure, Numerics, Version
from benchax.reporting import display  # noqa: F401  # what print needs
from benchax.stats.verdicts import Verdict


def versus(one: str, other: str, verdict: Verdict, ratio: float, **fields: object) -> Comparison:
    compared = Comparison(CaseId("f"), "run", Version(one), Version(other), verdict, ratio=ratio)
    return replace(compared, low=ratio - 0.01, high=ratio + 0.01, **fields)  # type: ignore[arg-type]


Pairs = dict[tuple[str, str], Comparison]


def among(times: dict[str, float], told_apart_at: float = 0.05) -> Pairs:
    """All pairs; a difference of that share is clear, a smaller one is not."""
    against: Pairs = {}
    for one, other in permutations(times, 2):
        ratio = times[other] / times[one]
        verdict: Verdict = (
            "slower" if ratio > 1 + told_apart_at else "faster" if 1 / ratio > 1 + told_apart_at else "same"
        )
        against[one, other] = versus(one, other, verdict, ratio)
    return against


def ranked(times: dict[str, float], against: Pairs | None = None) -> tuple[Rank, ...]:
    found = among(times) if against is None else against
    return rank_versions(times, lambda one, other: found.get((one, other)))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({}, []),
        ({"a": 3.0, "b": 1.0, "c": 2.0}, [(1, "b"), (2, "c"), (3, "a")]),
        ({"a": 1.0, "b": 2.0, "c": 2.01, "d": 4.0}, [(1, "a"), (2, "b"), (2, "c"), (4, "d")]),
        ({"a": 1.02, "b": 1.01, "c": 1.0}, [(1, "c"), (1, "b"), (1, "a")]),
        # b and c each take 4 % longer than the one before: c is told apart from a, though not from b.
        ({"a": 1.0, "b": 1.04, "c": 1.08}, [(1, "a"), (1, "b"), (3, "c")]),
    ],
)
def test_what_cannot_be_told_apart_from_the_first_of_a_place_shares_it_and_the_next_one_is_free(
    times: dict[str, float], expected: list[tuple[int, str]]
) -> None:
    assert [(rank.place, rank.label) for rank in ranked(times)] == expected


def test_the_order_is_that_of_the_pairs_of_each_two_and_no_ratio_contradicts_it() -> None:
    """By their ratios to the baseline b is ahead, by their own pairs c."""
    times = {"a": 2.0, "b": 1.0, "c": 1.01}
    pairs = {("b", "c"): versus("b", "c", "same", 0.98), ("c", "b"): versus("c", "b", "same", 1.02)}

    first, second, third = ranked(times, among(times) | pairs)

    assert first == Rank(1, "c", 1.01, 1.0, None, None)
    assert second == Rank(1, "b", 1.0, 1.02, 1.01, 1.03)
    assert (third.place, third.label) == (3, "a")
    # What was not compared is not told apart, and has no ratio.
    assert [(rank.place, rank.ratio) for rank in ranked({"a": 1.0, "b": 2.0}, {})] == [(1, 1.0), (1, None)]


# ---- without a place ---------------------------------------------------------------------------------------------

WRONG = Numerics("baseline", agrees=False, why="the output is 1 where the reference has 2")


def failing(label: str, stage: str) -> Comparison:
    compared = versus("a", label, "unclear", 1.0, failure=Failure("crashed", stage, "gone"), why=f"crashed in {stage}")
    return replace(compared, ratio=None)


def test_a_wrong_result_a_failure_and_no_time_have_no_place() -> None:
    found = Comparisons(
        (
            versus("a", "b", "faster", 0.5, numerics=WRONG),
            versus("a", "c", "faster", 0.5, numerics=replace(WRONG, agrees=True)),
            failing("d", "build of d"),
            replace(versus("a", "e", "unclear", 1.0), ratio=None, why="nothing was timed"),
        ),
        labels=("a", "b", "c", "d", "e"),
    )

    assert found.unranked == {
        "b": "its result differs from the result of a: the output is 1 where the reference has 2",
        "d": "failed: crashed in build of d",
        "e": "not measured, because nothing was timed",
    }
    assert Comparisons(found.comparisons).unranked == {}  # of cases nobody is ranked


@pytest.mark.parametrize(
    ("stage", "is_at_fault"), [("build", True), ("build of b", True), ("build of c", False), ("rounds", False)]
)
def test_who_is_at_fault_says_the_stage_and_where_others_ran_it_is_nobody_else(stage: str, is_at_fault: bool) -> None:
    failure, late = failing("b", stage), failing("c", "warm-up")
    found = Comparisons((versus("a", "b", "same", 1.0), late), ranked({"a": 1.0}), ("a", "b", "c"))

    assert Comparisons((failure,), labels=("a", "b", "c")).is_at_fault(failure) is is_at_fault
    assert found.is_at_fault(late)
    assert found.unranked == {"c": "failed: crashed in warm-up"}


def test_all_of_it_is_json() -> None:
    compared = versus("a", "b", "slower", 2.0)
    found = Comparisons((compared, failing("c", "build of c")), ranked({"a": 1.0, "b": 2.0}), ("a", "b", "c"))

    document = json.loads(json.dumps(found.asdict()))

    assert document["labels"] == ["a", "b", "c"]
    assert [rank["label"] for rank in document["ranking"]] == ["a", "b"]
    assert document["unranked"] == {"c": "failed: crashed in build of c"}
    assert codec.decode_comparison(json.dumps(document["comparisons"][0])) == compared


# ---- as one result ----------------------------------------------------------------------------------------------


def test_verdicts_go_by_version_where_there_is_one_case_and_by_case_where_there_are_several() -> None:
    slower, same = versus("a", "b", "slower", 2.0), versus("a", "c", "same", 1.0)
    other = replace(versus("a", "b", "faster", 0.5), case=CaseId("g", (("n", 8),)))

    assert Comparisons((slower, same)).verdicts == {"b": "slower", "c": "same"}
    assert Comparisons((slower, other)).verdicts == {"f": "slower", "g[n=8]": "faster"}
    assert Comparisons((same, replace(slower, metric="compile"))).verdicts == {"c": "same"}
    assert Comparisons().verdicts == {}


def test_comparisons_are_a_sequence() -> None:
    one, other = versus("a", "b", "slower", 2.0), replace(versus("a", "b", "same", 1.0), metric="peak")
    found = Comparisons((one, other))

    assert (len(found), found[0], found[-1], found[:1], list(found)) == (2, one, other, (one,), [one, other])
    assert found.of("peak") == (other,)
    assert found.of("flops") == ()
    assert "slower" in str(found)
    assert "<table" in found._repr_html_()


SUITE = Comparisons(
    (versus("a", "b", "same", 1.0),),
    new=(CaseId("added"), CaseId("later")),
    missing=(CaseId("gone"),),
    broken=(Failure("error", "import", "bench_x.py cannot be imported: no y"),),
    notes=("main: with the benchmark files of now",),
    unstored="the disk is full",
)


def test_what_no_comparison_tells_is_told_beside_them() -> None:
    assert SUITE.unmatched == ["new: added, later", "missing now: gone"]
    assert SUITE.asides == [
        "main: with the benchmark files of now",
        *SUITE.unmatched,
        "bench_x.py cannot be imported: no y",
        "the comparisons were not stored: the disk is full",
    ]
    assert Comparisons().asides == []


def test_it_is_in_the_document_of_a_suite_and_functions_have_none_of_it() -> None:
    document = json.loads(json.dumps(SUITE.asdict()))

    assert (document["new"], document["missing"]) == (["added", "later"], ["gone"])
    assert document["broken"][0]["message"] == "bench_x.py cannot be imported: no y"
    assert (document["notes"], document["unstored"]) == (["main: with the benchmark files of now"], "the disk is full")
    assert Comparisons(labels=("a", "b")).asdict().keys() == {"labels", "ranking", "unranked", "comparisons"}
