"""Handles the files of `benchax profile`: chooses their folder, finds the trace, and shows a profile."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from benchax.cli.console import line, note, show
from benchax.cli.output_files import write_documents, write_text
from benchax.errors import FormatError, UsageError
from benchax.model import Remark
from benchax.profiling.profile_change import compare_profiles
from benchax.reporting import profile
from benchax.reporting.display import documents_of
from benchax.reporting.document import Document, list_parts
from benchax.results.profile import Profile
from benchax.units import plural

FOLDER = Path(".benchmarks", "profiles")


@dataclass(frozen=True)
class Wanted:
    """These settings say how benchax shows and keeps profiles."""

    output: Path | None = None
    details: bool = False
    as_json: bool = False
    earlier: Profile | None = None
    """benchax also shows the differences from this profile."""
    xprof: str | None = None
    is_aside: bool = False
    """stdout belongs to the user's program: texts go to stderr, and documents to a file."""
    html: Path | None = None


def folder_for(name: str, output: Path | None) -> Path:
    """Returns the absolute folder of the files: a program can change its folder before it writes them."""
    plain = re.sub(r"[^\w.=,+-]+", "-", name).strip("-.")[:60] or "profile"
    return (output or FOLDER / f"{plain}-{datetime.now().astimezone():%Y%m%d-%H%M%S}").absolute()


def near(path: Path) -> str:
    """Returns the path relative to the working directory, if it is below that."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


class RecordingFolder:
    """The folder of a recording. Another process makes the recording, and can end at any time."""

    def __init__(self, folder: Path) -> None:
        """Raises UsageError if a trace can't be written there."""
        from benchax.profiling.session import about_folder, stop_at_errors

        stop_at_errors(about_folder(folder))
        self.folder = folder
        self._earlier = set(traces(folder))

    def new_traces(self) -> list[Path]:
        """Returns the traces since then, newest first. They include the file that a killed process was writing, if
        there is one. Only reading shows whether that file is complete."""
        from benchax.profiling import files

        for rest in self.folder.glob(".recording-*"):
            if (run := files.find_run(rest)) is not None:
                files.move_run(run, self.folder)
            shutil.rmtree(rest, ignore_errors=True)
        with contextlib.suppress(OSError):  # there is something in it, or it was never made
            self.folder.rmdir()
        return [file for file in traces(self.folder) if file not in self._earlier]


def traces(folder: Path) -> list[Path]:
    """Lists traces, newest first, without the unfinished ones."""
    found = [f for f in folder.rglob("*.xplane.pb") if not f.relative_to(folder).parts[0].startswith(".recording-")]
    return sorted(found, key=lambda file: file.stat().st_mtime_ns, reverse=True)


def read_trace(path: Path) -> Profile:
    """Reads the trace in a file, or the newest one below a folder.

    Raises:
        UsageError: there is no trace.
        FormatError: the file isn't a trace, or was cut.
    """
    if not path.exists():
        raise UsageError(f"there is no {str(path)!r}", "a folder with a trace below it, or a file *.xplane.pb")
    if path.is_file():
        return profile_of_file(path, path.name)
    found = traces(path)
    if not found:
        raise UsageError(f"there is no *.xplane.pb in {str(path)!r}", "a folder with one, as JAX and XProf make them")
    if len(found) > 1:
        note(f"note: {str(path)!r} holds {len(found)} traces; this is the newest, {found[0]}")
    return profile_of_file(found[0], str(path))


def profile_of_file(file: Path, title: str, remarks: Sequence[str] = ()) -> Profile:
    """Reads a profile from a file. `remarks` describe how the recording was made."""
    from benchax.profiling import files
    from benchax.profiling.trace import profile_of

    found = profile_of(file.read_bytes(), title=title)
    listed, failed = files.list_files(file.parent), list[str]()
    timeline = None
    try:
        timeline = files.read_timeline(listed["timeline"]) if "timeline" in listed else None
    except (FormatError, OSError) as error:  # another program might own that file
        failed = [str(error)]
    ours = tuple(Remark("recording", "warning", text) for text in (*remarks, *failed))
    kept = {kind: near(path) for kind, path in listed.items()} | {"xplane": near(file)}
    return replace(found, timeline=timeline, files=kept, remarks=(*ours, *found.remarks))


def show_all(profiles: Sequence[Profile], wanted: Wanted) -> int:
    """Shows each profile, and returns the exit code: 2 if one of them has no operations."""
    for found in profiles:
        if wanted.xprof is not None:
            (note if wanted.is_aside else line)(_xprof_command(wanted.xprof, found))
        elif not wanted.as_json or wanted.is_aside:
            show(_with_change(profile.document(found, wanted.details), found, wanted), is_aside=wanted.is_aside)
        else:
            line(_json_line(found, wanted))
    if wanted.as_json and wanted.is_aside and profiles:
        file = (wanted.output or Path()) / "profile.json"
        write_text(file, "".join(_json_line(found, wanted) + "\n" for found in profiles))
        note(f"{file}: {plural(len(profiles), 'document')}, one a line")
    write_profiles(profiles, wanted)
    return 2 if any(not found.ops for found in profiles) else 0


def write_profiles(profiles: Sequence[Profile], wanted: Wanted) -> None:
    """Writes one page of all profiles, if the user wants one."""
    if wanted.html is not None and profiles:
        documents = [_with_change(document, found, wanted) for found in profiles for document in documents_of(found)]
        write_documents(wanted.html, list_parts(plural(len(documents), "profile"), documents))


def _with_change(document: Document, found: Profile, wanted: Wanted) -> Document:
    """Adds the differences from the earlier profile."""
    if wanted.earlier is None:
        return document
    change = profile.document_of_change(compare_profiles(wanted.earlier, found))
    return Document((*document.blocks, *change.blocks))


def _json_line(found: Profile, wanted: Wanted) -> str:
    change = {} if wanted.earlier is None else {"change": compare_profiles(wanted.earlier, found).asdict()}
    return json.dumps(found.asdict() | change, allow_nan=False)


def _xprof_command(tool: str, found: Profile) -> str:
    """Returns the command that prints what a tool of xprof makes of a trace, as JSON. xprof writes next to a trace."""
    program = (
        "import sys; from xprof.convert import raw_to_tool_data as xprof; "
        "data, _ = xprof.xspace_to_tool_data(sys.argv[2:], sys.argv[1], {}); "
        "print(data.decode() if isinstance(data, bytes) else data)"
    )
    return shlex.join(["python", "-c", program, tool, found.files["xplane"]])
