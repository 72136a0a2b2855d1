"""`benchax demo`: shows how long a small model takes, and which of two functions is faster.

`benchax demo grid`: runs functions × data. Some calls never end.
`benchax demo profile`: shows the operations of that model, and writes files for Perfetto and TensorBoard.
`benchax demo watch`: runs two loops that compile in each iteration, and one that does not, and shows why.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Annotated, Any

import typer

from benchax import demo as examples
from benchax.cli import grid, run
from benchax.cli.compare import compare_functions
from benchax.cli.console import Given, line, note, show, takes_options
from benchax.cli.profile import Wanted, folder_for, profile_cases
from benchax.errors import UsageError, one_of
from benchax.reporting.comparisons import function_grid, summary
from benchax.reporting.document import Document, Paragraph, tabulate
from benchax.reporting.tables import CASE
from benchax.source_files import below_here
from benchax.units import percent, seconds

ITERATIONS = 20


@takes_options("max_time_s", "store")
def demo(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[grid | profile | watch]",
            help="Demo grid runs functions × data; some calls never end. Demo profile shows the operations of a model, "
            "and how to see them in Perfetto and TensorBoard. Demo watch shows loops that compile in each iteration, "
            "and why.",
        ),
    ] = "",
    *,
    given: Given,
) -> None:
    """Measure a small model and compare two functions in about five seconds, or run another demo."""
    store = given["store"]
    if what:
        if what not in DEMOS:
            raise UsageError(f"there is no demo {what!r}", one_of(DEMOS, what), "benchax demo measures a small model")
        raise typer.Exit(DEMOS[what](store))
    note("$ benchax run benchax.workloads:mlp")
    code = run.measure([examples.mlp_case()], given, is_brief=True)
    note(f"\n$ benchax compare {' '.join(examples.PRODUCT)}")
    found = compare_functions(examples.PRODUCT, {"store": store})
    show(Document((Paragraph(summary(found)), function_grid(found))))
    note("\nThese are the answers. The commands add stages, memory, and remarks.")
    raise typer.Exit(code or (2 if any(c.failure for c in found) else 0))


def _grid(store: str | None) -> int:
    from benchax.grids.grid import defaults

    functions = [examples.f1, examples.f2, examples.f3, examples.never_ends, examples.crashes, examples.too_short]
    given = {"make": examples.normal, "trials": 5, "timeout_s": 1.0, "axis": "n_x", "name": "demo", "store": store}
    note("Six functions on four sizes, one second for each call. One never ends, one crashes, one is wrong.\n")
    grid.measure(functions, examples.GRID_SIZES, defaults() | given)
    return 0  # the failures are part of the demo


def _profile(store: str | None) -> int:
    from benchax.profiling.program_recorder import ProgramRequest

    folder = folder_for("demo", None)
    note("The operations of a multilayer perceptron, run 500 times under JAX's profiler.\n")
    code = profile_cases([examples.mlp_case()], ProgramRequest(""), Wanted(folder), runs=500)
    note(
        "\nPerfetto: open https://ui.perfetto.dev and drop the file perfetto_trace.json.gz there\n"
        f"TensorBoard: pip install xprof tensorboard, then: tensorboard --logdir {below_here(folder)}"
    )
    return code


def _watch(store: str | None) -> int:
    """Shows what each loop compiles when it runs for the second time, because the first one has to compile. Nothing is
    stored."""
    from benchax.watching.watch import watch

    note(f"{ITERATIONS} iterations of one loop that calls jax.jit in each, in three ways; each for the second time.\n")
    lines: list[tuple[str, ...]] = []
    reasons: list[str] = []
    for name, loop in _watched_loops().items():
        loop(10, ITERATIONS)
        with watch() as found:
            loop(10, ITERATIONS).block_until_ready()
        share = "" if found.share is None else percent(found.share)
        lines.append((name, str(len(found.compiles)), seconds(found.total_s), share))
        reasons += [f"\n{name}, its last compile: {reason}" for reason in found.reasons[-1:]]
    show(Document((tabulate((CASE, "compiles", "compiling", "of its time"), lines),)))
    for reason in reasons:
        line(reason)
    return 0


def _watched_loops() -> dict[str, Callable[[int, int], Any]]:
    """Returns the loops of `watching/example.py`. They run under that name, so that reasons point to example.py:27."""
    source = files("benchax.watching").joinpath("example.py").read_text(encoding="utf-8")
    found: dict[str, Any] = {"__name__": "example"}
    exec(compile(source, "example.py", "exec"), found)
    return found["LOOPS"]


DEMOS: dict[str, Callable[[str | None], int]] = {"grid": _grid, "profile": _profile, "watch": _watch}
"""Each demo takes the option --store and returns the exit code."""
