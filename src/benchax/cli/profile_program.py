"""`benchax profile` of programs: runs them unchanged, serves them, attaches to them, or prints the command of Nsight.

    profile -- COMMAND                the program records itself with the hook in `profiling/program_recorder.py`
    profile --serve PORT -- COMMAND   the program runs, and --attach can record it
    profile --attach PORT             records that program
    profile --nsys ...                prints the command that profiles a function or a program with Nsight Systems

A program keeps its input, output and exit code, so benchax writes to stderr. With --attach, the program belongs to
another command, so the profile goes to stdout like any other.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchax.cli.console import note, while_read
from benchax.cli.profile_output import RecordingFolder, Wanted, folder_for, profile_of_file, show_all
from benchax.cli.waiting import at_terminal
from benchax.cli.watch import describe_end
from benchax.errors import BenchaxError
from benchax.units import plural, seconds

if TYPE_CHECKING:
    from benchax.hooks.command import EndedCommand, Report
    from benchax.profiling.program_recorder import ProgramRequest, Recorded
    from benchax.results.profile import Profile


SLOW_STOP_S = 1.0
"""A remark names the profiler's own work from this time on. It took minutes on large machines (marin#5528)."""

INSIDE = "--in-nsys"
"""This hidden option makes the command under nsys mark its region."""


def profile_program(command: Sequence[str], wish: ProgramRequest, limit_s: float | None, wanted: Wanted) -> int:
    """Returns the program's exit code. Returns 2 if that is 0 and there is no profile."""
    from benchax.hooks.command import run
    from benchax.profiling.program_recorder import HOOK

    place = RecordingFolder(folder_for(name_of(command), wanted.output))
    with tempfile.TemporaryDirectory(prefix="benchax-", ignore_cleanup_errors=True) as told_in:
        settings = asdict(replace(wish, folder=str(place.folder), samples_stack=True, told_in=told_in))
        ended = run(command, HOOK, settings, limit_s=limit_s, on_wait=at_terminal("profile", Path(told_in)))
    with while_read():
        return _report(command, ended, place, wanted)
    return ended.exit_code


def _report(command: Sequence[str], ended: EndedCommand, place: RecordingFolder, wanted: Wanted) -> int:
    """Returns the program's exit code. Returns 2 if that is 0 and there is no profile."""
    note(f"\nbenchax: {shlex.join(command)} {describe_end(ended)}")
    for remark in ended.remarks:
        note(f"note: {remark}")
    profiles = _of_reports(ended)
    reported = {report.result[name] for report in ended.reports for name in ("xplane", "first_xplane")}
    why = "its process left no report; this is what had been written before"
    left = [file for file in place.new_traces() if str(file) not in reported]
    profiles += _read([(file, name_of(command), [why]) for file in left])
    if not profiles:
        note("error: there is no profile: nothing was recorded, or it could not be saved")
        return ended.exit_code or 2
    code = show_all(profiles, replace(wanted, output=place.folder))
    return ended.exit_code or code


def _of_reports(ended: EndedCommand) -> list[Profile]:
    from benchax.profiling.program_recorder import Recorded
    from benchax.profiling.trace import recording_cost

    files: list[tuple[Path, str, list[str]]] = []
    by_title: dict[str, Recorded] = {}
    for report in ended.reports:
        found = Recorded(**report.result)
        if found.xplane is None:
            note(f"note: process {report.pid} was not profiled: {'; '.join(found.remarks)}")
        else:
            title = f"process {report.pid}: {name_of(report.argv)}"
            files.append((Path(found.xplane), title, [*_until(found), *found.remarks]))
            by_title[title] = found
    profiles: list[Profile] = []
    for profile in _read(files):
        found = by_title[profile.title]
        cost = recording_cost(profile, found.unrecorded_step_s, found.why_no_pace or "the program ended before it was")
        profiles.append(replace(_with_first_step(profile, found.first_xplane), recording_cost=cost))
    return profiles


def _with_first_step(profile: Profile, earlier: str | None) -> Profile:
    """Adds the first step to a later recording. The first recording has it, if it got that far."""
    if earlier is None or profile.split is None:
        return profile
    found = _read([(Path(earlier), "", [])])
    before = found[0].split if found else None
    first = before.first if before is not None and before.name == profile.split.name else None
    return replace(profile, split=replace(profile.split, first=first))


def _read(files: Sequence[tuple[Path, str, list[str]]]) -> list[Profile]:
    """Reads (trace, title, remarks) as profiles. Only reports a broken trace, to keep the program's exit code."""
    profiles: list[Profile] = []
    for file, title, remarks in files:
        try:
            profiles.append(profile_of_file(file, title, remarks))
        except (BenchaxError, OSError) as error:
            note(f"error: the trace {file} cannot be read: {error}")
    return profiles


def _until(found: Recorded) -> list[str]:
    """Names the recorded part of the program, if that was not the whole program."""
    said: list[str] = []
    after = seconds(found.recorded_s or 0.0)
    if found.is_full:
        said.append(f"{after} of the program were recorded: events come so fast that more would take long to write")
    elif found.stopped_by == "duration":
        said.append(f"only {after} of the program were recorded: --start-after and --duration choose which")
    if found.attempts > 1:
        since = seconds(found.began_s or 0.0)
        text = f"this is the best of {found.attempts} recordings, {since} after the import of jax: "
        said.append(text + "in the others the device did less in steps of a loop")
    elif found.stopped_by not in ("end", "duration"):
        said.append(f"recording ended after {after}, when a {found.stopped_by} began")
    if found.stop_s is not None and found.stop_s > SLOW_STOP_S:
        said.append(f"the profiler took {seconds(found.stop_s)} to stop and write; record less with --duration")
    return said


def name_of(command: Sequence[str]) -> str:
    """Returns train.py for python train.py: the script says more than the name of its interpreter."""
    words = [word for word in command[1:] if not word.startswith("-")]
    is_python = Path(command[0]).name.startswith("python")
    return Path(words[0]).name if is_python and words else Path(command[0]).name


def this_command() -> list[str]:
    """Returns the running command in the form that nsys must run."""
    given = [word for word in sys.argv[1:] if word != "--nsys"]
    return [sys.executable, "-m", "benchax.cli.main", *given, INSIDE]


def nsys_command(program: Sequence[str], report: Path, start_after_s: float, duration_s: float | None) -> str:
    """Returns the command that profiles a program with Nsight Systems, as you type it into a shell.

    It sets what a JAX program needs: kernels one by one, and whole tracebacks in the names of operations. What you have
    set stays. It was written from NVIDIA's documentation (JAX-Toolbox).
    """
    from benchax.profiling.session import NO_COMMAND_BUFFERS

    # Kernels inside a CUDA graph one by one, in case the flag below did not keep XLA from making one.
    options = ["--output", str(report), "--trace", "cuda,nvtx,osrt,cublas,cudnn", "--cuda-graph-trace", "node"]
    if start_after_s:
        options += ["--delay", f"{start_after_s:g}"]
    if duration_s is not None:
        options += ["--duration", f"{duration_s:g}", "--kill", "none"]
    settings: list[str] = []
    flags = os.environ.get("XLA_FLAGS", "")
    if NO_COMMAND_BUFFERS.removesuffix("=") not in flags:
        settings.append("XLA_FLAGS=" + shlex.quote(f"{flags} {NO_COMMAND_BUFFERS}".strip()))
    if "JAX_TRACEBACK_IN_LOCATIONS_LIMIT" not in os.environ:
        settings.append("JAX_TRACEBACK_IN_LOCATIONS_LIMIT=-1")
    return " ".join([*settings, shlex.join(["nsys", "profile", *options, *program])])


def profile_served(command: Sequence[str], port: int, limit_s: float | None) -> int:
    """Runs the program, and returns its exit code."""
    from benchax.hooks.command import run
    from benchax.profiling.serving import HOOK

    with tempfile.TemporaryDirectory(prefix="benchax-", ignore_cleanup_errors=True) as folder:
        ended = run(command, HOOK, {"port": port, "owner": str(Path(folder, "owner.json"))}, limit_s=limit_s)
    with while_read():
        note(f"\nbenchax: {shlex.join(command)} {describe_end(ended)}")
        for text in [*ended.remarks, *map(_describe, ended.reports)]:
            note(f"note: {text}")
    return ended.exit_code


def _describe(report: Report) -> str:
    found = report.result
    if found["port"] is None:
        return f"process {report.pid} could not be recorded: {'; '.join(found['remarks'])}"
    count = found["recordings"]
    return f"process {report.pid} was recorded {plural(count, 'time')}"


def profile_attached(port: int, wish: ProgramRequest, limit_s: float | None, wanted: Wanted) -> int:
    """Records the program at `port`. Returns 2 if there are no operations to show."""
    from benchax.profiling.serving import Ask, attach

    place = RecordingFolder(folder_for(f"port-{port}", wanted.output))
    try:
        found = attach(
            port,
            Ask(wish.duration_s, wish.keeps_memory),
            place.folder,
            limit_s=limit_s,
            begun=lambda pid: note(f"recording process {pid} for {seconds(wish.duration_s)}"),
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
