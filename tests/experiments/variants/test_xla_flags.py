"""Flags of XLA: those that it does not know, those that it does. Looks are real; comparisons are by hand."""

from __future__ import annotations

import os
from typing import Any

import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labs_by_hand import ScriptedLab

from benchax.case import make_case
from benchax.errors import NotMeasured, UsageError
from benchax.experiments.lab import WorkerLab
from benchax.experiments.processes import Condition
from benchax.experiments.study import StudySide
from benchax.experiments.variants.xla_flags import Flags
from benchax.options import resolve

CASE = make_case(lambda x: jnp.tanh(x @ x).sum(), ("f32[32,32]",))


def row(flags: str, lab: Any) -> Any:
    (row,) = Flags().plan(CASE, flags)(lab)
    return row


@pytest.mark.slow
def test_an_unknown_flag_ends_a_process_that_was_there_for_it() -> None:
    before = os.environ.get("XLA_FLAGS")

    lab = ScriptedLab()
    found = row("--xla_no_such_flag=1", lab)

    assert found.status == "failed"
    assert found.reason == "crashed in start: XLA ended the process: Unknown flag in XLA_FLAGS: --xla_no_such_flag=1"
    assert not lab.conditions
    assert os.environ.get("XLA_FLAGS") == before


@pytest.mark.slow
def test_a_look_leaves_the_environment_of_this_process_as_it_is_also_while_it_runs(monkeypatch) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    seen: list[str | None] = []
    flags = "--xla_backend_optimization_level=0"

    lab = WorkerLab(resolve(), report=lambda event: seen.append(os.environ.get("XLA_FLAGS")))
    found = lab.study([StudySide(flags, CASE)], Condition(flags, environ={"XLA_FLAGS": flags}))

    assert found.environment is not None
    assert len(seen) > 1
    assert set(seen) == {None}
    assert list(found.seen) == [flags]


@pytest.mark.slow
def test_known_flags_are_looked_at_and_compared(monkeypatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")

    found = row("--xla_backend_optimization_level=0", ScriptedLab(usual=2.0))

    assert (found.status, found.comparison.verdict) == ("ok", "slower")
    assert found.title == "--xla_backend_optimization_level=0"
    assert found.errors is not None
    assert [label for label, _ in found.facts] == ["flags", "program"]


def test_without_flags_there_is_nothing_to_try() -> None:
    with pytest.raises(NotMeasured, match="has to be told the flags"):
        Flags().plan(CASE)


@settings(max_examples=60, deadline=None)
@given(st.text('xla_ ="\0é', max_size=8) | st.sampled_from(["--xla_a=1 b", "-x", "--a\0", "'--a"]))
def test_what_is_no_flag_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as error:
        Flags().plan(CASE, text)

    assert repr(text) in error.value.problem
