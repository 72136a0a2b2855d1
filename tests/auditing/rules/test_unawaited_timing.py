"""Clocks that do not wait."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from benchax.auditing.rules.unawaited_timing import intervals

ID = "unawaited-timing"
WRONG = """\
import time
def run(step, x):
    begun = time.perf_counter()
    y = step(x)
    return time.perf_counter() - begun
"""
BY_NAME = """\
from time import perf_counter
start = perf_counter()
for _ in range(10):
    x = step(x)
stop = perf_counter()
print(stop - start)
"""


def asked(ask_about_program: Any, folder: Path, text: str, line: int) -> Any:
    file = folder / "train.py"
    file.write_text(text, encoding="utf-8")
    seen = {"function": "step", "where": f"{file}:{line}", "count": 10, "most_bytes": 4, "in_turn": 1}
    return ask_about_program(ID, lines=[seen], calls={"is_seen": True, "jitted": 10, "seen_s": 1.0})


@pytest.mark.parametrize("text", [WRONG, BY_NAME])
def test_a_clock_around_a_call_that_nobody_waits_for_is_found(
    ask_about_program: Any, tmp_path: Path, text: str
) -> None:
    finding = asked(ask_about_program, tmp_path, text, 4).one

    assert finding.title == "the clock is read before step is done"
    assert finding.where == (str(tmp_path / "train.py"), 5)


SPAN = """\
import contextlib, time
@contextlib.contextmanager
def span(name):
    begun = time.perf_counter()
    yield
    print(name, time.perf_counter() - begun)
with span("one"):
    y = step(x)
"""
TIMER = """\
from time import perf_counter
class Timer:
    def __enter__(self):
        self.begun = perf_counter()
        return self
    def __exit__(self, *_):
        self.seconds = perf_counter() - self.begun
with Timer() as timer:
    y = step(x)
"""


@pytest.mark.parametrize(("text", "line", "by"), [(SPAN, 8, "span"), (TIMER, 9, "Timer")])
def test_a_block_that_is_timed_has_to_wait_as_well(
    ask_about_program: Any, tmp_path: Path, text: str, line: int, by: str
) -> None:
    text = text.replace("print(name, ", "note(name, ")
    finding = asked(ask_about_program, tmp_path, text, line).one
    waits = asked(ask_about_program, tmp_path, text.replace("step(x)", "jax.block_until_ready(step(x))"), line)
    at_its_end = text.replace("    yield\n", "    yield\n    jax.effects_barrier()\n")
    at_its_end = at_its_end.replace("*_):\n", "*_):\n        jax.block_until_ready(self.result)\n")

    assert finding.where == (str(tmp_path / "train.py"), line)
    assert finding.seen[0].startswith(f"{by} reads a clock around what stands in line {line - 1}; in it")
    assert waits.outcome == "fine"
    assert asked(ask_about_program, tmp_path, at_its_end, line + 1).outcome == "fine"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import timeit\nprint(timeit.timeit(lambda: step(x), number=9))\n", 2),
        ("import timeit\ndef run():\n    step(x)\nprint(min(timeit.repeat(run, number=9)))\n", 3),
        ("from timeit import Timer\nt = Timer(\n    lambda: step(x),\n).timeit(9)\n", 3),
    ],
)
def test_what_timeit_calls_has_to_wait_as_well(ask_about_program: Any, tmp_path: Path, text: str, line: int) -> None:
    finding = asked(ask_about_program, tmp_path, text, line).one
    waits = asked(ask_about_program, tmp_path, text.replace("step(x)", "jax.block_until_ready(step(x))"), line)

    assert finding.where == (str(tmp_path / "train.py"), line)
    assert "timeit reads a clock around" in finding.seen[0]
    assert waits.outcome == "fine"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("step(x)\n", "step(x).block_until_ready()\n"),
        ("step(x)\n", "float(step(x))\n"),
        ("step(x)\n", "jax.device_get(step(x))\n"),
    ],
)
def test_one_that_waits_is_fine(ask_about_program: Any, tmp_path: Path, old: str, new: str) -> None:
    assert asked(ask_about_program, tmp_path, WRONG.replace(old, new), 4).outcome == "fine"


def test_calls_outside_of_the_clock_are_fine(ask_about_program: Any, tmp_path: Path) -> None:
    assert asked(ask_about_program, tmp_path, f"{WRONG}\ny = step(x)\n", 7).outcome == "fine"


def test_the_nearest_reading_before_is_the_one_that_counts() -> None:
    text = "t = time.time()\nf()\na = time.time() - t\nt = time.time()\ng()\nb = time.time() - t\n"

    assert [one[:2] for one in intervals(ast.parse(text))] == [(1, 3), (4, 6)]


def test_where_calls_were_not_seen_nothing_is_called_fine(ask_about_program: Any) -> None:
    assert ask_about_program(ID).outcome == "not checked"


def test_a_function_that_is_called_as_what_waits_is_none_that_waits(ask_about_program: Any, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(WRONG.replace("step", "write"))
    seen = {"function": "write", "where": f"{file}:4", "count": 10, "most_bytes": 4, "in_turn": 1}

    assert (
        ask_about_program(ID, lines=[seen], calls={"is_seen": True, "jitted": 10, "seen_s": 1.0}).outcome == "finding"
    )


def test_what_a_package_calls_by_itself_it_may_wait_for(ask_about_program: Any, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(WRONG)
    calls = {"is_seen": True, "jitted": 10, "seen_s": 1.0}
    seen = {"function": "_loop", "where": f"{file}:4", "count": 10, "most_bytes": 4, "in_turn": 1}

    outcomes = [ask_about_program(ID, lines=[{**seen, "inside": n}], calls=calls).outcome for n in (9, 10)]
    assert outcomes == ["finding", "fine"]
