"""`with_deadline`: loops inside XLA stop at a limit. That they compute the same is in `test_same_results.py`."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warm_python
from jax import lax
from jax_versions import IS_0_6

from benchax.clock import handlers, rewriting, with_deadline
from benchax.clock.deadline import interruptible
from benchax.clock.handlers import tier
from benchax.errors import DeadlineExceeded, NotAvailable, UsageError

SOON = 0.03
LONG = 100.0
GENEROUS_S = 20.0
"""A busy machine, and a compilation; a loop that is not stopped takes for ever."""


def halve(x: Any) -> Any:
    return x * 0.5 + 1.0


def endless(x: Any) -> Any:
    return lax.while_loop(lambda x: jnp.all(x > -1.0), halve, x)


def long_scan(x: Any, length: int, **how: Any) -> Any:
    return lax.scan(lambda x, _: (halve(x), None), x, None, length=length, **how)[0]


def in_a_loop(x: Any) -> Any:
    """The inner loop is a million iterations, the outer one has no end."""
    return lax.while_loop(lambda x: x > -1.0, lambda x: lax.fori_loop(0, 10**6, lambda _, x: halve(x), x), x)


def in_a_solve(x: Any) -> Any:
    def solve(_: Any, b: Any) -> Any:
        return lax.while_loop(lambda b: b > -1.0, halve, b)

    return lax.custom_linear_solve(lambda v: 2.0 * v, x, solve)


def in_custom_derivatives(x: Any) -> Any:
    smooth = jax.custom_jvp(jax.checkpoint(endless))
    smooth.defjvps(lambda t, *_: t)
    other = jax.custom_vjp(lambda x: smooth(x))
    other.defvjp(lambda x: (x, None), lambda _, g: (g,))
    return other(x)


ENDLESS: dict[str, Callable[[Any], Any]] = {
    "while": endless,
    "scan": lambda x: long_scan(x, 10**9),
    "scan, unrolled": lambda x: long_scan(x, 10**9 + 1, unroll=3),
    "fori": lambda x: lax.fori_loop(0, jnp.int32(x) + 2**30, lambda _, x: halve(x), x),
    "in a loop": in_a_loop,
    "in a branch in jit": lambda x: jax.jit(lambda x: lax.cond(x > 0, endless, halve, x))(x),
    "in a condition": lambda x: lax.while_loop(lambda x: endless(x) > -1.0, halve, x),
    "in a solve": in_a_solve,
    "in custom derivatives": in_custom_derivatives,
    "vmapped": lambda x: jax.vmap(endless)(x + jnp.arange(3.0)),
    "one after the other": lambda x: endless(endless(x)),
    "in a short scan": lambda x: lax.scan(lambda x, _: (endless(x), None), x, None, length=2)[0],
    "slow steps": lambda x: lax.while_loop(lambda m: m[0, 0] > -9.0, lambda m: jnp.tanh(m @ m), jnp.eye(300) * x).sum(),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_an_endless_loop_stops(name: str) -> None:
    outputs, is_expired = with_deadline(ENDLESS[name], SOON, "partial")(1.0)

    assert bool(is_expired)
    assert np.isfinite(np.asarray(outputs)).all()


def test_a_stop_comes_at_the_limit_and_no_sooner_without_what_is_behind_the_loop_and_says_what_to_do() -> None:
    limited = with_deadline(endless, 0.2)
    with pytest.raises(DeadlineExceeded):
        limited(1.0)
    begin = perf_counter()

    with pytest.raises(DeadlineExceeded, match=r"endless ran past its limit of 200 ms(.|\n)*on_timeout='partial'"):
        limited(1.0)

    assert 0.2 <= perf_counter() - begin < 0.2 + GENEROUS_S
    begin = perf_counter()
    with pytest.raises(DeadlineExceeded):
        with_deadline(lambda x: handlers.spin(tier(), endless(x), int(2e9 * GENEROUS_S)), SOON)(jnp.ones(3))
    assert perf_counter() - begin < GENEROUS_S


@pytest.mark.parametrize("arguments", [(1.0,), ()])
def test_inside_jit_the_program_ends(arguments: tuple[Any, ...]) -> None:
    """Also if all arguments are constants, which do not tell that they are inside."""
    program = jax.jit(lambda x=1.0: with_deadline(endless, SOON)(x) + 1)

    with pytest.raises(jax.errors.JaxRuntimeError, match="DEADLINE_EXCEEDED"):
        jax.block_until_ready(program(*arguments))

    assert jax.jit(halve)(1.0) == 1.5, "the process goes on"


def test_another_traced_limit_is_no_other_compilation() -> None:
    traced = []

    @jax.jit
    def program(seconds: Any, x: Any) -> Any:
        traced.append(seconds)
        return with_deadline(endless, seconds, "partial")(x)

    assert [bool(program(seconds, 1.0)[1]) for seconds in (0.001, SOON, 0.0, -1.0)] == [True] * 4
    assert len(traced) == 1


def spin(x: Any) -> Any:
    return handlers.spin(tier(), x, 50_000_000) + 1


def test_a_late_function_without_loops_is_complete_and_still_too_late() -> None:
    outputs, is_expired = with_deadline(spin, 0.005, "partial")(jnp.ones(3))

    assert not bool(is_expired)
    assert (np.asarray(outputs) == 2.0).all()
    with pytest.raises(DeadlineExceeded):
        with_deadline(spin, 0.005)(jnp.ones(3))


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("unroll", [1, 7])
def test_rows_that_were_reached_survive(reverse: bool, unroll: int) -> None:
    length = 200

    def rows(x: Any) -> Any:
        def step(x: Any, i: Any) -> Any:
            x = lax.fori_loop(0, 10**6, lambda _, x: halve(x), x)
            return x, i + 0 * x

        ys = lax.scan(step, x, jnp.arange(1.0, length + 1), reverse=reverse, unroll=unroll)[1]
        return ys[::-1] if reverse else ys

    full = np.arange(1.0, length + 1)[:: -1 if reverse else 1]

    found, is_expired = with_deadline(rows, SOON, "partial")(1.0)

    reached = int((np.asarray(found) != 0).sum())
    assert bool(is_expired)
    assert 0 < reached < length - unroll
    assert (np.asarray(found)[:reached] == full[:reached]).all()
    assert (np.asarray(found)[reached:] == 0).all()


def test_nothing_is_made_of_the_iterations_and_the_loops_behind_a_stopped_one() -> None:
    """Also where the loop around it does not look at the clock in each of its iterations."""

    def rows(x: Any) -> Any:
        def step(x: Any, i: Any) -> Any:
            x = lax.while_loop(lambda x: (i == 5000) & (x > -1.0), halve, x)
            return x, i + 1 + 0 * x

        found = lax.scan(step, x, jnp.arange(10_000.0))[1]
        return found, lax.fori_loop(0, 10**9, lambda _, y: y + 1, 0), lax.scan(lambda c, _: (c + 1, c), 7, None, 10**5)

    (found, second, (carry, later)), is_expired = with_deadline(rows, 0.3, "partial")(1.0)

    assert bool(is_expired)
    assert np.flatnonzero(np.asarray(found)).tolist() == list(range(5001))
    assert (int(second), int(carry), int(jnp.abs(later).max())) == (0, 7, 0)


def test_callbacks_in_loops_come_as_often_and_in_order() -> None:
    seen: list[int] = []

    def loop(x: Any) -> Any:
        def body(i: Any, x: Any) -> Any:
            jax.debug.callback(lambda i: seen.append(int(i)), i, ordered=True)
            return halve(x)

        return lax.fori_loop(0, 5, body, x)

    limited = with_deadline(loop, LONG)
    limited(1.0)
    jax.effects_barrier()

    assert seen == [0, 1, 2, 3, 4]


def ticks(f: Callable[..., Any], *args: Any) -> int:
    """Looks at the clock in the rewritten program."""
    return str(jax.make_jaxpr(interruptible(f))(handlers.NEVER, *args)).count("benchax_tick")


def test_loops_that_nobody_needs_do_not_run_and_those_that_are_surely_over_soon_are_left_alone() -> None:
    def f(x: Any) -> Any:
        kept, _ = lax.scan(lambda c, _: ((c[0] + 1, endless(c[1])), None), (x, x), None, length=10**5)
        return kept[0], endless(x)

    def short(x: Any) -> Any:
        return lax.fori_loop(0, 100, lambda _, x: halve(x), x)

    assert ticks(lambda x: f(x)[0], 1.0) == 1
    assert ticks(short, jnp.ones(8)) == 0
    assert ticks(short, jnp.ones(2000)) == 1, "not with many elements"
    assert ticks(lambda x: lax.fori_loop(0, 10**6, lambda _, x: short(x), x), jnp.ones(8)) == 1, "the outer one looks"


@pytest.mark.parametrize("given", [0, -1, -0.0, float("nan"), float("inf"), True, "1 h", None, [1.0, 2.0]])
def test_a_limit_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises(UsageError) as raised:
        with_deadline(endless, given)

    assert repr(given) in str(raised.value)
    assert "a number of seconds, above 0 and finite" in str(raised.value)
    with pytest.raises(UsageError, match=r"'partail'(.|\n)*partial, raise"):
        with_deadline(endless, 1.0, "partail")  # type: ignore[arg-type]


def test_transformations_are_refused_with_the_way_round_that_works() -> None:
    limited = with_deadline(lambda x: lax.fori_loop(0, 10**5, lambda _, x: halve(x), x), LONG)

    with pytest.raises(UsageError, match=r"differentiated(.|\n)*with_deadline\(jax.grad\("):
        jax.grad(limited)(1.0)
    with pytest.raises(UsageError, match=r"vmapped(.|\n)*with_deadline\(jax.vmap\("):
        jax.vmap(limited)(jnp.ones(3))


def test_arguments_and_errors_are_those_of_the_function() -> None:
    def f(tree: Any, n: int, *, scale: Any, mode: str = "up") -> Any:
        return {"out": lax.fori_loop(0, n, lambda _, x: x + 1.0 if mode == "up" else x - 1.0, tree["a"] * scale)}

    def broken(x: Any) -> Any:
        raise KeyError("mine")

    limited = with_deadline(f, LONG, static_argnums=1, static_argnames="mode")

    with pytest.raises(KeyError, match="mine"):
        with_deadline(broken, 1.0)(1.0)
    assert float(limited({"a": 2.0}, 3, scale=1.0)["out"]) == 5
    assert float(limited({"a": 2.0}, n=3, scale=2.0)["out"]) == 7
    assert float(limited({"a": jnp.float32(2.0)}, 4, scale=1.0, mode="down")["out"]) == -2
    with pytest.raises(UsageError, match=r"static argument 'mode' is \['up'\], a list"):
        limited({"a": 2.0}, 3, scale=1.0, mode=["up"])
    assert limited.__name__ == "f"


def test_limits_nest() -> None:
    def outer(x: Any) -> Any:
        return with_deadline(endless, LONG, "partial")(x)

    inner = with_deadline(endless, SOON, "partial")

    (_, inner_expired), outer_expired = with_deadline(lambda x: inner(x), LONG, "partial")(1.0)
    with pytest.raises(DeadlineExceeded, match="outer"):
        with_deadline(outer, SOON)(1.0)

    assert (bool(inner_expired), bool(outer_expired)) == (True, False)


def test_calls_from_threads_have_limits_of_their_own() -> None:
    limited = with_deadline(lambda n, x: lax.fori_loop(0, n, lambda _, x: halve(x), x), 0.3, "partial")
    limited(3, 1.0)

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda n: bool(limited(n, 1.0)[1]), (10, 2**31 - 1)))

    assert found == [False, True]


def test_what_cannot_be_stopped_is_left_alone_and_named() -> None:
    def f(x: Any) -> Any:
        return jax.pure_callback(lambda x: x, x, x) + lax.fori_loop(0, 10**5, lambda _, x: halve(x), x)

    def over_references(x: Any) -> Any:
        cell = jax.new_ref(x)

        def body(_: Any, carry: Any) -> Any:
            cell[...] = cell[...] * 2
            return carry

        lax.fori_loop(0, 10**5, body, 0)
        return cell[...]

    limited = with_deadline(f, LONG)
    limited(1.0)

    assert limited.unchecked == ("pure_callback",)
    if hasattr(jax, "new_ref"):
        limited = with_deadline(over_references, LONG)
        assert limited(jnp.zeros(2)).tolist() == [0.0, 0.0]
        assert limited.unchecked == ("scan over references",)


TWO_DEVICES = """
import jax, jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from benchax.clock import with_deadline
try:
    from jax import shard_map
except ImportError:
    from jax.experimental.shard_map import shard_map
devices, spec = Mesh(jax.devices(), "i"), PartitionSpec("i")
on_both = lambda f: shard_map(f, mesh=devices, in_specs=spec, out_specs=spec)
endless = lambda x: lax.while_loop(lambda x: x[0] > -1, lambda x: x * 0.5 + 1, x)
x = jnp.arange(8.0)
def show(f, x=x):
    try:
        print(f(x).tolist())
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
show(with_deadline(on_both(lambda x: x + 1), 100.0))
show(with_deadline(on_both(endless), 0.1))
show(jax.jit(with_deadline(lambda x: endless(lax.with_sharding_constraint(x, NamedSharding(devices, spec))), 0.1)))
show(with_deadline(jax.jit(endless, in_shardings=NamedSharding(devices, spec)), 0.1))
show(with_deadline(endless, 0.1), jax.device_put(x, NamedSharding(devices, spec)))
show(jax.jit(on_both(lambda x: with_deadline(endless, 0.1, on_timeout="partial")(x)[0])))
"""


def test_loops_on_several_devices_are_refused_and_stopped_on_each_alone() -> None:
    """An endless one would never return, whatever the limit."""
    without_loops, *refused, spread_input, alone = warm_python.run_on_devices(2, TWO_DEVICES).splitlines()

    assert without_loops == str([float(i) for i in range(1, 9)])
    assert len(refused) == 3
    for line in refused:
        assert line.startswith("NotAvailable not available here, because it has loops and runs on several devices")
    assert spread_input.startswith("NotAvailable not available here, because an input is spread over 2 devices")
    if IS_0_6:
        assert alone.startswith("NotAvailable not available here, because loops cannot be rewritten with JAX 0.6")
    else:
        assert alone == str([2.0] * 8)


def test_another_platform_and_another_jax_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(jax, "default_backend", lambda: "tpu")
        with pytest.raises(NotAvailable, match="runs on cpu, and this runs on tpu"):
            with_deadline(endless, 1.0)(np.float32(1.0))
    monkeypatch.setattr(rewriting.partial_eval, "dce_jaxpr", lambda *_, **__: None)
    with pytest.raises(NotAvailable, match=f"cannot be rewritten with JAX {jax.__version__}"):
        with_deadline(endless, 1.0)(np.float32(1.0))


# ---- which loops are surely over soon: the estimates are rough, and never too low by much ---------------------------


X = jnp.ones((64, 64))


def estimate(f: Callable[..., Any], *args: Any) -> float:
    return rewriting.program_ns(jax.make_jaxpr(f)(*args), rewriting.CPU)


@pytest.mark.parametrize(
    "unknown",
    [
        lambda x: lax.while_loop(lambda x: x[0, 0] < 3, jnp.sin, x),
        lambda x: jax.pure_callback(lambda x: x, x, x),
        jnp.linalg.cholesky,
        jnp.sort,
        jnp.fft.fft,
        jax.jit(lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.linalg.inv, x)),
    ],
)
def test_what_nobody_knows_may_take_for_ever(unknown: Callable[..., Any]) -> None:
    assert estimate(unknown, X) == math.inf
    assert estimate(lambda x: lax.fori_loop(0, 3, lambda _, x: x + unknown(x).real.sum(), x), X) == math.inf


def test_a_loop_of_no_iterations_takes_nothing_whatever_is_in_it() -> None:
    """Not infinity times zero, which is no number, and would hide what is around it."""
    assert estimate(lambda x: lax.scan(lambda x, _: (jnp.sort(x), None), x, None, length=0)[0], X) == 0
