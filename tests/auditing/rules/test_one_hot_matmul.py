"""Products that look up rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

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


def test_tpus_multiply_faster_than_they_index(ask_about: Any) -> None:
    assert ask_about(ID, looked_up, TABLE, jnp.arange(256), parts={"platform": "tpu"}).outcome == "not applicable"
