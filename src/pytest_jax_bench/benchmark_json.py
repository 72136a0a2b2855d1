"""Files in the form of pytest-benchmark: --benchmark-json, and those that --benchmark-save numbers and keeps.

They hold every reading, and what benchax knows beyond pytest-benchmark (compile time, memory, the interval) in
`extra_info`. `pytest-benchmark compare` and services that read its JSON read them.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchax import codec
from benchax.errors import FormatError, UsageError
from benchax.reporting.exports import pytest_benchmark
from benchax.reporting.exports.entries import entries
from pytest_jax_bench.settings import BenchmarkSettings

Record = Mapping[str, Any]


def make_document(records: Sequence[Record]) -> dict[str, Any]:
    """One entry for each measurement that has times, named as its test is. Tests that failed are left out."""
    found = [(record, _measurement(record)) for record in records]
    good = [(record, m) for record, m in found if m is not None and not _own(record).get("has_error")]
    exported = entries([m for _, m in good])
    timed = [(record, entry) for (record, _), entry in zip(good, exported, strict=True) if entry.samples]
    document = pytest_benchmark.document([entry for _, entry in timed])
    for (record, _), benchmark in zip(timed, document["benchmarks"], strict=True):
        benchmark |= _names(record) | {"extra_info": benchmark["extra_info"] | _own(record).get("extra_info", {})}
    return document


def _own(record: Record) -> Mapping[str, Any]:
    """Returns the options of the fixture `benchmark`; empty for other measurements."""
    return record.get("benchmark") or {}


def _measurement(record: Record) -> Any:
    """Chooses the measurement of the jitted function, else of the eager one: the last one of a row that has times."""
    documents = [codec.from_document(document) for document in record["measurements"]]
    return next((m for m in reversed(documents) if m.failure is None and m.headline is not None), None)


def _names(record: Record) -> dict[str, Any]:
    if own := _own(record):
        return {name: own[name] for name in ("group", "name", "fullname", "param", "params")}
    tag = "" if record["row"]["tag"] == "base" else f"#{record['row']['tag']}"
    return {"name": record["nodeid"].rpartition("::")[2] + tag, "fullname": record["nodeid"] + tag, "group": None}


def write(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_text(document), encoding="utf-8")


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, default=lambda value: f"UNSERIALIZABLE[{value!r}]") + "\n"


def machine_folder(output_dir: Path) -> Path:
    """Where pytest-benchmark keeps the files of machines like this one."""
    version = ".".join(platform.python_version_tuple()[:2])
    machine = (platform.system(), platform.python_implementation(), version, platform.architecture()[0])
    return output_dir / "-".join(machine)


def save(output_dir: Path, wanted: BenchmarkSettings, document: Mapping[str, Any]) -> Path:
    """Writes the next file, 0001_NAME.json; another session's is never overwritten."""
    folder = machine_folder(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    name = wanted.save or "_".join(str(document["commit_info"].get("id") or "unversioned").split())
    number = max((int(f.name[:4]) for f in folder.glob("[0-9][0-9][0-9][0-9]_*.json")), default=0)
    while True:
        number += 1
        path = folder / f"{number:04}_{name}.json"
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(_text(document))
        except FileExistsError:  # another session was quicker
            continue
        return path


def find(output_dir: Path, number: str) -> Path:
    """The saved file whose name begins with `number`; the last one for an empty text.

    Raises:
        UsageError: there is no such file, or there are several.
    """
    folder = machine_folder(output_dir)
    files = sorted(folder.glob("[0-9][0-9][0-9][0-9]_*.json"))
    if Path(number).is_file():
        return Path(number)
    found = [file for file in files if file.name.startswith(number or "0")]
    if not number and files:
        return files[-1]
    if len(found) != 1:
        listed = ", ".join(file.stem for file in files[-5:]) or "none so far; --benchmark-save NAME writes one"
        raise UsageError(f"--benchmark-compare={number!r} names {len(found)} files in {folder}", listed)
    return found[0]


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Statistics of each test by its full name.

    Raises:
        FormatError: it is not a file of pytest-benchmark, or one of a version with other fields.
    """
    expected = "a JSON file of pytest-benchmark 3 to 5, or of --benchmark-save"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        found = {each["fullname"]: dict(each["stats"]) for each in document["benchmarks"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(f"cannot read {path}: {type(error).__name__}: {error}", expected) from error
    for name, each in found.items():
        if missing := [key for key in ("min", "max", "mean", "median") if not isinstance(each.get(key), int | float)]:
            raise FormatError(f"{path} has no {missing[0]!r} of {name}", expected)
    return found
