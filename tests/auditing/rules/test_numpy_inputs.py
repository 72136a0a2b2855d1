"""NumPy arrays among the inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.results.transfers import ObservedTransfer, Transfers
from benchax.results.watch import Watch
from benchax.watching.transfers import watch_transfers

ID = "numpy-inputs"
KEY = jax.random.key(0)


def total(a: Any) -> Any:
    return a.sum()


def test_an_array_of_numpy_is_named_with_its_bytes_and_the_measured_gain(ask_about: Any, result_of: Any) -> None:
    given = np.random.default_rng(0).random((64, 1024))

    answered = ask_about(ID, total, given, ratio=0.5)

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
    answered = ask_about(ID, total, np.ones(4, "f4"), ratio=1.0)

    assert (answered.one.severity, answered.one.gain) == ("info", None)
    assert "inputs on the device: as fast as before" in answered.one.seen


def test_without_time_the_gain_is_not_guessed(ask_about: Any) -> None:
    answered = ask_about(ID, total, np.ones(4, "f4"))

    assert answered.one.gain is None
    assert "gain not measured, because the 0 s" in answered.one.seen[-1]


def test_arrays_on_the_device_are_fine(ask_about: Any) -> None:
    assert ask_about(ID, total, jnp.ones(4)).outcome == "fine"


def test_specs_are_no_arrays_of_the_callers(ask_about: Any) -> None:
    assert ask_about(ID, total, "f32[4]").outcome == "not applicable"


def test_of_a_program_the_lines_that_send_arrays_often_are_named(ask_about_program: Any) -> None:
    transfers = Transfers(sees=("host to device", "device to host"))
    transfers.add(ObservedTransfer("host to device", "train.py:7", "NumPy f32[64,64]", "step", 100, 100 * 16384, None))
    transfers.add(ObservedTransfer("host to device", "train.py:3", "NumPy f32[64]", "init", 1, 256, None))
    transfers.add(ObservedTransfer("host to device", "train.py:7", "Python float", "step", 100, 400, None))

    finding = ask_about_program(ID, transfers).one

    assert finding.where == (str(Path("train.py").absolute()), 7)
    assert finding.title == "step takes NumPy arrays in each call: 1.56 MiB"
    assert finding.seen == ("NumPy f32[64,64]: 100 times, 1.56 MiB",)
    assert finding.severity == "warning"


@pytest.mark.parametrize(("wall_s", "severity"), [(0.02, "warning"), (0.2, "info")])
def test_what_takes_no_time_to_speak_of_is_an_info(ask_about_program: Any, wall_s: float, severity: str) -> None:
    transfers = Transfers(sees=("host to device",))
    transfers.add(ObservedTransfer("host to device", "train.py:7", "NumPy f32[64,64]", "step", 100, 100 * 16384, None))

    finding = ask_about_program(ID, transfers, seen=Watch("all", wall_s=wall_s)).one

    assert finding.severity == severity
    assert ("at 1 GB a second less than 5.0 % of the 200 ms" in finding.seen) == (severity == "info")


def test_eager_operations_of_a_line_are_one_finding(ask_about_program: Any) -> None:
    """As of rows[index], which adds and selects."""
    transfers = Transfers(sees=("host to device",))
    for by in ("add", "select_n", "step"):
        transfers.add(ObservedTransfer("host to device", "train.py:7", "NumPy i32[128]", by, 90, 90 * 512, None))
    lines = [{"function": "step", "where": "train.py:7"}]

    eager, called = ask_about_program(ID, transfers, lines=lines).findings

    assert eager.title == "eager add, select_n take NumPy arrays in each call: 90.0 KiB"
    assert eager.seen[0] == "NumPy i32[128], by add: 90 times, 45.0 KiB"
    assert called.title == "step takes NumPy arrays in each call: 45.0 KiB"


def test_next_to_nothing_that_differs_from_call_to_call_is_fine(ask_about_program: Any) -> None:
    transfers = Transfers(sees=("host to device",))
    transfers.add(ObservedTransfer("host to device", "train.py:7", "NumPy f32[4]", "act", 900, 900 * 16, None))

    outcomes = [ask_about_program(ID, transfers, seen=Watch("all", wall_s=s)).outcome for s in (1.0, 10.0)]

    assert outcomes == ["finding", "fine"]


def test_all_that_one_line_of_a_program_sends_is_one_finding(ask_about_program: Any) -> None:
    transfers = Transfers(sees=("host to device",))
    for what, times in (("NumPy f64[128,784], made f32", 90), ("NumPy f32[128,10]", 90), ("NumPy f32[784,10]", 1)):
        transfers.add(ObservedTransfer("host to device", "train.py:7", what, "step", times, times * 40, None))

    finding = ask_about_program(ID, transfers).one

    assert finding.seen == ("NumPy f64[128,784], made f32: 90 times, 3.52 KiB", "NumPy f32[128,10]: 90 times, 3.52 KiB")
    assert finding.severity == "info"


def test_numbers_that_jax_makes_of_numpys_are_not_blamed_on_a_line(ask_about_program: Any) -> None:
    with watch_transfers() as transfers:
        for step in range(10):
            jax.grad(lambda w: jnp.sum(jnp.ones(3) * w))(2.0)
            jax.random.fold_in(KEY, step)

    assert any(t.what.startswith("NumPy ") for t in transfers.of("host to device"))
    assert ask_about_program(ID, transfers).outcome == "fine"


def test_where_transfers_cannot_be_seen_nothing_is_called_fine(ask_about_program: Any) -> None:
    assert ask_about_program(ID, Transfers()).outcome == "not checked"


def test_what_is_made_an_array_of_the_devices_by_name_is_asked_for(ask_about_program: Any) -> None:
    with watch_transfers() as transfers:
        for step in range(10):
            jnp.asarray(np.full((64, 64), step, np.float32))

    assert ask_about_program(ID, transfers).outcome == "fine"


def test_arrays_that_are_the_same_each_time_are_told_with_the_line_that_makes_them(
    ask_about_program: Any, tmp_path: Path
) -> None:
    train = tmp_path / "train.py"
    train.write_text("def score(w, x): ...\nw = np.load(path)\nfor x in data:\n    score(w, x)\n")
    transfers = Transfers(sees=("host to device",))
    transfers.add(ObservedTransfer("host to device", f"{train}:4", "NumPy f32[64]", "score", 9, 9 * 256, None))
    line = {"function": "score", "where": f"{train}:4", "of_numpy": [["w", 9, 8], ["x", 9, 0]]}

    finding = ask_about_program(ID, transfers, lines=[line]).one

    assert finding.where == (str(train), 4)
    assert finding.seen[-1] == f"given as w, the same each time, made at {train}:2"
    line["of_numpy"] = [["x", 9, 0]]
    assert "the same each time" not in " ".join(ask_about_program(ID, transfers, lines=[line]).one.seen)
