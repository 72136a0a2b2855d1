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


def test_the_same_seed_gives_the_same_inputs():
    case = make_case(jnp.tanh, ("f32[4]",))

    one, same, other = (prepare(case, seed).inputs.args[0] for seed in (1, 1, 2))

    assert (one == same).all()
    assert not (one == other).all()


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


def test_the_first_call_of_a_function_that_donates_is_given_a_copy():
    x = jnp.ones(4)

    first = prepare(make_case(jax.jit(lambda y: y + 1, donate_argnums=0), (x,))).call_first()

    assert first.subject.donates
    assert not x.is_deleted()


def test_an_eager_function_that_takes_its_buffers_is_found_out():
    taking = jax.jit(lambda y: y + 1, donate_argnums=0)

    first = prepare(make_case(lambda x: taking(x), ("f32[4]",), jit=False)).call_first()

    assert first.subject.donates


def test_the_surroundings_are_those_before_tracing():
    seen = []
    prepared = prepare(make_case(lambda x: seen.append(x) or x, ("f32[4]",)))

    _ = prepared.built
    prepared.surroundings.put_back()

    assert seen == []
