"""Which function of a program could be jitted as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from benchax.auditing.eager_functions import functions_to_jit


def call(function: str, **changed: Any) -> dict[str, Any]:
    about = {
        "where": f"train.py:{len(function)}", "span": (0, 0, 0, 0), "function": function, "defined": f"{function}.py:1",
        "is_users": True, "is_through_package": False, "stores": False, "count": 20, "jitted": 0, "reads": 0,
        "read_at": "", "acts_on_values": False,
    }  # fmt: skip
    return about | changed


def chosen(calls: list[dict[str, Any]], paths: list[Any], least: int = 100) -> list[tuple[str, int]]:
    found = functions_to_jit({"calls": calls, "paths": paths}, least)
    return [(one.call["function"], one.operations) for one in found]


def test_the_outermost_function_of_a_loop_is_chosen_and_not_main() -> None:
    calls = [call("main", count=1), call("transition", count=20), call("leapfrog", count=240)]
    paths = [[[0, 1, 2], "train.py:5", 2400], [[0, 1], "train.py:8", 200], [[0], "train.py:9", 90]]

    assert chosen(calls, paths) == [("transition", 2600)]


def test_of_an_epoch_that_does_little_but_to_call_a_step_the_step_is_chosen() -> None:
    calls = [call("epoch", count=10), call("step", count=500)]

    assert chosen(calls, [[[0, 1], "train.py:5", 20000], [[0], "train.py:2", 100]]) == [("step", 20000)]


@pytest.mark.parametrize(
    "unable",
    [
        {"jitted": 20},
        {"acts_on_values": True},
        {"stores": True},
        {"count": 4},
        {"count": 201},
        {"is_through_package": True},
    ],
)
def test_what_jit_cannot_take_or_what_is_no_loop_is_left_for_what_it_calls(unable: dict[str, Any]) -> None:
    calls = [call("step", **unable), call("update", count=20)]

    assert chosen(calls, [[[0, 1], "train.py:5", 800]]) == [("update", 800)]


def test_what_a_function_calls_stores_for_it() -> None:
    calls = [call("step"), call("next_key", stores=True)]

    assert chosen(calls, [[[0], "train.py:5", 800], [[0, 1], "train.py:6", 20]]) == []


def test_few_operations_are_not_worth_a_word() -> None:
    assert chosen([call("step", count=5)], [[[0], "train.py:5", 90]]) == []
    assert chosen([call("step", count=5)], [[[0], "train.py:5", 190]], least=200) == []
