"""In which steps of a loop something is compiled: real loops, watched call by call."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax_versions import shows_calls

from benchax.results.watch import Watch
from benchax.watching.transfers import watch_transfers
from benchax.watching.watch import StepCalls, watch


@contextlib.contextmanager
def stepping() -> Iterator[Watch]:
    """Its `steps` are there after the block."""
    with watch("all") as found:
        calls = StepCalls(found)
        with watch_transfers(hear=calls.hear):
            yield found
    found.steps = calls.find()


def programs(found: Watch) -> list[int]:
    assert found.steps is not None
    return [one.programs for one in found.steps.steps]


@shows_calls
def test_a_step_is_a_call_of_the_function_that_repeats() -> None:
    @jax.jit
    def step(x: jax.Array) -> jax.Array:
        return x + 1

    with stepping() as found:
        once = jax.jit(lambda x: jnp.sin(x))(jnp.ones(3))
        for n in (2, 3, 3, 2, 4, 4):
            step(np.ones(n))

    steps = found.steps
    assert steps is not None
    assert once is not None
    assert steps.function == "step"
    assert str(steps.defined).endswith(f"test_step_calls.py:{step.__wrapped__.__code__.co_firstlineno}")
    assert programs(found) == [1, 1, 0, 0, 1, 0]
    assert [one.again for one in steps.steps] == [0, 1, 0, 0, 1, 0]
    assert steps.before.programs == len(found.compiles) - 3
    assert steps.steps[0].spent_s > 0


@shows_calls
def test_a_report_every_few_steps_does_not_make_these_one_and_what_is_called_before_is_none() -> None:
    init, step, rows = jax.jit(lambda x: jnp.exp(jnp.sin(x)) + jnp.cos(x)), jax.jit(lambda x: x * 2), np.ones(5)

    with stepping() as found:
        for _ in range(5):
            init(rows)
        for i in range(20):
            y = step(rows)
            if i % 4 == 0:
                float(jnp.sum(y) + jnp.max(y))

    assert len(programs(found)) == 20


@shows_calls
def test_gradients_that_are_accumulated_are_one_step() -> None:
    gradient, update = jax.jit(lambda x: jnp.exp(x) * x), jax.jit(lambda x: x - 1)

    with stepping() as found:
        for _ in range(12):
            for _ in range(3):
                gradient(np.ones(5))
            update(np.ones(5))

    assert len(programs(found)) in (11, 12)


def test_without_a_loop_there_are_no_steps() -> None:
    with stepping() as found:
        jax.jit(lambda x: x + 1)(np.ones(3))

    assert found.steps is None


def test_calls_of_other_threads_are_no_steps() -> None:
    def work() -> None:
        for _ in range(5):
            jax.jit(lambda x: x + 1)(np.ones(3))

    with stepping() as found:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    assert found.steps is None
