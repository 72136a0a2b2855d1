"""Transfers that nobody asked for, with their lines; and JAX is as before afterwards."""

from __future__ import annotations

import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import array, pjit  # noqa: TID251  # to see that they are as before
from jax_versions import shows_calls

from benchax.results.watch import ObservedTransfer
from benchax.watching import transfers
from benchax.watching.compiles import watch_compiles
from benchax.watching.transfers import watch_transfers


@jax.jit
def step(w: jax.Array, x: jax.Array, rate: float) -> jax.Array:
    return w - rate * (x.T @ (x @ w))


W = jnp.ones(4)
X = jnp.ones((8, 4))
ROWS = np.ones((8, 4), np.float32)


def line_above() -> int:
    """The line before that of the call."""
    return sys._getframe(1).f_lineno - 1


def is_here(transfer: ObservedTransfer, at: int) -> bool:
    return transfer.where is not None and transfer.where.endswith(f"test_transfers.py:{at}")


@shows_calls
def test_every_numpy_argument_of_a_warm_call_is_found_with_its_line() -> None:
    """JAX's own guard ends at the first one."""
    rate = jnp.float32(0.1)
    step(W, ROWS, rate)

    with watch_transfers() as found, watch_compiles() as log:
        for _ in range(5):
            step(W, ROWS, rate)
            at = line_above()

    (transfer,) = found.of("host to device")
    assert is_here(transfer, at)
    assert (transfer.what, transfer.by) == ("NumPy f32[8,4]", "step")
    assert (transfer.count, transfer.size_bytes, transfer.elapsed_s) == (5, 5 * 8 * 4 * 4, None)
    assert log.compiles == 0
    assert not log.events


@shows_calls
def test_a_program_compiled_by_hand_is_seen() -> None:
    compiled = jax.jit(lambda x: x + 1).lower(ROWS).compile()

    with watch_transfers() as found:
        compiled(ROWS)
        compiled(X)

    assert [(t.by, t.what, t.count) for t in found.of("host to device")] == [("a Compiled", "NumPy f32[8,4]", 1)]


@shows_calls
def test_each_block_sees_other_threads_and_what_is_converted_is_counted_as_it_is_on_the_device() -> None:
    for _ in range(2):
        worker = threading.Thread(target=step, args=(W, np.ones((8, 4), np.float64), 0.5))
        with watch_transfers() as found:
            worker.start()
            worker.join()

        listed = {t.what: t.size_bytes for t in found.of("host to device")}
        assert listed == {"NumPy f64[8,4], made f32": 128, "Python float": 4}


@shows_calls
def test_arrays_on_the_device_are_no_transfer() -> None:
    rate = jnp.float32(0.1)

    with watch_transfers() as found:
        step(W, X, rate)
        jax.device_put(ROWS)
        jax.device_get(W)
        jax.block_until_ready(step(W, X, rate))
        jax.jit(lambda w: step(w, ROWS, rate))(W)  # a constant of the program

    assert found.of("host to device") == found.of("device to host") == []
    assert found.count("host to device") == found.count("device to host") == 0


def test_a_truth_value_that_a_package_asks_for_is_its_own_and_other_reads_are_not() -> None:
    names: dict[str, Any] = {}
    text = "def check(x):\n    return bool(x)\n\ndef log(x):\n    return float(x)\n"
    exec(compile(text, f"{sysconfig.get_path('purelib')}/library/checks.py", "exec"), names)

    with watch_transfers() as found:
        names["check"](jnp.float32(1) > 0)
        names["log"](jnp.float32(1) * 2)

    assert [t.by for t in found.of("device to host")] == ["__float__"]


@pytest.mark.parametrize(
    ("read", "by"),
    [
        (float, "__float__"),
        (int, "__int__"),
        (bool, "__bool__"),
        (repr, "__repr__"),
        (lambda x: f"{x:.3f}", "__format__"),
        (lambda x: x.tolist(), "tolist"),
    ],
)
def test_reading_a_result_is_found_with_its_line_and_the_wait(read: Callable[[Any], Any], by: str) -> None:
    x = jnp.float32(2) * 2

    with watch_transfers() as found:
        read(x)

    (transfer,) = found.of("device to host")
    assert (transfer.by, transfer.what, transfer.count, transfer.size_bytes) == (by, "f32[]", 1, 4)
    assert transfer.where is not None
    assert "test_transfers.py:" in transfer.where
    assert transfer.elapsed_s is not None
    assert transfer.elapsed_s > 0


@pytest.mark.parametrize(
    "tell",
    [lambda x: jax.debug.print("{}", x), lambda x: jax.debug.callback(float, x)],
    ids=["print", "callback"],
)
def test_what_a_compiled_program_hands_to_a_callback_is_not_read_by_a_line(tell: Callable[[Any], None]) -> None:
    """The callback has a finding of its own; this one blamed the first line of the command that ran."""

    @jax.jit
    def total(x: jax.Array) -> jax.Array:
        tell(x.mean())
        return x.sum()

    jax.block_until_ready(total(W))
    with watch_transfers() as found:
        total(W)
        jax.effects_barrier()

    assert "device to host" in found.sees
    assert found.of("device to host") == []


def test_blocks_may_be_nested() -> None:
    with watch_transfers() as outer:
        float(W[0])
        with watch_transfers() as inner:
            float(W[1])
        float(W[2])

    assert (outer.count("device to host"), inner.count("device to host")) == (3, 1)


@shows_calls
def test_jax_is_as_before_afterwards_also_after_an_exception() -> None:
    call = jax.stages.Compiled.__call__
    parts = (pjit._run_python_pjit, pjit._get_fastpath_data, array.ArrayImpl.__dict__["_value"])

    with pytest.raises(ZeroDivisionError), watch_transfers() as found:
        1 / 0  # noqa: B018
    step(W, ROWS, 0.1)
    float(W[0])

    assert (pjit._run_python_pjit, pjit._get_fastpath_data, array.ArrayImpl.__dict__["_value"]) == parts
    assert jax.stages.Compiled.__call__ is call
    assert found.of("host to device") == found.of("device to host") == []
    with watch_compiles() as log:
        step(W, ROWS, 0.1)
    assert not log.events


def test_an_error_of_the_call_is_the_callers() -> None:
    with watch_transfers(), pytest.raises(TypeError, match="dot_general"):
        step(W, np.ones((8, 5), np.float32), 0.1)


def test_a_jax_without_the_part_that_we_look_into_is_said_to_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    float(W[0])  # JAX itself needs that part when it calls a program for the first time
    monkeypatch.delattr(pjit, "_get_fastpath_data")

    with watch_transfers() as found:
        float(W[0])

    assert found.sees == ("device to host",)
    assert found.count("host to device") is None
    assert "transfers from host to device cannot be seen" in found.remarks[0].message


@shows_calls
def test_numpys_reading_in_place_on_cpu_is_said_not_to_be_listed() -> None:
    if jax.default_backend() != "cpu":
        pytest.skip("on an accelerator NumPy copies, and is listed")

    with watch_transfers() as found:
        np.asarray(W)

    assert found.of("device to host") == []
    assert [remark.code for remark in found.remarks] == ["transfers-in-place"]


def test_a_surprise_inside_our_part_is_not_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "_tell", lambda *_: 1 / 0)

    with watch_transfers():
        result = float(step(W, ROWS, 0.0)[0])

    assert result == 1.0


@shows_calls
def test_a_listener_is_told_of_each_transfer_as_it_happens() -> None:
    told: list[str] = []

    with watch_transfers(hear_transfer=lambda transfer: told.append(transfer.direction)):
        float(jax.jit(lambda x: x + 1)(np.ones(3)).sum())
    float(jnp.ones(()))

    assert told == ["host to device", "device to host"]


def test_constants_that_a_program_is_compiled_with_are_not_read_by_the_users_line() -> None:
    x = jnp.arange(1000.0) + 1

    with watch_transfers() as found:
        jax.jit(lambda y: y + x)(x)

    assert found.of("device to host") == []


@shows_calls
def test_the_clock_stands_still_while_calls_and_reads_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 10))
    in_hook: list[float] = []
    f, x = jax.jit(lambda x: x + 1), jnp.ones(())
    f(x)

    with watch_transfers(lambda *_: in_hook.append(transfers.clock())):
        stub = SimpleNamespace(perf_counter=lambda: next(now), perf_counter_ns=time.perf_counter_ns)
        monkeypatch.setattr(transfers, "time", stub)
        begun = transfers.clock()
        f(x)
        ended = transfers.clock()
        monkeypatch.undo()

    # Read when it was entered and left, twice, and on both sides: 50 s, of which 20 are the watching's.
    assert ended - begun == 30.0
    assert in_hook[0] - begun == 10.0
