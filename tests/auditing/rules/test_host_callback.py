"""Callbacks into Python."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.experimental import io_callback

from benchax.auditing.evidence import Evidence
from benchax.auditing.rules.tracing import host_callback
from benchax.case import make_case

optax = pytest.importorskip("optax")
ID = "host-callback"


def ignore(value: Any) -> None:
    pass


def shows(a: Any) -> Any:
    jax.debug.callback(ignore, a[0])
    return jax.jit(lambda b: (jax.debug.callback(ignore, b[0]), b * 2)[1])(a)


def shows_in_a_loop(a: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda i, b: (jax.debug.callback(ignore, i), b + 1)[1], a)


def computes(a: Any) -> Any:
    return jax.pure_callback(np.sin, a, a)


def test_debugging_callbacks_are_left_out_to_measure_them(ask_about: Any, result_of: Any) -> None:
    answered = ask_about(ID, shows, "f32[100]", ratio=0.05)

    assert answered.one.title == "2 × Python called from compiled code"
    assert answered.one.where == (__file__, shows.__code__.co_firstlineno + 1)
    assert answered.one.gain.startswith("measured: 1.00 ms → 50.0 µs per call")
    ((before, without),) = answered.pairs
    assert "callback" not in str(jax.make_jaxpr(without.fn)(np.ones(100, "f4")))
    np.testing.assert_array_equal(result_of(before), result_of(without))


def test_one_that_stands_in_the_branch_of_an_error_is_a_hint(ask_about: Any) -> None:
    def checked(a: Any) -> Any:
        return jax.lax.cond(a[0] > 0, lambda b: (jax.debug.callback(ignore, b[0]), b)[1], lambda b: b, a)

    answered = ask_about(ID, checked, "f32[100]")

    assert answered.one.severity == "info"
    assert answered.one.seen[-1].startswith("all of them are in branches")
    assert ask_about(ID, shows, "f32[100]", ratio=0.05).one.severity == "warning"


def test_those_in_loops_are_counted_and_the_gain_is_not_guessed(ask_about: Any) -> None:
    answered = ask_about(ID, shows_in_a_loop, "f32[100]", ratio=0.05)

    assert (answered.pairs, answered.one.gain) == ([], None)
    assert "1 of them in loops" in answered.one.seen[0]
    assert answered.one.seen[1] == "gain not measured of 1: they are in loops or branches"


def test_callbacks_that_give_results_are_not_left_out(ask_about: Any) -> None:
    answered = ask_about(ID, computes, "f32[100]", ratio=0.05)

    assert answered.one.seen[0].startswith("1 × pure_callback")
    assert answered.one.seen[1] == "gain not measured of 1: they give results, which the rest can need"
    assert (answered.pairs, answered.one.gain) == ([], None)


@pytest.mark.parametrize("ordered", [False, True])
def test_an_io_callback_without_results_is_left_out_to_measure_it(
    ask_about: Any, result_of: Any, ordered: bool
) -> None:
    def logs_its_loss(params: Any, batch: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: optax.l2_loss(batch @ p).mean())(params)
        io_callback(ignore, None, loss, ordered=ordered)
        return optax.apply_updates(params, optax.sgd(0.1).update(grads, optax.sgd(0.1).init(params))[0])

    answered = ask_about(ID, logs_its_loss, "f32[8]", "f32[4,8]", ratio=0.1)

    assert answered.one.title == "1 × Python called from compiled code"
    assert answered.one.gain.startswith("measured: 1.00 ms → 100 µs per call")
    assert not any("results" in line for line in answered.one.seen)
    ((before, without),) = answered.pairs
    assert "io_callback" not in str(jax.make_jaxpr(without.fn)(np.ones(8, "f4"), np.ones((4, 8), "f4")))
    np.testing.assert_allclose(result_of(before), result_of(without), rtol=1e-6)


def test_of_both_kinds_those_without_results_are_measured(ask_about: Any) -> None:
    def both(a: Any) -> Any:
        io_callback(ignore, None, a[0])
        return jax.pure_callback(np.sin, a, a)

    answered = ask_about(ID, both, "f32[100]", ratio=0.5)

    assert answered.one.gain is not None
    assert any(line.startswith("without those that give no results") for line in answered.one.seen)
    assert answered.one.seen[-1] == "gain not measured of 1: they give results, which the rest can need"


def test_a_function_without_callbacks_is_fine(ask_about: Any) -> None:
    assert ask_about(ID, lambda a: a * 2, "f32[100]").outcome == "fine"


@pytest.mark.slow
@pytest.mark.serial
def test_the_cost_of_a_callback_is_really_measured() -> None:
    (finding,) = host_callback.check(Evidence(make_case(shows, ("f32[100]",), {}), max_time_s=60))

    assert finding.gain is not None
    assert finding.gain_s is not None
    assert finding.gain_s > 0


def test_what_a_library_calls_is_an_info_at_the_line_that_asks_for_it(ask_about: Any) -> None:
    equinox = pytest.importorskip("equinox")

    def checked(a: Any) -> Any:
        return jax.grad(lambda b: equinox.debug.backward_nan(b).sum())(a)

    finding = ask_about(ID, checked, "f32[100]").one

    assert finding.severity == "info"
    assert finding.where[0] == __file__
    assert any("are in an installed package" in text for text in finding.seen)
