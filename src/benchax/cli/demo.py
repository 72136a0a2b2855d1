"""`benchax demo`: where the time and the bytes of a small real model go, and when compiling pays.

`benchax demo grid`: functions × data, some of which never end.
"""

from __future__ import annotations

from typing import Annotated

import typer

from benchax.errors import UsageError


def demo(
    what: Annotated[
        str, typer.Argument(metavar="[grid]", help="grid: functions × data, some of which never end.")
    ] = "",
    max_time: Annotated[str | None, typer.Option(help="Time limit of sampling, per timer.")] = None,
    store: Annotated[str | None, typer.Option(help="Folder of the database (default .benchmarks), or off.")] = None,
) -> None:
    """Measure a multilayer perceptron, then SELU eager against jitted; or a grid of functions and data."""
    if what not in ("", "grid"):
        raise UsageError(f"there is no demo {what!r}", "grid, or nothing")
    if what == "grid":
        raise typer.Exit(_grid(store))
    from benchax import demo as examples
    from benchax.cli.console import note
    from benchax.cli.run import measure
    from benchax.options import resolve

    given = {"max_time_s": max_time, "store": store}
    note("1. A multilayer perceptron: where do its time and its bytes go?\n")
    first = measure([examples.mlp_case()], given)
    note("\n2. SELU of a million numbers: eager against jitted, and when compiling pays\n")
    case = examples.selu_case()
    second = measure([case.eager(), case], given)
    if not (first or second) and resolve(command_line=given).store != "off":
        note("\nStored. See them again: benchax list; benchax show last")
    raise typer.Exit(first or second)


def _grid(store: str | None) -> int:
    from benchax import demo as examples
    from benchax.cli.console import note
    from benchax.cli.grid import measure
    from benchax.grids.grid import defaults

    functions = [examples.f1, examples.f2, examples.f3, examples.never_ends, examples.crashes, examples.too_short]
    given = {"make": examples.normal, "trials": 5, "timeout_s": 1.0, "axis": "n_x", "name": "demo", "store": store}
    note("Six functions on four sizes, one second for each call. One never ends, one crashes, one is wrong.\n")
    measure(functions, examples.GRID_SIZES, defaults() | given)
    return 0  # what goes wrong here is meant to
