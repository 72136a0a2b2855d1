"""`benchax doctor --aa`: what it shows of finished rounds, also after Ctrl-C. The rounds are made up here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from command_line import Benchax, Done
from comparisons_by_hand import compared

from benchax.comparing.error_rates import ErrorRates, Trial
from benchax.paired_runs import session
from benchax.progress import Listener, ProgressEvent

Doctor = Callable[..., Done]
TRIALS = (Trial("steps", 0.0, compared(0, 1.0)), Trial("steps", 0.05, compared(1, 1.05)))


@pytest.fixture
def limits() -> list[float]:
    """What the protocol was given."""
    return []


@pytest.fixture
def doctor(benchax: Benchax, monkeypatch: pytest.MonkeyPatch, limits: list[float]) -> Doctor:
    """Runs the command with rounds that end as `ends` says: after so many of them, by Ctrl-C or by themselves."""

    def run(*words: str, rounds: int = 2, is_stopped: bool = False) -> Done:
        def made_up(max_time_s: float, report: Listener) -> Iterator[ErrorRates]:
            limits.append(max_time_s)
            for n in range(1, rounds + 1):
                report(ProgressEvent("process 1: 2 of 2 undecided", "steps · rounds"))
                yield ErrorRates(TRIALS * n, 4.0 * n)
            if is_stopped:
                raise KeyboardInterrupt

        monkeypatch.setattr(session, "measure_rounds", made_up)
        return benchax("doctor", *words)

    return run


def test_the_table_is_that_of_the_last_round(doctor: Doctor) -> None:
    done = doctor("--aa")

    assert done.code == 0
    assert "In 2 comparisons of unchanged code benchax reported slower never" in done.out
    assert "A verdict took 2.0 s." in done.out
    assert "process 1: 2 of 2 undecided\n2 verdicts after 4 s\n" in done.err


@pytest.mark.parametrize(("words", "limit_s"), [((), 180.0), (("--max-time", "2min"), 120.0)])
def test_it_takes_three_minutes_or_as_long_as_it_is_told(
    words: tuple[str, ...], limit_s: float, doctor: Doctor, limits: list[float]
) -> None:
    doctor("--aa", *words)

    assert limits == [limit_s]


def test_ctrl_c_shows_what_there_is(doctor: Doctor) -> None:
    done = doctor("--aa", rounds=1, is_stopped=True)

    assert done.code == 130
    assert "In 1 comparison of unchanged code" in done.out


def test_ctrl_c_before_the_end_of_a_round_claims_nothing(doctor: Doctor) -> None:
    done = doctor("--aa", rounds=0, is_stopped=True)

    assert (done.code, done.out) == (130, "")
    assert "no round was finished, so that nothing is known" in done.err


def test_as_json_it_is_one_object(doctor: Doctor) -> None:
    found = json.loads(doctor("--aa", "--json").out)

    assert [(change["planted"], change["judged"]) for change in found["changes"]] == [(0.0, 2), (0.05, 2)]
