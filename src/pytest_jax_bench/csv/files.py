"""The history of one test as a CSV file that people can read: named, written, numbered, and read as an array.

`append` is the only writer. It is safe among many processes and against a kill at any moment. It locks the file, adds
one line with one write, and waits for the disk. A line can still be cut off (a full disk, a power cut). The next
`append` turns it into a comment, and touches nothing else. Files of pytest-jax-bench 0.5.0 are rewritten once, under
another name that then replaces them. `file_for` maps a test to its file.

`run_id` counts the runs of a test, `commit_run` the runs of the same commit. All rows of one session are one run. A
commit counts as the same whether it was clean or not ("6bc9501+").

A reader needs no lock: lines are only added, and a file that is rewritten becomes a new one while the old one stays
open. An unreadable line is left out with a warning, and costs no other row.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fcntl import LOCK_UN, flock
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from benchax.errors import FormatError, StoreError
from benchax.store.file_lock import only_writer, wait_for
from pytest_jax_bench.csv.lines import (
    BEGUN_BY_0_5,
    COLUMNS,
    CURRENT,
    KINDS,
    MAGIC,
    OLD_17,
    OLD_18,
    Kind,
    complete,
    facts_of,
    form_of,
    header,
    is_of_0_5,
    is_whole,
    line,
    notes_of,
    numbers_of,
    parse,
    words_of,
)
from pytest_jax_bench.csv.text import encode_parameters, one_line

Rows = npt.NDArray[np.void]

# Each test has its CSV file: readable, safe on every system, and never the same for two tests.
#
#     tests/test_x.py::test_full        tests-test_x.py--test_full/main.csv
#     tests/test_x.py::test_n[128]      tests-test_x.py--test_n/n-128.csv
#
# pytest-jax-bench 0.5.0 used these names. A name ends in ~ and a digest in four cases: another test could have the same
# name (a dash in a path, chosen ids), it differs from another one only in upper and lower case (the same file on macOS
# and Windows), a system reserves it, or it is long. If 0.5.0 has begun a file for a test, that file is continued under
# its old name, and its header says which test it belongs to. The same holds for the form of earlier versions, which
# the README shows, if there is no file under a later name:
#
#     tests/test_x.py::test_full        tests:test_x::test_full.csv

_NODEID = re.compile(r"(?P<test>.*?)(?P<id>\[.*\])?", re.DOTALL)
# Names of functions have no brackets, but those of folders may.
_NODEID_OF_FUNCTION = re.compile(r"(?P<test>.*\.py(?:::\w+)+)(?P<id>\[.*\])?", re.DOTALL)
# Lower case, since not every system tells a from A; no dash, so that "-" can only have been "/", and "--" "::".
_PLAIN_TEST = re.compile(r"(?:[a-z0-9_][a-z0-9_.]*(?:/|::|$))+")
_PLAIN_PARAMS = re.compile(r"(?:[a-z0-9_.,+-]|-(?:True|False|None)(?=,|$))+")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|(?:com|lpt)[0-9¹²³])(?:\..*)?", re.IGNORECASE)  # on Windows
_LONGEST = 100  # beside it must fit: .csv, the endings of plots and graphs, and folders (260 on Windows)
_LONGEST_BEFORE_DIGEST = 60


def file_for(folder: Path, nodeid: str, params: Mapping[str, Any]) -> Path:
    """The CSV file of a test with these parameters. Makes nothing.

    Two tests, or two sets of parameters that `text.encode_parameters` tells apart, never share a file.
    """
    named = _NODEID_OF_FUNCTION.fullmatch(nodeid) or _NODEID.fullmatch(nodeid)
    test, id = (named["test"], named["id"]) if named else (nodeid, None)
    ours = folder / _folder_name(test) / f"{_file_name(id, params)}.csv"
    theirs = _name_of_0_5(folder, nodeid, params)
    if theirs != ours and theirs and _belongs_to(theirs, nodeid):
        return theirs
    first = _name_in_readme(folder, nodeid)
    return first if first and not ours.exists() and _belongs_to(first, nodeid) else ours


def _folder_name(test: str) -> str:
    name = _as_0_5(test)
    is_plain = _PLAIN_TEST.fullmatch(test) and test[-1] not in "/:." and _is_safe(name)
    return name if is_plain else _with_digest(name, test)


def _file_name(id: str | None, params: Mapping[str, Any]) -> str:
    name = encode_parameters(params)
    if not params and id is None:
        return "main"
    is_plain = params and id in (None, _usual_id(params)) and _PLAIN_PARAMS.fullmatch(name) and _is_safe(name)
    return name if is_plain else _with_digest(name if params else "main", f"{id}\n{name}")


def _usual_id(params: Mapping[str, Any]) -> str:
    """Returns pytest's id for these parameters, unless ids= sets another one or the id would appear twice."""
    return f"[{'-'.join(map(str, params.values()))}]"


def _is_safe(name: str) -> bool:
    return len(name) <= _LONGEST and not name.endswith((".", " ")) and not _RESERVED.fullmatch(name)


def _with_digest(name: str, identity: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9_.,+=-]+", "_", name)[:_LONGEST_BEFORE_DIGEST].lstrip(".")
    digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    # Windows reserves nul.py and nul.py~1 as well.
    return f"{'_' if _RESERVED.fullmatch(readable) else ''}{readable}~{digest}"


# ---- pytest-jax-bench 0.5.0 -------------------------------------------------------------------------------------


def _as_0_5(nodeid: str) -> str:
    return nodeid.replace("/", "-").replace("::", "--")


def _name_of_0_5(folder: Path, nodeid: str, params: Mapping[str, Any]) -> Path | None:
    """Where 0.5.0 kept this test; None where it is outside of `folder`, or can be no file."""
    test = re.sub(r"\[.*\]$", "", _as_0_5(nodeid))
    name = ",".join(f"{k}-{v}" for k, v in params.items()) if params else "main"
    parts = [test, *f"{name}.csv".split("/")]
    is_inside = not any(part in ("", ".", "..") or "\0" in part for part in parts)
    return folder.joinpath(*parts) if is_inside else None


def _name_in_readme(folder: Path, nodeid: str) -> Path | None:
    """Returns the file of this test in versions before 0.5.0, or None if such a file cannot exist."""
    name = f"{nodeid.replace('/', ':').replace('.py::', '::')}.csv"
    return None if "\0" in name or len(name.encode("utf-8", "surrogatepass")) > 255 else folder / name


def _belongs_to(path: Path, nodeid: str) -> bool:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            comments = [text.rstrip("\r\n") for text, _ in zip(file, range(10), strict=False)]
    except (OSError, ValueError):
        return False
    facts = facts_of(comments)
    return comments[:1] == [MAGIC] and facts.get("test_nodeid") == nodeid and is_of_0_5(comments)


def append(path: Path, row: Mapping[str, Any], *, nodeid: str, backend: str, device: str) -> dict[str, Any]:
    """Adds one row and returns it complete: it assigns `run_id` and `commit_run`, and marks missing values.

    When this returns, the row is durable. When it raises, nothing was stored, with one exception. A warning that the
    caller has turned into an error comes after the row.

    Args:
        path: the file; `append` makes it, and its folder, if necessary.
        row: values by the names of COLUMNS; None is not measured. `parameters` may be a mapping. `created` is now
            by default. Rows with the same `session` are one run.
        nodeid, backend, device: for the header, if there is no header yet.

    Raises:
        UsageError: there is no such column, or it cannot hold the value.
        StoreError: the file cannot be written.
        FormatError: there is a file that is not the CSV file of a test, or a newer benchax wrote it.
    """
    values = complete({"created": _now()} | {name: value for name, value in row.items() if value is not None})
    facts = {"created": _now("seconds"), "test_nodeid": nodeid, "backend": backend, "device": device}
    facts["First commit"] = values["commit"]
    # Renaming replaces a link, not the file that it leads to.
    path = Path(os.path.realpath(path))
    try:
        remarks = _append(path, values, facts)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error}",
            "a folder that may be made and written to, on a disk with free space",
            "name another folder with --ptjb-output-dir",
        ) from error
    for remark in remarks:
        warnings.warn(f"{path}: {remark}", stacklevel=2)
    return values


def _append(path: Path, values: dict[str, Any], facts: Mapping[str, str]) -> list[str]:
    """Completes `values`; returns what the caller should know."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remarks: list[str] = []
    while True:
        with only_writer(path) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as file:
            content = read_content(file, path)
            is_new = not (content.end or content.rest)
            if is_new or content.form == CURRENT:
                remarks += _add_line(descriptor, content, values, header(facts) if is_new else [])
                break
            # The file is another one afterwards, so its lock has to be taken anew.
            remarks += _rewrite(path, content, facts)
    if is_new:
        _sync_folder(path.parent)
    return remarks


def _now(timespec: str = "microseconds") -> str:
    return datetime.now(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


# ---- one line more ----------------------------------------------------------------------------------------------


def _add_line(descriptor: int, content: Content, values: dict[str, Any], above: list[str]) -> list[str]:
    at, rest, remarks = content.end, content.rest, list[str]()
    if rest.startswith("#") or is_whole(rest, content.form):
        # An editor took the last line break away.
        at += len(rest.encode("utf-8", "surrogateescape"))
        above = [""]
        content.lines.append(rest)
    elif rest.strip(_NO_TEXT):
        above, remarks = [_mark_cut_off(rest)], [_REPAIRED]
    values["run_id"], values["commit_run"] = number(content.lines, values)
    _write(descriptor, at, "".join(f"{text}\n" for text in [*above, line(values)]).encode())
    return remarks


_NO_TEXT = "\0 \t\r"
_REPAIRED = "the last line was cut off; it is a comment now, and all other rows are as they were"


def _mark_cut_off(text: str) -> str:
    return f"# cut off: {one_line(text.strip(chr(0)))}"


def _write(descriptor: int, at: int, data: bytes) -> None:
    """Replaces everything from `at` on, and waits for the disk. Undone if there is no room."""
    try:
        # Not with O_APPEND: what a kill left half written is overwritten, not continued.
        if os.fstat(descriptor).st_size > at:
            os.ftruncate(descriptor, at)
        written = 0
        while written < len(data):
            written += os.pwrite(descriptor, data[written:], at + written)
        os.fsync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, at)
        raise


# ---- files of earlier forms -------------------------------------------------------------------------------------


def _rewrite(path: Path, content: Content, facts: Mapping[str, str]) -> list[str]:
    """Replaces the file by one of the current form with the same rows, in one step. Needs its lock."""
    facts = dict(facts) | facts_of(content.comments) | (BEGUN_BY_0_5 if content.form in (OLD_17, OLD_18) else {})
    rows, remarks = _rewrite_lines(content)
    temporary = path.with_name(f"{path.name}.new")
    try:
        with temporary.open("w", encoding="utf-8") as target:
            target.writelines(f"{text}\n" for text in [*header(facts), *notes_of(content.comments), *rows])
            target.flush()
            os.fsync(target.fileno())
        shutil.copymode(path, temporary)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)
    return remarks


def _rewrite_lines(content: Content) -> tuple[list[str], list[str]]:
    """The lines below the header in the current form, and what the caller should know. Unreadable lines are kept as
    comments."""
    is_end_whole = content.rest.startswith("#") or is_whole(content.rest, content.form)
    lines, remarks = list[str](), list[str]()
    for text in [*content.lines, *([content.rest] if is_end_whole else [])]:
        if row := parse(text, content.form):
            lines.append(line(row))
        elif text.startswith("#"):
            lines.append(f"#{one_line(text[1:])}")
        elif text.strip(_NO_TEXT):
            lines.append(f"{_UNREADABLE}{one_line(text)}")
    if count := sum(text.startswith(_UNREADABLE) for text in lines):
        remarks.append(f"{count} lines could not be read and are comments now")
    if content.rest.strip(_NO_TEXT) and not is_end_whole:
        lines.append(_mark_cut_off(content.rest))
        remarks.append(_REPAIRED)
    return lines, remarks


_UNREADABLE = "# could not be read: "


def _sync_folder(folder: Path) -> None:
    """Makes the name of a new file durable, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def number(lines: Sequence[str], values: Mapping[str, Any]) -> tuple[int, int]:
    """(run_id, commit_run) of the row that is to be written below these lines."""
    commit, session = bare(values["commit"]), values["session"]
    known = [each for each in map(numbers_of, lines) if each is not None]
    mine = [run_id for run_id, _, _, each in known if session and each == session]
    run_id = mine[-1] if mine else max((run_id for run_id, *_ in known), default=-1) + 1
    ours = [(each, count) for each, of, count, _ in known if bare(of) == commit]
    again = [count for each, count in ours if mine and each == run_id]
    return run_id, again[-1] if again else max((count for _, count in ours), default=-1) + 1


def bare(commit: str) -> str:
    """The commit, without the mark for changes that were not committed."""
    return commit.rstrip("+")


# ---- reading ----------------------------------------------------------------------------------------------------

NEWEST = 64
"""The newest lines, in which a damaged one is reported."""
DTYPES: dict[Kind, Any] = {"int": np.int64, "float": np.float64, "text": np.object_}
# The first three as in 0.5.0, whose users call np.char on them; the others differ in every row, and this is the
# smallest way to keep them. Beyond this width each row would be as long as the longest, so they become objects.
_FIXED_WIDTH = ("commit", "tag", "parameters", "created", "session")
_WIDEST = 64
_BOM = "\ufeff"


@dataclass(frozen=True)
class Content:
    """The text of a file, in lines."""

    comments: list[str]
    """The lines above the first row."""
    form: tuple[str, ...] | None
    """The columns; None for a file without rows whose header is not complete."""
    lines: list[str]
    """From the first row on."""
    rest: str
    """The end of the file, if no line break ends it."""
    end: int
    """Where the last whole line ends, in bytes."""


def read(path: Path) -> Rows:
    """All rows in the order of the file, with all of COLUMNS; -1, nan and "" where the file has no such column.

    Texts have any length. `commit`, `tag`, `parameters`, `created` and `session` are of NumPy's type for texts as wide
    as the longest, the others are objects; the former, too, where one has more than 64 characters.

    Raises:
        StoreError: there is no file, or it cannot be read.
        FormatError: it is not the CSV file of a test, or a newer benchax wrote it.
    """
    content = _load(path)
    parsed = [(text, parse(text, content.form)) for text in _texts_of_rows(content)]
    _name_damaged(path, [text for text, row in parsed if row is None])
    rows = [row for _, row in parsed if row is not None]
    return _to_array({name: [row[name] for row in rows] for name in COLUMNS})


def newest_first(path: Path, *, holding: str = "") -> Iterator[dict[str, Any]]:
    """The rows from the last to the first. Older ones are read when they are asked for: a line takes 20 µs. Raises as
    `read` does.

    Args:
        holding: only rows whose line contains this text.
    """
    content = _load(path)
    lines = [text for text in reversed(_texts_of_rows(content)) if holding in text]
    newest = [parse(text, content.form) for text in lines[:NEWEST]]
    _name_damaged(path, [text for text, row in zip(lines, newest, strict=False) if row is None])
    older = (parse(text, content.form) for text in lines[NEWEST:])
    yield from (row for row in chain(newest, older) if row is not None)


def _name_damaged(path: Path, damaged: Sequence[str]) -> None:
    if damaged:
        count = "1 damaged line is" if len(damaged) == 1 else f"{len(damaged)} damaged lines are"
        example = " ".join(damaged[0].split())[:80]
        warnings.warn(f"{path}: {count} left out, such as {example!r}", stacklevel=3)


def _texts_of_rows(content: Content) -> list[str]:
    return [text for text in content.lines if text.strip() and not text.lstrip().startswith("#")]


def _load(path: Path) -> Content:
    """The content of a file whose last line is whole; one that is cut off is left out, with a warning."""
    try:
        with path.open("rb") as file:
            content = read_content(file, path)
            if content.rest:  # perhaps a writer is at it right now
                with contextlib.suppress(OSError, StoreError):
                    wait_for(file.fileno(), str(path))
                    flock(file.fileno(), LOCK_UN)
                content = read_content(file, path)
    except OSError as error:
        raise StoreError(
            f"cannot read {path}: {error}", "the CSV file of a test, such as .benchmarks/…/main.csv"
        ) from error
    if is_whole(content.rest, content.form):
        content.lines.append(content.rest)
    elif content.rest.strip(_NO_TEXT) and not content.rest.startswith("#"):
        warnings.warn(f"{path}: the last line is cut off, and is left out", stacklevel=4)
    return content


def is_ours(path: Path) -> bool:
    """Is this the CSV file of a test? `.benchmarks` is shared with other tools."""
    try:
        with path.open("rb") as file:
            return file.read(64).lstrip(_BOM.encode()).startswith(MAGIC.encode())
    except OSError:
        return False


def read_content(file: BinaryIO, path: Path) -> Content:
    """Reads all of an open file.

    Raises:
        FormatError: this is not the CSV file of a test, or a newer benchax wrote it.
    """
    file.seek(0)
    raw = file.read(os.fstat(file.fileno()).st_size)  # a device never ends
    end = raw.rfind(b"\n") + 1
    *texts, rest = raw.decode("utf-8", "surrogateescape").removeprefix(_BOM).split("\n")
    texts = [text.rstrip("\r") for text in texts]
    count = next((i for i, text in enumerate(texts) if text.strip() and not text.startswith("#")), len(texts))
    comments, lines = texts[:count], texts[count:]
    # A header that ends within a line may be the work of a kill, so it is not believed. Without one, the number of
    # columns tells.
    is_ended = bool(lines) or not rest.startswith("#")
    comments, rest = (comments, rest) if is_ended else ([*comments, rest], "")
    by_number = {len(form): form for form in (CURRENT, OLD_18, OLD_17)}
    form = (form_of(comments, str(path)) if is_ended else None) or by_number.get(len(words_of([*lines, rest][0])))
    first = [*comments, *lines, rest][0]
    is_beginning = not texts and MAGIC.startswith(first.rstrip("\0"))
    if not (form or first.startswith(MAGIC) or is_beginning):
        raise FormatError(
            f"{path} is not the CSV file of a test: it begins with {first[:60]!r}",
            f"a file that begins with {MAGIC!r}",
        )
    return Content(comments, form, lines, rest, end)


def _to_array(found: Mapping[str, Sequence[Any]]) -> Rows:
    types = [(name, _type(name, found[name])) for name in COLUMNS]
    rows = np.empty(len(found["run_id"]), types)
    for name in COLUMNS:
        rows[name] = found[name]
    return rows


def _type(name: str, values: Sequence[Any]) -> Any:
    width = fixed_width(values) if name in _FIXED_WIDTH else 0
    return f"U{width}" if width else DTYPES[KINDS[name]]


def fixed_width(texts: Any) -> int:
    """How wide the fixed-width texts of NumPy have to be to hold these; 0 if they should be objects."""
    longest = max(1, *map(len, texts), 1)
    # NumPy pads with NUL, and would take one at the end for padding.
    return longest if longest <= _WIDEST and "\0" not in "".join(texts) else 0
