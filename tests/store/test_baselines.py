"""Programs beside their rows, names of runs, what a word refers to, and databases from before there were any."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from measurement_strategies import RICH, exact, measured

from benchax.errors import StoreError, UsageError
from benchax.model import CaseId, Comparison, Measurement, Program, Version
from benchax.store import baselines, comparisons
from benchax.store.baselines import by_case, list_baselines, program, remove, rows_of, set_baseline
from benchax.store.database import DatabaseStore, open_store
from benchax.store.schema import MIGRATIONS, SCHEMA, take_step


def with_program(content: bytes, name: str = "f", run: str = "run") -> Measurement:
    sha256 = hashlib.sha256(content).hexdigest()
    return replace(measured(name, run=run), program=Program(sha256, len(content), content))


def names(found: list[Measurement]) -> list[str]:
    return [m.case.name for m in found]


@pytest.fixture
def file(tmp_path: Path) -> DatabaseStore:
    return open_store(tmp_path)


# ---- programs ---------------------------------------------------------------------------------------------------


def test_a_program_is_kept_once_for_all_rows_that_have_it_and_read_when_it_is_asked_for(store: DatabaseStore) -> None:
    long = bytes(range(256)) * 10_000
    for content in (b"\0\xff module", b"\0\xff module", long):
        id = store.append(with_program(content))
    store.append(measured())
    store.append(RICH)  # it names one whose content was never here

    assert store.get(id).program == Program(hashlib.sha256(long).hexdigest(), len(long), None)
    assert [program(store, m) for m in store.query()] == [b"\0\xff module"] * 2 + [long, None, None]
    assert store.read(lambda c: c.scalar("SELECT count(*) FROM programs"), 0) == 2


# ---- names ------------------------------------------------------------------------------------------------------


def test_a_name_means_the_run_that_it_was_given_to_last_and_can_be_taken_back(store: DatabaseStore) -> None:
    for run in ("r1", "r2", "r3"):
        store.append(measured(f"of {run}", run=run))
    odd = '"naïve\0 🦊'

    given_name = set_baseline(store, "main", "r1")
    assert list_baselines(store) == [given_name]
    set_baseline(store, odd, "r3")
    set_baseline(store, "main", "r2")
    assert [(b.name, b.run_id) for b in list_baselines(store)] == [(odd, "r3"), ("main", "r2")]
    assert [names(rows_of(store, name)) for name in ("main", odd)] == [["of r2"], ["of r3"]]

    remove(store, "main")
    assert [b.name for b in list_baselines(store)] == [odd]
    with pytest.raises(UsageError, match="'main' isn't a baseline, run or commit"):
        rows_of(store, "main")

    set_baseline(store, "main", "r1")
    assert names(rows_of(store, "main")) == ["of r1"]


@pytest.mark.parametrize("name", ["last", "", "  ", "\n", "model.py:f"])
def test_names_that_mean_something_else_or_nothing_are_refused(store: DatabaseStore, name: str) -> None:
    with pytest.raises(StoreError, match="no database at"):
        list_baselines(store)
    with pytest.raises(StoreError, match="no database at"):
        rows_of(store, "last")
    store.append(measured())

    with pytest.raises(UsageError) as error:
        set_baseline(store, name, "run")
    with pytest.raises(UsageError, match="there is no baseline 'v1'\nexpected a name; the store has no baseline"):
        remove(store, "v1")

    expected = "a name without a colon, other than 'last', such as v1.2"
    assert str(error.value) == f"a baseline cannot be called {name!r}\nexpected {expected}"
    assert list_baselines(store) == []
    set_baseline(store, "v1.2", "run")
    with pytest.raises(UsageError, match=r"there is no baseline 'v1.3'\nexpected 'v1.2'\? Choices: v1.2"):
        remove(store, "v1.3")


# ---- what a word refers to --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ['"quoted"', "a\0b", "\ud7ff\U0010ffff", ""])
def test_runs_are_listed_newest_first_whatever_their_texts(store: DatabaseStore, text: str) -> None:
    odd = replace(RICH.environment, host=text, commit=text, backend=text, is_dirty=None)
    store.append(replace(RICH, case=CaseId(text), run_id=f"{text} run", environment=odd))
    for name in "aba":
        store.append(measured(name, run="r2"))

    newest, oldest = baselines.list_runs(store)

    assert (newest.run_id, newest.rows, newest.failed, newest.cases) == ("r2", 3, 0, ("a", "b"))
    assert (oldest.run_id, oldest.failed, oldest.cases) == (f"{text} run", 1, (text,))
    assert (oldest.host, oldest.commit, oldest.backend, oldest.is_dirty) == (text, text, text, None)
    assert baselines.list_runs(store, 1) == [newest]


REFERENCES = {
    "v1": "named",  # a name goes before all others
    "beef": "named",
    "last": "newest 1, newest 2",
    "last~1": "called so",  # before the run with this id
    "last~2": "named",
    "last-one": "called so",
    "2026-01-01-aa": "first, twice, twice[n=8]",
    "2026-01-01": "first, twice, twice[n=8]",
    "2026": "second",  # the newest of these runs
    "cafe": "by run",  # a run goes before a commit
    "facade": "second",
    "FACADE00": "second",
    "facade" + "0" * 34: "second",
    **dict.fromkeys(["fac", "%", "_", "", "r%"], None),  # too short to mean a commit, and signs of SQL
}


def test_a_word_means_a_name_or_last_or_a_run_or_a_commit_in_this_order(store: DatabaseStore) -> None:
    store.append(measured("first", run="2026-01-01-aa", commit="beef" + "0" * 36))
    for seconds in (1.0, 2.0):  # the newest row of each case counts
        store.append(measured("twice", run="2026-01-01-aa", elapsed_s=(seconds,)))
    store.append(measured("twice", run="2026-01-01-aa", elapsed_s=(3.0,), n=8))
    store.append(measured("second", run="2026-01-02-bb", commit="facade" + "0" * 34))
    store.append(measured("by commit", run="r1", commit="cafe" + "1" * 36))
    store.append(measured("by run", run="cafe-1"))
    store.append(measured("named", run="r3"))
    set_baseline(store, "beef", "r3")
    set_baseline(store, "v1", "r3")
    store.append(measured("called so", run="last-one"))
    store.append_all([measured("newest 1", run="r5"), measured("newest 2", run="r5")])

    for word, expected in REFERENCES.items():
        if expected is None:
            with pytest.raises(UsageError):
                rows_of(store, word)
        else:
            assert ", ".join(m.case.label for m in rows_of(store, word)) == expected, word
    found = by_case(rows_of(store, "2026-01-01"))
    assert [m.samples[0].elapsed_s for m in found.values()][1:] == [(2.0,), (3.0,)]


def test_a_word_that_means_nothing_is_told_what_there_is(store: DatabaseStore) -> None:
    store.append(measured(run="r1"))
    set_baseline(store, "v1.2", "r1")
    set_baseline(store, "naïve 🦊", "r1")

    with pytest.raises(UsageError) as error:
        rows_of(store, "v1.1")

    assert str(error.value) == (
        f"'v1.1' isn't a baseline, run or commit in {store.where}\n"
        "expected a name given with `benchax baseline set` (here: v1.2, naïve 🦊), 'last', "
        "'last~1', or the first digits of a run or a commit\n\n"
        "hint: see `benchax runs`"
    )


# ---- databases of schema 1 --------------------------------------------------------------------------------------


@pytest.fixture
def old(file: DatabaseStore, monkeypatch: pytest.MonkeyPatch) -> DatabaseStore:
    """A database as the first version made it, with two rows."""
    file.place.write(lambda c: take_step(c, MIGRATIONS[0]))
    with monkeypatch.context() as before:
        before.setattr("benchax.store.database.SCHEMA", 1)
        before.setattr("benchax.store.schema.SCHEMA", 1)
        for m in (replace(RICH, program=None), measured("f", run="r1")):
            open_store(file.where).append(m)
    assert schema(file) == ("1", False)
    return file


def schema(store: DatabaseStore) -> tuple[str, bool]:
    """What it says of itself, and whether it has the tables of version 2."""
    with closing(sqlite3.connect(store.where)) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        said = connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()[0]
    return said, {"programs", "baselines", "comparisons"} <= tables


def test_an_old_database_is_read_and_left_as_it_is_until_the_next_row_or_name(old: DatabaseStore) -> None:
    before, rows = Path(old.where).read_bytes(), exact([replace(RICH, program=None), measured("f", run="r1")])

    found = old.query()
    assert exact(found) == rows
    assert names(rows_of(old, "r1")) == ["f"]
    assert list_baselines(old) == []
    assert comparisons.history(old, CaseId("f")) == []
    assert [program(old, m) for m in found] == [None, None]
    with pytest.raises(UsageError, match="'v1' isn't a baseline"):
        rows_of(old, "v1")
    assert Path(old.where).read_bytes() == before

    set_baseline(old, "v1", "r1")

    assert schema(old) == (str(SCHEMA), True)
    assert names(rows_of(old, "v1")) == ["f"]
    old.append(with_program(b"content", "g", "r2"))
    *others, newest = old.query()
    assert (exact(others), program(old, newest)) == (rows, b"content")


def test_a_database_of_version_2_is_read_with_its_programs_names_and_comparisons(store: DatabaseStore) -> None:
    store.append(with_program(b"content"))
    named = set_baseline(store, "v1", "run")
    comparison = Comparison(CaseId("f"), "run", Version("v1"), Version("now"), "unclear", "no time was left")
    comparisons.append(store, [comparison])
    store.place.write(lambda c: c.execute("UPDATE meta SET value = '2' WHERE name = 'schema'"))

    assert list_baselines(store) == [named]
    assert [program(store, m) for m in rows_of(store, "v1")] == [b"content"]
    assert comparisons.history(store, CaseId("f")) == [comparison]
    assert [each.count for each in comparisons.list_series(store)] == [1]


def test_a_migration_that_fails_changes_nothing(old: DatabaseStore, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = f"{MIGRATIONS[1]}; INSERT INTO the_light VALUES ('out')"
    monkeypatch.setattr("benchax.store.schema.MIGRATIONS", [MIGRATIONS[0], broken])

    with pytest.raises(StoreError, match="the_light"):
        old.append(measured("g"))

    assert schema(old) == ("1", False)
    assert names(open_store(old.where).query()) == [RICH.case.name, "f"]
