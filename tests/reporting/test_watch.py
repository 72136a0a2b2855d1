"""How a watch is shown, from one made by hand."""

from __future__ import annotations

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


def test_it_begins_with_what_it_cost():
    lines = str(example()).splitlines()

    assert (
        lines[0] == "5 programs of jitted functions, 4 recompilations · 1 of eager operations · 6.00 s of 10.0 s (60 %)"
    )
    assert lines[1] == "persistent cache: off"


def test_functions_are_ranked_by_seconds_lost():
    lines = str(example()).splitlines()

    step, sin = (
        next(i for i, line in enumerate(lines) if line.startswith(name)) for name in ("step train.py:4 ", "sin")
    )
    assert step < sin
    assert " ".join(lines[step].split()) == "step train.py:4 5 5 (2 read) 500 ms 1.00 s 3.50 s 5.00 s"


def test_what_was_compiled_again_stands_above_the_table_with_its_many_eager_operations():
    text = str(example())

    assert text.index("compiled again") < text.index("traced") < text.index("sin (eager)")


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


def test_the_clock_of_the_seconds_is_said():
    assert "JAX's own clock, which is not monotonic" in str(example())


def test_reasons_are_told_once_with_their_number_and_line():
    text = str(example())

    assert "step train.py:4: compiled again, 4.00 s" in text
    assert "  train.py:31  x: shape f32[3] → f32[4] (3 times)\n  train.py:31  x: dtype f32 → i32" in text
    assert "first call" not in text


def test_what_was_not_traced_shows_no_seconds():
    w = Watch(compiles=[program("f", SHAPE)], wall_s=1.0)
    w.counts = {("f", "a.py:1", False): FunctionCount("f", "a.py:1", False, 0, 1, 1, 0, 0.0, 0.2, 0.7, 0.9)}

    table = drawing.functions(w)
    assert table.names == ("function", "traced", "compiled", "lower", "compile", "total")
    assert table.lines[0][3:] == ("200 ms", "700 ms", "900 ms")


def test_nothing_compiled():
    assert str(Watch(wall_s=2.0)).splitlines() == ["nothing was compiled in 2.00 s", "persistent cache: off"]


def test_the_cache_is_told():
    w = Watch(cache_dir="/tmp/c", cache_hits=3, cache_writes=2)

    assert drawing.cache(w) == "persistent cache: 3 read, 2 written in /tmp/c"


def test_lost_events_threads_and_remarks_are_told():
    w = Watch(threads="all", lost_events=True, wall_s=1.0, remarks=[Remark("watch-failed", "warning", "an odd event")])

    codes = [r.code for r in drawing.remarks(w)]

    assert codes == ["lost-events", "watch-failed", "threads"]
    assert "there may have been more than is listed" in " ".join(str(w).split())
    assert drawing.heading(w) == "nothing was compiled in 1.00 s"


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


def test_steps_that_compile_alike_share_a_line():
    assert told(1, 2, 2, 2, 0, 0) == [
        "  before the first step: 3 programs compiled, 1.50 s",
        "  step 1: 1 program compiled, 500 ms",
        "  steps 2 – 4: 2 programs compiled each, 1 recompilation each, 3.00 s",
        "  from step 5 on: nothing",
    ]


def test_a_program_that_compiles_to_its_end_is_not_said_to_be_steady():
    assert told(0, 1)[1:] == ["  step 2: 1 program compiled, 500 ms"]


def test_of_very_many_steps_that_compile_the_first_are_listed():
    lines = told(*([0, 1] * 50))

    assert len(lines) == 1 + drawing.MOST_STEPS + 1
    assert lines[-1] == "  and 42 more steps in which something was compiled"
