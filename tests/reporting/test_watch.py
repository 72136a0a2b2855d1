"""How a watch is shown, from one made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from benchax import Watch  # as users get it: then it can show itself
from benchax.model import Remark
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


def counted(function: str, defined: str, traces: int, lowerings: int, compiles: int) -> Watch:
    """A watch of one function."""
    trace_s, lower_s, compile_s = 0.1 * traces, 0.2 * lowerings, 0.7 * compiles
    spent = trace_s, lower_s, compile_s, trace_s + lower_s + compile_s
    key = function, defined, False
    return Watch(wall_s=1.0, counts={key: FunctionCount(*key, traces, lowerings, compiles, 0, *spent)})


PACKAGE = "/home/me/venv/lib/python3.11/site-packages/flax/core/scope.py:1216"


@pytest.mark.parametrize(
    ("w", "names", "line"),
    [
        (counted("f", "a.py:1", 1, 1, 1), "traced compiled trace lower compile total", "f a.py:1|1|1|100 ms|200 ms"),
        (counted("f", "a.py:1", 2, 2, 0), "traced lowered compiled trace lower total", "f a.py:1|2|2|0|200 ms|400 ms"),
        (counted("f", "a.py:1", 0, 1, 1), "traced compiled lower compile total", "f a.py:1|0|1|200 ms|700 ms|900 ms"),
        (counted("<lambda>", PACKAGE, 4, 0, 0), "traced compiled trace total", "<lambda> flax/core/scope.py:1216|4"),
    ],
    ids=["lowered as often as compiled", "lowered alone", "not traced", "of an installed package"],
)
def test_the_table_has_what_was_counted_and_no_folders_of_the_machine(w: Watch, names: str, line: str) -> None:
    table = drawing.functions(w)

    assert table.names == ("function", *names.split())
    assert "|".join(table.lines[0]).startswith(line)


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


TRANSFERS = {
    "those of one line are one row, and the most bytes come first": made(
        up("a.py:1", 16), up("b.py:2", 64), up("a.py:1", 16), down("c.py:3", 0.25), down("c.py:3", 0.5)
    ),
    "none and not seen are two things": made(sees=("host to device",)),
    "an unknown line": made(up(None, 4)),
    "the greatest of very many, and the number of the others": made(*(up(f"file.py:{n}", 4 * n) for n in range(1, 31))),
}


@pytest.mark.parametrize("name", TRANSFERS)
def test_transfers_are_shown(name: str, snapshot: Any) -> None:
    assert str(TRANSFERS[name]) == snapshot


def test_any_path_is_shown_as_it_is_and_the_end_of_a_long_one() -> None:
    shown = str(made(up("[red]é\n.py:1", 4), up("x" * 10_000 + "/train.py:7", 8)))

    assert "[red]é .py:1" in shown
    assert "xxx/train.py:7: step" in shown
    assert max(map(len, shown.splitlines())) < 200
