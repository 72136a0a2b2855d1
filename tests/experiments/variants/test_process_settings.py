"""Flags of XLA: those that it does not know, those that it does. Looks are real; comparisons are by hand."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labs_by_hand import ScriptedLab
from measurement_strategies import RICH

from benchax.case import make_case
from benchax.errors import NotAvailable, UsageError
from benchax.experiments.lab import ChangedCase, Condition, WorkerLab
from benchax.experiments.variants import VARIANTS
from benchax.experiments.variants.process_settings import SETTING, SYNC, Start, start
from benchax.model import Failure, Measurement
from benchax.options import DEFAULTS, resolve

CASE = make_case(lambda x: jnp.tanh(x @ x).sum(), ("f32[32,32]",))


def flags_row(flags: str, lab: Any) -> Any:
    (flags_row,) = VARIANTS["flags"].plan(CASE, flags)(lab)
    return flags_row


@pytest.mark.slow
def test_an_unknown_flag_ends_a_process_that_was_there_for_it() -> None:
    before = os.environ.get("XLA_FLAGS")

    lab = ScriptedLab()
    found = flags_row("--xla_no_such_flag=1", lab)

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
    found = lab.study({flags: ChangedCase(CASE)}, Condition(flags, environ={"XLA_FLAGS": flags}))

    assert found.environment is not None
    assert len(seen) > 1
    assert set(seen) == {None}
    assert list(found.seen) == [flags]


@pytest.mark.slow
def test_known_flags_are_looked_at_and_compared(monkeypatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")

    found = flags_row("--xla_backend_optimization_level=0", ScriptedLab(usual=2.0))

    assert (found.status, found.comparison.verdict) == ("ok", "slower")
    assert found.title == "--xla_backend_optimization_level=0"
    assert found.errors is not None
    assert [label for label, _ in found.facts] == ["flags", "program"]


@settings(max_examples=60, deadline=None)
@given(st.text('xla_ ="\0é', max_size=8) | st.sampled_from(["--xla_a=1 b", "-x", "--a\0", "'--a"]))
def test_what_is_no_flag_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as error:
        VARIANTS["flags"].plan(CASE, text)

    assert repr(text) in error.value.problem


# ---- Asynchronous dispatch off. One process is real; comparisons are by hand ----


SORT = make_case(lambda x: jnp.sort(x), ("f32[2000]",))
HERE = replace(RICH, failure=None, environment=replace(RICH.environment, backend="cpu"))


def sync_row(ratio: float, found: Measurement = HERE) -> Any:
    (sync_row,) = VARIANTS["sync"].plan(SORT)(ScriptedLab(usual=ratio, alone=found))
    return sync_row


@pytest.mark.slow
def test_the_setting_reaches_the_process_and_not_this_one() -> None:
    before = jax.config.values[SETTING]

    options = resolve({"max_time_s": 0.05, "memory": False, "verify": "off", "timer": "wall"})
    found = WorkerLab(options).measure_alone(SORT, SYNC, options)

    assert found.failure is None
    assert found.environment.config[SETTING] is False
    assert found.stages.dispatch_s is not None
    assert jax.config.values[SETTING] is before


def test_the_verdict_is_of_pairs_and_when_calls_return_stands_beside_it() -> None:
    found = sync_row(1.5)

    assert found.comparison.verdict == "slower"
    assert found.sentence.startswith("costs ")
    assert [label for label, _ in found.facts] == ["timed", "asynchronous", "synchronous"]
    assert "the call returns after" in dict(found.facts)["synchronous"]


@pytest.mark.parametrize(
    ("found", "status", "reason"),
    [
        (
            replace(HERE, environment=replace(HERE.environment, backend="gpu")),
            "not_available",
            f"{SETTING} is a setting of the CPU backend, and this is gpu",
        ),
        (replace(HERE, failure=Failure("error", "build", "no")), "failed", "error in build: no"),
    ],
)
def test_a_function_that_fails_and_another_backend_are_rows(found: Measurement, status: str, reason: str) -> None:
    row = sync_row(1.0, found)

    assert (row.status, row.reason) == (status, reason)


# ---- Starts with an empty and with a filled cache. Two starts are real; verdicts are about starts by hand ----


class Starts:
    """`seconds` of the cold and the warm start, pair by pair, over and over."""

    def __init__(self, *seconds: tuple[float, float], hits: int = 1) -> None:
        self.seconds, self.hits, self.folders = seconds, hits, list[str]()

    def __call__(self, argument: Any) -> Start:
        _, _, folder = argument
        is_warm = folder in self.folders
        self.folders.append(folder)
        pair = self.seconds[(len(set(self.folders)) - 1) % len(self.seconds)]
        hits = self.hits if is_warm else 0
        return Start(pair[is_warm], pair[is_warm] / 2, hits, 1 - hits, 1, 2048)


def cache_row(starts: Any, pairs: str = "4") -> Any:
    (cache_row,) = VARIANTS["cache"].plan(CASE, pairs)(ScriptedLab(answers={start: starts}))
    return cache_row


@pytest.mark.slow
def test_the_second_start_reads_what_the_first_one_wrote(tmp_path: Path) -> None:
    lab = WorkerLab(DEFAULTS)
    cold, warm = (lab.call_alone(start, (CASE, 0, str(tmp_path)), name="the start") for _ in range(2))

    assert isinstance(cold, Start)
    assert isinstance(warm, Start)
    assert (cold.hits, cold.misses) == (0, 1)
    assert (warm.hits, warm.misses) == (1, 0)
    assert warm.entries == 1
    assert warm.entry_bytes > 0
    assert 0 < warm.compile_s <= warm.build_s


def test_a_gain_is_confirmed_by_as_many_new_pairs() -> None:
    starts = Starts((1.0, 0.10), (1.1, 0.12), (1.05, 0.105), (1.2, 0.11))

    found = cache_row(starts)

    assert len(set(starts.folders)) == 8
    assert found.sentence.startswith("a start with a filled cache saves ")
    assert dict(found.facts)["the verdict"] == "faster, confirmed"
    assert dict(found.facts)["filled cache"] == "1 hits, 0 misses"
    assert "would not keep what takes 538 ms" in dict(found.facts)["threshold"]
    assert found.comparison is None
    assert not Path(starts.folders[0]).exists()


def test_starts_that_scatter_are_unclear_and_not_measured_again() -> None:
    starts = Starts((1.0, 0.5), (1.0, 2.0), (1.0, 1.0), (1.0, 1.5))

    found = cache_row(starts)

    assert len(set(starts.folders)) == 4
    assert "unclear" in found.sentence


def test_what_jax_does_not_keep_is_said() -> None:
    assert "nothing was read from the cache" in cache_row(Starts((1.0, 1.0), (1.0, 1.1), hits=0)).sentence


def test_a_start_that_fails_is_a_row() -> None:
    found = cache_row(lambda argument: Failure("crashed", "build", "it is gone"))

    assert (found.status, found.reason) == ("failed", "crashed in build: it is gone")


@pytest.mark.parametrize("text", ["3", "x", "", "-4", "²", "1001"])
def test_too_few_pairs_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cache=") as error:
        VARIANTS["cache"].plan(CASE, text)

    assert "from 4 to 1000" in error.value.expected


def test_what_is_not_compiled_as_a_whole_is_not_available() -> None:
    with pytest.raises(NotAvailable, match="only a jitted function"):
        VARIANTS["cache"].plan(CASE.eager())
    compiled = jax.jit(jnp.sin).lower(1.0).compile()
    with pytest.raises(NotAvailable, match="only a jitted function"):
        VARIANTS["cache"].plan(make_case(compiled, (1.0,)))
