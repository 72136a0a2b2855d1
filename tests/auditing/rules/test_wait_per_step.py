"""Waits in each step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.auditing import host_calls
from benchax.auditing.host_calls import HostCalls
from benchax.results.watch import Watch

ID = "wait-per-step"


def wait(**changed: Any) -> dict[str, Any]:
    known = {"where": "train.py:9", "by": ".item", "count": 101, "waited_s": 0.4, "between_s": 0.6, "gain_s": 0.35}
    return {**known, "steps": 100, "stepped_s": 1.0, **changed}


def host(*waits: dict[str, Any], sees_methods: bool = True) -> dict[str, Any]:
    return {"waits": list(waits), "puts": [], "keys": [], "sees_methods": sees_methods}


def test_a_wait_beside_work_of_the_host_is_found_with_a_bound(ask_about_program: Any) -> None:
    finding = ask_about_program(ID, host=host(wait())).one

    assert finding.title == "waits by .item in each step"
    assert finding.gain.startswith("estimated: at most 3.50 ms of 10.0 ms a step (35 %)")
    assert finding.gain_s == pytest.approx(3.5e-3)
    assert "jax.device_get" in finding.advice


@pytest.mark.parametrize("changed", [{"count": 5}, {"gain_s": 0.01}])
def test_few_waits_and_those_with_nothing_to_gain_are_fine(ask_about_program: Any, changed: Any) -> None:
    assert ask_about_program(ID, host=host(wait(**changed))).outcome == "fine"


def test_waits_that_cost_a_run_next_to_nothing_are_fine(ask_about_program: Any) -> None:
    outcomes = [ask_about_program(ID, seen=Watch("all", wall_s=s), host=host(wait())).outcome for s in (10.0, 1000.0)]

    assert outcomes == ["finding", "fine"]


def test_a_wait_in_what_timeit_calls_is_needed(ask_about_program: Any, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import timeit\ntimeit.timeit(lambda: step(x).block_until_ready())\nstep(x).block_until_ready()\n")

    assert ask_about_program(ID, host=host(wait(where=f"{file}:2"))).outcome == "fine"
    assert ask_about_program(ID, host=host(wait(where=f"{file}:3"))).outcome == "finding"


def test_a_wait_between_two_readings_of_a_clock_is_no_warning(ask_about_program: Any, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "for _ in range(9):\n    begun = time()\n    step(x).block_until_ready()\n    spent = time() - begun\n"
    )

    finding = ask_about_program(ID, host=host(wait(where=f"{file}:3"))).one

    assert finding.severity == "info"
    assert "two readings of a clock" in finding.seen[-1]


def test_a_clock_around_all_steps_needs_no_wait_in_each(ask_about_program: Any, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "begun = time()\nfor _ in range(9):\n    done = [x.item() for x in step(x)]\nspent = time() - begun\n"
    )

    assert ask_about_program(ID, host=host(wait(where=f"{file}:3"))).one.severity == "warning"


def test_waits_close_behind_one_another_at_a_line_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of the elements of one result: 4 s for the first, then 0.1 s between two, and 3 s of the host behind them."""
    times = iter([10.0 * i + time for i in range(5) for time in (0.0, 4.0, 4.1, 4.2, 4.3, 4.4)])
    noted = HostCalls()
    monkeypatch.setattr(host_calls, "perf_counter", lambda: next(times))
    x = jnp.ones(3)
    try:
        for _ in range(15):
            x.block_until_ready()
    finally:
        noted.close()

    (line,) = noted.asdict()["waits"]
    assert (line["count"], line["steps"]) == (5, 2)
    assert line["gain_s"] == pytest.approx(2 * 4.2)
    assert line["stepped_s"] == pytest.approx(2 * 10.0)


def test_no_gain_is_larger_than_the_step(ask_about_program: Any) -> None:
    """Several threads may wait at one line at once."""
    finding = ask_about_program(ID, host=host(wait(gain_s=9.0))).one

    assert finding.gain_s == pytest.approx(0.01)


def test_where_methods_cannot_be_seen_nothing_is_called_fine(ask_about_program: Any) -> None:
    assert ask_about_program(ID, host=host(sees_methods=False)).outcome == "not checked"
    assert ask_about_program(ID).outcome == "not checked"


def test_numpy_that_reads_an_array_of_jax_waits_for_it(ask_about_program: Any) -> None:
    noted = HostCalls()
    try:
        x, y = jnp.ones(3), np.ones(3)
        for _ in range(3):
            np.asarray(x)
            np.array(y)
            jax.device_get(x)
    finally:
        noted.close()

    (line,) = noted.asdict()["waits"]
    assert (line["by"], line["count"]) == ("np.asarray", 3)
    assert np.asarray.__module__ == "numpy"
    assert "jax.device_get" in ask_about_program(ID, host=host(wait(by="np.asarray"))).one.advice


def test_waits_are_noted_by_line_with_what_could_run_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each wait takes 2 s, and 3 s lie between two of them, by this clock; 50 s at first, while others are compiled.
    begun = (0.0, 52.0, 104.0, 109.0, 114.0)
    times = iter([time for each in begun for time in (each, each + 2.0)])
    noted = HostCalls()
    monkeypatch.setattr(host_calls, "perf_counter", lambda: next(times))
    x = jnp.ones(3)
    try:
        for _ in begun:
            x.block_until_ready()
    finally:
        noted.close()

    (line,) = noted.asdict()["waits"]
    assert (line["by"], line["count"], line["waited_s"], line["between_s"]) == (".block_until_ready", 5, 10.0, 6.0)
    assert (line["gain_s"], line["steps"], line["stepped_s"]) == (4.0, 2, 10.0)


def test_a_wait_that_another_one_follows_gains_what_lies_between_the_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the first, the second would wait for the device."""
    # In each step 4 s at one line, 1 s of the host, 2 s at the other, and 3 s of the host.
    times = iter([10.0 * i + time for i in range(4) for time in (0.0, 4.0, 5.0, 7.0)])
    noted = HostCalls()
    monkeypatch.setattr(host_calls, "perf_counter", lambda: next(times))
    x = jnp.ones(3)
    try:
        for _ in range(4):
            x.block_until_ready()
            jax.block_until_ready(x)
    finally:
        noted.close()

    first, second = noted.asdict()["waits"]
    assert (first["between_s"], first["gain_s"], first["stepped_s"]) == (2.0, 2.0, 10.0)
    assert (second["between_s"], second["gain_s"], second["stepped_s"]) == (3.0, 2.0, 10.0)


def test_waits_of_a_package_are_not_laid_to_its_caller() -> None:
    equinox = pytest.importorskip("equinox")
    noted = HostCalls()
    try:
        equinox.filter_jit(lambda x: x + 1)(jnp.ones(3))
    finally:
        noted.close()

    assert noted.asdict()["waits"] == []


def test_afterwards_jax_is_as_before() -> None:
    before = (jax.device_put, jax.block_until_ready, jax.random.normal, type(jnp.ones(1)).item)

    HostCalls().close()

    assert (jax.device_put, jax.block_until_ready, jax.random.normal, type(jnp.ones(1)).item) == before
