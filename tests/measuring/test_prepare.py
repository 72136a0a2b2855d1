"""A case on its way to a measurement: each step when it is asked for, announced, and once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from benchax.case import make_case
from benchax.measuring.prepare import Prepared, prepare
from benchax.measuring.program import program_of


def test_steps_are_announced_in_order_and_each_is_made_once():
    told = []

    prepared = prepare(make_case(jnp.tanh, ("f32[4]",)), 0, told.append)
    first = prepared.call_first()
    again = prepared.built

    assert told == ["inputs", "trace", "lower", "compile", "first run"]
    assert again is prepared.built
    assert first.subject.outputs.shape == (4,)
    assert (first.elapsed_s > 0, first.compiles) == (True, 0)


def test_inputs_alone_trace_nothing():
    traces = []
    case = make_case(lambda x: traces.append(None) or x, ("f32[4]",))

    prepared = prepare(case)

    assert (prepared.inputs.signature, traces) == ("f32[4]", [])
    assert prepared.trace().traced is not None
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("fn", "step"),
    [
        (lambda x: 1 / 0, "trace"),
        (lambda x: jax.pure_callback(lambda y: 1 / 0, x, x), "first run"),
    ],
)
def test_what_a_function_raises_belongs_to_the_step_that_was_entered_last(fn, step):
    prepared = prepare(make_case(fn, ("f32[4]",)))

    with pytest.raises(Exception, match="division"):
        prepared.call_first()

    assert prepared.step == step


def test_a_jitted_function_keeps_its_programs_where_nobody_times():
    fn = jax.jit(lambda x: x + 1)
    fn(jnp.ones(4))
    case = make_case(fn, (jnp.ones(4),))
    inputs = prepare(case).inputs

    kept = Prepared(program_of(case, inputs), inputs, forgets=False).built
    times = fn._cache_size()
    _ = prepare(case).built

    assert kept.compiled is not None
    assert (times, fn._cache_size()) == (1, 0)
