"""Which stored rows meet which functions, and what is said where they cannot; with a real database and programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from measuring.conftest import SHORT

from benchax.case import Case, make_case
from benchax.environment import capture
from benchax.measuring.engine import measure
from benchax.measuring.paired import PairedRequest, take_blocks
from benchax.model import Absent, CaseId, Environment, Failure, Measurement
from benchax.paired_runs.compare import StoredVersion, pair_with_cases, pair_with_rows
from benchax.paired_runs.paired_run import PairedRun
from benchax.store.baselines import by_case
from benchax.store.database import DatabaseStore, open_store

STORED = replace(SHORT, store="somewhere", stages="build", memory=False)


def case(name: str, fn: Callable[..., Any] = jnp.sin, **options: Any) -> Case:
    return replace(make_case(fn, ("f32[16]",), name=name), options=options)


@pytest.fixture
def store(tmp_path: Path) -> DatabaseStore:
    return open_store(tmp_path)


@pytest.fixture
def here() -> Environment:
    return replace(capture(), commit="c0ffee", is_dirty=True)


def kept(
    store: DatabaseStore, *cases: Case, label: str = "v1", change: Callable[[Measurement], Measurement] = lambda m: m
) -> StoredVersion:
    """A version of these cases, as the store gives it back."""
    for each in cases:
        store.append(change(measure(each, STORED, run_id="r1")))
    return StoredVersion(label, by_case(store.query()), store)


def blocks_of(paired_run: PairedRun) -> Any:
    return take_blocks(PairedRequest(paired_run.sides, blocks=1), lambda stage, **facts: None)


# ---- a stored row beside a function -----------------------------------------------------------------------------


def test_a_stored_program_meets_the_function_of_now_and_outputs_that_differ_are_seen(
    store: DatabaseStore, here: Environment
) -> None:
    old = kept(store, case("gone"), case("f"), case("g"))

    cases = [case("f", timeout_s="3s"), case("g", jnp.cos), case("fresh")]
    paired_runs, rest = pair_with_cases(old, cases, here, {"seed": 7})

    assert ([*rest], rest.new, rest.missing) == ([], (CaseId("fresh"),), (CaseId("gone"),))
    first, second = paired_runs
    assert (first.case, first.remarks, first.options.timeout_s, first.options.seed) == (CaseId("f"), (), 3.0, 7)
    before, now = first.versions
    assert (before.label, before.program, before.jax) == ("v1", old.rows[CaseId("f")].program.sha256, None)
    assert (now.label, now.commit, now.is_dirty, now.jax) == ("now", "c0ffee", True, here.jax)
    assert [(side.label, side.program is not None) for side in first.sides] == [("v1", True), ("now", False)]
    documents = [blocks_of(paired_run) for paired_run in (first, second)]
    assert [document.failure for document in documents] == [None, None]
    assert [document.sides[1].agreement.agrees for document in documents] == [True, False]


# ---- where there is nothing to run ------------------------------------------------------------------------------


def of_another_backend(m: Measurement) -> Measurement:
    return replace(m, environment=replace(m.environment, backend="tpu"))


def failed(m: Measurement) -> Measurement:
    return replace(m, program=None, failure=Failure("out_of_memory", "first run", "no room"))


def not_exported(m: Measurement) -> Measurement:
    return replace(m, program=None, not_measured=(Absent("program", "it donates its arguments"),))


def of_an_old_benchax(m: Measurement) -> Measurement:
    return replace(m, program=None, not_measured=())


def without_content(m: Measurement) -> Measurement:
    assert m.program is not None
    return replace(m, program=replace(m.program, sha256="0" * 64, content=None))


NONE_KEPT = "its baseline has no program that could run again, because it was stored by a benchax that kept none"
WHY = {
    of_another_backend: "its baseline was measured on tpu, and this is cpu",
    failed: "its baseline ended with out of memory in first run",
    not_exported: "its baseline has no program that could run again, because it donates its arguments",
    of_an_old_benchax: NONE_KEPT,
    without_content: NONE_KEPT,
}


@pytest.mark.parametrize("change", WHY, ids=lambda change: change.__name__)
def test_a_row_that_cannot_run_again_is_unclear_and_says_why(
    change: Callable[[Measurement], Measurement], store: DatabaseStore, here: Environment
) -> None:
    old = kept(store, case("f"), change=change)

    for paired_runs, rest in (
        pair_with_cases(old, [case("f")], here),
        pair_with_rows(old, replace(old, label="v2"), here, STORED),
    ):
        (comparison,) = rest
        assert paired_runs == []
        assert (comparison.verdict, comparison.why) == ("unclear", WHY[change])
        assert (comparison.ratio, comparison.baseline.label) == (None, "v1")


def test_the_newer_row_may_be_the_one_that_cannot_run(store: DatabaseStore, here: Environment) -> None:
    old = kept(store, case("f"))
    newer = StoredVersion("v2", {id: not_exported(m) for id, m in old.rows.items()}, store)

    _, (comparison,) = pair_with_rows(old, newer, here, STORED)

    assert comparison.why == "v2 has no program that could run again, because it donates its arguments"


# ---- two stored rows --------------------------------------------------------------------------------------------


def test_two_stored_programs_run_on_random_data(store: DatabaseStore, here: Environment) -> None:
    old = kept(store, case("f"))
    new = kept(store, case("f", jnp.cos), label="v2")

    (paired_run,), _ = pair_with_rows(old, new, here, STORED)

    assert [v.label for v in paired_run.versions] == ["v1", "v2"]
    assert paired_run.options == STORED
    assert [r.code for r in paired_run.remarks] == ["random-data"]
    assert blocks_of(paired_run).signature == "f32[16]"


# ---- another JAX ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("was", "code", "text"),
    [
        (
            {"jax": "0.9.2", "jaxlib": "0.9.2"},
            "other-jax",
            "the baseline was made by jax 0.9.2, and both ran under jax {here.jax}: what JAX changed is in neither",
        ),
        (
            {"device_kind": "another cpu"},
            "other-device",
            "the baseline was measured on another cpu, and both ran on {here.device_kind}",
        ),
    ],
)
def test_a_baseline_of_another_jax_or_device_is_labelled(
    was: dict[str, Any], code: str, text: str, store: DatabaseStore, here: Environment
) -> None:
    old = kept(store, case("f"), change=lambda m: replace(m, environment=replace(m.environment, **was)))

    (paired_run,), _ = pair_with_cases(old, [case("f")], here)

    assert [(r.code, r.message) for r in paired_run.remarks] == [(code, text.format(here=here))]


def test_of_two_rows_each_is_labelled_by_its_jax(store: DatabaseStore, here: Environment) -> None:
    old = kept(store, case("f"))
    rows = {id: replace(m, environment=replace(m.environment, jax="0.9.2")) for id, m in old.rows.items()}

    (paired_run,), _ = pair_with_rows(old, StoredVersion("v2", rows, store), here, STORED)

    assert [r.message.partition(",")[0] for r in paired_run.remarks if r.code == "other-jax"] == [
        "v2 was made by jax 0.9.2"
    ]
