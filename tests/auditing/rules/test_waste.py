"""Rules about work in vain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import solve_triangular

from benchax.auditing.audit import ask
from benchax.auditing.evidence import Evidence
from benchax.auditing.rules.waste import zero_argument_jit
from benchax.case import make_case
from benchax.results.audit import Checked, Finding

# ---- one-hot-matmul --------------------------------------------------------------------------------------------------

TABLE = "f32[4096,16]"


def looked_up(table: Any, index: Any) -> Any:
    x = jax.nn.one_hot(index, 4096) @ table
    return jnp.tanh(x).sum()


def test_a_product_that_looks_up_rows_is_found_on_its_line(ask_about: Any) -> None:
    finding = ask_about("one-hot-matmul", jax.jit(looked_up), TABLE, jnp.arange(256), ratio=0.1).one

    assert finding.title == "looks up rows of f32[4096,16] by a product with a one-hot array"
    assert finding.where == (__file__, looked_up.__code__.co_firstlineno + 1)
    assert finding.seen[0].startswith("f32[256,4096] of zeros and ones, 4.00 MiB, times f32[4096,16]: 33.6 MFLOP")
    assert finding.gain is not None
    assert finding.gain.endswith(", of this product alone")


def test_the_product_and_the_lookup_that_are_compared_give_the_same(ask_about: Any, result_of: Any) -> None:
    ((product, lookup),) = ask_about("one-hot-matmul", looked_up, TABLE, jnp.arange(256), ratio=0.1).pairs

    ours, theirs = result_of(lookup), result_of(product)
    assert all(jnp.allclose(a, b, rtol=1e-5) for a, b in zip(ours, theirs, strict=True))


def test_tpus_multiply_faster_than_they_index(ask_about: Any) -> None:
    assert (
        ask_about("one-hot-matmul", looked_up, TABLE, jnp.arange(256), parts={"platform": "tpu"}).outcome
        == "not applicable"
    )


# ---- broadcast-matmul ------------------------------------------------------------------------------------------------

A, B = "f32[256,32]", "f32[200,32]"


def distances(a: Any, b: Any) -> Any:
    difference = a[:, None, :] - b[None, :, :]
    return jnp.sqrt((difference**2).sum(-1))


def test_it_names_the_line_and_compares_with_a_product_of_the_same_results(ask_about: Any, result_of: Any) -> None:
    answered = ask_about("broadcast-matmul", distances, A, B, ratio=0.2)

    assert answered.one.where == (__file__, distances.__code__.co_firstlineno + 2)
    assert answered.one.gain.endswith(", of this sum alone")
    ((before, after),) = answered.pairs
    np.testing.assert_allclose(result_of(before), result_of(after), rtol=1e-3, atol=1e-3)


def test_advice_that_was_timed_and_does_not_pay_is_no_finding(ask_about: Any) -> None:
    answered = ask_about("broadcast-matmul", distances, A, B, ratio=1.4)

    assert not answered.findings
    assert answered.why == "a matrix product: slower (0.714×, 0.709 – 0.719)"


# ---- matmul-order ----------------------------------------------------------------------------------------------------

A_OF_ORDER, B_OF_ORDER, X = "f32[600,500]", "f32[500,400]", "f32[400,2]"


def chain(a: Any, b: Any, x: Any) -> Any:
    return jnp.tanh(a @ b @ x)


def test_it_names_the_line_the_work_and_compares_orders_of_the_same_result(ask_about: Any, result_of: Any) -> None:
    answered = ask_about("matmul-order", chain, A_OF_ORDER, B_OF_ORDER, X, ratio=0.2)

    assert answered.one.where == (__file__, chain.__code__.co_firstlineno + 1)
    assert answered.one.seen[0] == "241 MFLOP in this order, 2.00 MFLOP in the other"
    assert answered.one.gain.endswith(", of this product alone")
    ((before, after),) = answered.pairs
    np.testing.assert_allclose(result_of(before), result_of(after), rtol=1e-3, atol=1e-2)


# ---- sort-top-k ------------------------------------------------------------------------------------------------------

SCORES = "f32[64,4096]"


def best(scores: Any) -> Any:
    order = jnp.argsort(scores)
    return order[:, -5:]


def test_it_names_the_line_and_compares_with_a_selection_of_the_same(ask_about: Any, result_of: Any) -> None:
    answered = ask_about("sort-top-k", best, SCORES, ratio=0.1)

    assert answered.one.where == (__file__, best.__code__.co_firstlineno + 1)
    ((before, after),) = answered.pairs
    np.testing.assert_array_equal(result_of(before), result_of(after))


def test_of_other_platforms_nothing_is_claimed(ask_about: Any) -> None:
    assert ask_about("sort-top-k", best, SCORES, parts={"platform": "gpu"}).outcome == "not checked"


# ---- both-sides-computed ---------------------------------------------------------------------------------------------

X_OF_CHOICE, STEP = "f32[128,128]", "i32[]"


def dear(x: Any) -> Any:
    return jnp.linalg.cholesky(x @ x.T + jnp.eye(128))


def cheap(x: Any) -> Any:
    return 0.9 * x + 1.0


def each_hundredth(x: Any, i: Any) -> Any:
    return jnp.where(
        i % 100 == 0,
        dear(x),
        cheap(x),
    )


def by_a_count_that_is_given(x: Any, i: Any) -> Any:
    return jnp.where((i + 1) % i == 0, dear(x), x)


def test_it_names_the_choice_what_is_dear_and_how_often_it_is_used(ask_about: Any) -> None:
    finding = ask_about("both-sides-computed", each_hundredth, X_OF_CHOICE, STEP).one

    assert finding.where == (__file__, each_hundredth.__code__.co_firstlineno + 1)
    assert finding.title.startswith("computes both sides of a where each time")
    assert finding.title.endswith("; the expensive one is used once in 100 times")
    assert "jax.lax.cond" in finding.advice
    assert finding.seen[0] == f"dot_general makes f32[128,128] at {__file__}:{dear.__code__.co_firstlineno + 1}"
    assert finding.gain.startswith("estimated: ")


def test_where_the_period_is_not_known_no_gain_is_told(ask_about: Any) -> None:
    finding = ask_about("both-sides-computed", by_a_count_that_is_given, X_OF_CHOICE, STEP).one

    assert (finding.gain, finding.seen[-1].endswith("if they are used every second time")) == (None, True)


# ---- vmapped-cond ----------------------------------------------------------------------------------------------------

X_OF_COND, M = "f32[16,128]", "f32[128,128]"


def refresh(x: Any, m: Any) -> Any:
    return jnp.linalg.cholesky(m + jnp.diag(jnp.abs(x))) @ x


def stay(x: Any, m: Any) -> Any:
    return x + 1.0


def move(x: Any, due: Any, m: Any) -> Any:
    y = 2 * x
    return jax.lax.cond(due, refresh, stay, y, m)


def repeated(x: Any, m: Any, i: Any) -> Any:
    due = jnp.broadcast_to(i % 50 == 0, (len(x),))
    return jax.vmap(move, in_axes=(0, 0, None))(x, due, m)


def in_loop(x: Any, m: Any, i: Any) -> Any:
    return jax.lax.fori_loop(0, i, lambda i, x: repeated(x, m, i), x)


def switched(x: Any, m: Any, i: Any) -> Any:
    which = jnp.full(len(x), i % 3)
    return jax.vmap(lambda x, k: jax.lax.switch(k, [refresh, stay, stay], x, m))(x, which)


def computed(x: Any, m: Any, i: Any) -> Any:
    return jax.vmap(lambda x, k: move(x, (k % 50 == 0) | (k < 3), m))(x, jnp.broadcast_to(i, (len(x),)))


@pytest.mark.parametrize("fn", [repeated, in_loop, switched, computed])
def test_a_condition_that_is_the_same_in_all_rows_is_found(ask_about: Any, fn: Any) -> None:
    finding = ask_about("vmapped-cond", fn, X_OF_COND, M, "i32[]").one

    assert finding.title.startswith("runs all branches of lax.cond for each row")
    assert "repeated for 16 rows" in finding.seen[1]


def test_it_names_the_call_of_vmap_and_the_line_of_the_cond(ask_about: Any) -> None:
    finding = ask_about("vmapped-cond", repeated, X_OF_COND, M, "i32[]").one

    assert finding.where == (__file__, repeated.__code__.co_firstlineno + 2)
    assert finding.seen[1].startswith(f"lax.cond is at {__file__}:{move.__code__.co_firstlineno + 2};")


def by_row(x: Any, m: Any, i: Any) -> Any:
    return jax.vmap(lambda x: jax.lax.cond(x[0] > i, refresh, stay, x, m))(x)


def test_rows_with_conditions_of_their_own_are_an_info(ask_about: Any) -> None:
    finding = ask_about("vmapped-cond", by_row, X_OF_COND, M, "i32[]").one

    assert (finding.severity, finding.title) == ("info", "runs all branches of lax.cond for each row")
    assert finding.where == (__file__, by_row.__code__.co_firstlineno + 1)
    assert "jax.lax.map" in finding.advice


# ---- fixed-work ------------------------------------------------------------------------------------------------------

GRAM, F, DATA = "f32[512,512]", "f32[512]", "f32[2048,256]"


def whiten(gram: Any, f: Any) -> Any:
    root = jnp.linalg.cholesky(gram)
    return solve_triangular(root, f, lower=True)


def whiten_in_loop(gram: Any, f: Any) -> Any:
    return jax.lax.scan(lambda f, _: (whiten(gram, f), None), f, None, length=3)[0]


def until_small(gram: Any, f: Any) -> Any:
    return jax.lax.while_loop(lambda f: jnp.sum(f) > 1, lambda f: 0.5 * f, whiten(gram, f))


def fit(data: Any, w: Any) -> Any:
    return jnp.linalg.solve(data.T @ data, w)


def asked(ask_about: Any, fn: Any, *inputs: Any, fixed: Any) -> Any:
    return ask_about("fixed-work", fn, *inputs, parts={"repeated_inputs": frozenset(fixed)})


@pytest.mark.parametrize(
    ("fn", "inputs", "name"),
    [
        (whiten, (GRAM, F), "cholesky"),
        (whiten_in_loop, (GRAM, F), "cholesky"),
        (until_small, (GRAM, F), "cholesky"),
        (fit, (DATA, "f32[256]"), "dot_general"),
        (lambda gram, f: jax.grad(lambda f: jnp.sum(whiten(gram, f) ** 2))(f), (GRAM, F), "cholesky"),
        (lambda signal, w: jnp.fft.rfft(signal).real[:4] * w, ("f32[1048576]", "f32[]"), "fft"),
        (lambda x, w: jnp.sort(x)[:4] * w, ("f32[1048576]", "f32[]"), "sort"),
    ],
)
def test_dear_work_on_what_never_changes_is_found(ask_about: Any, fn: Any, inputs: Any, name: str) -> None:
    finding = asked(ask_about, fn, *inputs, fixed=[0]).one

    assert finding.title == f"computes {name} in each call from arguments that never change"


def test_it_names_the_line_the_argument_and_the_share(ask_about: Any) -> None:
    finding = asked(ask_about, whiten, GRAM, F, fixed=[0]).one

    assert finding.where == (__file__, whiten.__code__.co_firstlineno + 1)
    assert "instead of gram or in addition" in finding.advice
    assert finding.seen[-1].endswith("three or more: gram f32[512,512]")
    assert "operations of a call, counted from the shapes" in finding.seen[-2]


def test_beside_a_loop_of_unknown_length_the_share_is_not_known(ask_about: Any) -> None:
    finding = asked(ask_about, until_small, GRAM, F, fixed=[0]).one

    assert finding.severity == "info"
    assert "their share isn't known, because a loop has no known length" in finding.seen[-2]


@pytest.mark.parametrize(
    ("fn", "inputs", "fixed"),
    [
        (whiten, (GRAM, F), [1]),
        (lambda gram, f: gram @ f, (GRAM, F), [0]),
        (lambda gram, f: jnp.exp(gram).sum() * f, (GRAM, F), [0]),
        (lambda gram, f: whiten(gram[:64, :64], f[:64]), (GRAM, F), [0]),
        (lambda gram, f: whiten(gram + jnp.outer(f, f), f), (GRAM, F), [0]),
        (lambda data, w: jnp.tanh(data @ w)[:, :256] @ (data.T @ data), (DATA, "f32[256,8192]"), [0]),
        (lambda data, w: jax.hessian(lambda w: jnp.sum(jnp.tanh(data @ w) ** 2))(w), (DATA, "f32[256]"), [0]),
        (lambda gram, x: jax.lax.fori_loop(0, 99, lambda _, x: x @ x, x) + whiten(gram, x[0]), (GRAM, GRAM), [0]),
    ],
)
def test_what_varies_or_is_a_small_part_is_fine(ask_about: Any, fn: Any, inputs: Any, fixed: Any) -> None:
    assert asked(ask_about, fn, *inputs, fixed=fixed).outcome == "fine"


@pytest.mark.parametrize("fixed", [[], [0, 1]])
def test_where_nothing_or_all_stays_the_same_it_has_nothing_to_say(ask_about: Any, fixed: Any) -> None:
    assert asked(ask_about, whiten, GRAM, F, fixed=fixed).outcome == "not applicable"


# ---- zero-argument-jit -----------------------------------------------------------------------------------------------

W = jnp.arange(64.0).reshape(8, 8)


def asked_of_closed(fn: Callable[..., Any], *args: Any, **settings: Any) -> tuple[list[Finding], Checked]:
    return ask(zero_argument_jit, Evidence(make_case(fn, args, **settings)))


def closed() -> Any:
    return (W * 2).sum()


def test_what_computes_from_a_closure_alone_is_folded() -> None:
    (finding,), _ = asked_of_closed(jax.jit(closed))

    assert finding.title == "has no arguments, so its result is known before it runs"
    assert finding.seen[0] == "none of its 2 operations depends on an input"
    assert "the compiled program computes nothing: XLA did it all at compile time" in finding.seen
    assert finding.where is not None
    assert finding.where[0] == __file__


def test_a_static_argument_is_no_input() -> None:
    def filled(n: int) -> Any:
        return jnp.arange(n).sum()

    (finding,), _ = asked_of_closed(filled, 8, static=("n",))

    assert finding.rule == "zero-argument-jit"


def test_a_function_of_an_argument_is_fine() -> None:
    findings, answer = asked_of_closed(lambda x: W @ x, jnp.ones(8))

    assert (findings, answer.outcome) == ([], "fine")


def test_a_scalar_argument_is_an_input() -> None:
    assert asked_of_closed(lambda x: W * x, 2.0)[0] == []
