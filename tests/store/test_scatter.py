"""What earlier rows of several processes tell a row of one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from measurement_strategies import HOST, measured

from benchax.model import Absent, Measurement, Samples
from benchax.store.database import open_store
from benchax.store.scatter import find_scatter, with_scatter

ALONE = replace(measured("f"), not_measured=(Absent("samples.processes", "one was asked for; --processes 5"),))


def of_processes(*medians_s: float, name: str = "f", **changes: object) -> Measurement:
    samples = tuple(Samples("wall", 1, (s,) * 6, process=i) for i, s in enumerate(medians_s))
    return replace(measured(name), samples=samples, started_at="2025-11-20T00:00:00+00:00", **changes)  # type: ignore[arg-type]


def test_a_row_of_one_process_says_how_others_differed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.append(of_processes(1.0, 1.1, 1.21))

    told = with_scatter(store, ALONE).why_absent("samples.processes")

    assert (
        told == "one was asked for; --processes 5; 3 of them differed by 9.5 % (standard deviation) here on 2025-11-20"
    )


@pytest.mark.parametrize(
    "other",
    [
        of_processes(1.0, 1.1),
        of_processes(1.0, 1.1, 1.2, name="g"),
        of_processes(1.0, 1.1, 1.2, environment=replace(HOST, host="elsewhere")),
        replace(of_processes(1.0, 1.1, 1.2), samples=()),
    ],
    ids=["two processes", "another case", "another machine", "nothing measured"],
)
def test_rows_that_are_no_evidence_are_passed_over(other: Measurement, tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.append(other)

    assert find_scatter(store, ALONE) is None
    assert with_scatter(store, ALONE) == ALONE


def test_a_store_that_is_not_there_tells_nothing(tmp_path: Path) -> None:
    assert with_scatter(open_store(tmp_path / "none"), ALONE) == ALONE


def test_a_row_of_several_processes_is_left_as_it_is(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.append(of_processes(1.0, 1.1, 1.21))
    several = of_processes(1.0, 1.1, 1.2)

    assert with_scatter(store, several) is several
