"""Products that look up rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

ID = "one-hot-matmul"
TABLE = "f32[4096,16]"


def looked_up(table: Any, index: Any) -> Any:
    x = jax.nn.one_hot(index, 4096) @ table
    return jnp.tanh(x).sum()


def test_a_product_that_looks_up_rows_is_found_on_its_line(ask_about: Any) -> None:
    finding = ask_about(ID, jax.jit(looked_up), TABLE, jnp.arange(256), ratio=0.1).one

    assert finding.title == "looks up rows of f32[4096,16] by a product with a one-hot array"
    assert finding.where == (__file__, looked_up.__code__.co_firstlineno + 1)
    assert finding.seen[0].startswith("f32[256,4096] of zeros and ones, 4.00 MiB, times f32[4096,16]: 33.6 MFLOP")
    assert finding.gain is not None
    assert finding.gain.endswith(", of this product alone")


def test_the_product_and_the_lookup_that_are_compared_give_the_same(ask_about: Any, result_of: Any) -> None:
    ((product, lookup),) = ask_about(ID, looked_up, TABLE, jnp.arange(256), ratio=0.1).pairs

    ours, theirs = result_of(lookup), result_of(product)
    assert all(jnp.allclose(a, b, rtol=1e-5) for a, b in zip(ours, theirs, strict=True))


def compared(table: Any, index: Any, members: Any) -> Any:
    return ((index[:, None] == members).astype(table.dtype) @ table).sum()


def test_the_difference_of_two_one_hot_arrays_is_found(ask_about: Any) -> None:
    def edges(table: Any, white: Any, black: Any) -> Any:
        return (jax.nn.one_hot(white, 4096) - jax.nn.one_hot(black, 4096)) @ table

    finding = ask_about(ID, edges, "f32[4096,8]", "i32[512]", "i32[512]").one

    assert "table[i] - table[j]" in finding.advice
    assert (
        ask_about(ID, lambda t, i: (jax.nn.one_hot(i, 4096) - t.T[:1]) @ t, "f32[4096,8]", "i32[512]").outcome == "fine"
    )


def test_a_comparison_with_numbers_that_are_given_is_one_hot_too(ask_about: Any) -> None:
    members = jnp.arange(4096)

    def in_a_loop(table: Any, indices: Any) -> Any:
        return jax.lax.scan(lambda total, index: (total + compared(table, index, members), None), 0.0, indices)[0]

    index = jnp.arange(256)
    assert ask_about(ID, compared, TABLE, index, members).one.where[1] > 0
    assert ask_about(ID, in_a_loop, TABLE, jnp.arange(512).reshape(2, 256)).one.where[1] > 0
    assert ask_about(ID, compared, TABLE, index, members * 3).outcome == "fine"


def test_it_is_one_finding_also_under_a_gradient(ask_about: Any) -> None:
    assert ask_about(ID, jax.grad(looked_up), TABLE, jnp.arange(256)).one.where[1] > 0


@pytest.mark.parametrize(
    "fn",
    [
        lambda table, index: table[index].sum(),
        lambda table, index: jnp.where(jnp.arange(4096) == 3, 1.0, 0.0) @ table,
        lambda table, index: (jax.nn.one_hot(index, 4096) * 2).sum() + table.sum(),
    ],
)
def test_lookups_and_products_of_other_things_are_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, TABLE, jnp.arange(256)).outcome == "fine"


def test_a_small_product_is_fine(ask_about: Any) -> None:
    fn = lambda table, index: jax.nn.one_hot(index, 10) @ table  # noqa: E731

    assert ask_about(ID, fn, "f32[10,16]", jnp.arange(256)).outcome == "fine"
