"""What every store promises."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
from hypothesis import HealthCheck, given, settings
from measurement_strategies import RICH, case_ids, exact, measured

from benchax.errors import StoreError
from benchax.model import CaseId, Failure, Memory, Opaque, Samples
from benchax.store.comparisons import list_activity
from benchax.store.database import DatabaseStore as Store
from benchax.store.schema import row_of


def names(found: list) -> list[str]:
    return [m.case.name for m in found]


def test_a_measurement_comes_back_exactly(store: Store) -> None:
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
def test_any_name_params_variant_and_tag_survive(store: Store, case: CaseId) -> None:
    m = dataclasses.replace(measured(), case=case)

    id = store.append(m)

    assert exact(store.get(id)) == exact(m)
    assert exact(store.rows(limit=1)[0].case) == exact(case)
    assert exact(store.query(case=case.name)[-1].case) == exact(case)


def test_cases_differ_when_any_part_of_their_identity_does(store: Store) -> None:
    values = (1, 1.0, True, "1", (1,), Opaque("int", "1"), None)
    cases = [CaseId("f", (("n", v),)) for v in values] + [CaseId("f"), CaseId("f", variant="x"), CaseId("f", tag="x")]
    store.append_all([dataclasses.replace(measured(), case=case) for case in cases])

    assert [exact(r.case) for r in store.rows()] == [exact(c) for c in cases]
    assert len(list_activity(store)) == len(cases)


def test_rows_that_are_stored_together_are_all_there_in_their_order(store: Store) -> None:
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
def test_a_case_is_a_name_or_a_pattern(store: Store, case: str, found: list[str]) -> None:
    for name in ("fft", "fft2", "FFT", "fft[n=1]", "sum[1]", "what?", "a\nb\x00c"):
        store.append(measured(name))

    assert names(store.query(case=case)) == found
    assert names(store.rows(case=case)) == found


def test_rows_are_found_by_run_and_commit(store: Store) -> None:
    store.append(measured("old", run="1", commit="abc123"))
    store.append(measured("new", run="2", commit="abd123"))
    store.append(measured("none", run="2", commit=None))

    assert names(store.query(run="2")) == ["new", "none"]
    assert names(store.query(commit="abc123")) == ["old"]
    assert names(store.query(commit="ab")) == ["old", "new"]
    assert names(store.query(commit="abd", run="1")) == []
    assert names(store.rows(commit="abd", run="2", case="n*")) == ["new"]


def test_rows_say_what_the_measurements_say(store: Store) -> None:
    failed = dataclasses.replace(
        measured("bad"), samples=(), failure=Failure("timeout", "compile", "30 s were not enough")
    )
    large = dataclasses.replace(measured(), memory=Memory(predicted_peak_bytes=2**64 - 1))
    ids = [store.append(m) for m in (RICH, failed, large)]

    *rows, beyond = store.rows()

    assert [exact(r) for r in rows] == [exact(row_of(m, id)) for m, id in zip((RICH, failed), ids, strict=False)]
    assert (rows[0].timer, rows[0].n, rows[0].median_s, rows[0].is_dirty) == ("wall", 6, 1.2e-4, True)
    assert (rows[1].status, rows[1].failure_kind, rows[1].n, rows[1].median_s) == ("failed", "timeout", None, None)
    # A number beyond 64 bits does not cost the row.
    assert (store.get(ids[2]), beyond.predicted_peak_bytes) == (large, 2**63 - 1)


def test_reading_before_the_first_append_says_what_to_do(store: Store) -> None:
    for read in (store.query, store.rows, lambda: store.get(1)):
        with pytest.raises(StoreError) as error:
            read()

        assert error.value.problem == f"no database at {store.where}"
        assert error.value.hint.startswith("run `benchax run` first")
