"""Calls with the arrays of other calls, as a program makes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchax.auditing.forward_calls import LEAST_CALLS, second_forwards
from benchax.auditing.shared_calls import SharedCalls

STEPS = LEAST_CALLS + 1


def loss(w: Any, x: Any) -> Any:
    return jnp.mean((x @ w) ** 2)


def gradient(w: Any, x: Any) -> Any:
    return jax.grad(loss)(w, x)


def train(w: Any, x: Any) -> Any:
    return w - 0.1 * jax.grad(loss)(w, x)


def outputs(w: Any, x: Any) -> Any:
    return (x @ w) ** 2


class Program:
    """Functions with the programs of their calls, which are noted."""

    def __init__(self) -> None:
        self.shared = SharedCalls()

    def call(self, fun: Callable[..., Any], *args: Any) -> Any:
        self.shared.note_compile(fun, fun.__name__, jax.make_jaxpr(fun)(*args))
        self.shared.note_call(fun, args, f"train.py:{fun.__name__}")
        result = fun(*args)
        self.shared.note_result(fun, [result])
        return result


def batch(i: int) -> Any:
    return jnp.full((8, 4), float(i))


def test_a_loss_of_what_its_gradient_is_given_as_well_is_found() -> None:
    program, w = Program(), jnp.ones(4)
    for i in range(STEPS):
        x = batch(i)
        program.call(loss, w, x)
        w = w - program.call(gradient, w, x)

    (found,) = second_forwards(program.shared)
    assert (found["function"], found["other"], found["where"]) == ("loss", "gradient", "train.py:loss")
    assert (found["count"], found["is_after"]) == (STEPS, False)


def test_a_loss_after_the_step_with_its_batch_is_found() -> None:
    program, w = Program(), jnp.ones(4)
    for i in range(STEPS):
        x = batch(i)
        w = program.call(train, w, x)
        program.call(loss, w, x)

    (found,) = second_forwards(program.shared)
    assert (found["function"], found["other"], found["is_after"]) == ("loss", "train", True)


def test_a_loss_of_other_data_is_not_found() -> None:
    program, w, held_out = Program(), jnp.ones(4), batch(99)
    for i in range(STEPS):
        w = program.call(train, w, batch(i))
        program.call(loss, w, held_out)

    assert second_forwards(program.shared) == []


def test_a_loss_now_and_then_is_not_found() -> None:
    program, w = Program(), jnp.ones(4)
    for i in range(3 * STEPS):
        x = batch(i)
        w = program.call(train, w, x)
        if i % 3 == 0:
            program.call(loss, w, x)

    assert second_forwards(program.shared) == []


def test_several_trials_for_one_gradient_are_not_found() -> None:
    program, w, x = Program(), jnp.ones(4), batch(1)
    for _ in range(STEPS):
        slope = program.call(gradient, w, x)
        for rate in (1.0, 0.5):
            program.call(loss, w - rate * slope, x)
        w = w - 0.5 * slope
        program.call(loss, w, x)

    assert second_forwards(program.shared) == []


def test_what_makes_more_than_numbers_is_not_found() -> None:
    """A policy is asked before what it did can be learnt from."""
    program, w = Program(), jnp.ones(4)
    for i in range(STEPS):
        x = batch(i)
        program.call(outputs, w, x)
        w = w - program.call(gradient, w, x)

    assert second_forwards(program.shared) == []
