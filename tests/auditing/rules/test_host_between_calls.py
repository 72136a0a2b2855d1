"""Loops that spend their time on the host."""

from __future__ import annotations

from typing import Any

import pytest

ID = "host-between-calls"
SEEN = {"is_seen": True}
LOOP, LOAD, ROLL, FLIP = "/a/train.py:18", "/a/data.py:11", "/a/data.py:8", "/a/data.py:6"


def noted(*stacks: tuple[tuple[str, ...], float], count: int = 100, elapsed_s: float = 10.0) -> dict[str, Any]:
    host_s = sum(s for _, s in stacks)
    told = [[list(stack), s] for stack, s in stacks]
    return {"where": "/a/train.py:19", "count": count, "elapsed_s": elapsed_s, "host_s": host_s, "stacks": told}


def test_the_innermost_line_beneath_which_most_is_spent_is_named(ask_about_program: Any) -> None:
    line = noted(((LOOP, LOAD, ROLL), 3.0), ((LOOP, LOAD, FLIP), 2.5), ((LOOP,), 0.5))

    finding = ask_about_program(ID, host_work=[line], calls=SEEN).one

    assert finding.title == "the host works for 60 % of the time between calls"
    assert finding.where == ("/a/data.py", 11)
    assert finding.seen[0].startswith("6.00 s of 10.0 s before 100 calls")
    assert finding.seen[1:] == (
        "3.00 s at data.py:8",
        "2.50 s at data.py:6",
        "500 ms at train.py:18",
        "called from train.py:18",
    )
    assert finding.gain.startswith("estimated: at most 60 % of the loop")


def test_less_than_half_of_the_time_is_an_info(ask_about_program: Any) -> None:
    shares = [ask_about_program(ID, host_work=[noted(((LOOP,), s))], calls=SEEN).one.severity for s in (3.0, 6.0)]

    assert shares == ["info", "warning"]


def test_lines_that_call_count_together(ask_about_program: Any) -> None:
    lines = [noted(((LOOP, LOAD), 2.0)), noted(elapsed_s=10.0), noted(((LOOP, LOAD), 9.0), count=3)]

    assert ask_about_program(ID, host_work=lines, calls=SEEN).outcome == "fine"
    assert ask_about_program(ID, host_work=lines[:1] * 2 + [noted(((LOOP,), 6.0))], calls=SEEN).outcome != "fine"


@pytest.mark.parametrize(
    "line", [noted(((LOOP,), 2.4)), noted(((LOOP,), 0.2), elapsed_s=0.3), noted(elapsed_s=0.0)],
    ids=["little of it", "a moment", "nothing"],
)  # fmt: skip
def test_a_loop_that_computes_is_fine(ask_about_program: Any, line: dict[str, Any]) -> None:
    assert ask_about_program(ID, host_work=[line], calls=SEEN).outcome == "fine"


def test_without_a_loop_it_is_not_applicable_and_unseen_it_is_not_checked(ask_about_program: Any) -> None:
    assert ask_about_program(ID, host_work=[noted(count=9)], calls=SEEN).outcome == "not applicable"
    assert ask_about_program(ID, host_work=[], calls={"is_seen": False}).outcome == "not checked"
    assert ask_about_program(ID).outcome == "not checked"
