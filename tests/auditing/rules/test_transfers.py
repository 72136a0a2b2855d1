"""Rules about host and device."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_versions import shows_calls

from benchax.auditing.audit import ask
from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.recorder.hooks import find_lost_digits
from benchax.auditing.recorder.log import Event, FunctionFacts, Log
from benchax.auditing.rules.transfers import numpy_inputs
from benchax.results.watch import ObservedTransfer, Transfers, Watch

# ---- numpy-inputs ----------------------------------------------------------------------------------------------------


def total(a: Any) -> Any:
    return a.sum()


def test_an_array_of_numpy_is_named_with_its_bytes_and_the_measured_gain(ask_about: Any, result_of: Any) -> None:
    given = np.random.default_rng(0).random((64, 1024))

    answered = ask_about("numpy-inputs", total, given, ratio=0.5)

    assert answered.one.title == "1 NumPy array of 512 KiB among its inputs"
    assert answered.one.seen[:2] == (
        "args[0] is a NumPy f64[64,1024], 512 KiB",
        "converted to 32 bits in each call: args[0]",
    )
    assert answered.one.gain == "measured: 1.00 ms → 500 µs per call (2.00×, 1.96 – 2.04)"
    assert answered.one.gain_s == 0.5e-3
    ((host, device),) = answered.pairs
    np.testing.assert_array_equal(result_of(host), result_of(device))
    assert isinstance(host.fn.made[1][0], np.ndarray)
    assert isinstance(device.fn.made[1][0], jax.Array)


def test_where_no_difference_is_measured_it_is_only_an_info(ask_about: Any) -> None:
    answered = ask_about("numpy-inputs", total, np.ones(4, "f4"), ratio=1.0)

    assert (answered.one.severity, answered.one.gain) == ("info", None)
    assert "inputs on the device: as fast as before" in answered.one.seen


def test_without_time_the_gain_is_not_guessed(ask_about: Any) -> None:
    answered = ask_about("numpy-inputs", total, np.ones(4, "f4"))

    assert answered.one.gain is None
    assert "gain not measured, because the 0 s" in answered.one.seen[-1]


def test_arrays_on_the_device_are_fine(ask_about: Any) -> None:
    assert ask_about("numpy-inputs", total, jnp.ones(4)).outcome == "fine"


def test_specs_are_no_arrays_of_the_callers(ask_about: Any) -> None:
    assert ask_about("numpy-inputs", total, "f32[4]").outcome == "not applicable"


@pytest.mark.parametrize(
    ("kind", "by", "title"),
    [
        ("call", "jit(step)", "step takes NumPy arrays in each call: 23.4 KiB"),
        ("call", "Model.__call__", "step takes NumPy arrays in each call: 23.4 KiB"),
        ("operation", "step", "eager step take NumPy arrays in each call: 23.4 KiB"),
    ],
)
def test_a_jitted_function_is_no_operation_whatever_the_log_calls_it(kind: Any, by: str, title: str) -> None:
    log, transfers = Log(), Transfers(sees=("host to device",))
    log.functions[1], log.seen_s = FunctionFacts(by, "", ("x",)), 1e-4
    for _ in range(6):
        log.add(Event(kind, by, "train.py:5", function=1, reads=(0,)))
    transfers.add(ObservedTransfer("host to device", "train.py:5", "NumPy f32[1000]", "step", 6, 24000, None))

    findings, _ = ask(numpy_inputs, ProgramEvidence(Watch(), log, transfers))

    assert [finding.title for finding in findings] == [title]


# ---- implicit-transfers ----------------------------------------------------------------------------------------------


def reads_back(a: Any) -> Any:
    return a * float(a.sum())


def sends(a: Any) -> Any:
    return a + np.ones(100, "f4") if a.sum() > -1e9 else a


def compiles(a: Any) -> Any:
    return a + np.ones(100, "f4") * np.float32(2)


def stays(a: Any) -> Any:
    return a * 2


def test_the_line_that_reads_a_result_back_is_named_with_what_the_host_spent(ask_about: Any) -> None:
    finding = ask_about("implicit-transfers", reads_back, "f32[100]").one

    assert finding.title == "reads f32[] back by __float__"
    file, line = finding.where
    assert (Path(file).resolve(), line) == (Path(__file__), reads_back.__code__.co_firstlineno + 1)
    assert finding.gain.startswith("estimated: at most ")
    assert finding.gain_s > 0


@shows_calls
def test_the_line_that_sends_an_array_is_named(ask_about: Any) -> None:
    reads, finding = ask_about("implicit-transfers", sends, "f32[100]").findings

    assert reads.title == "reads bool[] back by __bool__"
    assert finding.title == "sends NumPy f32[100] to the device for add"
    assert finding.seen[0] == "1 × in one call, 400 B together"


def reads_often(a: Any) -> Any:
    a = a * float(a[0]) * float(a[1:3].sum())
    a = a * float(a.max())
    a = a * int(a.min()) * bool(a.any())
    a = a * int(a.sum()) * bool(a.all())
    return a * complex(a[0]).real


def test_every_line_that_reads_a_result_back_is_named(ask_about: Any) -> None:
    findings = ask_about("implicit-transfers", reads_often, "f32[100]").findings

    first = reads_often.__code__.co_firstlineno
    assert {finding.where[1] for finding in findings} == {first + i for i in range(1, 6)}
    assert len(findings) == 7


def test_constants_of_what_compiles_are_part_of_the_program(ask_about: Any) -> None:
    assert ask_about("implicit-transfers", compiles, "f32[100]").outcome == "fine"


def test_what_is_read_while_it_compiles_is_no_part_of_a_call(ask_about: Any) -> None:
    weights = jnp.ones((4, 4))
    inner = jax.jit(lambda a: a @ weights)

    finding = ask_about("implicit-transfers", lambda a: inner(a) if a.sum() > -1e9 else a, "f32[4]").one

    assert finding.title == "reads bool[] back by __bool__"


def test_a_function_whose_data_stay_is_fine(ask_about: Any) -> None:
    assert ask_about("implicit-transfers", stays, "f32[100]").outcome == "fine"


def test_a_function_that_fails_when_called_was_not_checked(ask_about: Any) -> None:
    def fails(a: Any) -> Any:
        raise ValueError("no")

    answered = ask_about("implicit-transfers", fails, "f32[4]")

    assert (answered.outcome, answered.why.startswith("calling it fails: ValueError: no")) == ("not checked", True)


# ---- rounded-inputs --------------------------------------------------------------------------------------------------

DATES = 2459580.5 + np.linspace(0, 60, 1440)


def test_inputs_of_a_function_are_looked_at(ask_about: Any) -> None:
    assert ask_about("rounded-inputs", jnp.sum, DATES).one.title == "1440 different numbers in f64 are 241 in f32"
    assert ask_about("rounded-inputs", jnp.sum, DATES - DATES[0]).outcome == "fine"
    assert ask_about("rounded-inputs", jnp.sum, jnp.ones(3)).outcome == "not applicable"


# ---- lost digits -----------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
DATES_OF_DIGITS = 2459580.5 + RNG.uniform(0, 60, 1440)
UNIX = 1.7e9 + np.arange(100.0)
TABLE = np.column_stack([RNG.normal(size=100), UNIX])


@pytest.mark.parametrize(
    "given",
    [
        DATES_OF_DIGITS,
        DATES_OF_DIGITS[::-1],
        list(DATES_OF_DIGITS),
        TABLE,
        TABLE[:, None],
        -DATES_OF_DIGITS,
        DATES_OF_DIGITS - 0.5,
    ],
)
def test_numbers_with_a_large_offset_are_found(given: Any) -> None:
    lost = find_lost_digits(given, np.float32)

    assert lost is not None
    counts = re.match(r"(\d+) different numbers in \w+ are (\d+) in ", lost.title)
    assert counts is not None
    assert int(counts[2]) < 0.5 * int(counts[1])


def test_what_is_told_are_the_numbers_and_how_far_apart_float32_has_them() -> None:
    lost = find_lost_digits(np.array([*DATES_OF_DIGITS, np.nan, np.inf]), np.float32)

    assert lost is not None
    assert lost.sentences[0].startswith("of 1440 different numbers from 2459580.5")
    assert lost.sentences[0].endswith(" are left in f32")
    assert lost.sentences[1] == f"f32 holds a number of this size to {np.spacing(np.float32(DATES_OF_DIGITS.max()))}"


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(RNG.normal(size=5000), id="of any kind"),
        pytest.param(20.0 + RNG.normal(size=5000), id="of a moderate offset"),
        pytest.param(np.exp(-(np.linspace(-20, 20, 5001) ** 2)), id="with tails"),
        pytest.param(300.0 + np.sin(np.linspace(0, 200 * np.pi, 5001)), id="equal but for their rounding"),
        pytest.param(np.ones(100) + 1e-15 * RNG.normal(size=100), id="all the same"),
        pytest.param(DATES_OF_DIGITS[:7], id="few"),
        pytest.param(np.full(50, np.nan), id="none"),
        pytest.param(np.zeros((0, 3)), id="no elements"),
        pytest.param(DATES_OF_DIGITS.astype(np.float32), id="in 32 bits"),
        pytest.param(np.arange(100, dtype=np.uint64) << 40, id="unsigned"),
        pytest.param(np.arange(100), id="small integers"),
        pytest.param(["a"] * 50, id="text"),
    ],
)
def test_numbers_that_stay_as_different_as_they_are_of_use_are_not_found(given: Any) -> None:
    to = np.int32 if np.asarray(given).dtype.kind in "iu" else np.float32

    assert find_lost_digits(given, to) is None


def test_with_64_bits_nothing_is_lost() -> None:
    assert find_lost_digits(DATES_OF_DIGITS, np.float64) is None


@pytest.mark.parametrize("to", [np.float16, jnp.bfloat16])
def test_numbers_of_16_bits_are_few(to: Any) -> None:
    assert find_lost_digits(1000 + RNG.uniform(0, 90, 500), to) is not None


def test_integers_that_do_not_fit_are_found_and_their_limit_is_told() -> None:
    lost = find_lost_digits(np.arange(100) + 2**40, np.int32)

    assert lost is not None
    assert lost.sentences == ["the numbers go from 1.09951162778e+12 to 1.09951162788e+12; i32 ends at 2147483647"]
