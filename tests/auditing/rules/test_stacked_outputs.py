"""Outputs of scans that are stacked, and not read as wholes."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest

ID = "stacked-outputs"
X, W = "f32[64,512]", "f32[64,512]"
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


def every_tenth(x: Any, w: Any) -> Any:
    return stack(x)[1][::10]


def chosen(x: Any, w: Any) -> Any:
    return jnp.take(stack(x)[1], w[0, 0].astype(int), axis=0)


def each_reduced(x: Any, w: Any) -> Any:
    return jax.vmap(profile)(stack(x)[1])


def each_compared(x: Any, w: Any) -> Any:
    return jnp.sqrt(((stack(x)[1] - w) ** 2).reshape(STEPS, -1).sum(1))


def of_one_column(x: Any, w: Any) -> Any:
    return stack(x)[1].transpose(1, 2, 0)[3, 4]


def averaged(x: Any, w: Any) -> Any:
    return stack(x)[1].mean(0)


def gradients_averaged(x: Any, w: Any) -> Any:
    """A mean of gradients that are stacked, of one batch after the other."""
    loss = lambda w, row: jnp.sum(jnp.tanh(w * row))  # noqa: E731
    _, stacked = jax.lax.scan(lambda c, row: (c, jax.grad(loss)(w, row)), 0.0, jnp.concatenate([x, x, x]))
    return w - stacked.mean(0)


def in_a_loop(x: Any, w: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda _, x: stack(x)[1][-1], x)


def in_rows(x: Any, w: Any) -> Any:
    return jax.vmap(lambda x: stack(x)[1][-1])(x)


def of_map(x: Any, w: Any) -> Any:
    return jax.lax.map(lambda i: jnp.sin(i * x), jnp.arange(STEPS)).max(axis=(1, 2))


class Model:
    def __call__(self, x: Any, w: Any) -> Any:
        return partial(jnp.linalg.norm, axis=(1, 2))(jax.jit(stack)(x)[1])


FOUND = [
    last, every_tenth, chosen, each_reduced, each_compared, of_one_column, averaged, gradients_averaged, in_a_loop,
    in_rows, of_map, Model(),
]  # fmt: skip


@pytest.mark.parametrize("fn", FOUND, ids=lambda fn: getattr(fn, "__name__", "method"))
def test_a_stack_of_which_little_is_used_is_found(ask_about: Any, fn: Any) -> None:
    finding = ask_about(ID, fn, X, W).one

    assert finding.title.startswith("stacks 2")
    assert (finding.severity, finding.gain_bytes > 20 << 20) == ("warning", True)
    assert finding.gain.startswith("estimated: at most ")


def test_it_names_the_scan_its_body_and_what_is_read(ask_about: Any) -> None:
    finding = ask_about(ID, last, X, W).one

    assert finding.title == "stacks 25.0 MiB in a scan; 128 KiB would do"
    assert finding.lines == [
        (__file__, stack.__code__.co_firstlineno + 1),
        (__file__, advance.__code__.co_firstlineno),
    ]
    assert f"(slice at {__file__}:{last.__code__.co_firstlineno + 1})" in finding.seen[0]
    assert "holds the last step's" in finding.advice


def test_of_lax_map_it_names_the_call(ask_about: Any) -> None:
    finding = ask_about(ID, of_map, X, W).one

    assert finding.where == (__file__, of_map.__code__.co_firstlineno + 1)
    assert finding.advice.startswith("Compute that in the body")


def test_a_sum_over_steps_is_told_to_be_accumulated(ask_about: Any) -> None:
    assert "Accumulate it in the carry" in ask_about(ID, averaged, X, W).one.advice


def test_a_loop_that_computes_much_is_an_info(ask_about: Any) -> None:
    def heavy(x: Any, w: Any) -> Any:
        return jax.lax.scan(lambda x, _: (jnp.tanh(x @ (w.T @ x)), x), x, None, length=STEPS)[1][-1]

    fn = lambda x, w: heavy(jnp.tile(x, (16, 1)), jnp.tile(w, (16, 1)))  # noqa: E731

    assert ask_about(ID, fn, X, W).one.severity == "info"


def test_stacking_alone_is_compared(ask_about: Any, result_of: Any) -> None:
    answered = ask_about(ID, each_reduced, X, W, ratio=0.1)

    ((stacked, reduced),) = answered.pairs
    assert "of a loop that does nothing else" in answered.one.gain
    for one, other in zip(result_of(stacked), result_of(reduced), strict=True):
        assert jnp.allclose(one, other, rtol=1e-4)


def read_in_gradient(x: Any, w: Any) -> Any:
    return jax.grad(lambda x: jnp.mean((stack(x)[1] - w) ** 2))(x)


SILENT = {
    "returned": lambda x, w: stack(x)[1],
    "returned as well": lambda x, w: (ys := stack(x)[1], ys[-1]),
    "half of it": lambda x, w: stack(x)[1][::2],
    "of several rows": lambda x, w: jnp.diff(stack(x)[1], axis=0).max((1, 2)),
    "chosen by the results": lambda x, w: (ys := stack(x)[1])[jnp.argmin(ys.sum((1, 2)))],
    "beside the last state": lambda x, w: (lambda c, ys: ((ys - c) ** 2).sum((1, 2)))(*stack(x)),
    "a spread over steps": lambda x, w: stack(x)[1].std(0),
    "products of many rows at once": lambda x, w: stack(x)[1] @ w[0],
    "a quantile": lambda x, w: jnp.quantile(stack(x)[1], 0.5),
    "unread": lambda x, w: stack(x)[0],
    "small": lambda x, w: stack(x[:4])[1][-1],
    "read by a gradient": read_in_gradient,
    "losses": lambda x, w: jax.lax.scan(lambda c, _: (c + 1.0, c.mean()), x, None, length=STEPS)[1][-1],
}


@pytest.mark.parametrize("name", SILENT)
def test_what_is_needed_is_fine(ask_about: Any, name: str) -> None:
    assert ask_about(ID, SILENT[name], X, W).outcome == "fine"


def test_what_is_small_beside_the_arguments_is_fine(ask_about: Any) -> None:
    assert ask_about(ID, lambda x, w, big: stack(x)[1][-1] + big[0], X, W, "f32[512,64,512]").outcome == "fine"
