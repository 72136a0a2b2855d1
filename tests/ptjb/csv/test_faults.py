"""What can go wrong with the CSV file of a test: many writers, kills, lines cut off, no room, no permission."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchax import whole_files
from benchax.errors import StoreError
from pytest_jax_bench.csv.files import append, read

GOLDEN = Path(__file__).parents[2] / "golden"

PRELUDE = """
import os, resource, signal, sys
from pathlib import Path
from benchax.errors import StoreError
from pytest_jax_bench.csv import files as csv_files
path = Path(sys.argv[1])
def add(**row):
    return csv_files.append(path, row, nodeid="t.py::f", backend="cpu", device="cpu")
"""

Add = Callable[..., dict[str, Any]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.py--f" / "main.csv"


@pytest.fixture
def add(path: Path) -> Add:
    return lambda **row: append(path, row, nodeid="t.py::f", backend="cpu", device="cpu")


def python(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def finish(process: subprocess.Popen[str]) -> list[str]:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return output.splitlines()


def tags(path: Path) -> list[str]:
    return read(path)["tag"].tolist()


# ---- many writers -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", [None, "ptjb-readme-17-columns.csv"], ids=["a new file", "an old file"])
def test_eight_processes_lose_nothing_and_give_no_number_twice(path: Path, name: str | None) -> None:
    path.parent.mkdir()
    if name is not None:
        shutil.copy(GOLDEN / name, path)
    before = 4 if name else 0
    script = (
        "for i in range(25): print(add(tag=f'{sys.argv[2]} {i}', session=f'{sys.argv[2]} {i}', commit='a1')['run_id'])"
    )

    writers = [python(script, path, f"writer {w}") for w in range(8)]
    own = [[int(line) for line in finish(writer)] for writer in writers]

    data = read(path)
    assert data["run_id"].tolist() == list(range(before + 200))
    assert data["commit_run"][before:].tolist() == list(range(200))
    for w, ids in enumerate(own):
        assert data["tag"][ids].tolist() == [f"writer {w} {i}" for i in range(25)]
    assert path.read_text().count("# pytest-jax-bench") == 1


@pytest.mark.slow
def test_a_reader_meets_only_whole_rows(path: Path, add: Add) -> None:
    """Each row is longer than what the system writes at once, and no warning tells of a line cut off."""
    add(tag="0")
    writer = python("for i in range(200): add(tag=str(i + 1), message='m' * 9000)", path)

    while writer.poll() is None:
        found = tags(path)
        assert found == [str(i) for i in range(len(found))]

    finish(writer)
    assert len(tags(path)) == 201


def test_a_writer_that_hangs_is_named(path: Path, add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tag="a")
    monkeypatch.setattr(whole_files, "WAIT_S", 0.0)

    with path.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match=r"another process has been writing for 0 s\n\nhint: it may hang"):
            add(tag="b")

    assert add(tag="c")["run_id"] == 1
    assert tags(path) == ["a", "c"]


def test_who_waited_for_a_file_that_was_replaced_writes_to_the_new_one(path: Path, add: Add) -> None:
    add(tag="a")
    with path.open() as old:
        fcntl.flock(old, fcntl.LOCK_EX)
        waiting = threading.Thread(target=add, kwargs={"tag": "b"})
        waiting.start()
        shutil.copy(path, path.with_name("new"))
        path.with_name("new").replace(path)
        fcntl.flock(old, fcntl.LOCK_UN)
        waiting.join(60)

    assert tags(path) == ["a", "b"]


# ---- kills ------------------------------------------------------------------------------------------------------


def test_a_killed_writer_loses_nothing_that_append_returned_for(path: Path, add: Add) -> None:
    script = "while True: print(add(tag=sys.argv[2], session=os.urandom(8).hex())['run_id'], flush=True)"
    writers = [python(script, path, w) for w in range(3)]
    acknowledged: list[int] = []
    for writer in writers:
        assert writer.stdout is not None
        acknowledged += [int(writer.stdout.readline()) for _ in range(10)]

    for writer in writers:
        writer.kill()
        acknowledged += map(int, writer.communicate()[0].split())

    found = read(path)["run_id"].tolist()
    assert found == list(range(len(found)))
    assert set(acknowledged) <= set(found)
    assert add(tag="after")["run_id"] == len(found)


@pytest.mark.parametrize("name", [None, "ptjb-0.5.0-tags.csv"], ids=["ours", "an old one"])
def test_a_kill_in_the_middle_of_a_write_costs_that_row_only(path: Path, add: Add, name: str | None) -> None:
    path.parent.mkdir()
    before = tags(Path(shutil.copy(GOLDEN / name, path))) if name else [add(tag="whole")["tag"]]
    content = path.read_bytes()
    script = "os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)\nadd(tag='half')"

    process = python(script, path)
    process.communicate(timeout=60)

    assert process.returncode == -signal.SIGKILL
    assert path.read_bytes() == content
    add(tag="after")
    assert tags(path) == [*before, "after"]


# ---- lines cut off ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["ours", "ptjb-readme-17-columns.csv", "ptjb-0.5.0-tags.csv", "ptjb-0.5.0-blank-in-parameter.csv"]
)
def test_wherever_the_last_line_is_cut_nothing_else_is_lost(path: Path, add: Add, name: str) -> None:
    if name == "ours":
        for tag in ("first", "last"):
            add(tag=tag, jax="0.10.2")
        whole = path.read_bytes()
    else:
        path.parent.mkdir()
        # Two digits in the last column, of which one may be lost.
        whole = re.sub(rb" \d\n$", b"12\n", (GOLDEN / name).read_bytes())
        path.write_bytes(whole)
    rows = [str(row) for row in read(path).tolist()]
    begin = whole.rstrip(b"\n").rindex(b"\n") + 1
    for cut in [*range(begin, len(whole) - 40, 9), *range(len(whole) - 40, len(whole) + 1, 3), len(whole) - 1]:
        path.write_bytes(whole[:cut])
        is_cut = cut < len(whole) - 1
        expected = rows[:-1] if is_cut else rows
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert [str(row) for row in read(path).tolist()] == expected
            row = add(tag="next")

        assert [str(row) for row in read(path).tolist()][:-1] == expected
        assert row["run_id"] == len(set(read(path)["run_id"].tolist())) - 1
        assert ("# could not be read: " in path.read_text()) == (is_cut and bool(whole[begin:cut].strip()))


def test_a_missing_last_line_break_is_no_damage(path: Path, add: Add, recwarn: pytest.WarningsRecorder) -> None:
    add(tag="a", jax="0.10.2")
    for strip in (lambda text: text + "# a note, 50 %", lambda text: text.rstrip("\n"), str.rstrip):
        path.write_text(strip(path.read_text()))
        add(tag="a", jax="0.10.2")

    assert tags(path) == ["a"] * 4
    assert read(path)["run_id"].tolist() == [0, 1, 2, 3]
    assert "# a note, 50 %" in path.read_text().splitlines()
    assert len(recwarn) == 0


def test_a_damaged_line_is_reported_once_and_kept(path: Path, add: Add) -> None:
    add(tag="a")
    path.write_text(f"{path.read_text()}  1  50%  of a li\n")

    with pytest.warns(
        UserWarning, match="1 damaged line is made a comment: '# could not be read:   1  50%25  of a li'"
    ):
        add(tag="b")
    add(tag="c")

    assert tags(path) == ["a", "b", "c"]
    assert path.read_text().count("# could not be read:   1  50%25  of a li\n") == 1


def test_zeros_at_the_end_as_after_a_power_cut_are_removed(path: Path, add: Add) -> None:
    add(tag="a")
    with path.open("ab") as file:
        file.write(b"\0" * 5000)

    assert tags(path) == ["a"]
    add(tag="b")

    assert tags(path) == ["a", "b"]
    assert b"\0" not in path.read_bytes()


# ---- no room, no permission -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [None, "ptjb-0.5.0-tags.csv"], ids=["ours", "an old one"])
def test_a_full_disk_leaves_the_file_as_it_was(path: Path, add: Add, name: str | None) -> None:
    script = """
size = path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
try:
    add(tag="no room")
except StoreError as error:
    print(str(error).splitlines()[0])
assert path.stat().st_size == size
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
add(tag="room")
"""
    path.parent.mkdir()
    if name:
        shutil.copy(GOLDEN / name, path)
    else:
        add(tag="before")
    before = tags(path)

    (message,) = finish(python(script, path))

    assert re.fullmatch(r"cannot write .*main\.csv: \[Errno 27\] File too large", message)
    assert tags(path) == [*before, "room"]
    assert "no%20room" not in path.read_text()
    assert [file.name for file in path.parent.iterdir()] == ["main.csv"]


def test_in_a_read_only_folder_rows_are_read_and_a_new_one_is_an_error_in_words() -> None:
    script = """
if os.geteuid() == 0:
    os.setuid(65534)  # nothing is read-only for root
print(csv_files.read(path)["tag"].tolist())
for path in (path, path.with_name("new.csv"), path.parent / "folder" / "new.csv"):
    try:
        add(tag="b")
    except StoreError as error:
        print(str(error).splitlines()[0])
"""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "main.csv"
        append(path, {"tag": "a"}, nodeid="t.py::f", backend="cpu", device="cpu")
        path.chmod(0o444)
        path.parent.chmod(0o555)

        found = finish(python(script, path))

    assert found == [
        "['a']",
        f"cannot write {path}: [Errno 13] Permission denied: '{path}'",
        f"cannot write {path.with_name('new.csv')}: [Errno 13] Permission denied: '{path.with_name('new.csv')}'",
        f"cannot write {path.parent}/folder/new.csv: [Errno 13] Permission denied: '{path.parent}/folder'",
    ]


@pytest.mark.parametrize("place", ["/dev/full", "/dev/null/main.csv", "x" * 300])
def test_a_place_that_cannot_be_written_is_an_error_in_words(place: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot write .*\nexpected a folder that .*\n\nhint: name another folder"):
        append(tmp_path / place, {}, nodeid="t.py::f", backend="cpu", device="cpu")


def test_a_file_may_be_a_link(path: Path, add: Add, tmp_path: Path) -> None:
    path.parent.mkdir()
    target = Path(shutil.copy(GOLDEN / "ptjb-0.5.0-tags.csv", tmp_path / "elsewhere.csv"))
    path.symlink_to(target)

    add(tag="new")

    assert path.is_symlink()
    assert tags(target)[-1] == "new"


def test_a_warning_that_is_an_error_comes_after_the_row(path: Path, add: Add) -> None:
    add(tag="a")
    path.write_bytes(path.read_bytes() + b"   0   a1")

    # pytest is told to make errors of warnings
    with pytest.raises(UserWarning, match="1 damaged line is made a comment"):
        add(tag="b")

    assert tags(path) == ["a", "b"]


def test_a_row_is_on_the_disk_when_append_returns(path: Path, add: Add, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(str(Path(f"/proc/self/fd/{file}").readlink())))

    add(tag="a")

    assert synced[0].endswith(".part")
    assert synced[1:] == [str(path.parent)], "and so is its name"
