"""Sentences about error rates: what is claimed, how far it holds, and what is not known."""

from __future__ import annotations

import json
from dataclasses import replace

from comparisons_by_hand import compared

from benchax.comparing.error_rates import ErrorRates, Trial
from benchax.model import Failure, Noise
from benchax.reporting import terminal
from benchax.reporting.error_rates import document, sentences, to_plain_data, verdict_grid


def rates(*ratios: float, planted: float = 0.0) -> ErrorRates:
    return ErrorRates(tuple(Trial("sum", planted, compared(n, r)) for n, r in enumerate(ratios)), 10.0 * len(ratios))


def test_no_false_alarm_in_few_comparisons_is_no_promise() -> None:
    first, *_ = sentences(rates(*[1.0] * 10))

    assert first == (
        "In 10 comparisons of unchanged code benchax said slower never and faster never: on this machine, as it was "
        "now, it says slower of at most 26 % of unchanged code (at 95 % confidence)."
    )


def test_false_alarms_are_told() -> None:
    first, *_ = sentences(rates(1.0, 1.1, 1.1, 0.9))

    assert first.startswith("In 4 comparisons of unchanged code benchax said slower twice and faster once:")


def test_what_is_found_is_told_with_the_least_that_it_stands_for() -> None:
    first, *_ = sentences(rates(*[1.05] * 9, 1.0, planted=0.05))

    assert first == (
        "Of 10 comparisons with +5 % planted it called 9 slower: it finds at least 61 % of such changes "
        "(at 95 % confidence)."
    )


def test_shares_stand_with_their_counts_and_intervals() -> None:
    (line,) = verdict_grid(rates(1.0, 1.0, 1.0, 1.1)).lines

    assert line[:3] == ("unchanged", "4", "1: 25 % (0.63 – 81)")


def test_what_could_not_be_run_is_told_and_not_judged() -> None:
    broken = Trial("sum", 0.1, replace(compared(0, None), failure=Failure("error", "build", "no")))
    found = ErrorRates((broken,), 10.0)

    assert list(sentences(found)) == ["1 comparison of +10 % could not be run: not counted."]
    assert verdict_grid(found).lines == (("+10 %", "0", "", "", "", ""),)


def test_what_the_machine_does_not_tell_is_not_zero() -> None:
    text = terminal.to_text(document(replace(rates(1.0), noise=Noise())))

    assert "load not measured, benchax included · CPU time of others not measured" in text


def test_plain_data_is_json_with_none_for_what_is_unknown() -> None:
    data = json.loads(json.dumps(to_plain_data(rates(1.0, 1.1)), allow_nan=False))

    (change,) = data["changes"]
    assert (change["judged"], change["slower"], change["same"]) == (2, 1, 1)
    assert change["intervals"]["faster"][0] == 0.0
    assert data["noise"]["load_1m"] is None
    assert data["effects"][0]["planted"] == 0.0
