"""Every kind of callable has one face; building one starts from nothing and leaves the others alone."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchax.case import make_case
from benchax.compiled_grids.compiled import trace
from benchax.errors import NotMeasured
from benchax.measuring import program as programs
from benchax.measuring.paired import PairedRequest, Side, take_blocks
from benchax.measuring.program import program_of, refuse_function
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
        (functools.partial(jax.jit(double)), True, "plain", True),
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


def test_a_jitted_function_in_a_partial_is_run_eagerly_without_its_jit():
    in_partial = functools.partial(jax.jit(double))
    programs = [program_of(make_case(fn, (X,))) for fn in (in_partial, jax.jit(in_partial))]

    assert [program.eager.func for program in programs] == [double, double]


def test_the_function_under_a_pmap_is_not_its_eager_form(bench):
    """It is given one part of each array: the mapped result was called wrong."""
    mapped = jax.pmap(lambda x: x.sum())

    assert program_of(make_case(mapped, (X[None],))).eager is None
    m = bench(mapped, X[None])
    assert (m.failure, m.numerics) == (None, None)
    assert m.why_absent("numerics") == "there is no eager function behind it to compare with"


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


def test_static_and_donated_arguments_of_a_plain_function_reach_the_jit():
    case = make_case(lambda x, n, y: x.reshape(n, -1).ravel() + y, (X, 4), {"y": 1.0}, static=["n"], donate=[0])
    given = jnp.arange(8.0)

    program_of(case).call(given, 4, y=1.0)

    assert given.is_deleted()


# ---- functions whose call runs nothing ---------------------------------------------------------------------------

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning", "error::pytest.PytestUnraisableExceptionWarning")

QUICK = {"stages": "samples", "timer": "wall", "memory": False}


async def work(x: Any) -> Any:
    await asyncio.sleep(0)
    return jnp.sin(x)


def steps(x: Any) -> Any:
    for i in range(3):
        yield jnp.sin(x) * i


async def ticks(x: Any) -> Any:
    yield jnp.sin(x)


class Model:
    async def __call__(self, x: Any) -> Any:
        return x

    def steps(self, x: Any) -> Any:
        yield x


RUN = "lambda x: asyncio.run(work(x))"


@pytest.mark.parametrize("jit", [True, False])
@pytest.mark.parametrize(
    ("fn", "what", "instead"),
    [
        (work, "work is a coroutine function", RUN),
        (functools.partial(work), "work is a coroutine function", RUN),
        (jax.jit(work), "work is a coroutine function", RUN),
        (jax.grad(work), "work is a coroutine function", RUN),
        (Model(), "Model is a coroutine function", "lambda x: asyncio.run(Model(x))"),
        (steps, "steps is a generator function", "lambda x: list(steps(x))"),
        (Model().steps, "steps is a generator function", "lambda x: list(steps(x))"),
        (ticks, "ticks is an async generator function", "[y async for y in ticks(x)]"),
        (lambda x: work(x), "the call returns a coroutine of work", RUN),
        (lambda x: (x, {"a": steps(x)}), "the call returns a generator of steps", "lambda x: list(steps(x))"),
        (lambda x: (y for y in x), "<genexpr>: its body hasn't run", "lambda x: list(f(x))"),
    ],
)
def test_no_number_without_work(fn: Any, what: str, instead: str, jit: bool, bench: Any) -> None:
    m = bench(fn, "f32[10]", jit=jit, options=QUICK)

    assert m.samples == ()
    assert what in m.failure.message
    assert instead in m.failure.advice
    assert ("without jit" in m.failure.advice) is ("asyncio" in instead or "async for" in instead)


@pytest.mark.parametrize(("made", "instead"), [(work, "lambda x: asyncio.run(f(x))"), (steps, "lambda x: list(f(x))")])
def test_what_jax_refuses_by_itself_gets_the_same_advice(made: Any, instead: str, bench: Any) -> None:
    m = bench(jax.jit(lambda x: made(x)), "f32[10]", options=QUICK)

    assert (m.failure.kind, m.samples) == ("wrong_output", ())
    assert instead in m.failure.advice


def test_what_is_advised_is_measured(bench: Any) -> None:
    assert bench(lambda x: list(steps(x)), "f32[10]", options=QUICK).samples
    assert bench(lambda x: asyncio.run(work(x)), "f32[10]", jit=False, options=QUICK).samples


def test_a_decorator_that_runs_the_coroutine_is_a_plain_function() -> None:
    @functools.wraps(work)
    def run(x: Any) -> Any:
        return asyncio.run(work(x))

    refuse_function(run)
    with pytest.raises(ValueError, match="coroutine"):
        refuse_function(work)


def test_a_side_of_a_comparison_is_refused_by_name() -> None:
    sides = (Side("plain", make_case(jnp.sin, ("f32[8]",))), Side("lazy", make_case(steps, ("f32[8]",))))

    document = take_blocks(PairedRequest(sides), lambda stage, **facts: None)

    assert document.wall_ns is None
    assert document.failure is not None
    assert (document.failed_side, document.failure.advice.endswith("lambda x: list(steps(x))")) == (1, True)


def test_a_function_of_a_compiled_grid_is_refused() -> None:
    assert "the call returns a generator of steps" in trace("f", steps, (jnp.ones(3),)).note
