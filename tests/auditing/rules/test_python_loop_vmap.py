"""Python loops over the parts of an array."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import equinox
import jax
import jax.numpy as jnp
import pytest
from evidence_by_hand import evidence

from benchax.auditing.audit import ask
from benchax.auditing.rules.loops import python_loop_vmap, unrolled_loop
from benchax.results.audit import Checked, Finding

X, W = jnp.ones((12, 4)), jnp.ones((4, 4))


def asked(fn: Callable[..., Any], *args: Any, rule: Any = python_loop_vmap) -> tuple[list[Finding], Checked]:
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
    (finding,), _ = asked(fn, X)

    lines, first = inspect.getsourcelines(fn)
    line = first + next(i for i, text in enumerate(lines) if "for " in text)
    assert finding.where == (__file__, line)
    assert "does the same with each of 12 parts" in finding.title
    assert finding.seen[0] == "12 parts are taken out of an array f32[12,4] along axis 0"
    assert "jax.vmap(body)" in finding.advice


def test_a_loop_over_columns_names_the_axis() -> None:
    (finding,), _ = asked(columns, X)

    assert "along axis 1" in finding.seen[0]
    assert "jax.vmap(body, in_axes=1)" in finding.advice


def test_turns_that_need_each_other_are_for_scan() -> None:
    assert asked(recurrent, X)[1].outcome == "fine"
    assert len(asked(recurrent, X, rule=unrolled_loop)[0]) == 1


def test_a_loop_for_vmap_is_told_once() -> None:
    assert asked(by_index, X, rule=unrolled_loop)[0] == []


def test_turns_with_layers_of_their_own_are_fine() -> None:
    layers = [jnp.full((4, 4), float(i)) for i in range(12)]

    def experts(x: Any, layers: Any) -> Any:
        return sum(jnp.sin(row @ w) for row, w in zip(x, layers, strict=True))

    assert asked(experts, X, layers)[0] == []


def test_a_few_rows_of_many_are_fine() -> None:
    def some(x: Any) -> Any:
        return sum(body(x[i]) for i in range(5))

    assert asked(some, jnp.ones((100, 4)))[0] == []


def test_what_is_mapped_already_is_fine() -> None:
    import jax

    assert asked(jax.vmap(body), X)[1].outcome == "fine"


def recursion(x: Any) -> Any:
    var, out = x[0, 0], []
    for t in range(x.shape[0]):
        out.append(var)
        var = 0.1 + 0.2 * x[t, 0] + 0.7 * var
    return jnp.sum(jnp.stack(out) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize("fn", [recursion, jax.grad(recursion)])
def test_what_hands_a_value_on_from_iteration_to_iteration_is_for_scan(fn: Any) -> None:
    assert asked(fn, X)[0] == []
    (finding,), _ = asked(fn, X, rule=unrolled_loop)
    assert "jax.lax.scan" in finding.advice


class numpyro:  # as models call it
    """Where the package is not installed."""

    @staticmethod
    def sample(name: str, value: Any) -> Any:
        return jnp.sin(value) + jnp.cos(value)


def model(x: Any) -> Any:
    return jnp.stack([numpyro.sample(f"x{i}", row) for i, row in enumerate(x)])


def test_sites_of_a_model_are_for_a_plate() -> None:
    (finding,), _ = asked(model, X)

    assert "numpyro.plate" in finding.advice


def test_a_loop_over_a_few_parts_is_an_info() -> None:
    (few,), _ = asked(columns, X)
    (many,), _ = asked(by_index, X)

    assert (few.severity, many.severity) == ("info", "warning")
