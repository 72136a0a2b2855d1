"""Under which calls operations are sent, by the frames of this file, as if each were a program's."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from benchax.auditing.eager_calls import EagerCalls


def send(seen: EagerCalls, times: int = 1) -> None:
    for _ in range(times):
        seen.note_operation(sys._getframe(1), "train.py:9")


def read(seen: EagerCalls) -> None:
    seen.note_read(sys._getframe(1), "train.py:7")


def inner(seen: EagerCalls) -> None:
    send(seen, 3)


def step(seen: EagerCalls) -> None:
    inner(seen)
    send(seen)


def calls_of(program: Callable[[EagerCalls], Any]) -> tuple[dict[str, Any], list[Any]]:
    """Of a program: its calls by the function's name, and its paths."""
    seen = EagerCalls()
    program(seen)
    found = seen.asdict()
    return {call["function"].rpartition(".")[2]: SimpleNamespace(**call) for call in found["calls"]}, found["paths"]


def test_each_call_is_counted_once_however_many_operations_it_sends() -> None:
    calls, paths = calls_of(lambda seen: [step(seen) for _ in range(7)])

    assert (calls["step"].count, calls["inner"].count) == (7, 7)
    # Of 28 operations all are under step, and three of four under inner.
    assert sorted(n for _, _, n in paths) == [7, 21]
    assert calls["step"].defined.endswith(f"test_eager_calls.py:{step.__code__.co_firstlineno}")


def test_a_generator_is_one_call() -> None:
    def batches(seen: EagerCalls) -> Iterator[None]:
        while True:
            yield send(seen)

    def program(seen: EagerCalls) -> None:
        for _, _ in zip(range(5), batches(seen), strict=False):
            pass

    assert calls_of(program)[0]["batches"].count == 1


def test_what_goes_on_after_it_has_read_a_value_may_depend_on_it() -> None:
    def acting(seen: EagerCalls) -> None:
        send(seen)
        read(seen)
        send(seen)

    def ending(seen: EagerCalls) -> None:
        send(seen)
        read(seen)

    calls, _ = calls_of(lambda seen: [(acting(seen), ending(seen)) for _ in range(3)])

    assert (calls["acting"].acts_on_values, calls["ending"].acts_on_values) == (True, False)
    assert (calls["ending"].reads, calls["ending"].read_at) == (3, "train.py:7")


def test_a_function_that_stores_is_told_from_a_constructor() -> None:
    class Trainer:
        def __init__(self, seen: EagerCalls) -> None:
            self.seen = seen
            send(seen)

        def update(self, seen: EagerCalls) -> None:
            self.seen = seen
            send(seen)

    calls, _ = calls_of(lambda seen: Trainer(seen).update(seen))

    assert (calls["__init__"].stores, calls["update"].stores) == (False, True)


def test_a_function_that_a_package_calls_and_what_of_the_package_is_called_are_both_told() -> None:
    names: dict[str, Any] = {}
    text = "def minimize(f, seen):\n    return f(seen)\n"
    exec(compile(text, f"{sysconfig.get_path('purelib')}/library/opt.py", "exec"), names)

    calls, paths = calls_of(lambda seen: names["minimize"](step, seen))

    assert (calls["minimize"].is_users, calls["minimize"].is_through_package) == (False, False)
    assert (calls["step"].is_users, calls["step"].is_through_package) == (True, True)
    assert all(len(path) >= 3 for path, _, _ in paths)


def test_jitted_functions_count_for_what_calls_them() -> None:
    def trains(seen: EagerCalls) -> None:
        send(seen)
        seen.note_jitted(sys._getframe())

    calls, _ = calls_of(lambda seen: (trains(seen), inner(seen)))

    assert (calls["trains"].jitted, calls["inner"].jitted) == (1, 0)
