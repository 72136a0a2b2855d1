"""The files of a profile: laid out as TensorBoard and XProf look for them, and as Perfetto opens them.

<folder>/plugins/profile/<run>/<host>.xplane.pb        all that was recorded
                               <host>.trace.json.gz    the same for Perfetto or chrome://tracing, cut by JAX at
                                                       about a million events
                               perfetto_trace.json.gz  that without the block of metadata, which Perfetto refuses
                               memory.prof             what was alive at the end, for `pprof`
                               memory.csv              readings of memory while it ran; in the file for Perfetto, too
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import itertools
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from benchax.errors import FormatError, UsageError
from benchax.results.profile import Column, Kind, LineMemory, Timeline

MEMORY = "memory.prof"
TIMELINE = "memory.csv"
PERFETTO = "perfetto_trace.json.gz"
PATTERNS = {
    "xplane": "*.xplane.pb",
    "trace_json": "*.trace.json.gz",
    "perfetto": PERFETTO,
    "memory": MEMORY,
    "timeline": TIMELINE,
}
_METADATA = re.compile(rb'"metadata"\s*:\s*\{[^{}]*\}\s*,\s*')
_EMPTY = re.compile(rb",\s*\{\}(?=\s*\]\s*\}\s*$)")
"""XLA ends the list with an event that has nothing in it, not even a kind."""
_END = re.compile(rb"\s*\]\s*\}\s*$")
_PIECE = 1 << 20
TAIL = 64
"""Bytes at the end of a file: the end of a trace, which is cut off, is shorter."""


@contextlib.contextmanager
def recording_folder(folder: Path | None) -> Iterator[Path]:
    """A new folder for one recording, inside the one that is wanted; gone with what is still in it at the end.

    JAX names the folder of a recording by the second, and a second one of the same second would overwrite it. Inside
    the wanted one, so that files are moved by renaming and a full disk shows where it matters.

    Raises:
        UsageError: it cannot be made or written to.
    """
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        place = Path(tempfile.mkdtemp(prefix=".recording-", dir=folder))
    except (OSError, ValueError) as error:  # the latter of a NUL, or half of a surrogate pair
        raise UsageError(
            f"cannot write a profile into {str(folder or tempfile.gettempdir())!r}: "
            f"{getattr(error, 'strerror', None) or error}",
            "a folder that can be made and written to, with room for the trace",
            "name another folder; nothing has been run",
        ) from error
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def find_run(place: Path) -> Path | None:
    """Returns the folder of the one run below `place`, or None if nothing was written."""
    found = sorted(place.glob("plugins/profile/*/*.xplane.pb"))
    return found[0].parent if found else None


def move_run(run: Path, folder: Path) -> Path:
    """Moves a run to `folder/plugins/profile/`, under a name that no other run has, and gives its new place.

    JAX names runs by the second.
    """
    runs = folder / "plugins" / "profile"
    runs.mkdir(parents=True, exist_ok=True)
    place = runs / run.name
    for number in itertools.count(2):
        # Don't use `rename` directly: it replaces an empty folder without an error, so two processes could share it.
        with contextlib.suppress(FileExistsError):
            place.mkdir()
            break
        place = runs / f"{run.name}_{number}"
    for file in sorted(run.iterdir()):  # one by one, since the folder is there already
        shutil.move(file, place / file.name)
    return place


def list_files(run: Path) -> dict[str, Path]:
    """Kind → file, of those that are there: xplane, trace_json, perfetto, memory, timeline."""
    found = {kind: sorted(set(run.glob(pattern))) for kind, pattern in PATTERNS.items()}
    return {kind: files[0] for kind, files in found.items() if files}


def write_perfetto(run: Path, timeline: Timeline | None = None) -> None:
    """Writes a copy for Perfetto next to `<host>.trace.json.gz`, piece by piece, because a trace might not fit into
    memory.

    With `timeline`, each of its columns is a counter in the copy.
    `jax.profiler.start_trace(create_perfetto_trace=True)` does the same by loading all of it.
    """
    for trace in sorted(run.glob("*.trace.json.gz"))[:1]:
        with gzip.open(trace) as source, gzip.open(run / PERFETTO, "wb", compresslevel=5) as target:
            piece = _METADATA.sub(b"", source.read(_PIECE), count=1)
            while following := source.read(_PIECE):
                # Keep the last bytes back: the end, which is cut off, may span two pieces.
                target.write(piece[:-TAIL])
                piece = piece[-TAIL:] + following
            piece = _EMPTY.sub(b"", piece)
            if timeline is not None:
                piece = _END.sub(b"", piece) + _counters(timeline) + b"]}"
            target.write(piece)


# ---- memory over time -------------------------------------------------------------------------------------------

_COUNTERS = 1_000_000_000
"""Number of the process under which Perfetto shows them: above those of a system."""
_TIMES = ("time_s", "reading_s")
_MADE_AT = "made_at_bytes"


def timeline_csv(timeline: Timeline) -> str:
    """One line for each reading; what is not known is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    headings = [f"{column.kind}_bytes {column.device}".strip() for column in timeline.columns]
    lines = [f"{_MADE_AT} {line.source}" for line in timeline.lines]
    writer.writerow([*_TIMES, *headings, *lines])
    sizes = [column.sizes_bytes for column in (*timeline.columns, *timeline.lines)]
    for row in zip(timeline.times_s, timeline.reading_s, *sizes, strict=True):
        writer.writerow([f"{row[0]:.6f}", f"{row[1]:.6f}", *row[2:]])
    return text.getvalue()


def read_timeline(file: Path) -> Timeline:
    """Reads a file that holds what `timeline_csv` gave.

    Raises:
        FormatError: another file of that name, or one that was cut.
    """
    try:
        with file.open(encoding="utf-8", newline="") as text:
            names, *rows = csv.reader(text)
        if tuple(names[: len(_TIMES)]) != _TIMES:
            raise ValueError(f"its first line is {','.join(names)[:60]!r}")
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        kinds: dict[str, Kind] = {f"{kind}_bytes": kind for kind in get_args(Kind)}
        made: list[Column] = []
        lines: list[LineMemory] = []
        for heading, texts in zip(names[2:], columns[2:], strict=True):
            name, _, place = heading.partition(" ")
            sizes = tuple(int(text) if text else None for text in texts)
            if name == _MADE_AT:
                lines.append(LineMemory(place, sizes))
            else:
                made.append(Column(kinds[name], place, sizes))
        times_s, reading_s = (tuple(map(float, column)) for column in columns[:2])
        return Timeline(times_s, reading_s, tuple(made), lines=tuple(lines))
    except (ValueError, KeyError, IndexError, csv.Error) as error:
        raise FormatError(f"{str(file)!r} cannot be read as readings of memory: {error}") from error


def _counters(timeline: Timeline) -> bytes:
    """Events behind those that are there, in the trace event format; times there are in microseconds."""
    events: list[dict[str, object]] = [
        {"ph": "M", "pid": _COUNTERS, "name": "process_name", "args": {"name": "memory, read by benchax"}}
    ]
    for column in timeline.columns:
        name = f"{column.kind.replace('_', ' ')} {column.device}".strip()
        events += [
            {"ph": "C", "pid": _COUNTERS, "name": name, "ts": time_s * 1e6, "args": {"bytes": size}}
            for time_s, size in zip(timeline.times_s, column.sizes_bytes, strict=True)
            if size is not None
        ]
    return "".join(f",{json.dumps(event)}" for event in events).encode()
