"""The work of operations in real traces, beside counts by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import benchax
from benchax.profiling import trace
from benchax.profiling.compiled_modules import CompiledModule
from benchax.results.profile import Op, Profile

N, LAYERS, RUNS = 64, 5, 4


def layer(x: Any, w: Any) -> Any:
    with jax.named_scope("product"):
        y = x @ w
    with jax.named_scope("activation"):
        return jnp.maximum(y, 0)


@jax.jit
def network(ws: Any, x: Any) -> Any:
    return jax.lax.scan(lambda x, w: (layer(x, w), None), x, ws)[0]


@pytest.fixture(scope="module")
def profiled() -> Profile:
    return benchax.profile(network, jnp.ones((LAYERS, N, N)), jnp.ones((N, N)), runs=RUNS)


def of_scope(p: Profile, scope: str) -> list[Op]:
    return [op for op in p.ops if op.named_scope == scope]


def test_a_product_in_a_loop_is_counted_as_often_as_it_ran(profiled: Profile) -> None:
    products = of_scope(profiled, "product")

    assert sum(op.flops or 0 for op in products) == 2 * N**3 * LAYERS * RUNS
    assert sum(op.calls for op in products) == LAYERS * RUNS


def test_an_elementwise_operation_is_one_for_each_element(profiled: Profile) -> None:
    assert sum(op.flops or 0 for op in of_scope(profiled, "activation")) == N * N * LAYERS * RUNS
    assert sum(op.bytes_accessed or 0 for op in of_scope(profiled, "activation")) >= 2 * 4 * N * N * LAYERS * RUNS


def test_a_loop_whose_insides_are_in_the_trace_has_no_work_of_its_own(profiled: Profile) -> None:
    (loop,) = [op for op in profiled.ops if op.category == "while"]

    assert (loop.flops, loop.bytes_accessed) == (0, 0)


def test_what_nobody_can_look_into_has_no_count() -> None:
    found = benchax.profile(jax.jit(lambda x: jnp.linalg.qr(x)[0] + 1), jnp.ones((N, N)), runs=1)

    calls = [op for op in found.ops if op.category == "custom-call"]
    assert calls
    assert {op.flops for op in calls} == {None}
    assert any(op.flops is not None for op in found.ops)


@pytest.mark.slow
@pytest.mark.parametrize("homes", [("jaxlib.nowhere",), ()])
def test_where_the_program_cannot_be_read_nothing_is_counted(
    homes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "_HOMES", homes)

    found = benchax.profile(network, jnp.ones((LAYERS, N, N)), jnp.ones((N, N)), runs=1)

    assert {op.flops for op in found.ops} == {None}


def test_a_program_that_is_no_message_is_not_counted() -> None:
    assert trace.work_of_calls(CompiledModule("jit_f", {}, {}, b"not protobuf"), ["dot.1"]) == {}
