"""Sentences about error rates: what is claimed, how far it holds, and what is not known."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from comparisons_by_hand import compared

from benchax.comparing.error_rates import ErrorRates, Trial
from benchax.model import Failure, Noise
from benchax.reporting import terminal
from benchax.reporting.comparisons import document_of_error_rates as document
from benchax.reporting.comparisons import to_plain_data


def rates(*ratios: float, planted: float = 0.0) -> ErrorRates:
    return ErrorRates(tuple(Trial("sum", planted, compared(n, r)) for n, r in enumerate(ratios)), 10.0 * len(ratios))


NOT_RUN = Trial("sum", 0.1, replace(compared(0, None), failure=Failure("error", "build", "no")))
SHOWN = {
    "no false alarm in few comparisons is no promise": rates(*[1.0] * 10),
    "false alarms": rates(1.0, 1.1, 1.1, 0.9),
    "what is found, with the least share that it shows": rates(*[1.05] * 9, 1.0, planted=0.05),
    "what could not be run is not judged": ErrorRates((NOT_RUN,), 10.0),
    "what the machine does not tell is not zero": replace(rates(1.0), noise=Noise()),
}


@pytest.mark.parametrize("name", SHOWN)
def test_error_rates_come_with_counts_intervals_and_what_they_promise(name: str, snapshot: Any) -> None:
    assert terminal.to_text(document(SHOWN[name])) == snapshot


def test_plain_data_is_json_with_none_for_what_is_unknown() -> None:
    data = json.loads(json.dumps(to_plain_data(rates(1.0, 1.1)), allow_nan=False))

    (change,) = data["changes"]
    assert (change["judged"], change["slower"], change["same"]) == (2, 1, 1)
    assert change["intervals"]["faster"][0] == 0.0
    assert data["noise"]["load_1m"] is None
    assert data["effects"][0]["planted"] == 0.0
