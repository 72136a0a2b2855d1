"""The history of one test as a CSV file that people can read. Rows are appended; this is the only writer.

`append` is safe among many processes and against a kill at any moment. It locks the file, adds one line with one write,
and waits for the disk. A line can still be cut off (a full disk, a power cut). The next `append` turns it into a
comment, and touches nothing else. Files of earlier forms (`lines.py`) are rewritten once, under another name that then
replaces them. `file_for` below maps a test to its file.

This module also numbers the run of a new row: `run_id` counts the runs of a test, `commit_run` the runs of the same
commit. All rows of one session are one run. A commit counts as the same whether it was clean or not ("6bc9501+"). The
module looks for both from the end of the file, where they usually are. Only for a commit that never ran, it searches
the whole file.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from benchax.errors import StoreError
from benchax.store.file_lock import only_writer
from pytest_jax_bench.csv.blocks import read_block
from pytest_jax_bench.csv.lines import (
    BEGUN_BY_0_5,
    COLUMNS,
    CURRENT,
    MAGIC,
    complete,
    facts_of,
    header,
    is_of_0_5,
    is_whole,
    line,
    notes_of,
    parse,
)
from pytest_jax_bench.csv.reading import Head, backward, ending, is_ours, newest, read, read_head
from pytest_jax_bench.csv.text import encode_parameters, one_line, word

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


__all__ = ["COLUMNS", "append", "file_for", "is_ours", "newest", "read"]

# Bytes at the end, some 6,000 rows, in which a session that still goes on must have left a row.
_RECENT = 2**22
_WANTED = ("run_id", "commit", "commit_run", "session")


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
    values = complete({"created": _now()} | dict(row))
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
            is_new = not file.seek(0, os.SEEK_END)
            file.seek(0)
            head = Head(form=CURRENT) if is_new else read_head(file, path)
            if head.form == CURRENT:
                remarks += _add_line(file, head, values, header(facts) if is_new else [])
                break
            # The file is another one afterwards, so its lock has to be taken anew.
            remarks += _rewrite(path, file, head, facts)
    if is_new:
        _sync_folder(path.parent)
    return remarks


def _now(timespec: str = "microseconds") -> str:
    return datetime.now(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


# ---- one line more ----------------------------------------------------------------------------------------------


def _add_line(file: BinaryIO, head: Head, values: dict[str, Any], above: list[str]) -> list[str]:
    end, rest = ending(file, head)
    text, remarks = rest.decode("utf-8", "surrogateescape"), list[str]()
    if text.startswith("#") or is_whole(text, head.form):
        # An editor took the last line break away.
        _write(file.fileno(), end + len(rest), b"\n")
        end += len(rest) + 1
    elif text.strip("\0 \t\r"):
        above, remarks = [_mark_cut_off(text)], [_REPAIRED]
    values["run_id"], values["commit_run"] = number(file, head, end, values)
    _write(file.fileno(), end, "".join(f"{text}\n" for text in [*above, line(values)]).encode())
    return remarks


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


def _rewrite(path: Path, file: BinaryIO, head: Head, facts: Mapping[str, str]) -> list[str]:
    """Replaces the file by one of the current form with the same rows, in one step. Needs its lock."""
    facts = dict(facts) | facts_of(head.comments) | (BEGUN_BY_0_5 if head.form and head.form.version == 1 else {})
    remarks: list[str] = []
    temporary = path.with_name(f"{path.name}.new")
    try:
        with temporary.open("w", encoding="utf-8") as target:
            for text in itertools.chain(header(facts), notes_of(head.comments), _rewrite_lines(file, head, remarks)):
                target.write(f"{text}\n")
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


def _rewrite_lines(file: BinaryIO, head: Head, remarks: list[str]) -> Iterator[str]:
    """Yields the lines below the header in the current form. Unreadable lines are kept as comments."""
    file.seek(head.end)
    unreadable = 0
    for raw in file:
        text = raw.decode("utf-8", "surrogateescape").rstrip("\r\n")
        row = parse(text, head.form)
        if row and (raw.endswith(b"\n") or is_whole(text, head.form)):
            yield line(row)
        elif text.startswith("#"):
            yield f"#{one_line(text[1:])}"
        elif not raw.endswith(b"\n") and text.strip("\0 \t"):
            remarks.append(_REPAIRED)
            yield _mark_cut_off(text)
        elif text.strip("\0 \t"):
            unreadable += 1
            yield f"# could not be read: {one_line(text)}"
    if unreadable:
        remarks.append(f"{unreadable} lines could not be read and are comments now")


def _sync_folder(folder: Path) -> None:
    """Makes the name of a new file durable, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def number(file: BinaryIO, head: Head, end: int, values: Mapping[str, Any]) -> tuple[int, int]:
    """(run_id, commit_run) of the row that is to be written behind `end`."""
    found = _RunCounts(bare(values["commit"]), values["session"])
    # The quick way past most of a long file: the word is not in it.
    commit, session = word(found.commit).encode(), word(found.session).encode()
    looked_at = 0
    for block in backward(file, head, end):
        seeks_session = bool(found.session) and found.run_id is None and looked_at < _RECENT
        seeks_commit = found.last_of_commit is None
        if not (seeks_session or seeks_commit):
            break
        if not looked_at or (seeks_session and session in block) or (seeks_commit and commit in block):
            found.look(_rows(block, head))
        looked_at += len(block)
    return found.numbers()


def bare(commit: str) -> str:
    """The commit, without the mark for changes that were not committed."""
    return commit.rstrip("+")


@dataclass
class _RunCounts:
    """The counts from the rows seen so far, from the end of the file."""

    commit: str
    session: str
    last: int = -1
    """The highest run_id."""
    last_of_commit: int | None = None
    """The highest commit_run of this commit."""
    run_id: int | None = None
    """The number of this session."""
    commit_run: int | None = None
    """The run of this commit in this session."""

    def look(self, rows: list[tuple[int, str, int, str]]) -> None:
        ours = [(run_id, commit_run) for run_id, commit, commit_run, _ in rows if bare(commit) == self.commit]
        self.last = max([self.last, *(run_id for run_id, *_ in rows)])
        if self.last_of_commit is None and ours:
            self.last_of_commit = max(commit_run for _, commit_run in ours)
        if self.session and self.run_id is None:
            self.run_id = next((run_id for run_id, *_, session in reversed(rows) if session == self.session), None)
            self.commit_run = next((run for run_id, run in reversed(ours) if run_id == self.run_id), None)

    def numbers(self) -> tuple[int, int]:
        run_id = self.last + 1 if self.run_id is None else self.run_id
        next_of_commit = 0 if self.last_of_commit is None else self.last_of_commit + 1
        return run_id, next_of_commit if self.commit_run is None else self.commit_run


def _rows(block: bytes, head: Head) -> list[tuple[int, str, int, str]]:
    piece = read_block(block, head.form, _WANTED)
    return [
        (int(run_id), str(commit), int(commit_run), str(session))
        for run_id, commit, commit_run, session in zip(*(piece.column(name) for name in _WANTED), strict=True)
    ]
