"""`benchax profile -- COMMAND`: a program runs unchanged, and records itself by the hook in `profiling/program.py`.

Its input, output and exit code are its own, so what we have to say goes to stderr.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchax.cli.console import note
from benchax.cli.profile_shown import RecordingFolder, Wanted, folder_for, profile_of_file, show_all
from benchax.cli.watch import how
from benchax.errors import BenchaxError
from benchax.units import seconds

if TYPE_CHECKING:
    from benchax.profiling.program import ProgramRequest, Recorded
    from benchax.results.profile import Profile
    from benchax.wrapping.command import EndedCommand

SLOW_STOP_S = 1.0
"""From here on the profiler's own work is worth a remark: minutes were seen on large machines (marin#5528)."""


def profile_program(command: Sequence[str], wish: ProgramRequest, limit_s: float | None, wanted: Wanted) -> int:
    """Returns the program's own exit code; 2 where that is 0 and there is no profile."""
    from benchax.profiling.program import HOOK
    from benchax.wrapping.command import run

    place = RecordingFolder(folder_for(name_of(command), wanted.output))
    ended = run(command, HOOK, asdict(replace(wish, folder=str(place.folder))), limit_s=limit_s)
    note(f"\nbenchax: {shlex.join(command)} {how(ended)}")
    for remark in ended.remarks:
        note(f"note: {remark}")
    profiles = _of_reports(ended)
    reported = {report.result["xplane"] for report in ended.reports}
    why = "its process left no report; this is what had been written before"
    left = [file for file in place.new_traces() if str(file) not in reported]
    profiles += _read([(file, name_of(command), [why]) for file in left])
    if not profiles:
        note("error: there is no profile: nothing was recorded, or it could not be saved")
        return ended.exit_code or 2
    code = show_all(profiles, replace(wanted, output=place.folder))
    return ended.exit_code or code


def _of_reports(ended: EndedCommand) -> list[Profile]:
    from benchax.profiling.program import Recorded

    files: list[tuple[Path, str, list[str]]] = []
    for report in ended.reports:
        found = Recorded(**report.result)
        if found.xplane is None:
            note(f"note: process {report.pid} was not profiled: {'; '.join(found.remarks)}")
        else:
            title = f"process {report.pid}: {name_of(report.argv)}"
            files.append((Path(found.xplane), title, [*_until(found), *found.remarks]))
    return _read(files)


def _read(files: Sequence[tuple[Path, str, list[str]]]) -> list[Profile]:
    """(trace, title, remarks) as profiles. One that cannot be read is told: the program's exit code must survive it."""
    profiles: list[Profile] = []
    for file, title, remarks in files:
        try:
            profiles.append(profile_of_file(file, title, remarks))
        except (BenchaxError, OSError) as error:
            note(f"error: the trace {file} cannot be read: {error}")
    return profiles


def _until(found: Recorded) -> list[str]:
    """What part of the program was recorded, where that was not all of it."""
    said: list[str] = []
    after = seconds(found.recorded_s or 0.0)
    if found.stopped_by == "duration":
        said.append(f"only {after} of the program were recorded: --start-after and --duration choose which")
    elif found.stopped_by != "end":
        said.append(f"recording ended after {after}, when a {found.stopped_by} began")
    if found.stop_s is not None and found.stop_s > SLOW_STOP_S:
        said.append(f"the profiler took {seconds(found.stop_s)} to stop and write; record less with --duration")
    return said


def name_of(command: Sequence[str]) -> str:
    """train.py, of python train.py: what an interpreter runs says more than its own name."""
    words = [word for word in command[1:] if not word.startswith("-")]
    is_python = Path(command[0]).name.startswith("python")
    return Path(words[0]).name if is_python and words else Path(command[0]).name
