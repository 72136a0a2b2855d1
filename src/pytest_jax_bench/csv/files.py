"""The history of one test as a CSV file that people can read: named, written, numbered, and read as an array.

`append` is the only writer. It is safe among many processes and against a kill at any moment. It locks the file, and
replaces it in one step by a file with one more line. So a reader needs no lock. All rows then have our form, also those
of pytest-jax-bench 0.5.0. A line that cannot be read becomes a comment; a reader leaves it out with a warning. It costs
no other row. `file_for` maps a test to its file.

`run_id` counts the runs of a test, `commit_run` the runs of the same commit. All rows of one session are one run. A
commit counts as the same whether it was clean or not ("6bc9501+").
"""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchax.errors import FormatError, StoreError
from benchax.whole_files import only_writer, write_whole
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
    encode_parameters,
    facts_of,
    form_of,
    head_of,
    header,
    is_of_0_5,
    is_whole,
    line,
    notes_of,
    one_line,
    parse,
    words_of,
)

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

_NODEID = re.compile(
    # Names of functions have no brackets, but names of folders may.
    r"(?P<test>.*\.py(?:::\w+)+|.*?)(?P<id>\[.*\])?",
    re.DOTALL,
)
# Lower case, since not every system tells a from A; no dash, so that "-" can only have been "/", and "--" "::".
_PLAIN_TEST = re.compile(r"(?:[a-z0-9_][a-z0-9_.]*(?:/|::|$))+")
_PLAIN_PARAMS = re.compile(r"(?:[a-z0-9_.,+-]|-(?:True|False|None)(?=,|$))+")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|(?:com|lpt)[0-9¹²³])(?:\..*)?", re.IGNORECASE)  # on Windows
_LONGEST = 100  # beside it must fit: .csv, the endings of plots and graphs, and folders (260 on Windows)
_LONGEST_BEFORE_DIGEST = 60


def file_for(folder: Path, nodeid: str, params: Mapping[str, Any]) -> Path:
    """The CSV file of a test with these parameters. Makes nothing.

    Two tests, or two sets of parameters that `encode_parameters` tells apart, never share a file.
    """
    test, id = _NODEID.fullmatch(nodeid).groups()  # pyright: ignore[reportOptionalMemberAccess]  # it matches any text
    ours = folder / _folder_name(test) / f"{_file_name(id, params)}.csv"
    theirs = _name_of_0_5(folder, nodeid, params)
    if theirs != ours and theirs and _belongs_to(theirs, nodeid):
        return theirs
    first = _name_in_readme(folder, nodeid)
    return first if first and not ours.exists() and _belongs_to(first, nodeid) else ours


def _folder_name(test: str) -> str:
    return _safe(_as_0_5(test), test, is_plain=bool(_PLAIN_TEST.fullmatch(test)) and test[-1] not in "/:.")


def _file_name(id: str | None, params: Mapping[str, Any]) -> str:
    if not params and id is None:
        return "main"
    name = encode_parameters(params)
    # Pytest's id for these parameters, unless ids= sets another one or the id would appear twice.
    usual = f"[{'-'.join(map(str, params.values()))}]"
    is_plain = bool(params) and id in (None, usual) and bool(_PLAIN_PARAMS.fullmatch(name))
    return _safe(name if params else "main", f"{id}\n{name}", is_plain)


def _safe(name: str, identity: str, is_plain: bool) -> str:
    """The name itself, if it's plain and fits on every system; else a readable part of it, and a digest."""
    if is_plain and len(name) <= _LONGEST and not name.endswith((".", " ")) and not _RESERVED.fullmatch(name):
        return name
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
    comments = comments_of(path)
    return facts_of(comments).get("test_nodeid") == nodeid and is_of_0_5(comments)


def append(path: Path, row: Mapping[str, Any], *, nodeid: str, backend: str, device: str) -> dict[str, Any]:
    """Adds one row and returns it complete: it assigns `run_id` and `commit_run`, and marks missing values.

    When this returns, the row is on the disk. When it raises, nothing was stored, with one exception. A warning that
    the caller has turned into an error comes after the row.

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
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():
            raise OSError("it isn't a file")
        with only_writer(path):
            content = read_content(path)
            lines = [_in_current_form(text, content.form) for text in content.lines]
            values["run_id"], values["commit_run"] = number(lines, values)
            whole = "\n".join([*_header_of(content, facts), *lines, line(values), ""])
            write_whole(path, whole.encode("utf-8", "surrogateescape"), is_durable=True)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error}",
            "a folder that you can create and write to, on a disk with free space",
            "name another folder with --ptjb-output-dir",
        ) from error
    if damaged := [
        new for old, new in zip(content.lines, lines, strict=True) if new.startswith(_UNREADABLE) and new != old
    ]:
        warnings.warn(f"{path}: {_count(damaged)} made a comment: {damaged[0][:80]!r}", stacklevel=2)
    return values


def _now(timespec: str = "microseconds") -> str:
    return datetime.now(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def _header_of(content: Content, facts: Mapping[str, str]) -> list[str]:
    """The lines above the rows, with all that other people wrote there."""
    if content.form == CURRENT:
        return content.comments
    facts = dict(facts) | facts_of(content.comments) | (BEGUN_BY_0_5 if content.form in (OLD_17, OLD_18) else {})
    return [*header(facts), *notes_of(content.comments)]


_UNREADABLE = "# could not be read: "


def _in_current_form(text: str, form: tuple[str, ...] | None) -> str:
    """A line of a file in the current form. An unreadable one becomes a comment."""
    if text.endswith(f" {END}") or not text.strip() or text.lstrip().startswith("#"):
        return text
    row = parse(text, form)
    return line(row) if row else f"{_UNREADABLE}{one_line(text)}"


def number(lines: Sequence[str], values: Mapping[str, Any]) -> tuple[int, int]:
    """(run_id, commit_run) of the row that is to be written below these lines."""
    commit, session = bare(values["commit"]), values["session"]
    known = [head for head in map(head_of, lines) if head is not None]
    mine = [head["run_id"] for head in known if session and head["session"] == session]
    run_id = mine[-1] if mine else max((head["run_id"] for head in known), default=-1) + 1
    ours = [head for head in known if bare(head["commit"]) == commit]
    again = [head["commit_run"] for head in ours if mine and head["run_id"] == run_id]
    return run_id, again[-1] if again else max((head["commit_run"] for head in ours), default=-1) + 1


def bare(commit: str) -> str:
    """The commit, without the mark for changes that were not committed."""
    return commit.rstrip("+")


# ---- reading ----------------------------------------------------------------------------------------------------

DTYPES: dict[Kind, Any] = {"int": np.int64, "float": np.float64, "text": np.object_}
# The first three as in 0.5.0, whose users call np.char on them; the others differ in every row, and this is the
# smallest way to keep them. Beyond this width each row would be as long as the longest, so they become objects.
_FIXED_WIDTH = ("commit", "tag", "parameters", "created", "session")
_WIDEST = 64
_BOM = "\ufeff"
_NO_TEXT = "\0 \t\r"
_CUT_OFF = " (cut off)"
_LONGEST_HEADER = 100_000


class Content(NamedTuple):
    """The text of a file, in lines."""

    comments: list[str]
    """The lines above the first row."""
    form: tuple[str, ...] | None
    """The columns; None for a file without rows whose header is not complete."""
    lines: list[str]
    """From the first row on."""


def read(path: Path) -> Rows:
    """All rows in the order of the file, with all of COLUMNS; -1, nan and "" where the file has no such column.

    Texts have any length. `commit`, `tag`, `parameters`, `created` and `session` are of NumPy's type for texts as wide
    as the longest, the others are objects; the former, too, where one has more than 64 characters.

    Raises:
        StoreError: there is no file, or it cannot be read.
        FormatError: it is not the CSV file of a test, or a newer benchax wrote it.
    """
    content = _load(path)
    texts = [text for text in content.lines if text.strip() and not text.lstrip().startswith("#")]
    parsed = [(text, parse(text, content.form)) for text in texts]
    if damaged := [text for text, row in parsed if row is None]:
        example = " ".join(damaged[0].split())[:80]
        warnings.warn(f"{path}: {_count(damaged)} left out, such as {example!r}", stacklevel=2)
    rows = [row for _, row in parsed if row is not None]
    types = [(name, _type(name, [row[name] for row in rows])) for name in COLUMNS]
    return np.array([tuple(row[name] for name in COLUMNS) for row in rows], types)


def newest_heads(path: Path) -> list[dict[str, Any]]:
    """The heads of all rows (`lines.head_of`), from the last to the first, of a file that `append` has written to.
    Raises as `read` does."""
    return [head for head in map(head_of, reversed(_load(path).lines)) if head is not None]


def _count(damaged: Sequence[str]) -> str:
    return "1 damaged line is" if len(damaged) == 1 else f"{len(damaged)} damaged lines are"


def _load(path: Path) -> Content:
    try:
        return read_content(path)
    except OSError as error:
        raise StoreError(
            f"cannot read {path}: {error}", "the CSV file of a test, such as .benchmarks/…/main.csv"
        ) from error


def files_in(folder: Path) -> list[Path]:
    """The CSV files of tests in a folder, which is shared with other tools, in order."""
    return [file for file in sorted(folder.rglob("*.csv")) if comments_of(file)]


def comments_of(path: Path) -> list[str]:
    """The lines above the rows; none where this is not the CSV file of a test."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            lines = file.read(_LONGEST_HEADER).split("\n")
    except (OSError, ValueError):
        return []
    return list(takewhile(lambda text: text.startswith("#"), lines)) if lines[0].startswith(MAGIC) else []


def read_content(path: Path) -> Content:
    """Reads a file, whose last line can have been cut off: by a full disk, or by pytest-jax-bench when it was killed.

    Raises:
        FormatError: this is not the CSV file of a test, or a newer benchax wrote it.
    """
    *texts, rest = path.read_bytes().decode("utf-8", "surrogateescape").removeprefix(_BOM).split("\n")
    texts = [text.rstrip("\r") for text in texts]
    if rest.strip(_NO_TEXT):
        texts.append(rest)
    count = next((i for i, text in enumerate(texts) if text.strip() and not text.startswith("#")), len(texts))
    comments, lines = texts[:count], texts[count:]
    # Without a header, the number of columns tells.
    by_number = {len(form): form for form in (CURRENT, OLD_18, OLD_17)}
    form = form_of(comments, str(path)) or by_number.get(len(words_of("".join(lines[:1]))))
    first = "".join(texts[:1])
    if not (form or first.startswith(MAGIC) or MAGIC.startswith(first)):
        raise FormatError(
            f"{path} is not the CSV file of a test: it begins with {first[:60]!r}",
            f"a file that begins with {MAGIC!r}",
        )
    if lines and lines[-1] is rest and not rest.startswith("#") and not is_whole(rest, form):
        lines[-1] += _CUT_OFF  # so that no reader takes a part of a number for the number
    return Content(comments, form, lines)


def _type(name: str, values: Sequence[Any]) -> Any:
    width = fixed_width(values) if name in _FIXED_WIDTH else 0
    return f"U{width}" if width else DTYPES[KINDS[name]]


def fixed_width(texts: Any) -> int:
    """How wide the fixed-width texts of NumPy have to be to hold these; 0 if they should be objects."""
    longest = max(1, *map(len, texts), 1)
    # NumPy pads with NUL, and would take one at the end for padding.
    return longest if longest <= _WIDEST and "\0" not in "".join(texts) else 0
