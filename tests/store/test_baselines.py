"""Programs beside their rows, names of runs, what a word refers to, and databases from before there were any."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from measurement_strategies import RICH, exact, measured

from benchax.errors import StoreError, UsageError
from benchax.model import CaseId, Measurement, Program
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


def count(store: DatabaseStore, table: str) -> int:
    with closing(sqlite3.connect(store.where)) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


# ---- programs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"\0\xff module", bytes(range(256)) * 10_000], ids=["short", "long"])
def test_the_content_of_a_program_comes_back(store: DatabaseStore, content: bytes) -> None:
    id = store.append(with_program(content))

    row = store.get(id)
    assert row.program == Program(hashlib.sha256(content).hexdigest(), len(content))
    assert row.program is not None
    assert row.program.content is None  # read only when it is asked for
    assert program(store, row) == content


def test_a_program_is_kept_once_for_all_rows_that_have_it(file: DatabaseStore) -> None:
    for content in (b"one", b"one", b"other", b"one"):
        file.append(with_program(content))

    assert (count(file, "measurements"), count(file, "programs")) == (4, 2)
    assert [program(file, m) for m in file.query()] == [b"one", b"one", b"other", b"one"]


def test_a_row_without_a_program_has_none(store: DatabaseStore) -> None:
    store.append(measured())
    store.append(RICH)  # it names one whose content was never here

    assert [program(store, m) for m in store.query()] == [None, None]


# ---- names ------------------------------------------------------------------------------------------------------


def test_a_name_means_the_run_that_it_was_given_to(store: DatabaseStore) -> None:
    for run in ("r1", "r2", "r3"):
        store.append(measured(f"of {run}", run=run))

    given_name = set_baseline(store, "v1.2", "r2")

    assert (given_name.name, given_name.run_id) == ("v1.2", "r2")
    assert list_baselines(store) == [given_name]
    assert names(rows_of(store, "v1.2")) == ["of r2"]


def test_a_name_may_be_given_again_and_taken_back(store: DatabaseStore) -> None:
    store.append(measured("a", run="r1"))
    store.append(measured("b", run="r2"))
    set_baseline(store, "main", "r1")
    set_baseline(store, "v1", "r1")

    set_baseline(store, "main", "r2")
    assert [(b.name, b.run_id) for b in list_baselines(store)] == [("v1", "r1"), ("main", "r2")]
    assert names(rows_of(store, "main")) == ["b"]

    remove(store, "main")
    assert [b.name for b in list_baselines(store)] == ["v1"]
    with pytest.raises(UsageError, match="'main' is no baseline, run or commit"):
        rows_of(store, "main")

    set_baseline(store, "main", "r1")
    assert names(rows_of(store, "main")) == ["a"]


@pytest.mark.parametrize("name", ["last", "", "  ", "\n", "model.py:f"])
def test_names_that_mean_something_else_are_refused(store: DatabaseStore, name: str) -> None:
    store.append(measured())

    with pytest.raises(UsageError) as error:
        set_baseline(store, name, "run")

    expected = "a name without a colon, other than 'last', such as v1.2"
    assert str(error.value) == f"a baseline cannot be called {name!r}\nexpected {expected}"
    assert list_baselines(store) == []


def test_a_name_that_is_not_there_cannot_be_removed(store: DatabaseStore) -> None:
    store.append(measured())
    with pytest.raises(UsageError, match="there is no baseline 'v1'\nexpected a name; the store has no baseline"):
        remove(store, "v1")

    set_baseline(store, "v1.2", "run")
    with pytest.raises(UsageError, match=r"there is no baseline 'v1.3'\nexpected 'v1.2'\? Permitted is one of: v1.2"):
        remove(store, "v1.3")


@given(name=st.text(st.characters(), min_size=1))
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_any_name_can_be_given_and_taken_back(store: DatabaseStore, name: str) -> None:
    if not name.strip() or name == "last" or ":" in name:
        return
    store.append(measured("named", run="r 1"))
    set_baseline(store, name, "r 1")

    assert name in [b.name for b in list_baselines(store)]
    assert names(rows_of(store, name)) == ["named"]

    remove(store, name)
    assert name not in [b.name for b in list_baselines(store)]


# ---- what a word refers to --------------------------------------------------------------------------------------


def test_last_is_the_newest_run(store: DatabaseStore) -> None:
    for name, run in (("a", "r1"), ("b", "r2"), ("c", "r2")):
        store.append(measured(name, run=run))

    assert names(rows_of(store, "last")) == ["b", "c"]


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


def test_the_newest_row_of_each_case_counts(store: DatabaseStore) -> None:
    for seconds in (1.0, 2.0):
        store.append(measured("f", run="r1", elapsed_s=(seconds,)))
    store.append(measured("f", run="r1", elapsed_s=(3.0,), n=8))

    found = by_case(rows_of(store, "r1"))

    assert {id.label: m.samples[0].elapsed_s for id, m in found.items()} == {"f": (2.0,), "f[n=8]": (3.0,)}


def test_a_run_is_known_by_its_first_digits_and_the_newest_wins(store: DatabaseStore) -> None:
    store.append(measured("a", run="2026-01-01-aa"))
    store.append(measured("b", run="2026-01-02-bb"))

    assert names(rows_of(store, "2026-01-01-aa")) == ["a"]
    assert names(rows_of(store, "2026-01-01")) == ["a"]
    assert names(rows_of(store, "2026")) == ["b"]


@pytest.mark.parametrize("reference", ["%", "_", "", "r%"])
def test_signs_of_sql_stand_for_themselves(store: DatabaseStore, reference: str) -> None:
    store.append(measured(run="run"))

    with pytest.raises(UsageError):
        rows_of(store, reference)


def test_a_commit_is_known_by_its_first_digits(store: DatabaseStore) -> None:
    store.append(measured("a", run="r1", commit="c0ffee" + "0" * 34))
    store.append(measured("b", run="r2", commit="bead" + "1" * 36))

    assert names(rows_of(store, "c0ffee")) == ["a"]
    assert names(rows_of(store, "C0FFEE00")) == ["a"]
    assert names(rows_of(store, "bead" + "1" * 36)) == ["b"]
    with pytest.raises(UsageError):
        rows_of(store, "c0f")  # too short to mean a commit


def test_a_name_goes_before_last_before_a_run_before_a_commit(store: DatabaseStore) -> None:
    store.append(measured("by commit", run="r1", commit="beef" + "0" * 36))
    assert names(rows_of(store, "beef")) == ["by commit"]

    store.append(measured("by run", run="beef-1"))
    assert names(rows_of(store, "beef")) == ["by run"]

    store.append(measured("by name", run="r3"))
    set_baseline(store, "beef", "r3")
    assert names(rows_of(store, "beef")) == ["by name"]

    store.append(measured("run called so", run="last-one"))
    store.append(measured("newest", run="r5"))
    assert names(rows_of(store, "last")) == ["newest"]
    assert names(rows_of(store, "last~1")) == ["run called so"]


def test_a_word_that_means_nothing_is_told_what_there_is(store: DatabaseStore) -> None:
    store.append(measured(run="r1"))
    set_baseline(store, "v1.2", "r1")
    set_baseline(store, "naïve 🦊", "r1")

    with pytest.raises(UsageError) as error:
        rows_of(store, "v1.1")

    assert str(error.value) == (
        f"'v1.1' is no baseline, run or commit in {store.where}\n"
        "expected a name given with `benchax baseline set` (here: v1.2, naïve 🦊), 'last', "
        "'last~1', or the first digits of a run or a commit\n\n"
        "hint: see `benchax runs`"
    )


def test_where_nothing_was_ever_stored_that_is_said(file: DatabaseStore) -> None:
    for ask in (lambda: list_baselines(file), lambda: rows_of(file, "last")):
        with pytest.raises(StoreError, match="no database at"):
            ask()


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


def test_an_old_database_is_read_and_left_as_it_is(old: DatabaseStore) -> None:
    before = Path(old.where).read_bytes()

    found = old.query()
    assert exact(found) == exact([replace(RICH, program=None), measured("f", run="r1")])
    assert names(rows_of(old, "r1")) == ["f"]
    assert list_baselines(old) == []
    assert comparisons.history(old, CaseId("f")) == []
    assert [program(old, m) for m in found] == [None, None]
    with pytest.raises(UsageError, match="'v1' is no baseline"):
        rows_of(old, "v1")

    assert Path(old.where).read_bytes() == before


def test_the_next_row_brings_an_old_database_up_to_date(old: DatabaseStore) -> None:
    old.append(with_program(b"content", "g", "r2"))

    assert schema(old) == (str(SCHEMA), True)
    found = old.query()
    assert exact(found[:2]) == exact([replace(RICH, program=None), measured("f", run="r1")])
    assert program(old, found[2]) == b"content"


def test_a_name_brings_an_old_database_up_to_date_too(old: DatabaseStore) -> None:
    set_baseline(old, "v1", "r1")

    assert schema(old) == (str(SCHEMA), True)
    assert names(rows_of(old, "v1")) == ["f"]


def test_a_migration_that_fails_changes_nothing(old: DatabaseStore, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = f"{MIGRATIONS[1]}; INSERT INTO the_light VALUES ('out')"
    monkeypatch.setattr("benchax.store.schema.MIGRATIONS", [MIGRATIONS[0], broken])

    with pytest.raises(StoreError, match="the_light"):
        old.append(measured("g"))

    assert schema(old) == ("1", False)
    assert names(open_store(old.where).query()) == [RICH.case.name, "f"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_old_database_that_may_not_be_written_has_no_baselines(old: DatabaseStore) -> None:
    Path(old.where).chmod(0o444)
    Path(old.where).parent.chmod(0o555)
    try:
        assert baselines.list_baselines(open_store(old.where)) == []
        assert names(open_store(old.where).query()) == [RICH.case.name, "f"]
    finally:
        Path(old.where).parent.chmod(0o755)
