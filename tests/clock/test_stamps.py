"""Stamps inside compiled code: what they pin, and what they leave as it is."""

from time import perf_counter_ns

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax import clock
from benchax.clock import handlers
from benchax.clock.handlers import FUNCTIONS, judge_order, nanoseconds
from benchax.errors import UsageError


def spin(x, ns=50_000):
    return handlers.spin(clock.tier(), x, ns)


def test_a_function_between_two_stamps_takes_as_long_as_it_is_known_to():
    @jax.jit
    def f(x):
        x, start = clock.stamp(x)
        x, end = clock.stamp(spin(x))
        return x, start, end, clock.elapsed_s(start, end)

    runs = [f(jnp.ones(4)) for _ in range(30)]

    on_the_host = [clock.elapsed_s(start, end) for _, start, end, _ in runs]
    assert 50e-6 <= min(on_the_host) < 80e-6
    np.testing.assert_allclose([inside for *_, inside in runs], on_the_host, rtol=1e-6)


def test_sixteen_functions_stay_in_order_by_data_dependency_alone():
    """The ground truth: with this many functions XLA:CPU runs what is not pinned on several threads."""

    def f(x):
        times, y = [], x
        for i in range(FUNCTIONS):
            y, start = clock.stamp(y @ x + i)
            y, end = clock.stamp(spin(jnp.tanh(y)))
            times.append(jnp.stack([start, end]))
        return jnp.stack(times), y

    program = jax.jit(f)
    for _ in range(5):
        times = nanoseconds(program(jnp.eye(32))[0])

        judge_order(times)
        assert (times[:, 1] - times[:, 0] >= 50_000).all()


def test_values_shapes_dtypes_and_structure_are_untouched():
    inputs = {
        "f": jnp.linspace(0, 1, 7, dtype=jnp.bfloat16),
        "empty": jnp.zeros((0, 3)),
        "scalar": 2.5,
        "bool": jnp.array([True, False]),
        "key": jax.random.key(3),
        "nested": (np.arange(4), [jnp.int8(-1)]),
    }

    passed, time = jax.jit(clock.stamp)(inputs)

    assert jax.tree.structure(passed) == jax.tree.structure(inputs)
    for old, new in zip(jax.tree.leaves(inputs), jax.tree.leaves(passed), strict=True):
        if jax.dtypes.issubdtype(jnp.result_type(old), jax.dtypes.prng_key):
            old, new = jax.random.key_data(old), jax.random.key_data(new)
        assert new.dtype == jnp.result_type(old)
        np.testing.assert_array_equal(np.asarray(old), np.asarray(new))
    assert (time.shape, time.dtype) == ((2,), jnp.uint32)
    before = perf_counter_ns()
    _, time = jax.block_until_ready(jax.jit(clock.stamp)(jnp.ones(3)))
    assert before <= nanoseconds(time) <= perf_counter_ns(), "it is the clock that Python reads"


def test_many_stamps_give_many_differences():
    start = np.array([[0, 0], [2**32 - 1, 0], [5, 7]], np.uint32)
    end = np.array([[1_000, 0], [499, 1], [5, 8]], np.uint32)
    exact = np.array([1e-6, 5e-7, 2**32 / 1e9])

    np.testing.assert_allclose(clock.elapsed_s(start, end), exact, rtol=1e-15)
    np.testing.assert_allclose(jax.jit(clock.elapsed_s)(start, end), exact, rtol=2e-7)


def test_a_stamp_of_nothing_is_refused():
    with pytest.raises(UsageError) as caught:
        clock.stamp({"x": None})

    assert str(caught.value) == (
        "cannot stamp {'x': None}: it holds no arrays\n"
        "expected inputs or outputs of the timed function\n\n"
        "hint: if no data depend on a time, XLA can read it at any moment"
    )


def test_in_a_loop_nothing_is_copied():
    """One copy of the input where it enters the program, none in the loop's body."""

    def f(x):
        return jax.lax.fori_loop(0, 10, lambda _, x: clock.stamp(clock.stamp(x)[0])[0], x)

    text = jax.jit(f).lower(jnp.ones(100_000)).compile().as_text()

    assert sum("copy(" in line and "f32[100000]" in line.split(" copy(")[0] for line in text.splitlines()) <= 1


def test_a_deadline_lies_so_far_from_now_and_never_after_the_latest():
    x, now = clock.stamp(jnp.ones(3))

    for seconds in (1.0, 0.0):
        until = handlers.deadline(clock.tier(), seconds, x)
        assert seconds <= clock.elapsed_s(now, until) < seconds + 60
        assert (handlers.deadline(clock.tier(), seconds, x, latest=now) == now).all()
    for seconds in (float("nan"), float("inf")):
        assert (np.asarray(handlers.deadline(clock.tier(), seconds, x)) == handlers.NEVER).all()
