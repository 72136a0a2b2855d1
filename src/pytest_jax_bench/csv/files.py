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
import itertools
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fcntl import LOCK_UN, flock
from io import BufferedReader
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
    END,
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
    parse,
    words_of,
)
from pytest_jax_bench.csv.text import encode_parameters, one_line, unword, word

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


TAIL = 2**17
"""Bytes at the end of a file that are looked at first, some 200 rows; eight times as many with each further look."""
RECENT = 2**22
"""Bytes at the end, some 6,000 rows, in which a session that still goes on must have left a row."""


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
    facts = dict(facts) | facts_of(head.comments) | (BEGUN_BY_0_5 if head.form in (OLD_17, OLD_18) else {})
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
    commit, session = bare(values["commit"]), values["session"]
    last = -1
    for start in _starts(head, end, TAIL):
        lines = _lines(file, head, start, end)
        if end - start > TAIL:  # the quick way past most of a long file
            lines = [text for text in lines if word(commit) in text or (session and word(session) in text)]
        found, _ = _read_lines(lines, head.form)
        runs = [int(run) for run in found["run_id"]]
        last = max([last, *runs])
        ours = [
            (run, int(n))
            for run, c, n in zip(runs, found["commit"], found["commit_run"], strict=True)
            if bare(c) == commit
        ]
        mine = [run for run, each in zip(runs, found["session"], strict=True) if session and each == session]
        if ours and (mine or not session or end - start >= RECENT):
            break
    run_id = mine[-1] if mine else last + 1
    again = [n for run, n in ours if mine and run == run_id]
    return run_id, again[-1] if again else max((n for _, n in ours), default=-1) + 1


def bare(commit: str) -> str:
    """The commit, without the mark for changes that were not committed."""
    return commit.rstrip("+")


# ---- reading ----------------------------------------------------------------------------------------------------

FEW = 8
"""Fewer lines than this are read one by one: calling NumPy takes as long."""
DTYPES: dict[Kind, Any] = {"int": np.int64, "float": np.float64, "text": np.object_}
# The first three as in 0.5.0, whose users call np.char on them; the others differ in every row, and this is the
# smallest way to keep them. Beyond this width each row would be as long as the longest, so they become objects.
_FIXED_WIDTH = ("commit", "tag", "parameters", "created", "session")
_WIDEST = 64
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Head:
    """The lines above the rows."""

    comments: list[str] = field(default_factory=list[str])
    form: tuple[str, ...] | None = None
    """The columns; None for a file without rows whose header is not complete."""
    end: int = 0
    """Where the rows begin, in bytes."""


def read(path: Path) -> Rows:
    """All rows in the order of the file, with all of COLUMNS; -1, nan and "" where the file has no such column.

    Texts have any length. `commit`, `tag`, `parameters`, `created` and `session` are of NumPy's type for texts as wide
    as the longest, the others are objects; the former, too, where one has more than 64 characters.

    Raises:
        StoreError: there is no file, or it cannot be read.
        FormatError: it is not the CSV file of a test, or a newer benchax wrote it.
    """
    return _read(path, None, "")


def newest(path: Path, n: int = 100, *, holding: str = "") -> Rows:
    """The last `n` rows, as `read` gives them, without reading what is before them. Raises as `read` does.

    Args:
        holding: only rows whose line contains this text; this takes a hundredth of the time of reading the others.
    """
    rows = _read(path, n, holding)
    return rows[max(0, len(rows) - n) :]


def _read(path: Path, least: int | None, holding: str) -> Rows:
    """The last rows, at least this many."""
    with _open(path) as file:
        head = read_head(file, path)
        end, rest = ending(file, head)
        last = _last_line(file, head, end, rest)
        for start in _starts(head, end, end if least is None else max(TAIL, 1024 * least)):
            lines = [text for text in [*_lines(file, head, start, end), *last] if holding in text]
            found, damaged = _read_lines(lines, head.form)
            if len(found["run_id"]) >= (least or 0):
                break
    if damaged:
        count = "1 damaged line is" if len(damaged) == 1 else f"{len(damaged)} damaged lines are"
        example = " ".join(damaged[0].split())[:80]
        warnings.warn(f"{path}: {count} left out, such as {example!r}", stacklevel=3)
    return _to_array(found)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[BufferedReader]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise StoreError(
            f"cannot read {path}: {error}", "the CSV file of a test, such as .benchmarks/…/main.csv"
        ) from error


def is_ours(path: Path) -> bool:
    """Is this the CSV file of a test? `.benchmarks` is shared with other tools."""
    try:
        with path.open("rb") as file:
            return file.read(64).lstrip(_BOM).startswith(MAGIC.encode())
    except OSError:
        return False


def read_head(file: BinaryIO, path: Path) -> Head:
    """Reads up to the first row.

    Raises:
        FormatError: this is not the CSV file of a test, or a newer benchax wrote it.
    """
    comments: list[str] = []
    end, row, is_ended = 0, "", True
    for raw in file:
        text = raw.lstrip(_BOM).decode("utf-8", "surrogateescape").rstrip("\r\n")
        if text.strip() and not text.startswith("#"):
            row = text
            break
        is_ended = raw.endswith(b"\n")
        end += len(raw)
        comments.append(text)
    # A header that ends within a line may be the work of a kill, so it is not believed. Without one, the number of
    # columns tells.
    by_number = {len(form): form for form in (CURRENT, OLD_18, OLD_17)}
    form = (form_of(comments, str(path)) if is_ended else None) or by_number.get(len(words_of(row)))
    first = (comments or [row])[0]
    is_beginning = len(comments) < 2 and not row.strip() and MAGIC.startswith(first.rstrip("\0"))
    if not (form or first.startswith(MAGIC) or is_beginning):
        raise FormatError(
            f"{path} is not the CSV file of a test: it begins with {first[:60]!r}", f"a file that begins with {MAGIC!r}"
        )
    return Head(comments, form, end)


def ending(file: BinaryIO, head: Head) -> tuple[int, bytes]:
    """Returns (where the last whole line ends, the bytes after it)."""
    size, rest = file.seek(0, os.SEEK_END), b""
    for start in _starts(head, size, 4096):
        file.seek(start)
        _, newline, rest = file.read(size - start).rpartition(b"\n")
        if newline:
            break
    return size - len(rest), rest


def _starts(head: Head, end: int, span: int) -> Iterator[int]:
    """Where to begin to read a part at the end, each time eight times as long; the last is where the rows begin."""
    while end - span > head.end:
        yield end - span
        span *= 8
    yield head.end


def _lines(file: BinaryIO, head: Head, start: int, end: int) -> list[str]:
    """The lines between two places, without the first if it can begin before."""
    file.seek(start)
    lines = file.read(end - start).decode("utf-8", "surrogateescape").split("\n")
    return lines[1:] if start > head.end else lines


def _last_line(file: BinaryIO, head: Head, end: int, rest: bytes) -> list[str]:
    """The last line, if it is complete but no line break ends it."""
    if not rest:
        return []
    # Perhaps a writer is at it right now.
    with contextlib.suppress(OSError, StoreError):
        wait_for(file.fileno(), str(file.name))
        flock(file.fileno(), LOCK_UN)
        file.seek(end)
        rest = file.readline() or rest
    text = rest.decode("utf-8", "surrogateescape").rstrip("\n")
    if rest.endswith(b"\n") or is_whole(text, head.form):
        return [text]
    if text.strip("\0 ") and not text.startswith("#"):
        warnings.warn(f"{file.name}: the last line is cut off, and is left out", stacklevel=4)
    return []


def _read_lines(lines: Sequence[str], form: tuple[str, ...] | None) -> tuple[dict[str, Any], list[str]]:
    """(values by column, lines that could not be read).

    NumPy takes 10 µs for a line, and Python 40. NumPy reads lines only if it accepts all of them; Python reads the
    others one by one, and decides what a line means.
    """
    content = [text for text in lines if text.strip() and not text.lstrip().startswith("#")]
    if form == CURRENT and len(content) >= FEW:
        with contextlib.suppress(ValueError, DeprecationWarning):
            return _read_together(content), []
    parsed = [parse(text, form) for text in content]
    rows = [row for row in parsed if row is not None]
    damaged = [text for text, row in zip(content, parsed, strict=True) if row is None]
    return {name: [row[name] for row in rows] for name in COLUMNS}, damaged


_OTHER_BLANK = re.compile(r"[^\S \t\r\n]")


def _read_together(lines: Sequence[str]) -> dict[str, Any]:
    """Raises `ValueError` or `DeprecationWarning` where any line is not whole and plain."""
    text = "".join(lines)
    # Nearly all files are plain, and the quick questions come first.
    if not (text.isascii() and text.isprintable()) and _OTHER_BLANK.search(text):
        raise ValueError("NumPy would split a word at it")
    types = [(name, DTYPES[KINDS.get(name, "text")]) for name in CURRENT]
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # "1.0" where an integer should be
        table = np.loadtxt(lines, types, comments=None, encoding=None, ndmin=1)
    if len(table) != len(lines) or (table["end"] != END).any():
        raise ValueError("a line is damaged")
    return {
        name: [unword(text) for text in table[name]] if kind == "text" else table[name] for name, kind in KINDS.items()
    }


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
