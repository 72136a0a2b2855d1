"""How a watch is shown, from one made by hand."""

from __future__ import annotations

from typing import Any

from benchax import Watch  # as users get it: then it can show itself
from benchax.model import Remark
from benchax.reporting import watch as drawing
from benchax.results.watch import Compile, FunctionCount, Reason, StepCompiles, WatchedSteps


def program(function: str, why: Reason, *, where: str = "train.py:31", is_eager: bool = False) -> Compile:
    defined = None if is_eager else "train.py:4"
    return Compile(function, defined, where, is_eager, False, 0.1, 0.2, 0.7, "x: f32[3]", (why,), "MainThread")


SHAPE = Reason("shape", "x: shape f32[3] → f32[4]")
DTYPE = Reason("dtype", "x: dtype f32 → i32")
FIRST = Reason("first call", "first call")


def example() -> Watch:
    compiles = [program("step", FIRST), program("step", DTYPE), *(program("step", SHAPE) for _ in range(3))]
    compiles.append(program("sin", FIRST, is_eager=True))
    w = Watch(compiles=compiles, wall_s=10.0)
    w.counts = {
        ("sin", None, True): FunctionCount("sin", None, True, 1, 1, 1, 0, 0.1, 0.2, 0.7, 1.0),
        ("step", "train.py:4", False): FunctionCount("step", "train.py:4", False, 5, 5, 5, 2, 0.5, 1.0, 3.5, 5.0),
    }
    return w


def test_it_begins_with_what_it_cost_and_ranks_functions_and_reasons(snapshot: Any) -> None:
    assert str(example()) == snapshot


def test_lowered_is_a_column_only_where_it_is_another_number_than_compiled():
    w = example()
    assert "lowered" not in drawing.functions(w).names

    w.counts["f", "a.py:1", False] = FunctionCount("f", "a.py:1", False, 2, 2, 0, 0, 0.1, 0.2, 0.0, 0.3)

    assert "lowered" in drawing.functions(w).names


def test_a_function_of_an_installed_package_is_told_without_the_folders_of_the_machine():
    w = Watch(wall_s=1.0)
    place = "/home/me/venv/lib/python3.11/site-packages/flax/core/scope.py:1216"
    w.counts = {("<lambda>", place, False): FunctionCount("<lambda>", place, False, 4, 0, 0, 0, 0.1, 0.0, 0.0, 0.1)}

    assert drawing.functions(w).lines[0][0] == "<lambda> flax/core/scope.py:1216"


def test_what_was_not_traced_shows_no_seconds():
    w = Watch(compiles=[program("f", SHAPE)], wall_s=1.0)
    w.counts = {("f", "a.py:1", False): FunctionCount("f", "a.py:1", False, 0, 1, 1, 0, 0.0, 0.2, 0.7, 0.9)}

    table = drawing.functions(w)
    assert table.names == ("function", "traced", "compiled", "lower", "compile", "total")
    assert table.lines[0][3:] == ("200 ms", "700 ms", "900 ms")


def test_a_watch_that_saw_nothing_says_so_and_what_it_may_have_missed(snapshot: Any) -> None:
    remarks = [Remark("watch-failed", "warning", "an odd event")]

    assert str(Watch(wall_s=2.0)) == snapshot(name="nothing compiled")
    assert str(Watch(cache_dir="/tmp/c", cache_hits=3, cache_writes=2, wall_s=1.0)) == snapshot(name="a cache")
    assert str(Watch(threads="all", lost_events=True, wall_s=1.0, remarks=remarks)) == snapshot(name="lost events")


def test_only_so_many_functions_and_reasons_are_listed():
    w = Watch(compiles=[program("f0", Reason("shape", f"x: shape {n}")) for n in range(9)])
    for n in range(25):
        key = (f"f{n}", "train.py:4", False)
        w.counts[key] = FunctionCount(*key, 1, 1, 1, 0, 0.1, 0.1, 0.1, 25.0 - n)

    text = str(w)

    assert "5 more functions are not shown" in text
    assert "and 4 more reasons" in text


def test_texts_of_users_survive():
    name = "[bold]größe[/bold]\n<b>"
    w = Watch(compiles=[program(name, SHAPE)])
    w.counts = {(name, "train.py:4", False): FunctionCount(name, "train.py:4", False, 1, 1, 1, 0, 0.1, 0.1, 0.1, 0.3)}

    assert "[bold]größe[/bold] <b>" in str(w)
    page = w._repr_html_()
    assert page is not None
    assert "[bold]größe[/bold] &lt;b&gt;" in page
    assert "<b>" not in page


def test_html_says_what_the_text_says():
    page = example()._repr_html_()

    assert page is not None
    for part in ("5 programs of jitted functions", "step train.py:4", "x: dtype f32 → i32", "(3 times)"):
        assert part in page


def steps(*programs: int) -> WatchedSteps:
    made = tuple(StepCompiles(n, max(0, n - 1), 0.5 * n) for n in programs)
    return WatchedSteps("step", "train.py:4", made, StepCompiles(3, 0, 1.5))


def told(*programs: int) -> list[str]:
    """What is said of the steps."""
    w = example()
    w.steps = steps(*programs)
    return str(w).partition("each a call of step train.py:4\n")[2].partition("\n\n")[0].splitlines()


def test_steps_that_compile_alike_share_a_line_and_the_last_is_not_said_to_be_steady(snapshot: Any) -> None:
    assert told(1, 2, 2, 2, 0, 0) == snapshot(name="steady at the end")
    assert told(0, 1) == snapshot(name="compiles to its end")


def test_of_very_many_steps_that_compile_the_first_are_listed():
    lines = told(*([0, 1] * 50))

    assert len(lines) == 1 + drawing.MOST_STEPS + 1
    assert lines[-1] == "  and 42 more steps in which something was compiled"
