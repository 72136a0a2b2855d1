"""Many calls with little data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax_versions import shows_calls

from benchax.auditing.call_notes import CallNotes
from benchax.watching.frames import calling
from benchax.watching.transfers import watch_transfers

ID = "small-calls"
FACTS = {"calls": {"is_seen": True, "jitted": 300, "seen_s": 2.0}, "wall_s": 3.0}


def line(**changed: Any) -> dict[str, Any]:
    known = {"function": "score", "where": "train.py:7", "count": 300, "most_bytes": 64, "in_turn": 1}
    return {**known, "moved": [], **changed}


def test_calls_that_could_be_one_are_found_with_what_starting_them_takes(ask_about_program: Any) -> None:
    finding = ask_about_program(ID, lines=[line()], **FACTS).one

    assert finding.title == "calls score 300 times with little data"
    assert (finding.where[1], finding.severity) == (7, "warning")
    assert "jax.vmap" in finding.advice
    assert finding.gain.startswith("estimated: at least ")


def test_calls_that_need_one_another_are_an_info_with_other_advice(ask_about_program: Any) -> None:
    finding = ask_about_program(ID, lines=[line(count=3000, in_turn=3000)], **FACTS).one

    assert finding.severity == "info"
    assert "jax.lax.scan" in finding.advice


def test_a_loop_of_very_many_calls_in_turn_is_no_mere_info(ask_about_program: Any) -> None:
    finding = ask_about_program(ID, lines=[line(count=17_000, in_turn=17_000)], **FACTS).one

    assert finding.severity == "warning"
    assert "jax.lax.scan" in finding.advice


def test_calls_of_which_only_each_generation_needs_the_one_before_could_be_one(ask_about_program: Any) -> None:
    finding = ask_about_program(ID, lines=[line(in_turn=20)], **FACTS).one

    assert finding.severity == "warning"
    assert "at most 20 of them needed one another's results" in finding.seen
    assert "jax.vmap" in finding.advice


@pytest.mark.parametrize(
    "changed", [{"count": 150}, {"most_bytes": 1 << 20}, {"in_turn": 300}, {"inside": 290}], ids=str
)
def test_few_calls_large_ones_and_those_of_a_loop_of_steps_are_fine(ask_about_program: Any, changed: Any) -> None:
    assert ask_about_program(ID, lines=[line(**changed)], **FACTS).outcome == "fine"


def test_a_call_that_a_benchmark_times_again_and_again_is_fine(ask_about_program: Any, tmp_path: Path) -> None:
    train = tmp_path / "train.py"
    each = "for _ in range(300):\n    start = clock()\n    wait(score(x))\n    took.append(perf_counter() - start)\n"
    train.write_text(each.replace("clock()", "perf_counter()"))
    assert ask_about_program(ID, lines=[line(where=f"{train}:3")], **FACTS).outcome == "fine"

    whole = "start = perf_counter()\nfor x in data:\n    score(x)\nprint(perf_counter() - start)\n"
    train.write_text(whole)
    assert ask_about_program(ID, lines=[line(where=f"{train}:3")], **FACTS).outcome == "finding"


def test_a_call_whose_result_an_environment_in_python_answers_is_fine(ask_about_program: Any, tmp_path: Path) -> None:
    play = tmp_path / "play.py"
    play.write_text("while not done:\n    action = int(score(w, seen))\n    seen, done = env.step(action)\n")

    assert ask_about_program(ID, lines=[line(where=f"{play}:2")], **FACTS).outcome == "fine"
    play.write_text("while not done:\n    scores.append(score(w, seen))\n    seen, done = env.step(0)\n")
    assert ask_about_program(ID, lines=[line(where=f"{play}:2")], **FACTS).outcome == "finding"


def test_where_no_call_was_seen_nothing_is_called_fine(ask_about_program: Any) -> None:
    assert ask_about_program(ID).outcome == "not checked"
    none = {"calls": {"is_seen": True, "jitted": 0, "seen_s": 0.0}, "lines": []}
    assert ask_about_program(ID, **none).why == "no call of a jitted function was seen"


def noted(run: Any, function: str = "") -> dict[str, Any]:
    notes = CallNotes()
    on_call = lambda fun, leaves: notes.note_call(fun, leaves, calling(frozenset()))  # noqa: E731
    with watch_transfers(on_call, notes.note_result):
        run()
    return next(line for line in notes.asdict()["lines"] if line["function"].endswith(function))


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("def objective(w):\n    return float(score(w))\nminimize(objective, w)\n", "fine"),
        ("for _ in r:\n    minimize(\n        lambda w: score(w), w)\n", "fine"),
        ("def main():\n    for x in data:\n        score(x)\nrun(main)\n", "finding"),
    ],
    ids=["an objective", "a lambda", "a loop of the user's"],
)
def test_what_a_package_calls_in_its_own_loop_is_fine(
    ask_about_program: Any, tmp_path: Path, text: str, outcome: str
) -> None:
    fit = tmp_path / "fit.py"
    fit.write_text(text)
    at = next(i + 1 for i, each in enumerate(text.splitlines()) if "score" in each)

    assert ask_about_program(ID, lines=[line(where=f"{fit}:{at}", handed=300)], **FACTS).outcome == outcome


@shows_calls
def test_results_are_followed_through_other_operations() -> None:
    f = jax.jit(lambda x: x * 2)

    def steps() -> None:
        x = jnp.ones(3)
        for _ in range(3):
            x = f(x) + 1

    def apart() -> None:
        for i in range(3):
            f(jnp.full(3, i))

    def generations() -> None:
        x = jnp.ones(3)
        for _ in range(2):
            x = sum(f(x + i) for i in range(5))

    assert [noted(each)["in_turn"] for each in (steps, apart, generations)] == [3, 1, 2]


@shows_calls
def test_a_model_that_is_tried_after_each_step_needs_the_steps() -> None:
    @jax.jit
    def step(x: Any) -> Any:
        return x * 2

    @jax.jit
    def tried(x: Any) -> Any:
        return x.sum()

    def training() -> None:
        x = jnp.ones(3)
        for _ in range(4):
            x = step(x)
            tried(x)

    def ensemble() -> None:
        x = step(step(step(jnp.ones(3))))
        for i in range(4):
            tried(x + i)

    assert [noted(each, "tried")["in_turn"] for each in (training, ensemble)] == [4, 1]


@shows_calls
def test_arguments_that_stay_the_same_are_not_counted() -> None:
    f, weights = jax.jit(lambda w, x: w @ x), jnp.ones((64, 64))
    rows = [jnp.ones(64) * i for i in range(4)]
    notes = CallNotes()
    on_call = lambda fun, leaves: notes.note_call(fun, leaves, calling(frozenset()))  # noqa: E731

    with watch_transfers(on_call, notes.note_result):
        for row in rows:
            f(weights, row)

    (known,) = [fun for fun in notes._last if getattr(fun, "__name__", "") == "<lambda>"]
    assert notes.repeated(known) == frozenset({0})
    # Nor does the first call count, of which nothing is known to stay.
    assert [one["most_bytes"] for one in notes.asdict()["lines"]] == [rows[0].nbytes]


@shows_calls
def test_arguments_whose_number_changes_are_all_counted() -> None:
    f = jax.jit(lambda *rows: rows[0])

    assert noted(lambda: [f(*[jnp.ones(64)] * n) for n in (1, 2, 3)])["most_bytes"] == 3 * 64 * 4


@shows_calls
def test_a_method_that_has_no_name_of_its_own_is_named_by_its_class() -> None:
    class Net:
        def __call__(self, x: Any) -> Any:
            return x + 1

    assert noted(lambda: jax.jit(Net.__call__, static_argnums=0)(Net(), jnp.ones(3)))["function"].endswith(
        "Net.__call__"
    )
