"""How a watch is shown, from one made by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchax import Watch  # as users get it: then it can show itself
from benchax.model import Remark
from benchax.reporting import display  # noqa: F401  # what print needs
from benchax.reporting import watch as drawing
from benchax.results.watch import (
    CachedProgram,
    CacheUse,
    Compile,
    Direction,
    Folder,
    FunctionCount,
    ObservedTransfer,
    Reason,
    StepCompiles,
    Transfers,
    WatchedSteps,
)


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


HIT = CachedProgram("jit(f)", "hit", 0.01)
QUICK = CachedProgram("jit(g)", "too quick", 0.25)


def on(*programs: CachedProgram, **changed: object) -> CacheUse:
    given: dict = {
        "directory": "/cache",
        "is_enabled": True,
        "is_writable": True,
        "before": Folder(1, 512),
        "after": Folder(3, 2048),
        "min_compile_time_s": 1.0,
    }
    return CacheUse(list(programs), **given | changed)


SHOWN = {
    "what was read and what was too quick is counted with its seconds": on(HIT, QUICK, QUICK),
    "a program that was not kept comes with possible reasons": on(CachedProgram("jit(h)", "not kept", 0.1)),
    "a cache that is off says why and what that cost": CacheUse(
        [CachedProgram(None, "not kept", 2.0)], is_enabled=False, why_off="no folder is set"
    ),
    "nothing can be written": on(HIT, is_writable=False),
    "programs are missing": on(HIT, is_reliable=False),
    "a cache on another machine is not judged": on(
        HIT, directory="gs://bucket", is_writable=None, before=None, after=None
    ),
    "a block that has not ended": CacheUse(),
}


@pytest.mark.parametrize("name", SHOWN)
def test_the_use_of_a_cache_is_shown(name: str, snapshot: Any) -> None:
    assert str(SHOWN[name]) == snapshot


def test_results_show_themselves_in_text_and_in_notebooks() -> None:
    found = on(directory="/<b>[red]café")

    assert "/<b>[red]café" in str(found)
    html = found._repr_html_()
    assert html is not None
    assert "/&lt;b&gt;[red]café" in html
    assert json.loads(json.dumps(found.asdict()))["after"] == {"entries": 3, "size_bytes": 2048}


BOTH: tuple[Direction, ...] = ("host to device", "device to host")


def made(*listed: ObservedTransfer, sees: tuple[Direction, ...] = BOTH) -> Transfers:
    found = Transfers(sees=sees)
    for transfer in listed:
        found.add(transfer)
    return found


def up(where: str | None, size: int) -> ObservedTransfer:
    return ObservedTransfer("host to device", where, "NumPy f32[4]", "step", 1, size, None)


def down(where: str, elapsed_s: float) -> ObservedTransfer:
    return ObservedTransfer("device to host", where, "f32[]", "__float__", 1, 4, elapsed_s)


def test_transfers_of_one_line_are_one_row_and_the_most_bytes_come_first(snapshot: Any) -> None:
    found = made(up("a.py:1", 16), up("b.py:2", 64), up("a.py:1", 16), down("c.py:3", 0.25), down("c.py:3", 0.5))

    assert [(t.where, t.count, t.size_bytes) for t in found.of("host to device")] == [
        ("b.py:2", 1, 64),
        ("a.py:1", 2, 32),
    ]
    assert str(found) == snapshot


def test_none_and_not_seen_are_two_things(snapshot: Any) -> None:
    assert str(made(sees=("host to device",))) == snapshot


def test_of_very_many_lines_the_greatest_are_shown_and_the_rest_is_counted() -> None:
    shown = str(made(*(up(f"file.py:{n}", 4 * n) for n in range(1, 31))))

    assert "file.py:30:" in shown
    assert "file.py:10:" not in shown
    assert "and 10 more that moved less" in shown


def test_a_line_that_cannot_be_seen_is_said_to_be_one(snapshot: Any) -> None:
    assert str(made(up(None, 4))) == snapshot


def test_any_path_is_shown_as_it_is_and_the_end_of_a_long_one() -> None:
    shown = str(made(up("[red]é\n.py:1", 4), up("x" * 10_000 + "/train.py:7", 8)))

    assert "[red]é .py:1" in shown
    assert "xxx/train.py:7: step" in shown
    assert max(map(len, shown.splitlines())) < 200


def test_a_notebook_gets_both_tables_with_text_escaped() -> None:
    found = made(up("<b>.py:1", 4), down("c.py:3", 0.25))
    found.remarks.append(Remark("x", "info", "a < b"))

    shown = found._repr_html_() or ""

    assert "&lt;b&gt;.py:1" in shown
    assert "250 ms" in shown
    assert "a &lt; b" in shown
