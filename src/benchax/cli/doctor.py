"""`benchax doctor`: how well this machine can measure right now, what disturbs it, and what to do."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer


def doctor(
    seconds: Annotated[float, typer.Option("--seconds", "-s", min=0.1, help="How long to look, per check.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """Look at the clock, the noise of this machine, and the settings that disturb measurements."""
    from benchax.cli.console import note, show
    from benchax.measuring.doctor import examine
    from benchax.reporting import terminal
    from benchax.reporting.tables import diagnosis

    note("looking at this machine …")
    found = examine(seconds)
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(found), indent=2, ensure_ascii=False))
        return
    show(terminal.section(diagnosis(dataclasses.asdict(found))))
    show(terminal.remarks(found.advice))
