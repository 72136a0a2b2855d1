"""Which functions are a jitted function in disguise, and which do something of their own."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import pytest

from pytest_jax_bench.inner_jit import find_jitted_call

X = jnp.ones(3)
double = jax.jit(lambda x, by=2: x * by)


def wait_for(x):
    jax.block_until_ready(double(x))


def twice(f):
    f(X)
    return f


def in_steps(x):
    found = double(x, by=3)
    return found.block_until_ready()


@pytest.mark.parametrize(
    ("fn", "args", "is_returned"),
    [
        (double, (X,), True),
        (functools.partial(double, X), (), True),
        (lambda: double(X), (), True),
        (lambda: double(X).block_until_ready(), (), True),
        (lambda: jax.block_until_ready(double(X)), (), True),
        (lambda x: jax.block_until_ready(double(x)), (X,), True),
        (lambda *a, **k: double(*a, **k), (X,), True),
        (functools.partial(lambda f, x: double(x), None), (X,), True),
        (wait_for, (X,), False),
        (in_steps, (X,), True),
        (lambda f, args: f(*args), (double, (X,)), True),
        (lambda f, x: jax.block_until_ready(f(x)), (double, X), True),
        (functools.partial(lambda f, args: f(*args), f=double, args=[X]), (), True),
    ],
)
def test_a_function_that_only_calls_a_jitted_one_is_that(fn, args, is_returned) -> None:
    found = find_jitted_call(fn, args, {})

    assert found is not None
    assert found.fn is double
    assert found.args[0] is X
    assert found.is_returned == is_returned
    assert double._cache_size() == 0  # pyright: ignore  # it was looked for, not called


def test_a_function_of_jax_that_the_user_has_jitted_is_found() -> None:
    own = jax.jit(jnp.sin)

    assert find_jitted_call(lambda: own(X), (), {}).fn is own
    assert find_jitted_call(jnp.sin, (X,), {}) is None


def test_one_that_a_closure_holds_is_found() -> None:
    own = jax.jit(lambda x: x + 1)

    assert find_jitted_call(lambda: own(X), (), {}).fn is own


@pytest.mark.parametrize(
    "fn",
    [
        lambda: double(X + 1),
        lambda: double(X)[0],
        lambda: [double(X) for _ in range(3)],
        lambda: double(double(X)),
        lambda: double(jnp.ones(3)),
        lambda: jnp.sin(X),
        lambda: math.sin(1.0),
        lambda: (double(X), double(X)),
        lambda: double(X) if X is not None else None,
        lambda: double(*X),
        lambda: missing(X),  # noqa: F821
        lambda: twice(double),
        print,
        len,
    ],
)
def test_a_function_that_does_anything_else_is_what_it_is(fn) -> None:
    """What it does beside would be left out of its time."""
    assert find_jitted_call(fn, (), {}) is None


def test_what_is_changed_by_a_call_is_not_changed_by_looking() -> None:
    calls = []

    def counted():
        calls.append(1)
        return double(X)

    assert find_jitted_call(counted, (), {}) is None
    assert calls == []
