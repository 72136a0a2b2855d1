"""Every kind of callable has one face; building one starts from nothing and leaves the others alone."""

import functools

import jax
import jax.numpy as jnp
import pytest

from benchax.case import make_case
from benchax.errors import NotMeasured
from benchax.measuring import program as programs
from benchax.measuring.program import program_of
from benchax.watching.compiles import watch_compiles


def double(x):
    return x * 2


class Model:
    @functools.partial(jax.jit, static_argnums=0)
    def apply(self, x):
        return x + 1


X = jnp.arange(8.0)


@pytest.mark.parametrize(
    ("fn", "jit", "kind", "was_jitted"),
    [
        (double, True, "plain", False),
        (functools.partial(double), True, "plain", False),
        (jax.vmap(double), True, "plain", False),
        (jax.jit(double), True, "jit", True),
        (Model().apply, True, "plain", True),
        (double, False, "eager", False),
    ],
)
def test_the_kinds_are_told_apart(fn, jit, kind, was_jitted):
    program = program_of(make_case(fn, (X,), jit=jit))

    assert (program.kind, program.was_jitted) == (kind, was_jitted)
    assert (program.call is fn) == (kind in ("jit", "eager"))
    assert jnp.array_equal(program.call(X), fn(X))


def test_a_compiled_is_called_as_it_is_and_has_no_stages():
    compiled = jax.jit(double).lower(X).compile()
    program = program_of(make_case(compiled, (X,)))

    with pytest.raises(NotMeasured, match="given as a Compiled, which is built already"):
        programs.trace(program, (X,), {})

    assert program.call is compiled
    assert program.eager is None


def test_a_plain_function_is_compiled_anew_each_time_it_is_measured():
    program_of(make_case(double, (X,))).call(X)

    with watch_compiles() as log:
        program_of(make_case(double, (X,))).call(X)

    assert log.compiles == 1


def test_forgetting_a_jitted_function_leaves_others_compiled():
    one, other = jax.jit(double), jax.jit(lambda x: x - 1)
    one(X)
    other(X)

    programs.forget(program_of(make_case(one, (X,))))
    with watch_compiles() as of_other:
        other(X)
    with watch_compiles() as of_one:
        one(X)

    assert of_other.compiles == 0
    assert of_one.compiles == 1


def test_static_and_donated_arguments_of_a_plain_function_reach_the_jit():
    case = make_case(lambda x, n, y: x.reshape(n, -1).ravel() + y, (X, 4), {"y": 1.0}, static=["n"], donate=[0])
    given = jnp.arange(8.0)

    program_of(case).call(given, 4, y=1.0)

    assert given.is_deleted()


def test_equinox_filter_jit_is_a_wrapper_with_stages():
    equinox = pytest.importorskip("equinox")
    program = program_of(make_case(equinox.filter_jit(double), (X,)))

    lowered = programs.lower(program, None, (X,), {})

    assert (program.kind, program.was_jitted) == ("wrapper", True)
    assert isinstance(programs.unwrapped(lowered.compile(), jax.stages.Compiled), jax.stages.Compiled)
