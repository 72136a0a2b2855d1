"""--ptjb-fail-slower: two measurements must say so."""

from __future__ import annotations

from csv_rows_by_hand import a_row

from pytest_jax_bench import gate


def never():
    raise AssertionError("measured again without an alarm")


def test_without_an_alarm_nothing_is_measured_again() -> None:
    assert gate.check(a_row(), a_row(jit=1.5), 0.1, never) is None
    assert gate.check(a_row(), a_row(jit=0.1), 0.1, never) is None


def test_a_slowdown_below_the_limit_is_no_alarm() -> None:
    assert gate.check(a_row(), a_row(jit=4.0), 4.0, never) is None


def test_two_measurements_that_agree_fail() -> None:
    found = gate.check(a_row(), a_row(jit=4.0), 0.1, lambda: a_row(jit=5.0))

    assert found == gate.Gate(True, "jit 4 times as slow, in two measurements")


def test_a_second_measurement_that_disagrees_passes() -> None:
    found = gate.check(a_row(), a_row(jit=4.0), 0.1, lambda: a_row(jit=1.1))

    assert found == gate.Gate(False, "jit 4 times as slow, which a second measurement did not confirm")


def test_a_second_measurement_that_fails_confirms_nothing() -> None:
    found = gate.check(a_row(), a_row(jit=4.0), 0.1, lambda: None)

    assert found is not None
    assert not found.is_slower


def test_memory_and_compilation_raise_no_alarm() -> None:
    new = a_row(jit_peak_bytes=2**30, compile_ms=4000.0)

    assert gate.check(a_row(), new, 0.1, never) is None
