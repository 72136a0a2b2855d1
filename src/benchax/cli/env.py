"""`benchax env`: what would be recorded about this machine."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer


def env(as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False) -> None:
    """Show the environment that is stored with every row."""
    from benchax.cli.console import line, show
    from benchax.environment import capture
    from benchax.reporting.document import Document, Facts
    from benchax.reporting.tables import environment

    found = capture(Path.cwd())
    if as_json:
        facts: dict[str, Any] = {**dataclasses.asdict(found), "fingerprint": found.fingerprint}
        line(json.dumps(facts, indent=2))
    else:
        show(Document((Facts((environment(found),), "words"),)))
