"""The data types: what is derived from the raw readings, what `None` means, which rows may be compared."""

from __future__ import annotations

import dataclasses
import json
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measurement_strategies import HOST, RICH
from refusals import refusal

from benchax import model
from benchax.errors import NotMeasured
from benchax.model import (
    Absent,
    CallFloor,
    CaseId,
    Environment,
    Failure,
    Measurement,
    Memory,
    Opaque,
    Options,
    Samples,
    Stages,
    Transfer,
)
from benchax.options import DEFAULTS
from benchax.stats.summary import summarize

PLAIN = Measurement(CaseId("f"), HOST, DEFAULTS, run_id="run", started_at="2025-11-21T01:35:00.000000+00:00")
WALL = Samples("wall", 2, (2.0, 4.0, 6.0), disturbed=(False, True, True))
LOOP = Samples("loop", 1, (1.0,))

TYPES = [t for t in vars(model).values() if dataclasses.is_dataclass(t)]
assert {Measurement, Options, CaseId, Environment, Samples} <= set(TYPES)


def with_times(*samples: Samples) -> Measurement:
    return dataclasses.replace(PLAIN, samples=samples)


# CaseId


@pytest.mark.parametrize(
    ("case", "label"),
    [
        (CaseId("matmul"), "matmul"),
        (CaseId("matmul", (("n", 256), ("dtype", "bf16"))), "matmul[n=256, dtype=bf16]"),
        (CaseId("matmul", variant="eager"), "matmul eager"),
        (CaseId("matmul", tag="before"), "matmul #before"),
        (CaseId("matmul", (("n", 256),), "eager", "before"), "matmul[n=256] eager #before"),
        (CaseId("f", (("op", Opaque("function", "jax.nn.relu")),)), "f[op=jax.nn.relu]"),
        (CaseId("f", (("x", None), ("y", True), ("z", 0.5))), "f[x=None, y=True, z=0.5]"),
        (CaseId("f", (("shape", (1, 2)),)), "f[shape=(1, 2)]"),
        (CaseId(""), ""),
    ],
)
def test_the_label_of_a_case_is_short(case: CaseId, label: str) -> None:
    assert case.label == label


# Environment

ENVIRONMENT = RICH.environment
# What a change of it leaves as it is: rows of another commit are what comparisons are for.
NOT_IN_THE_FINGERPRINT = {"commit", "branch", "is_dirty", "benchax"}
FIELDS = [f.name for f in dataclasses.fields(Environment)]


def changed(environment: Environment, field: str) -> Environment:
    value = getattr(environment, field)
    others = {str: "other", int: 99, bool: None, tuple: (7,), dict: {"other": "value"}}
    return dataclasses.replace(environment, **{field: others[type(value)]})


@pytest.mark.parametrize("field", FIELDS)
def test_the_fingerprint_sees_everything_but_the_version_of_the_code(field: str) -> None:
    is_same = changed(ENVIRONMENT, field).fingerprint == ENVIRONMENT.fingerprint

    assert is_same is (field in NOT_IN_THE_FINGERPRINT)


@pytest.mark.parametrize("field", ["config", "flags"])
def test_the_order_of_settings_is_not_part_of_the_fingerprint(field: str) -> None:
    settings_ = {"a": "1", "b": "2", "c": "3"}
    backwards = dict(reversed(settings_.items()))

    one = dataclasses.replace(ENVIRONMENT, **{field: settings_})
    other = dataclasses.replace(ENVIRONMENT, **{field: backwards})

    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize(
    ("one", "other"),
    [({"a": "1"}, {"a": 1}), ({"a": None}, {}), ({"a": "b"}, {"b": "a"}), ({"a": True}, {"a": 1}), ({}, {"a": ""})],
)
def test_a_setting_counts_with_its_name_and_type(one: dict[str, Any], other: dict[str, Any]) -> None:
    found = [dataclasses.replace(ENVIRONMENT, config=config).fingerprint for config in (one, other)]

    assert found[0] != found[1]


# Stages


@pytest.mark.parametrize(
    ("transfer", "bandwidth"),
    [
        (Transfer(100, (1.0, 2.0, 4.0), is_zero_copy=False), 50.0),
        (Transfer(100, (1.0, 2.0), is_zero_copy=False), pytest.approx(66.667, rel=1e-4)),
        (Transfer(0, (2.0,), is_zero_copy=False), 0.0),
        (Transfer(100, (2.0,), is_zero_copy=True), None),
        (Transfer(100, (0.0,), is_zero_copy=False), None),
    ],
)
def test_a_bandwidth_is_that_of_the_median_copy_and_there_is_none_of_a_view(transfer: Transfer, bandwidth: Any) -> None:
    assert transfer.bandwidth_bytes_per_s == bandwidth


def test_the_time_of_a_transfer_is_its_median_and_there_is_none_without_a_reading() -> None:
    stages = Stages(Transfer(8, (3.0, 1.0, 2.0), False), transfer_out=Transfer(8, (5.0,), True))
    nothing = Transfer(8, (), is_zero_copy=False)
    unread = Stages(transfer_in=nothing, transfer_out=nothing, call_floor=CallFloor((), ()))

    assert (stages.transfer_in_s, stages.transfer_out_s) == (2.0, 5.0)
    for empty in (Stages(), unread):
        assert (empty.transfer_in_s, empty.transfer_out_s, empty.call_floor_s) == (None, None, None)


@pytest.mark.parametrize(
    ("stages", "build_s"),
    [
        (Stages(trace_s=1.0, lower_s=2.0, compile_s=4.0), 7.0),
        (Stages(lower_s=2.0, compile_s=4.0), 6.0),
        (Stages(trace_s=0.0, lower_s=0.0, compile_s=0.0), 0.0),
        (Stages(trace_s=1.0, lower_s=2.0), None),
        (Stages(trace_s=1.0, compile_s=2.0), None),
        (Stages(first_run_s=1.0), None),
    ],
)
def test_building_is_tracing_lowering_and_compiling(stages: Stages, build_s: float | None) -> None:
    assert stages.build_s == build_s


# Samples


@given(st.lists(st.floats(0, 1e6), max_size=20), st.integers(1, 1000))
def test_a_sample_is_shared_by_its_calls_and_every_one_is_kept(elapsed_s: list[float], iterations: int) -> None:
    samples = Samples("wall", iterations, tuple(elapsed_s))

    assert samples.per_call_s == tuple(t / iterations for t in elapsed_s)
    assert (WALL.disturbed_count, LOOP.disturbed_count) == (2, None)


# Memory


@pytest.mark.parametrize(
    ("memory", "peak"),
    [
        (Memory(argument_bytes=8, compiled_rise_bytes=4), 12),
        (Memory(argument_bytes=8, compiled_rise_bytes=0), 8),
        (Memory(argument_bytes=0, compiled_rise_bytes=4), 4),
        (Memory(argument_bytes=8), None),
        (Memory(compiled_rise_bytes=4), None),
        (Memory(argument_bytes=8, eager_rise_bytes=4, predicted_peak_bytes=12), None),
    ],
)
def test_the_observed_peak_needs_both_of_its_parts(memory: Memory, peak: int | None) -> None:
    assert memory.observed_peak_bytes == peak


# Measurement


def test_the_headline_is_the_first_timer_of_the_first_process() -> None:
    m = with_times(LOOP, WALL, dataclasses.replace(WALL, process=1))

    assert (m.headline, m.samples_of("wall")) == (LOOP, WALL)
    assert (PLAIN.headline, PLAIN.find_summary(), PLAIN.samples_of("wall")) == (None, None, None)


def test_a_summary_is_of_the_seconds_per_call() -> None:
    m = with_times(LOOP, WALL)
    long = with_times(dataclasses.replace(WALL, elapsed_s=(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)))

    assert (m.summary("wall"), m.summary()) == (summarize([1.0, 2.0, 3.0]), summarize([1.0]))
    assert long.median_s == long.summary().median_s == 2.0
    assert long.interval_s == (long.summary().low_s, long.summary().high_s)
    with pytest.raises(NotMeasured, match="too few readings for an interval: 3"):
        _ = with_times(WALL).interval_s


def test_a_timer_without_readings_raises_the_reason() -> None:
    absent = (Absent("samples.loop", "in_graph has answered the same question"),)
    m = dataclasses.replace(with_times(WALL), not_measured=absent)

    assert (m.find_summary("loop"), m.samples_of("loop")) == (None, None)
    with pytest.raises(NotMeasured, match=r"^in_graph has answered the same question") as raised:
        m.summary("loop")
    assert raised.value.expected == "a timer that this row has: wall"


def test_a_timer_that_nothing_asked_for_or_that_does_not_exist_is_said_to_be() -> None:
    with pytest.raises(NotMeasured, match=r"^nothing requested the timer device"):
        with_times(WALL).summary("device")
    assert refusal(with_times(WALL).summary, "foo") == (
        "unknown timer 'foo'\nexpected one of: device, in_graph, loop, pipelined, wall"
    )


def test_a_failed_row_raises_its_failure_instead_of_a_time() -> None:
    failed = dataclasses.replace(PLAIN, failure=Failure("timeout", "compile", "took too long"))

    for ask in (failed.summary, lambda: failed.summary("wall"), lambda: failed.median_s):
        with pytest.raises(NotMeasured, match=r"^timeout in compile: took too long"):
            ask()


def test_why_a_number_is_absent_is_told_for_the_number_and_for_its_group() -> None:
    absent = (Absent("stages.dispatch_s", "synchronous"), Absent("memory", "switched off"), Absent("cost", "no cost"))
    m = dataclasses.replace(PLAIN, not_measured=absent)

    found = {what: m.why_absent(what) for what in (
        "stages.dispatch_s", "stages.trace_s", "stages", "memory", "memory.temp_bytes", "memory_plan", "cost.flops", ""
    )}  # fmt: skip

    assert found == {
        "stages.dispatch_s": "synchronous",
        "stages.trace_s": None,
        "stages": None,
        "memory": "switched off",
        "memory.temp_bytes": "switched off",
        "memory_plan": None,
        "cost.flops": "no cost",
        "": None,
    }


def test_a_row_as_a_dict_is_nested_dicts_of_its_fields() -> None:
    found = RICH.asdict()

    assert (PLAIN.status, RICH.status) == ("ok", "failed")
    assert found["case"]["name"] == RICH.case.name
    assert found["samples"][1]["elapsed_s"] == (6.1e-3, 5.9e-3)
    assert found["stages"]["transfer_in"] == {"size_bytes": 524288, "elapsed_s": (1e-4, 9.5e-5), "is_zero_copy": False}
    assert list(found) == [f.name for f in dataclasses.fields(Measurement)]
    assert json.loads(json.dumps(PLAIN.asdict()))["environment"]["host"] == "host"


@pytest.mark.parametrize("cls", TYPES, ids=lambda cls: cls.__name__)
def test_no_field_of_any_type_can_be_changed(cls: Any) -> None:
    value = object.__new__(cls)

    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(cls)[0].name, "changed")


# How a row shows itself


def test_a_row_from_a_pickle_shows_itself_though_no_public_name_was_used() -> None:
    code = "import pickle, sys; m = pickle.load(sys.stdin.buffer); print(repr(m)); print(m); print(m._repr_html_())"

    done = subprocess.run([sys.executable, "-X", "utf8", "-c", code], input=pickle.dumps(PLAIN), capture_output=True)

    assert done.stdout.decode() == f"{PLAIN!r}\n{PLAIN}\n{PLAIN._repr_html_()}\n", done.stderr.decode()
