"""`benchax profile --serve PORT -- COMMAND`, which can be recorded while it runs, and `--attach PORT`, which does so.

A program that is served keeps its input, its output and its exit code. One that is attached to is a profile as any
other, on stdout: it is somebody else's program.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchax.cli.console import note
from benchax.cli.profile_program import name_of
from benchax.cli.profile_shown import RecordingFolder, Wanted, folder_for, profile_of_file, show_all
from benchax.cli.watch import how
from benchax.units import seconds

if TYPE_CHECKING:
    from benchax.profiling.program import ProgramRequest, Recorded
    from benchax.wrapping.command import Report


def profile_served(command: Sequence[str], port: int, limit_s: float | None) -> int:
    """Returns the program's own exit code."""
    from benchax.profiling.serving import HOOK
    from benchax.wrapping.command import run

    with tempfile.TemporaryDirectory(prefix="benchax-", ignore_cleanup_errors=True) as folder:
        ended = run(command, HOOK, {"port": port, "owner": str(Path(folder, "owner.json"))}, limit_s=limit_s)
    note(f"\nbenchax: {shlex.join(command)} {how(ended)}")
    for text in [*ended.remarks, *map(_describe, ended.reports)]:
        note(f"note: {text}")
    return ended.exit_code


def _describe(report: Report) -> str:
    found = report.result
    if found["port"] is None:
        return f"process {report.pid} could not be recorded: {'; '.join(found['remarks'])}"
    count = found["recordings"]
    return f"process {report.pid} was recorded {count} time{'s' * (count != 1)}"


def profile_attached(port: int, wish: ProgramRequest, limit_s: float | None, wanted: Wanted) -> int:
    """Returns 2 where there are no operations to show."""
    from benchax.profiling.attaching import attach
    from benchax.profiling.wire import Ask

    place = RecordingFolder(folder_for(f"port-{port}", wanted.output))
    try:
        found = attach(
            port,
            Ask(wish.duration_s, wish.keeps_memory),
            place.folder,
            limit_s=limit_s,
            begun=lambda begun: note(f"recording process {begun.pid} for {seconds(wish.duration_s)}"),
        )
    finally:  # also at Ctrl-C
        place.new_traces()
    title = f"process {found.pid}: {name_of(found.argv)}, {seconds(found.recorded.recorded_s or 0.0)} of it"
    return show_all([profile_of_file(found.xplane, title, _remarks(found.recorded, wish))], wanted)


def _remarks(found: Recorded, wish: ProgramRequest) -> list[str]:
    if found.stopped_by == "duration":
        return found.remarks
    after, wanted = seconds(found.recorded_s or 0.0), seconds(wish.duration_s)
    why = "the program ended" if found.stopped_by == "end" else f"a {found.stopped_by} began"
    return [f"recording ended after {after} of {wanted}, when {why}", *found.remarks]
