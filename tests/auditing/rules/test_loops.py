"""Rules about loops."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import equinox
import jax
import jax.numpy as jnp
import pytest
from evidence_by_hand import evidence

from benchax.auditing.audit import ask
from benchax.auditing.rules.loops import find_unrolled, python_loop_vmap, unrolled_loop
from benchax.results.audit import Checked, Finding

# ---- unrolled-loop ---------------------------------------------------------------------------------------------------

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


def twice_four(x: Any) -> Any:
    def four(y: Any) -> Any:
        for _ in range(4):
            y = layer(layer(layer(y)))
        return y

    return four(x) + four(x * 2)


def straight(x: Any) -> Any:
    x = layer(layer(layer(layer(layer(layer(layer(layer(layer(layer(x))))))))))
    return layer(layer(layer(layer(layer(layer(layer(layer(layer(layer(x))))))))))


def few(x: Any) -> Any:
    for _ in range(3):
        x = layer(x)
    return x


FINE = {
    "a short loop of a function that is called often": twice_four,
    "a fori_loop": lambda x: jax.lax.fori_loop(0, 30, lambda i, y: (y * 2) * 2 + layer(y), x),
    "a short loop": few,
    "shapes that differ from turn to turn": growing,
    "lines that repeat without a loop": straight,
}


@pytest.mark.parametrize("fn", FINE.values(), ids=FINE)
def test_what_is_no_long_loop_or_cannot_be_rolled_up_is_fine(fn: Any) -> None:
    findings, answer = asked(fn, X)

    assert (findings, answer.outcome) == ([], "fine")


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


# ---- python-loop-vmap ------------------------------------------------------------------------------------------------

X_OF_ROWS, W = jnp.ones((12, 4)), jnp.ones((4, 4))


def asked_of_rows(fn: Callable[..., Any], *args: Any, rule: Any = python_loop_vmap) -> tuple[list[Finding], Checked]:
    return ask(rule, evidence(fn, *args, eager_s=1.0, jitted_s=1e-3, build_s=1.0))


def body(row: Any) -> Any:
    return jnp.sin(W @ row) * 2 + jnp.cos(row)


def by_index(x: Any) -> Any:
    rows = []
    for i in range(x.shape[0]):
        rows.append(body(x[i]))
    return jnp.stack(rows)


def by_iteration(x: Any) -> Any:
    return jnp.stack([body(row) for row in x])


def summed(x: Any) -> Any:
    total = jnp.zeros(4)
    for i in range(12):
        total = total + body(x[i])
    return total


def into_place(x: Any) -> Any:
    out = jnp.zeros_like(x)
    for i in range(12):
        out = out.at[i].set(body(x[i]))
    return out


def columns(x: Any) -> Any:
    return jnp.stack([jnp.sin(x[:, i]).sum() for i in range(4)])


def recurrent(x: Any) -> Any:
    state = jnp.zeros(4)
    for i in range(12):
        state = jnp.tanh(W @ state + x[i])
    return state


def of_package(x: Any) -> Any:
    """A package does many operations behind one place of the loop; differentiated, they are there once more."""
    model = equinox.nn.MLP(4, 4, 8, 2, key=jax.random.key(0))

    def loss(model: Any) -> Any:
        return jnp.mean(jnp.stack([model(row) for row in x]) ** 2)

    return equinox.filter_value_and_grad(loss)(model)[0]


@pytest.mark.slow
@pytest.mark.parametrize("fn", [by_index, by_iteration, summed, into_place, of_package])
def test_a_loop_over_the_rows_is_found(fn: Any) -> None:
    (finding,), _ = asked_of_rows(fn, X_OF_ROWS)

    lines, first = inspect.getsourcelines(fn)
    line = first + next(i for i, text in enumerate(lines) if "for " in text)
    assert finding.where == (__file__, line)
    assert "does the same with each of 12 parts" in finding.title
    assert finding.seen[0] == "12 parts are taken out of an array f32[12,4] along axis 0"
    assert "jax.vmap(body)" in finding.advice


def test_a_loop_over_a_few_columns_names_the_axis_and_is_an_info() -> None:
    (finding,), _ = asked_of_rows(columns, X_OF_ROWS)

    assert finding.severity == "info"
    assert "along axis 1" in finding.seen[0]
    assert "jax.vmap(body, in_axes=1)" in finding.advice


def test_a_loop_for_vmap_is_a_warning_and_told_once() -> None:
    (finding,), _ = asked_of_rows(by_index, X_OF_ROWS)

    assert finding.severity == "warning"
    assert asked_of_rows(by_index, X_OF_ROWS, rule=unrolled_loop)[0] == []


def experts(x: Any, layers: Any) -> Any:
    return sum(jnp.sin(row @ w) for row, w in zip(x, layers, strict=True))


def decaying(x: Any) -> Any:
    state = jnp.zeros(4)
    for row in x:
        state = 0.9 * state + row
    return state


def largest_of_late(x: Any) -> Any:
    state = jnp.zeros(4)
    for row in x:
        state = jnp.maximum(state, row) * 0.5
    return state


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (experts, (X_OF_ROWS, [jnp.full((4, 4), float(i)) for i in range(12)])),
        (lambda x: sum(body(x[i]) for i in range(5)), (jnp.ones((100, 4)),)),
        (jax.vmap(body), (X_OF_ROWS,)),
        (decaying, (X_OF_ROWS,)),
        (largest_of_late, (X_OF_ROWS,)),
    ],
    ids=["layers of their own", "a few rows of many", "mapped already", "a decaying sum", "a decaying maximum"],
)
def test_what_is_no_loop_over_all_rows_alike_is_fine(fn: Any, args: Any) -> None:
    findings, answer = asked_of_rows(fn, *args)

    assert (findings, answer.outcome) == ([], "fine")


SLOW = pytest.mark.slow


def recursion(x: Any) -> Any:
    var, out = x[0, 0], []
    for t in range(x.shape[0]):
        out.append(var)
        var = 0.1 + 0.2 * x[t, 0] + 0.7 * var
    return jnp.sum(jnp.stack(out) ** 2)


@pytest.mark.parametrize("fn", [recurrent, *(pytest.param(f, marks=SLOW) for f in (recursion, jax.grad(recursion)))])
def test_what_hands_a_value_on_from_iteration_to_iteration_is_for_scan(fn: Any) -> None:
    findings, answer = asked_of_rows(fn, X_OF_ROWS)

    assert (findings, answer.outcome) == ([], "fine")
    (finding,), _ = asked_of_rows(fn, X_OF_ROWS, rule=unrolled_loop)
    assert "jax.lax.scan" in finding.advice


class numpyro:  # as models call it
    """Where the package is not installed."""

    @staticmethod
    def sample(name: str, value: Any) -> Any:
        return jnp.sin(value) + jnp.cos(value)


def model(x: Any) -> Any:
    return jnp.stack([numpyro.sample(f"x{i}", row) for i, row in enumerate(x)])


def test_sites_of_a_model_are_for_a_plate() -> None:
    (finding,), _ = asked_of_rows(model, X_OF_ROWS)

    assert "numpyro.plate" in finding.advice


# ---- sequential-map --------------------------------------------------------------------------------------------------

ITEMS, WEIGHTS = "f32[1000,32]", "f32[32,32]"


def embed(x: Any, w: Any) -> Any:
    return jnp.tanh(jnp.tanh(x @ w) @ w)


def one_by_one(x: Any, w: Any) -> Any:
    rows = jax.lax.map(lambda row: embed(row, w), x)
    return rows.sum()


def test_it_names_the_line_and_what_would_be_made_at_once(ask_about: Any) -> None:
    finding = ask_about("sequential-map", one_by_one, ITEMS, WEIGHTS).one

    assert (finding.severity, finding.title) == ("info", "loops over 1000 small items one by one")
    assert finding.where == (__file__, one_by_one.__code__.co_firstlineno + 1)
    assert finding.seen[0].startswith("each takes 4.74 kFLOP, most of them in 2 small products")
    assert finding.seen[1].startswith("all at once, they make at most 500 KiB")
    assert "about 340 µs of a call here; not measured" in finding.seen[2]


# ---- stacked-outputs -------------------------------------------------------------------------------------------------

X_OF_STACKS, W_OF_STACKS = "f32[64,512]", "f32[64,512]"
STEPS = 200


def advance(x: Any, _: Any) -> Any:
    y = 0.9 * x + 1.0
    return (
        y,
        y,
    )


def profile(u: Any) -> Any:
    return u.mean(axis=0)


def stack(x: Any) -> Any:
    return jax.lax.scan(advance, x, None, length=STEPS)


def last(x: Any, w: Any) -> Any:
    return stack(x)[1][-1]


def each_reduced(x: Any, w: Any) -> Any:
    return jax.vmap(profile)(stack(x)[1])


def averaged(x: Any, w: Any) -> Any:
    return stack(x)[1].mean(0)


def of_map(x: Any, w: Any) -> Any:
    return jax.lax.map(lambda i: jnp.sin(i * x), jnp.arange(STEPS)).max(axis=(1, 2))


def test_it_names_the_scan_its_body_and_what_is_read(ask_about: Any) -> None:
    finding = ask_about("stacked-outputs", last, X_OF_STACKS, W_OF_STACKS).one

    assert finding.title == "stacks 25.0 MiB in a scan; 128 KiB would be enough"
    assert (finding.severity, finding.gain_bytes > 20 << 20) == ("warning", True)
    assert finding.gain.startswith("estimated: at most ")
    assert finding.lines == [
        (__file__, stack.__code__.co_firstlineno + 1),
        (__file__, advance.__code__.co_firstlineno),
    ]
    assert f"(slice at {__file__}:{last.__code__.co_firstlineno + 1})" in finding.seen[0]
    assert "Read the last step's value" in finding.advice


def test_of_lax_map_it_names_the_call(ask_about: Any) -> None:
    finding = ask_about("stacked-outputs", of_map, X_OF_STACKS, W_OF_STACKS).one

    assert finding.where == (__file__, of_map.__code__.co_firstlineno + 1)
    assert finding.advice.startswith("Compute that in the body")


def test_a_sum_over_steps_is_told_to_be_accumulated(ask_about: Any) -> None:
    assert "Accumulate it in the carry" in ask_about("stacked-outputs", averaged, X_OF_STACKS, W_OF_STACKS).one.advice


def test_a_loop_that_computes_much_is_an_info(ask_about: Any) -> None:
    def heavy(x: Any, w: Any) -> Any:
        return jax.lax.scan(lambda x, _: (jnp.tanh(x @ (w.T @ x)), x), x, None, length=STEPS)[1][-1]

    fn = lambda x, w: heavy(jnp.tile(x, (16, 1)), jnp.tile(w, (16, 1)))  # noqa: E731

    assert ask_about("stacked-outputs", fn, X_OF_STACKS, W_OF_STACKS).one.severity == "info"


def test_stacking_alone_is_compared(ask_about: Any, result_of: Any) -> None:
    answered = ask_about("stacked-outputs", each_reduced, X_OF_STACKS, W_OF_STACKS, ratio=0.1)

    ((stacked, reduced),) = answered.pairs
    assert "of a loop that does nothing else" in answered.one.gain
    for one, other in zip(result_of(stacked), result_of(reduced), strict=True):
        assert jnp.allclose(one, other, rtol=1e-4)
