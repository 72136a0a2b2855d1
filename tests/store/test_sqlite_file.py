"""What can go wrong with a file: many writers, kills, damage, foreign and newer databases, no permission."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from measurement_strategies import measured

from benchax.errors import UPGRADE, StoreError
from benchax.model import CaseId
from benchax.store.comparisons import history
from benchax.store.database import open_store
from benchax.store.schema import SCHEMA

PRELUDE = """
import os, signal, sys, warnings
from measurement_strategies import measured
from benchax.errors import UPGRADE, StoreError
from benchax.model import CaseId, Comparison, Version
from benchax.store.comparisons import append
from benchax.store.database import open_store
store = open_store(sys.argv[1])
"""


def python(script: str, *arguments: object) -> subprocess.Popen[str]:
    """A process of its own that runs `script` with a `store` at hand."""
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def finish(process: subprocess.Popen[str]) -> list[str]:
    """Its remaining output, line by line, once it has ended well."""
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return output.splitlines()


def files(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".benchmarks" / "benchax.db"


# ---- the file and its folder ------------------------------------------------------------------------------------


def test_the_first_append_makes_a_folder_that_git_ignores_and_a_file_that_is_alone_at_rest(tmp_path: Path) -> None:
    """`--store .` must not hide the whole project. An empty file is what a kill in the first milliseconds leaves."""
    there, new = tmp_path / "there", tmp_path / "a" / "b"
    there.mkdir()
    (there / "benchax.db").touch()
    for folder in (there, new):
        with pytest.raises(StoreError, match="no database at"):
            open_store(folder).query()
    assert files(tmp_path) == ["there"]

    for folder in (there, new):
        open_store(folder).append(measured())
        assert len(open_store(folder).query()) == 1

    assert files(there) == ["benchax.db", "benchax.db-lock"]
    assert files(new) == [".gitignore", "benchax.db", "benchax.db-lock"]
    assert (new / ".gitignore").read_text() == "*\n"
    with closing(sqlite3.connect(new / "benchax.db")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


# ---- many writers, kills, forks ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_eight_writers_lose_nothing_on_both_sides_of_a_fork(path: Path) -> None:
    """One instance of a store is used by the parent and by its child."""
    script = """
child = os.fork()
who = sys.argv[2] + (" parent" if child else " child")
for i in range(12):
    print(who, store.append(measured(who, elapsed_s=(float(i),))), flush=True)
    append(store, [Comparison(CaseId("f"), "run", Version(who), Version(str(i)), "same")])
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    writers = [python(script, path, f"writer {w}") for w in range(4)]
    told: dict[str, list[int]] = {}
    for line in [line for writer in writers for line in finish(writer)]:
        told.setdefault(line.rpartition(" ")[0], []).append(int(line.rpartition(" ")[2]))

    store = open_store(path)
    assert sorted(id for own in told.values() for id in own) == list(range(1, 97))
    assert len(told) == 8
    for who, own in told.items():
        assert [m.samples[0].elapsed_s for m in store.query(case=who)] == [(float(i),) for i in range(12)]
        assert [r.id for r in store.rows(case=who)] == own
        ratios = history(store, CaseId("f"), baseline=who)
        assert [c.candidate.label for c in ratios] == [str(i) for i in range(12)]


def test_a_killed_writer_loses_nothing_that_append_returned_for(path: Path) -> None:
    script = "while True: print(store.append(measured(elapsed_s=(1.0,) * 1000)), flush=True)"
    writers = [python(script, path) for _ in range(3)]
    acknowledged: list[int] = []
    for writer in writers:
        assert writer.stdout is not None
        acknowledged += [int(writer.stdout.readline()) for _ in range(10)]

    for writer in writers:
        writer.kill()
        acknowledged += map(int, writer.communicate()[0].split())

    store = open_store(path)
    # One more per writer may be stored: killed between the commit and the answer.
    assert set(acknowledged) <= {r.id for r in store.rows()}
    assert all(m.samples[0].elapsed_s == (1.0,) * 1000 for m in store.query())
    assert store.append(measured()) > max(acknowledged)


def test_a_kill_inside_a_transaction_leaves_the_rows_before_it_and_no_lock(path: Path) -> None:
    script = """
def half(connection):
    connection.execute("INSERT INTO cases (key, name, params, variant, tag) VALUES ('k', 'half', '[]', '', '')")
    os.kill(os.getpid(), signal.SIGKILL)
store.append(measured("whole"))
store.place.write(half)
"""
    process = python(script, path)
    process.communicate()
    store = open_store(path)

    store.append(measured("after"))

    assert process.returncode == -signal.SIGKILL
    assert [r.case.name for r in store.rows()] == ["whole", "after"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM cases").fetchone() == (2,)


def test_a_reader_sees_one_state_while_others_write(path: Path) -> None:
    store = open_store(path)
    store.append(measured())

    def count_twice(connection) -> list[int]:
        before = connection.scalar("SELECT count(*) FROM measurements")
        open_store(path).append(measured())
        return [before, connection.scalar("SELECT count(*) FROM measurements")]

    assert store.place.read(count_twice) == [1, 1]
    assert len(store.query()) == 2


@pytest.mark.slow
def test_readers_who_come_and_go_read_each_time(path: Path) -> None:
    """The last one to go removes the -wal, while others look for it."""
    open_store(path).append(measured())
    readers = [python("for _ in range(2000): store.rows(limit=1)\nprint('read')", path) for _ in range(3)]

    assert [finish(reader) for reader in readers] == [["read"]] * 3


def test_a_writer_that_hangs_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchax.whole_files.WAIT_S", 0.0)
    holder = python("store.place.write(lambda c: (print('writing', flush=True), sys.stdin.read()))", path)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "writing\n"

    with pytest.raises(StoreError) as error:
        open_store(path).append(measured())

    finish(holder)
    monkeypatch.undo()
    assert open_store(path).append(measured()) == 1
    assert error.value.problem == f"cannot write {path}: another process has been writing for 0 s"
    assert f"{path}-lock" in error.value.hint


# ---- damage -----------------------------------------------------------------------------------------------------


def header(content: bytes) -> bytes:
    return b"\xff" * 100 + content[100:]


def schema_page(content: bytes) -> bytes:
    return content[:100] + b"\xff" * 3900 + content[4000:]


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def other(content: bytes) -> bytes:
    return b"Dear diary,\n" * 500


@pytest.mark.parametrize("damage", [header, schema_page, half, other])
def test_a_damaged_file_is_set_aside_and_the_row_is_stored(path: Path, damage: Callable[[bytes], bytes]) -> None:
    """SQLite finds no row without the first page. Which rows it finds in half a file depends on where they are."""
    store = open_store(path)
    store.append(measured("before"))
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)

    with pytest.warns(UserWarning, match="was damaged") as warned:
        store.append(measured("after"))

    (aside,) = path.parent.glob("benchax.db.damaged-*Z")
    assert aside.read_bytes() == damaged
    names = [m.case.name for m in store.query()]
    assert names[-1] == "after"
    assert set(names[:-1]) <= {"before"}
    assert f"the database {path} was damaged" in str(warned[0].message)
    assert f"is now {aside}" in str(warned[0].message)
    assert warned[0].filename == __file__


def test_a_damaged_file_is_left_by_readers_and_set_aside_with_its_wal_by_writers(path: Path) -> None:
    """Beside a new database, the -wal of the old one could be replayed into it. Twice in one second, both are kept."""
    store = open_store(path)
    for _ in range(2):
        store.append(measured())
        path.write_bytes(b"\xff" * 4096)
        with pytest.raises(StoreError) as error:
            store.query()
        assert path.read_bytes() == b"\xff" * 4096
        assert error.value.problem == f"cannot read {path}: file is not a database"
        assert error.value.hint.startswith("the next row that is written sets the file aside")

        Path(f"{path}-wal").write_bytes(b"readings nobody has copied yet")
        with pytest.warns(UserWarning, match=r"was damaged(.|\n)*nothing of benchax in it could be read"):
            store.append(measured("after"))

    aside = sorted(path.parent.glob("benchax.db.damaged-*Z*"))
    assert [file.read_bytes()[:1] for file in aside if file.suffix.endswith("-wal")] == [b"r"] * 2
    assert len([file for file in aside if not file.name.endswith(("-wal", "-shm"))]) == 2
    assert [m.case.name for m in store.query()] == ["after"]


def test_processes_that_find_the_damage_together_share_one_new_file(path: Path) -> None:
    open_store(path).append(measured())
    path.write_bytes(b"\xff" * 4096)
    script = (
        "warnings.simplefilter('ignore'); print('ready', flush=True); sys.stdin.readline(); store.append(measured())"
    )
    writers = [python(script, path) for _ in range(4)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"

    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        finish(writer)

    assert len(open_store(path).query()) == 4
    assert len(list(path.parent.glob("benchax.db.damaged-*Z"))) == 1


# ---- databases of others ----------------------------------------------------------------------------------------


NEWER = f"was written by a newer benchax (schema 9; this one knows {SCHEMA})"
OTHERS = "belongs to something else: its only tables of benchax are samples"


@pytest.mark.parametrize(
    ("script", "said", "hint"),
    [
        ("PRAGMA journal_mode=DELETE; UPDATE meta SET value = '9' WHERE name = 'schema'", NEWER, UPGRADE),
        ("PRAGMA journal_mode=DELETE; DROP TABLE meta; DROP TABLE cases; DROP TABLE measurements", OTHERS, ""),
    ],
)
def test_a_newer_database_and_that_of_another_program_are_refused_and_left_untouched(
    path: Path, script: str, said: str, hint: str
) -> None:
    store = open_store(path)
    store.append(measured())
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    before = path.read_bytes()

    for use in (store.query, store.rows, lambda: store.append(measured())):
        with pytest.raises(StoreError) as error:
            use()

        assert (error.value.problem, error.value.hint) == (f"database {path} {said}", hint)
    assert path.read_bytes() == before


# ---- places that cannot be written ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place", ["/proc/benchax", "/dev/null", "/dev/null/x.db", "/proc/x.db", "x" * 300, "file", "fifo.db"]
)
def test_a_place_that_cannot_be_written_is_named(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    os.mkfifo(tmp_path / "fifo.db")
    store = open_store(tmp_path / place)

    with pytest.raises(StoreError) as error:
        store.append(measured())

    assert error.value.problem.startswith(f"cannot write {store.where}: ")
    assert error.value.expected == "a folder that you can create and write to"
    assert "--store" in error.value.hint
    with pytest.raises(StoreError, match=r"cannot read .*fifo\.db: it isn't a regular file"):  # and is not waited for
        open_store(tmp_path / "fifo.db").rows()


def test_a_read_only_folder_can_be_read_and_not_written() -> None:
    """Root may write everywhere, so the process becomes somebody else first, who may not enter pytest's folders."""
    script = """
open_store(sys.argv[2]).append(measured())  # whatever is imported on first use is imported before the rights go
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
print([m.case.name for m in store.query()])
try:
    store.append(measured())
except StoreError as error:
    print(error.problem)
"""
    with tempfile.TemporaryDirectory() as own, tempfile.TemporaryDirectory() as public:
        folder = Path(public)
        open_store(folder).append(measured("kept"))
        folder.chmod(0o555)
        read, refused = finish(python(script, folder, own))
        found = files(folder)
        folder.chmod(0o755)

    assert read == "['kept']"
    assert refused.startswith(f"cannot write {folder / 'benchax.db'}: ")
    assert found == ["benchax.db", "benchax.db-lock"]


def test_where_no_more_fits_the_row_is_refused_and_those_before_it_stay(path: Path) -> None:
    """A limit on the size of files stands for the full disk: the write fails in the middle of the file."""
    script = """
import resource
stored = 0
store.append(measured(elapsed_s=(1.0,) * 1000))
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
row = measured(elapsed_s=(2.0,) * 1000)
while stored < 1000:
    try:
        stored += bool(store.append(row))
    except StoreError as error:
        print(error.problem, "|", error.expected)
        break
print(stored)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.append(row)
"""
    message, stored = finish(python(script, path))

    assert message.startswith(f"cannot write {path}: disk I/O error | a disk with free space")
    assert 0 < int(stored) < 100
    assert len(open_store(path).query()) == 1 + int(stored) + 1


def test_a_file_that_is_held_open_is_whole_after_every_row_and_tidy_afterwards(tmp_path: Path) -> None:
    store = open_store(tmp_path)

    with store.held_open():
        for i in range(3):
            writer = store if i < 2 else open_store(tmp_path)  # others write, too
            writer.append(replace(measured("f"), run_id=f"run-{i}"))
            assert [row.run_id for row in open_store(tmp_path).rows()] == [f"run-{k}" for k in range(i + 1)]
        assert (tmp_path / "benchax.db-wal").stat().st_size > 0
    assert not (tmp_path / "benchax.db-wal").exists()

    assert len(store.rows()) == 3
