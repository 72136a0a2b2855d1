"""Forward passes after an update."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest

ID = "second-forward"
INPUTS = ("f32[64,128]", "f32[128,8]", "f32[256,64]", "i32[256]")


def forward(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w[0]) @ w[1]


def loss_of(w: Any, x: Any, y: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(forward(w, x)), y[:, None], 1).mean()


def accuracy(w: Any, x: Any, y: Any) -> Any:
    return (forward(w, x).argmax(1) == y).mean()


def update(w: Any, gradient: Any) -> Any:
    return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradient)


def step(a: Any, b: Any, x: Any, y: Any) -> Any:
    loss, gradient = jax.value_and_grad(loss_of)((a, b), x, y)
    w = update((a, b), gradient)
    return w, loss, accuracy(w, x, y)  # reported


def over_batches(a: Any, b: Any, x: Any, y: Any) -> Any:
    def one(w: Any, batch: Any) -> Any:
        w, loss, hits = step(*w, *batch)
        return w, (loss, hits)

    return jax.lax.scan(one, (a, b), (x.reshape(4, 64, 64), y.reshape(4, 64)))


def of_a_batch(a: Any, b: Any, x: Any, y: Any) -> Any:
    rows = jax.random.randint(jax.random.key(0), (128,), 0, len(x))
    return step(a, b, x[rows], y[rows])


def of_an_inner_jit(a: Any, b: Any, x: Any, y: Any) -> Any:
    inner = jax.jit(forward)
    gradient = jax.grad(lambda w: (inner(w, x) ** 2).sum())((a, b))
    w = update((a, b), jax.tree.map(lambda g: jnp.clip(g, -1, 1), gradient))
    return w, jnp.abs(inner(w, x)).max()


def recurrent(a: Any, b: Any, x: Any, y: Any) -> Any:
    def apply(w: Any) -> Any:
        return jax.lax.scan(lambda h, row: (jnp.tanh(row @ w[0] + h), h), jnp.zeros(128), x)[0] @ w[1]

    gradient = jax.grad(lambda w: (apply(w) ** 2).sum())((a, b))
    w = update((a, b), gradient)
    return w, apply(w).max()


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchax.auditing.rules.gradients.SECOND_WORK", 1 << 16)


@pytest.mark.slow
@pytest.mark.parametrize("fn", [step, over_batches, of_a_batch, of_an_inner_jit, recurrent])
def test_a_forward_pass_after_the_update_is_found(ask_about: Any, fn: Any) -> None:
    finding = ask_about(ID, fn, *INPUTS).one

    assert finding.title.startswith("takes the same batch through the model a second time")


def test_it_names_the_line_that_only_the_second_pass_comes_by(ask_about: Any) -> None:
    finding = ask_about(ID, step, *INPUTS).one

    assert finding.where == (__file__, step.__code__.co_firstlineno + 3)
    assert f"the first time at {__file__}:{step.__code__.co_firstlineno + 1}" in finding.seen[-3]


def test_two_metrics_of_one_pass_count_once(ask_about: Any) -> None:
    def fn(a: Any, b: Any, x: Any, y: Any) -> Any:
        w, loss, hits = step(a, b, x, y)
        return w, loss, hits, forward(w, x).max()

    one, two = (ask_about(ID, each, *INPUTS).one.seen[-3].partition(" operations")[0] for each in (step, fn))
    assert one.split()[:2] == two.split()[:2]


# ---- what it must not blame --------------------------------------------------------------------------------------


def outputs_beside(a: Any, b: Any, x: Any, y: Any) -> Any:
    def both(w: Any) -> Any:
        outputs = forward(w, x)
        return (outputs**2).mean(), (outputs.argmax(1) == y).mean()

    (loss, hits), gradient = jax.value_and_grad(both, has_aux=True)((a, b))
    return update((a, b), gradient), loss, hits


def before_the_update(a: Any, b: Any, x: Any, y: Any) -> Any:
    """XLA makes one of the two passes."""
    gradient = jax.grad(loss_of)((a, b), x, y)
    return update((a, b), gradient), accuracy((a, b), x, y)


def of_other_data(a: Any, b: Any, x: Any, y: Any) -> Any:
    w = update((a, b), jax.grad(loss_of)((a, b), x[:128], y[:128]))
    return w, accuracy(w, x[128:], y[128:])


def of_other_data_with_a_shared_basis(a: Any, b: Any, x: Any, y: Any) -> Any:
    """What parameters are multiplied by is the same in both passes, and what is taken through the model is not."""
    basis = jnp.tril(jnp.ones((64, 64)))

    def by_basis(w: Any, x: Any) -> Any:
        return forward((basis @ w[0], w[1]), x)

    w = update((a, b), jax.grad(lambda w: (by_basis(w, x[:128]) ** 2).mean())((a, b)))
    return w, by_basis(w, x[128:]).max()


def sharpness_aware(a: Any, b: Any, x: Any, y: Any) -> Any:
    w = jax.tree.map(lambda p, g: p + 0.05 * g, (a, b), jax.grad(loss_of)((a, b), x, y))
    return update((a, b), jax.grad(loss_of)(w, x, y))


def line_search(a: Any, b: Any, x: Any, y: Any) -> Any:
    loss, gradient = jax.value_and_grad(loss_of)((a, b), x, y)
    w = update((a, b), gradient)
    is_better = loss_of(w, x, y) < loss
    return jax.tree.map(lambda new, old: jnp.where(is_better, new, old), w, (a, b)), loss


def averaged(a: Any, b: Any, x: Any, y: Any) -> Any:
    w = update((a, b), jax.grad(loss_of)((a, b), x, y))
    mean = jax.tree.map(lambda p, q: 0.99 * jnp.ones_like(q) + 0.01 * p, w, (a, b))
    return w, mean, accuracy(mean, x, y)


def adversarial(a: Any, b: Any, x: Any, y: Any) -> Any:
    """The generator is updated, and what it then makes trains the discriminator."""
    gradient = jax.grad(lambda a: jax.nn.softplus(forward((a, b), x)).mean())(a)
    new = a - 0.1 * gradient
    made = jnp.tanh(x @ new)
    return new, b - 0.1 * jax.grad(lambda b: jax.nn.softplus(made @ b).mean())(b)


def target_network(a: Any, b: Any, x: Any, y: Any) -> Any:
    goal = forward((a, b), x + 1).max(1)
    return update((a, b), jax.grad(lambda w: ((forward(w, x).max(1) - goal) ** 2).mean())((a, b)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "fn",
    [
        outputs_beside, before_the_update, of_other_data, of_other_data_with_a_shared_basis, sharpness_aware,
        line_search, averaged, adversarial, target_network,
    ],
)  # fmt: skip
def test_what_is_needed_or_done_once_is_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, *INPUTS).outcome == "fine"


def test_a_small_part_of_a_step_is_fine(ask_about: Any) -> None:
    def fn(a: Any, b: Any, x: Any, y: Any) -> Any:
        return step(a, b, x, y), jax.lax.fori_loop(0, 60, lambda i, x: x @ (a @ a.T), x)

    assert ask_about(ID, partial(fn), *INPUTS).outcome == "fine"


# ---- two functions -----------------------------------------------------------------------------------------------

USE = {
    "function": "loss", "other": "gradient", "where": "train.py:20", "other_where": "train.py:21", "count": 50,
    "is_after": False, "operations": 3e8, "total": 1e9,
}  # fmt: skip
