"""What every store promises: of rows, earlier runs, timelines and comparisons; which places it takes, and what
columns hold."""

from __future__ import annotations

import dataclasses
import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from comparisons_by_hand import compared
from hypothesis import HealthCheck, example, given, settings
from measurement_strategies import HOST, RICH, case_ids, exact, measured, values_of

from benchax.codec import decode_comparison, encode
from benchax.errors import FormatError, MissingPackage, StoreError, UsageError
from benchax.model import (
    CaseId,
    Comparison,
    EarlierRuns,
    Failure,
    Measurement,
    Memory,
    Opaque,
    Samples,
    Version,
)
from benchax.store import comparisons
from benchax.store.comparisons import append, history, list_activity, read_comparisons, read_timeline
from benchax.store.database import KEPT_RUNS, LOOKED_AT, DatabaseStore, open_store
from benchax.store.schema import MIGRATIONS, StorableRow, case_key, decode_text, encode_text, row_of, take_step


def names(found: list) -> list[str]:
    return [m.case.name for m in found]


def test_a_measurement_comes_back_exactly(store: DatabaseStore) -> None:
    """Readings to the last bit, and in another process."""
    times = (0.1 + 0.2, 5e-324, 1.7976931348623157e308, -0.0, float("inf"))
    samples = (Samples("wall", 1, times, disturbed=(True, False, True, True, False)),)
    rows = [RICH, dataclasses.replace(RICH, samples=samples)]

    ids = [store.append(row) for row in rows]

    # repr, because RICH holds a NaN, and to tell 1 from 1.0 from True.
    assert [exact(store.get(id)) for id in ids] == [exact(row) for row in rows]
    assert exact(pickle.loads(pickle.dumps(store)).query()) == exact(rows)
    with pytest.raises(StoreError, match="there is no row 4711 in "):
        store.get(4711)


@given(case=case_ids())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_name_params_variant_and_tag_survive(store: DatabaseStore, case: CaseId) -> None:
    m = dataclasses.replace(measured(), case=case)

    id = store.append(m)

    assert exact(store.get(id)) == exact(m)
    assert exact(store.rows(limit=1)[0].case) == exact(case)
    assert exact(store.query(case=case.name)[-1].case) == exact(case)


def test_cases_differ_when_any_part_of_their_identity_does(store: DatabaseStore) -> None:
    values = (1, 1.0, True, "1", (1,), Opaque("int", "1"), None)
    cases = [CaseId("f", (("n", v),)) for v in values] + [CaseId("f"), CaseId("f", variant="x"), CaseId("f", tag="x")]
    store.append_all([dataclasses.replace(measured(), case=case) for case in cases])

    assert [exact(r.case) for r in store.rows()] == [exact(c) for c in cases]
    assert len(list_activity(store)) == len(cases)


def test_rows_that_are_stored_together_are_all_there_in_their_order(store: DatabaseStore) -> None:
    first = store.append(measured("c"))
    ids = store.append_all([*(measured(name) for name in "bacb"), RICH])

    assert [first, *ids] == sorted({first, *ids})
    assert names(store.query()) == ["c", "b", "a", "c", "b", RICH.case.name]
    assert exact(store.get(ids[-1])) == exact(RICH)
    assert [store.get(id).case.name for id in ids[:4]] == [*"bacb"]
    assert len({row.case for row in store.rows()}) == 4
    assert store.append_all([]) == []
    assert names(store.rows()) == names(store.query())
    assert names(store.rows(limit=2)) == names(store.query(limit=2)) == ["b", RICH.case.name]
    assert store.query(limit=0) == []


@pytest.mark.parametrize(
    ("case", "found"),
    [
        ("fft", ["fft"]),
        ("fft*", ["fft", "fft2", "fft[n=1]"]),
        ("fft?", ["fft2"]),
        ("fft[n=?]", ["fft[n=1]"]),
        ("*[*", ["fft[n=1]", "sum[1]"]),
        ("FFT", ["FFT"]),
        ("F*", ["FFT"]),
        ("what?", ["what?"]),
        ("a\nb*", ["a\nb\x00c"]),
        ("a?b?c", ["a\nb\x00c"]),
        ("%", []),
        ("none*", []),
    ],
)
def test_a_case_is_a_name_or_a_pattern(store: DatabaseStore, case: str, found: list[str]) -> None:
    for name in ("fft", "fft2", "FFT", "fft[n=1]", "sum[1]", "what?", "a\nb\x00c"):
        store.append(measured(name))

    assert names(store.query(case=case)) == found
    assert names(store.rows(case=case)) == found


def test_rows_are_found_by_run_and_commit(store: DatabaseStore) -> None:
    store.append(measured("old", run="1", commit="abc123"))
    store.append(measured("new", run="2", commit="abd123"))
    store.append(measured("none", run="2", commit=None))

    assert names(store.query(run="2")) == ["new", "none"]
    assert names(store.query(commit="abc123")) == ["old"]
    assert names(store.query(commit="ab")) == ["old", "new"]
    assert names(store.query(commit="abd", run="1")) == []
    assert names(store.rows(commit="abd", run="2", case="n*")) == ["new"]


def test_rows_say_what_the_measurements_say(store: DatabaseStore) -> None:
    failed = dataclasses.replace(
        measured("bad"), samples=(), failure=Failure("timeout", "compile", "30 s were not enough")
    )
    large = dataclasses.replace(measured(), memory=Memory(predicted_peak_bytes=2**64 - 1))
    ids = [store.append(m) for m in (RICH, failed, large)]

    *rows, beyond = store.rows()

    assert [exact(r) for r in rows] == [
        exact(row_of(m)._replace(id=id)) for m, id in zip((RICH, failed), ids, strict=False)
    ]
    assert (rows[0].timer, rows[0].n, rows[0].median_s, rows[0].is_dirty) == ("wall", 6, 1.2e-4, True)
    assert (rows[1].status, rows[1].failure_kind, rows[1].n, rows[1].median_s) == ("failed", "timeout", None, None)
    # A number beyond 64 bits does not cost the row.
    assert (store.get(ids[2]), beyond.predicted_peak_bytes) == (large, 2**63 - 1)


def test_reading_before_the_first_append_says_what_to_do(store: DatabaseStore) -> None:
    for read in (store.query, store.rows, lambda: store.get(1)):
        with pytest.raises(StoreError) as error:
            read()

        assert error.value.problem == f"no database at {store.where}"
        assert error.value.hint.startswith("run `benchax run` first")


# ---- earlier runs --------------------------------------------------------------------------------------------------


PROGRAM, OTHER = "5a" * 32, "c3" * 32


def row(*medians_s: float, source: str = PROGRAM, earlier: tuple[float, ...] = (), **changes: object) -> Measurement:
    """A row of as many processes, timed by wall."""
    samples = tuple(Samples("wall", 1, (s,) * 6, process=i) for i, s in enumerate(medians_s))
    runs = EarlierRuns(source, {"wall": earlier} if earlier else {})
    return replace(measured("f"), samples=samples, earlier_runs=runs, **changes)  # type: ignore[arg-type]


def find(store: DatabaseStore, source: str = PROGRAM) -> tuple[float, ...]:
    found = store.find_earlier_runs(row().case, source, HOST.fingerprint)

    assert found.source == source
    return found.medians_s.get("wall", ())


def test_the_newest_row_brings_the_runs_that_it_knew_and_its_own(store: DatabaseStore) -> None:
    assert find(store) == ()  # there is no store yet
    store.append(row(9.0))
    store.append(row(1.0, 1.02, 5.0, earlier=(1.03, 1.04)))
    assert find(store) == (1.03, 1.04, 1.01)

    store.append(row(2.0, earlier=tuple(float(i) for i in range(1, KEPT_RUNS + 1))))

    assert find(store) == (*(float(i) for i in range(2, KEPT_RUNS + 1)), 2.0)


@pytest.mark.parametrize(
    "other",
    [
        row(9.0, source=OTHER),
        row(9.0, environment=replace(HOST, host="elsewhere")),
        replace(row(9.0), case=replace(row().case, params=(("n", 2),))),
        row(),
    ],
    ids=["another program", "another machine", "another case", "nothing measured"],
)
def test_rows_that_say_nothing_about_this_program_are_passed_over(store: DatabaseStore, other: Measurement) -> None:
    store.append(row(1.0))
    store.append(other)

    assert find(store) == (1.0,)


def test_a_program_that_comes_back_is_found_among_the_last_rows(store: DatabaseStore) -> None:
    store.append(row(1.0))
    store.append_all([row(9.0, source=OTHER)] * (LOOKED_AT - 1))
    assert find(store) == (1.0,)

    store.append(row(9.0, source=OTHER))

    assert find(store) == ()
    assert find(store, OTHER)[-1:] == (9.0,)


# ---- timelines -----------------------------------------------------------------------------------------------------


def test_a_case_has_what_it_had_when_it_was_listed_and_what_comes_later_is_left_for_the_next_time(
    store: DatabaseStore,
) -> None:
    with pytest.raises(StoreError, match="no database at"):
        list_activity(store)
    ids = [store.append(replace(RICH, case=measured().case)) for _ in range(2)]
    comparisons.append(store, [compared(0, 1.5)])
    listed, ratio = list_activity(store)

    store.append(measured(commit="b2"))
    comparisons.append(store, [compared(1, 1.6)])

    assert (listed.case, listed.seen, ratio.seen) == (measured().case, [2, ids[-1], 0, 0], [0, 0, 1, 1])
    row, _ = read_timeline(store, listed)
    assert store.get(row.id).environment == RICH.environment
    assert (row.fingerprint, row.median_s) == (RICH.environment.fingerprint, RICH.summary().median_s)
    assert [c.ratio for c in read_comparisons(store, ratio)] == [1.5]
    assert list_activity(store)[0].seen != listed.seen


def test_a_store_from_before_there_were_comparisons_has_rows(store: DatabaseStore) -> None:
    store.place.write(lambda c: take_step(c, MIGRATIONS[0]))
    store.place.write(StorableRow(measured()).insert)

    (found,) = list_activity(store)

    assert (found.seen[0], read_comparisons(store, found)) == (1, [])


# ---- comparisons ---------------------------------------------------------------------------------------------------


F = CaseId("f", (("n", 8),))
SMALL = Comparison(F, "run", Version("v1"), Version("now"), "same")


@given(comparison=values_of(Comparison))
@example(replace(SMALL, baseline=Version("naïve\x00"), ratio=0.1 + 0.2, high=float("inf"), candidate_value=5e-324))
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
def test_any_comparison_survives_the_store(store: DatabaseStore, comparison: Comparison) -> None:
    append(store, [comparison, replace(SMALL, case=CaseId("beside it"))])

    (*_, newest) = history(store, comparison.case, comparison.metric, comparison.baseline.label)

    assert exact(newest) == exact(comparison)
    assert encode(comparison).isascii()


SLOWISH = json.dumps(json.loads(encode(SMALL)) | {"verdict": "slowish"})
BAD = ["", "[]", "null", "{}", '{"benchax": 99}', "{", encode(SMALL)[:-5], SLOWISH]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_comparison_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        decode_comparison(text)


def test_a_history_is_of_one_case_and_metric_oldest_first(store: DatabaseStore) -> None:
    runs = [replace(SMALL, why=str(i)) for i in range(3)]
    peak = replace(SMALL, metric="peak")
    other = replace(SMALL, case=CaseId("f", (("n", 9),)))
    append(store, [runs[0], peak, other])
    store.append(measured("f", n=8))
    append(store, runs[1:])
    against = replace(SMALL, case=other.case, baseline=Version("v2"))
    append(store, [against])

    assert history(store, F) == runs
    assert history(store, F, "peak") == [peak]
    assert history(store, other.case) == [other, against]
    assert history(store, other.case, baseline="v2") == [against]
    assert history(store, other.case, baseline="v3") == []
    assert history(store, CaseId("f")) == []
    # All or none are stored.
    with pytest.raises(TypeError, match="slowish"):
        append(store, [SMALL, replace(SMALL, verdict="slowish")])  # type: ignore[arg-type]
    assert history(store, F) == runs


# ---- places and columns --------------------------------------------------------------------------------------------


def test_a_folder_holds_benchax_db(tmp_path: Path) -> None:
    assert open_store(tmp_path).where == str(tmp_path / "benchax.db")
    assert open_store().where == str(Path(".benchmarks") / "benchax.db")
    for name in ("mine.db", "mine.sqlite"):
        assert open_store(tmp_path / name).where == str(tmp_path / name)
    (tmp_path / "mine.db").mkdir()  # a folder may have the ending of a file
    assert open_store(tmp_path / "mine.db").where == str(tmp_path / "mine.db" / "benchax.db")
    assert repr(open_store("a")) == f"DatabaseStore({str(Path('a') / 'benchax.db')!r})"


@pytest.mark.parametrize("url", ["mysql://me:secret@host/db", "https://example.org/rows", "sqlite:///x.db"])
def test_other_urls_are_refused_without_showing_the_password(url: str) -> None:
    with pytest.raises(UsageError) as error:
        open_store(url)

    assert "cannot store rows in" in error.value.problem
    assert "secret" not in str(error.value)
    with pytest.raises(UsageError, match=r"cannot read the URL of the store ':://'"):
        open_store(":://")
    assert error.value.expected == "a folder, a path that ends in .db or .sqlite, or postgresql://user@host/name"


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(MissingPackage, match=r"pip install 'psycopg\[binary\]'"):
        open_store("postgresql://me@host/db")


def test_the_key_of_a_case_never_changes() -> None:
    """Rows of older databases are found by it."""
    case = CaseId("fft", (("n", 256), ("dtype", Opaque("dtype", "f32")), ("shape", (1, 2.5))), "eager", "naïve")

    assert case_key(case) == "3634af587dfba0197b451d7cc1cda7bf156a5d45bbc1ca4a78734ee23ae2b6a3"


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("plain, naïve 🦊\n", "plain, naïve 🦊\n"),
        ("", ""),
        (None, None),
        ("a\0b", '"a\\u0000b"'),
        ("\ud800", '"\\ud800"'),
        ('"quoted"', '"\\"quoted\\""'),
    ],
)
def test_only_texts_that_a_database_refuses_are_stored_otherwise(text: str | None, stored: str | None) -> None:
    assert encode_text(text) == stored
    assert decode_text(stored) == text
