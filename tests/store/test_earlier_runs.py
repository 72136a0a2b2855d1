"""What a store tells of earlier runs of a program."""

from __future__ import annotations

from dataclasses import replace

import pytest
from measurement_strategies import HOST, measured

from benchax.model import EarlierRuns, Measurement, Samples
from benchax.store.database import KEPT_RUNS, LOOKED_AT, DatabaseStore

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
