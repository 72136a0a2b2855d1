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
from benchax.measuring.paired import take_blocks
from benchax.measuring.sides import PairedRequest
from benchax.model import Absent, CaseId, Environment, Failure, Measurement
from benchax.paired_runs.compare import pair_with_cases, pair_with_rows
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


def kept(store: DatabaseStore, *cases: Case, change: Callable[[Measurement], Measurement] = lambda m: m) -> Any:
    """Rows of these cases, as the store gives them back."""
    for each in cases:
        store.append(change(measure(each, STORED, run_id="r1")))
    return by_case(store.query())


def blocks_of(paired_run: PairedRun) -> Any:
    return take_blocks(PairedRequest(paired_run.sides, blocks=1), lambda stage, **facts: None)


# ---- a stored row beside a function -----------------------------------------------------------------------------


def test_a_stored_program_meets_the_function_of_now(store: DatabaseStore, here: Environment) -> None:
    rows = kept(store, case("f"))

    found = pair_with_cases(store, "v1", rows, [case("f", jnp.cos)], here)

    (paired_run,) = found.paired_runs
    assert (found.without, found.new, found.missing, paired_run.remarks) == ([], [], [], ())
    old, new = paired_run.versions
    assert (old.label, old.program, old.jax) == ("v1", rows[CaseId("f")].program.sha256, None)
    assert (new.label, new.commit, new.is_dirty, new.jax) == ("now", "c0ffee", True, here.jax)
    assert [side.program is not None for side in paired_run.sides] == [True, False]
    assert [side.label for side in paired_run.sides] == ["v1", "now"]


def test_what_they_make_can_be_run_and_outputs_that_differ_are_seen(store: DatabaseStore, here: Environment) -> None:
    rows = kept(store, case("f"), case("g"))

    found = pair_with_cases(store, "v1", rows, [case("f"), case("g", jnp.cos)], here)
    documents = [blocks_of(paired_run) for paired_run in found.paired_runs]

    assert [document.failure for document in documents] == [None, None]
    assert [document.sides[1].agreement.agrees for document in documents] == [True, False]


def test_cases_of_one_side_only_are_listed(store: DatabaseStore, here: Environment) -> None:
    rows = kept(store, case("gone"), case("both"))

    found = pair_with_cases(store, "v1", rows, [case("both"), case("fresh")], here)

    assert [paired_run.case.name for paired_run in found.paired_runs] == ["both"]
    assert (found.new, found.missing) == ([CaseId("fresh")], [CaseId("gone")])


def test_options_are_those_of_now(store: DatabaseStore, here: Environment) -> None:
    rows = kept(store, case("f"))

    (paired_run,) = pair_with_cases(store, "v1", rows, [case("f", timeout_s="3s")], here, {"seed": 7}).paired_runs

    assert (paired_run.options.timeout_s, paired_run.options.seed) == (3.0, 7)


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
@pytest.mark.parametrize("candidate", ["a function", "a row"])
def test_a_row_that_cannot_run_again_is_unclear_and_says_why(
    change: Callable[[Measurement], Measurement], candidate: str, store: DatabaseStore, here: Environment
) -> None:
    rows = kept(store, case("f"), change=change)

    if candidate == "a function":
        found = pair_with_cases(store, "v1", rows, [case("f")], here)
    else:
        found = pair_with_rows(store, ("v1", "v2"), rows, rows, here, STORED)

    (comparison,) = found.without
    assert found.paired_runs == []
    assert (comparison.verdict, comparison.why) == ("unclear", WHY[change])
    assert (comparison.ratio, comparison.baseline.label) == (None, "v1")


def test_the_newer_row_may_be_the_one_that_cannot_run(store: DatabaseStore, here: Environment) -> None:
    rows = kept(store, case("f"))
    newer = {id: not_exported(m) for id, m in rows.items()}

    (comparison,) = pair_with_rows(store, ("v1", "v2"), rows, newer, here, STORED).without

    assert comparison.why == "v2 has no program that could run again, because it donates its arguments"


# ---- two stored rows --------------------------------------------------------------------------------------------


def test_two_stored_programs_run_on_random_data(store: DatabaseStore, here: Environment) -> None:
    rows = kept(store, case("f"))
    other = kept(store, case("f", jnp.cos))

    found = pair_with_rows(store, ("v1", "v2"), rows, other, here, STORED)

    (paired_run,) = found.paired_runs
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
    rows = kept(store, case("f"), change=lambda m: replace(m, environment=replace(m.environment, **was)))

    (paired_run,) = pair_with_cases(store, "v1", rows, [case("f")], here).paired_runs

    assert [(r.code, r.message) for r in paired_run.remarks] == [(code, text.format(here=here))]


def test_of_two_rows_each_is_labelled_by_its_jax(store: DatabaseStore, here: Environment) -> None:
    rows = kept(store, case("f"))
    older = {id: replace(m, environment=replace(m.environment, jax="0.9.2")) for id, m in rows.items()}

    (paired_run,) = pair_with_rows(store, ("v1", "v2"), rows, older, here, STORED).paired_runs

    assert [r.message.partition(",")[0] for r in paired_run.remarks if r.code == "other-jax"] == [
        "v2 was made by jax 0.9.2"
    ]
