"""NumPy arrays among the inputs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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
