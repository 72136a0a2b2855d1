"""`benchax demo watch`: a loop that compiles in each of its iterations, twice, and one that does not; and why."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchax.reporting.tables import TextGrid
    from benchax.results.watch import Watch

ITERATIONS = 20


def run(store: str | None) -> int:
    """Shows what each loop compiles when it runs for the second time. Nothing is stored."""
    from benchax.cli.console import line, note, show
    from benchax.reporting import terminal

    note(f"{ITERATIONS} iterations of one loop that calls jax.jit in each, in three ways; each for the second time.\n")
    watched = {name: second_run(loop) for name, loop in loops().items()}
    show(terminal.grid(table(watched)))
    for name, found in watched.items():
        if found.reasons:
            line(f"\n{name}, its last compile: {found.reasons[-1]}")
    return 0


def loops() -> dict[str, Callable[[int, int], Any]]:
    """Those of `watching/example.py`, whose lines are told as if a user had written them: example.py:27."""
    spec = importlib.util.find_spec("benchax.watching.example")
    assert spec is not None
    assert spec.origin is not None
    text = Path(spec.origin).read_text(encoding="utf-8")
    found: dict[str, Any] = {"__name__": "example"}
    exec(compile(text, "example.py", "exec"), found)
    return found["LOOPS"]


def second_run(loop: Callable[[int, int], Any]) -> Watch:
    """The first run compiles what it must."""
    from benchax.watching.watch import watch

    loop(10, ITERATIONS)
    with watch() as found:
        loop(10, ITERATIONS).block_until_ready()
    return found


def table(watched: dict[str, Watch]) -> TextGrid:
    from benchax.reporting.tables import TextGrid
    from benchax.units import percent, seconds

    lines = [
        (name, str(len(w.compiles)), seconds(w.total_s), "" if w.share is None else percent(w.share))
        for name, w in watched.items()
    ]
    return TextGrid(("case", "compiles", "compiling", "of its time"), tuple(lines), ("",) * len(lines))
