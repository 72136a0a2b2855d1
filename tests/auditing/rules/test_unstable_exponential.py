"""Exponentials that overflow, and logarithms of what has underflown."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ID = "unstable-exponential"
SMALL = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4).T
LARGE = 200 * SMALL


def log_sum_exp(x: Any) -> Any:
    return jnp.log(jnp.sum(jnp.exp(x), axis=-1))


def weighted(x: Any) -> Any:
    return jnp.log(jnp.sum(jnp.array([0.2, 0.3, 0.5]) * jnp.exp(x), axis=-1))


def log_mean_exp(x: Any) -> Any:
    return jax.vmap(lambda row: jnp.log(jnp.mean(jnp.exp(row))))(x)


def of_two(x: Any) -> Any:
    return jnp.log(jnp.exp(x[0]) + jnp.exp(x[1]))


def log_of_softmax(x: Any) -> Any:
    p = jax.nn.softmax(x)
    return -jnp.mean(jnp.log(p[jnp.arange(4), jnp.array([0, 0, 2, 2])]))


def log_of_sigmoid(x: Any) -> Any:
    return jax.value_and_grad(lambda x: jnp.sum(jnp.log(jax.nn.sigmoid(x))))(x)


def log_of_the_other(x: Any) -> Any:
    return jnp.log(1 - jax.nn.sigmoid(x))


def softplus(x: Any) -> Any:
    return jnp.log(1 + jnp.exp(x)) + jnp.log(x * x + 1)


def softplus_with_log1p(x: Any) -> Any:
    return jnp.log1p(jnp.exp(x))


def softmax(x: Any) -> Any:
    e = jnp.exp(x)
    return e / e.sum(-1, keepdims=True)


def sigmoid(x: Any) -> Any:
    return jnp.exp(x) / (1 + jnp.exp(x))


def softmax_by_the_inverse(x: Any) -> Any:
    return jnp.exp(x) * (1 / jnp.exp(x).sum(-1, keepdims=True))


def log2_sum_exp(x: Any) -> Any:
    return jnp.log2(jnp.sum(jnp.exp(x), axis=-1))


def log_of_a_product(x: Any) -> Any:
    return jnp.log(jnp.exp(x) @ jnp.ones(3))


def log_of_softmax_and_0(x: Any) -> Any:
    return jnp.log(jax.nn.softmax(x) + 0.0)


def log_of_a_sigmoid_by_hand(x: Any) -> Any:
    return jnp.log(1 / (1 + jnp.exp(-x)))


def log_of_a_sigmoid_by_tanh(x: Any) -> Any:
    return jnp.log(0.5 * (1 + jnp.tanh(x / 2)))


FORMS = {
    softmax_by_the_inverse: "jax.nn.softmax",
    log2_sum_exp: "jax.nn.logsumexp",
    log_of_a_product: "jax.nn.logsumexp",
    log_of_softmax_and_0: "jax.nn.log_softmax",
    log_of_a_sigmoid_by_hand: "jax.nn.log_sigmoid",
    log_of_a_sigmoid_by_tanh: "jax.nn.log_sigmoid",
    log_sum_exp: "jax.nn.logsumexp",
    weighted: "b=w",
    log_mean_exp: "jax.nn.logsumexp",
    of_two: "jnp.logaddexp",
    log_of_softmax: "jax.nn.log_softmax",
    log_of_sigmoid: "jax.nn.log_sigmoid(x)",
    log_of_the_other: "jax.nn.log_sigmoid(-x)",
    softplus: "jax.nn.softplus",
    softplus_with_log1p: "jax.nn.softplus",
    softmax: "jax.nn.softmax",
    sigmoid: "jax.nn.sigmoid",
}


@pytest.mark.parametrize("fn", FORMS)
def test_what_is_infinite_with_the_arguments_of_a_call_is_a_warning(ask_about: Any, fn: Any) -> None:
    finding = ask_about(ID, fn, LARGE, parts={"data": (LARGE,)}).one

    assert (finding.severity, FORMS[fn] in finding.advice) == ("warning", True)
    assert "with the arguments of one call" in finding.seen[0]
    assert "while the exponent is from -" in finding.seen[0]


@pytest.mark.slow
@pytest.mark.parametrize("fn", FORMS)
def test_what_could_be_is_an_info_with_its_threshold(ask_about: Any, fn: Any) -> None:
    seen = ask_about(ID, fn, SMALL, parts={"data": (SMALL,)}).one
    unseen = ask_about(ID, fn, SMALL, parts={"data": ()}).one

    assert (seen.severity, unseen.severity) == ("info", "info")
    assert seen.seen[0] == "with the arguments of one call, which were kept, it does not happen"
    assert unseen.seen[0].startswith("whether it happens was not seen: ")
    assert any(number in seen.seen[1] for number in ("89", "87", "17"))


def test_a_sigmoid_by_hand_is_stable_by_itself(ask_about: Any) -> None:
    answered = ask_about(ID, lambda x: 1 / (1 + jnp.exp(-x)), LARGE, parts={"data": (LARGE,)})

    assert answered.outcome == "not applicable"


def test_in_a_loop_nothing_is_computed(ask_about: Any) -> None:
    def over_rows(x: Any) -> Any:
        return jax.lax.scan(lambda c, row: (c + log_sum_exp(row), None), 0.0, x)[0]

    finding = ask_about(ID, over_rows, LARGE, parts={"data": (LARGE,)}).one

    assert (finding.severity, "in a loop" in finding.seen[0]) == ("info", True)


def with_the_maximum_off(x: Any) -> Any:
    m = x.max(-1, keepdims=True)
    return m + jnp.log(jnp.sum(jnp.exp(x - m), -1, keepdims=True)), softmax(x - m)


def of_a_square(x: Any) -> Any:
    return jnp.log(jnp.sum(jnp.exp(-0.5 * x**2), -1))


def with_something_added(x: Any) -> Any:
    return jnp.log(jax.nn.softmax(x) + 1e-8), jnp.log(jnp.clip(jax.nn.sigmoid(x), 1e-6, 1.0))


def of_jax(x: Any) -> Any:
    both = jax.nn.logsumexp(x) + jax.nn.log_softmax(x) + jax.nn.softplus(x) + jax.nn.log_sigmoid(x) + jax.nn.softmax(x)
    return both + jnp.logaddexp(x, 1.0) + jax.scipy.stats.norm.logcdf(x) + jax.random.gumbel(jax.random.key(0), x.shape)


def derivative_of_jax(x: Any) -> Any:
    return jax.grad(lambda x: jax.nn.logsumexp(x) + jnp.sum(jax.nn.softplus(x)))(x)


@pytest.mark.parametrize("fn", [with_the_maximum_off, of_a_square, with_something_added, of_jax, derivative_of_jax])
def test_stable_forms_are_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, SMALL, parts={"data": (SMALL,)}).findings == []


def test_densities_that_are_all_0_are_a_warning(ask_about: Any) -> None:
    """A square bounds what is added up from above, and not from below."""
    finding = ask_about(ID, of_a_square, LARGE, parts={"data": (LARGE,)}).one

    assert "results are -inf" in finding.seen[0]


def test_in_float64_no_threshold_is_told(ask_about: Any) -> None:
    with jax.enable_x64(True):
        assert ask_about(ID, log_sum_exp, SMALL.astype(np.float64), parts={"data": ()}).findings == []
