"""`benchax demo`: where the time and the bytes of a small real model go, and when compiling pays."""

from __future__ import annotations

from typing import Annotated

import typer


def demo(
    max_time: Annotated[str | None, typer.Option(help="Time limit of sampling, per timer.")] = None,
    store: Annotated[str | None, typer.Option(help="Folder of the database (default .benchmarks), or off.")] = None,
) -> None:
    """Measure a multilayer perceptron, then SELU eager against jitted."""
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
