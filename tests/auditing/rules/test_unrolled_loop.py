"""Python loops that leave every iteration in the program."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from evidence_by_hand import evidence

from benchax.auditing.audit import ask
from benchax.auditing.rules.loops import find_unrolled, unrolled_loop
from benchax.results.audit import Checked, Finding

X = jnp.ones((3, 4))


def asked(fn: Callable[..., Any], *args: Any) -> tuple[list[Finding], Checked]:
    """Building takes a second, as if measured: to build each program would take most of the time of these tests."""
    return ask(unrolled_loop, evidence(fn, *args, eager_s=1.0, jitted_s=1e-3, build_s=1.0))


def line_of(fn: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(fn)
    return first + next(i for i, line in enumerate(lines) if text in line)


def layer(x: Any) -> Any:
    return jnp.sin(x * 2) * 2


def hundred(x: Any) -> Any:
    for _ in range(30):
        x = (x * 2) * 2 + layer(x)
    return x


def in_while(x: Any) -> Any:
    i = 0
    while i < 30:
        x, i = layer(x), i + 1
    return x


def growing(x: Any) -> Any:
    for _ in range(20):
        x = jnp.concatenate([x, x[:1]]) * 2
    return x


def test_a_long_loop_is_told_with_its_turns_its_share_and_what_building_takes() -> None:
    (finding,), _ = asked(hundred, X)

    assert finding.title == "the for loop is unrolled 30 times"
    assert finding.where == (__file__, line_of(hundred, "for _"))
    assert finding.seen[0] == "its body was traced 30 times: 180 of the program's 180 operations (100 %)"
    assert finding.seen[1].startswith("tracing, lowering and compiling took ")
    assert finding.gain is not None
    assert finding.gain.startswith("estimated: at most ")
    assert "fori_loop" in finding.advice
    assert finding.gain_s is None


def two_layers(x: Any) -> Any:
    x = jnp.cos(x) * 3
    for _ in range(2):
        x = layer(x)
    return x


def sampled(x: Any) -> Any:
    for _ in range(16):
        x = two_layers(x)
    return x


def hundred_twice(x: Any) -> Any:
    for _ in range(2):
        x = hundred(jnp.cos(x))
    return x


@pytest.mark.parametrize(
    ("fn", "of", "iterations"), [(sampled, sampled, 16), (hundred_twice, hundred, 60)], ids=["short", "long"]
)
def test_a_short_loop_is_part_of_the_long_one_that_calls_it(fn: Any, of: Any, iterations: int) -> None:
    (finding,), _ = asked(fn, X)

    assert finding.where == (__file__, line_of(of, "for _"))
    assert finding.title == f"the for loop is unrolled {iterations} times"


def test_a_loop_inside_may_turn_in_shapes_of_its_own_if_it_does_so_each_time() -> None:
    def circuit(x: Any) -> Any:
        for _ in range(10):
            x = layer(x)
            for q in range(4):
                x = jnp.sin(x.reshape(2**q, 2, -1) * jnp.cos(x[q])).reshape(-1) + 1
        return x.sum()

    def pyramid(x: Any) -> Any:
        for n in range(10):
            for _ in range(3):
                x = jnp.sin(x) * jnp.cos(x[0]) + 1
            x = layer(x)[: 60 - n]
        return x.sum()

    for fn in (circuit, jax.value_and_grad(circuit)):
        (finding,), _ = asked(fn, jnp.ones(16))
        assert finding.title == "the for loop is unrolled 10 times"
        assert finding.where == (__file__, line_of(circuit, "range(10)"))
    assert asked(pyramid, jnp.ones(64))[0] == []


def test_of_a_loop_of_many_iterations_a_tenth_of_the_program_is_enough() -> None:
    def kept_in_a_list(x: Any, n: int) -> Any:
        parts = []
        for _ in range(n):
            parts.append(x := x * 2)
        return jnp.stack(jax.tree.map(layer, parts)).sum(0)

    (finding,), _ = asked(functools.partial(kept_in_a_list, n=60), X)

    assert finding.title == "the for loop is unrolled 60 times"
    assert asked(functools.partial(kept_in_a_list, n=40), X)[0] == []


def test_a_loop_whose_body_is_in_other_functions_and_a_jit_inside() -> None:
    (finding,), _ = asked(jax.jit(in_while), X)

    assert finding.title == "the while loop is unrolled 30 times"
    assert finding.where == (__file__, line_of(in_while, "while i"))


def folded(x: Any) -> Any:
    def add(total: Any, row: Any) -> Any:
        return layer(total) + jnp.outer(row, row).sum() / (1 + jnp.exp(total[0]))

    return functools.reduce(add, jnp.ones((30, 4)), x[0]).sum()


def mapped(x: Any) -> Any:
    return sum(map(lambda k: layer(layer(x * k)) @ layer(x).T, range(30)))  # noqa: C417


@pytest.mark.parametrize(("fn", "call"), [(folded, "reduce"), (mapped, "map")])
def test_what_reduce_and_map_call_is_a_loop_too(fn: Any, call: str) -> None:
    """A derivative has sums at places of its own."""
    for each in (fn, jax.grad(lambda x: fn(x).sum())):
        (finding,), _ = asked(each, X)

        assert finding.title == f"the call of {call} is unrolled 30 times"
        assert finding.where == (__file__, line_of(fn, f"{call}("))


def test_a_short_loop_of_a_function_that_is_called_often_is_fine() -> None:
    def twice_four(x: Any) -> Any:
        def four(y: Any) -> Any:
            for _ in range(4):
                y = layer(layer(layer(y)))
            return y

        return four(x) + four(x * 2)

    assert asked(twice_four, X)[0] == []


def test_a_fori_loop_is_fine() -> None:
    findings, answer = asked(lambda x: jax.lax.fori_loop(0, 30, lambda i, y: (y * 2) * 2 + layer(y), x), X)

    assert (findings, answer.outcome) == ([], "fine")


def test_a_short_loop_is_fine() -> None:
    def few(x: Any) -> Any:
        for _ in range(3):
            x = layer(x)
        return x

    assert asked(few, X)[0] == []


def test_turns_of_different_shapes_cannot_be_rolled_up() -> None:
    assert asked(growing, X)[0] == []


def test_turns_of_different_shapes_of_which_a_small_part_is_alike_cannot_be_rolled_up() -> None:
    """As gates on one qubit after the other, whose matrices are made alike in each turn."""

    def circuit(angles: Any) -> Any:
        state = jnp.ones(2**8, jnp.complex64)
        for i in range(8):
            gate = jnp.diag(jnp.exp(jnp.array([-0.5j, 0.5j]) * angles[i]))
            state = jnp.einsum("ij,ljr->lir", gate, state.reshape(2**i, 2, -1)).reshape(-1)
        return jnp.sum(jnp.abs(state) ** 2)

    def scanned(angles: Any) -> Any:
        return jax.lax.scan(lambda total, each: (total + circuit(each), None), 0.0, angles)[0]

    assert asked(jax.value_and_grad(scanned), jnp.ones((3, 8)))[0] == []


def test_the_first_turn_may_have_no_batch_yet() -> None:
    def steps(inputs: Any) -> Any:
        state = jnp.zeros(4)
        for row in inputs:
            state = jnp.tanh(jnp.ones((4, 4)) @ state + row)
        return state.sum()

    def mapped(x: Any) -> Any:
        return jax.grad(lambda x: jax.vmap(steps)(x).sum())(x)

    (finding,), _ = asked(mapped, jnp.ones((5, 20, 4)))

    assert finding.title == "the for loop is unrolled 20 times"


def test_lines_that_repeat_without_a_loop_are_none() -> None:
    def straight(x: Any) -> Any:
        x = layer(layer(layer(layer(layer(layer(layer(layer(layer(layer(x))))))))))
        return layer(layer(layer(layer(layer(layer(layer(layer(layer(layer(x))))))))))

    assert asked(straight, X)[0] == []


def test_turns_are_counted_also_where_one_line_does_the_same_twice() -> None:
    def twice(x: Any) -> Any:
        return [x := (x * 2) * 2 for _ in range(7)][-1]

    (loop,) = find_unrolled(jax.jit(twice).trace(X).jaxpr)

    assert (loop.iterations, loop.size, loop.kind) == (7, 14, "comprehension")


def test_a_loop_around_the_audit_is_none_of_the_function() -> None:
    def nested(x: Any, n: int = 30) -> Any:
        return nested(layer(x), n - 1) if n else x

    for _ in range(1):
        assert asked(nested, X)[0] == []
