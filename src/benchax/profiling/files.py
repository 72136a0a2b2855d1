"""The files of a profile: laid out as TensorBoard and XProf look for them, and as Perfetto opens them.

<folder>/plugins/profile/<run>/<host>.xplane.pb        all that was recorded
                               <host>.trace.json.gz    the same for Perfetto or chrome://tracing, cut by JAX at
                                                       about a million events
                               perfetto_trace.json.gz  that without the block of metadata, which Perfetto refuses
                               memory.prof             what was alive at the end, for `pprof`
"""

from __future__ import annotations

import gzip
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

MEMORY = "memory.prof"
PERFETTO = "perfetto_trace.json.gz"
_PATTERNS = {"xplane": "*.xplane.pb", "trace_json": "*.trace.json.gz", "perfetto": PERFETTO, "memory": MEMORY}
_METADATA = re.compile(rb'"metadata"\s*:\s*\{[^{}]*\}\s*,\s*')
_EMPTY = re.compile(rb",\s*\{\}(?=\s*\]\s*\}\s*$)")
"""XLA ends the list with an event that has nothing in it, not even a kind."""
_PIECE = 1 << 20
TAIL = 64


def recorded(place: Path) -> Path | None:
    """The folder of the one run below `place`; None where nothing was written."""
    found = sorted(place.glob("plugins/profile/*/*.xplane.pb"))
    return found[0].parent if found else None


def kept(run: Path, folder: Path) -> Path:
    """Moves a run to `folder/plugins/profile/`, under a name that no other run has, and gives its new place.

    JAX names runs by the second.
    """
    runs = folder / "plugins" / "profile"
    runs.mkdir(parents=True, exist_ok=True)
    for name in _names(run.name):
        try:
            # Not `rename` at once: that takes an empty folder for free, so two processes might share it.
            (runs / name).mkdir()
        except FileExistsError:
            continue
        for file in sorted(run.iterdir()):
            shutil.move(file, runs / name / file.name)
        return runs / name
    raise AssertionError("names never end")


def _names(first: str) -> Iterator[str]:
    yield first
    number = 2
    while True:
        yield f"{first}_{number}"
        number += 1


def listed(run: Path) -> dict[str, Path]:
    """Kind → file, of those that are there: xplane, trace_json, perfetto, memory."""
    found = {kind: sorted(set(run.glob(pattern))) for kind, pattern in _PATTERNS.items()}
    return {kind: files[0] for kind, files in found.items() if files}


def write_perfetto(run: Path) -> None:
    """Beside `<host>.trace.json.gz` its copy for Perfetto, piece by piece: a trace may not fit into memory.

    `jax.profiler.start_trace(create_perfetto_trace=True)` does the same by loading all of it.
    """
    for trace in sorted(run.glob("*.trace.json.gz"))[:1]:
        with gzip.open(trace) as source, gzip.open(run / PERFETTO, "wb", compresslevel=5) as target:
            piece = _METADATA.sub(b"", source.read(_PIECE), count=1)
            while following := source.read(_PIECE):
                target.write(piece[:-TAIL])
                piece = piece[-TAIL:] + following
            target.write(_EMPTY.sub(b"", piece))


def write_memory(run: Path, profile: bytes) -> Path:
    """The memory profile, as `jax.profiler.device_memory_profile()` gives it: gzipped pprof."""
    file = run / MEMORY
    file.write_bytes(profile)
    return file
