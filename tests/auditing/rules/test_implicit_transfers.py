"""Data that go to and fro without being asked. The lines are those of this file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_versions import shows_calls

from benchax.results.transfers import ObservedTransfer, Transfers
from benchax.watching.transfers import watch_transfers

ID = "implicit-transfers"


def reads_back(a: Any) -> Any:
    return a * float(a.sum())


def sends(a: Any) -> Any:
    return a + np.ones(100, "f4") if a.sum() > -1e9 else a


def compiles(a: Any) -> Any:
    return a + np.ones(100, "f4") * np.float32(2)


def stays(a: Any) -> Any:
    return a * 2


def test_the_line_that_reads_a_result_back_is_named_with_what_the_host_spent(ask_about: Any) -> None:
    finding = ask_about(ID, reads_back, "f32[100]").one

    assert finding.title == "reads f32[] back by __float__"
    file, line = finding.where
    assert (Path(file).resolve(), line) == (Path(__file__), reads_back.__code__.co_firstlineno + 1)
    assert finding.gain.startswith("estimated: at most ")
    assert finding.gain_s > 0


@shows_calls
def test_the_line_that_sends_an_array_is_named(ask_about: Any) -> None:
    reads, finding = ask_about(ID, sends, "f32[100]").findings

    assert reads.title == "reads bool[] back by __bool__"
    assert finding.title == "sends NumPy f32[100] to the device for add"
    assert finding.seen[0] == "1 × in one call, 400 B together"


def test_constants_of_what_compiles_are_part_of_the_program(ask_about: Any) -> None:
    assert ask_about(ID, compiles, "f32[100]").outcome == "fine"


def test_what_is_read_while_it_compiles_is_no_part_of_a_call(ask_about: Any) -> None:
    weights = jnp.ones((4, 4))
    inner = jax.jit(lambda a: a @ weights)

    finding = ask_about(ID, lambda a: inner(a) if a.sum() > -1e9 else a, "f32[4]").one

    assert finding.title == "reads bool[] back by __bool__"


def test_a_function_whose_data_stay_is_fine(ask_about: Any) -> None:
    assert ask_about(ID, stays, "f32[100]").outcome == "fine"


def test_a_program_that_reads_once_at_its_end_is_fine_and_one_that_reads_often_is_not(ask_about_program: Any) -> None:
    transfers = Transfers(sees=("host to device", "device to host"))
    transfers.add(ObservedTransfer("device to host", "train.py:9", "f32[]", "__float__", 1, 4, 1e-3))

    assert ask_about_program(ID, transfers).outcome == "fine"

    transfers.add(ObservedTransfer("device to host", "train.py:7", "f32[]", "__float__", 100, 400, 0.2))
    finding = ask_about_program(ID, transfers).one

    assert finding.where == (str(Path("train.py").absolute()), 7)
    assert finding.gain is None


@pytest.mark.parametrize(("gain_s", "outcome"), [(0.3, "finding"), (0.02, "fine")])
def test_a_read_beside_which_the_host_has_nothing_to_do_is_fine(
    ask_about_program: Any, gain_s: float, outcome: str
) -> None:
    """As after each epoch that is one call."""
    transfers = Transfers(sees=("host to device", "device to host"))
    transfers.add(ObservedTransfer("device to host", "train.py:7", "f32[]", "__float__", 24, 96, 0.9))
    read = {"where": "train.py:7", "by": "__float__", "count": 24, "steps": 20, "gain_s": gain_s, "stepped_s": 1.0}

    assert ask_about_program(ID, transfers, calls={"jitted": 24, "reads": [read]}).outcome == outcome


@pytest.mark.parametrize(("inside", "severity"), [(300, "info"), (299, "warning"), (None, "warning")])
def test_what_a_package_reads_that_makes_the_calls_is_an_info(
    ask_about_program: Any, inside: int | None, severity: str
) -> None:
    """As the progress bar of a sampler; a progress bar that is given a loss makes no calls."""
    transfers = Transfers(sees=("host to device", "device to host"))
    transfers.add(ObservedTransfer("device to host", "train.py:7", "i32[]", "__format__", 100, 400, 0.2))
    lines = [{"where": "train.py:9", "count": 300, "inside": 300}]
    lines += [{"where": "train.py:7", "count": 300, "inside": inside}] if inside is not None else []

    finding = ask_about_program(ID, transfers, lines=lines, calls={"jitted": 300}).one

    assert finding.severity == severity
    assert ("progress_bar" in finding.advice) == (severity == "info")


def test_a_program_that_reads_all_results_at_its_end_waits_once(ask_about_program: Any) -> None:
    f, x = jax.jit(jnp.sum), jnp.ones(3)
    with watch_transfers() as at_the_end:
        results = [f(x) for _ in range(30)]
        assert sum(float(result) for result in results) == 90
    with watch_transfers() as in_each_step:
        assert sum(float(f(x)) for _ in range(30)) == 90

    assert ask_about_program(ID, at_the_end).outcome == "fine"
    assert ask_about_program(ID, in_each_step).outcome == "finding"


def test_a_function_that_fails_when_called_was_not_checked(ask_about: Any) -> None:
    def fails(a: Any) -> Any:
        raise ValueError("no")

    answered = ask_about(ID, fails, "f32[4]")

    assert (answered.outcome, answered.why.startswith("calling it fails: ValueError: no")) == ("not checked", True)


def test_what_is_read_every_tenth_step_is_fine(ask_about_program: Any) -> None:
    transfers = Transfers(sees=("host to device", "device to host"))
    transfers.add(ObservedTransfer("device to host", "train.py:7", "f32[]", "__float__", 30, 120, 0.2))

    assert ask_about_program(ID, transfers, calls={"jitted": 300}).outcome == "fine"
    assert ask_about_program(ID, transfers, calls={"jitted": 60}).outcome == "finding"
