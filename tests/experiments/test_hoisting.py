"""`experiments/variants/scans.py`: what a scan computes of its inputs alone, before it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.case import make_case
from benchax.errors import NotAvailable, NotMeasured, UsageError
from benchax.experiments.variants.scans import HoistedScan, UnrolledScan
from benchax.measuring.inputs import make_inputs

W, XS = "f32[16,16]", "f32[12,8,16]"


def recurrent(w: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = jnp.tanh(x @ w + h @ w)
        return h, (h.sum(), x.sum())

    return jax.lax.scan(step, jnp.zeros((8, 16)), xs)


def of_state_alone(w: Any, xs: Any) -> Any:
    return jax.lax.scan(lambda h, x: (jnp.tanh((h + x) @ w), None), jnp.zeros((8, 16)), xs)


def backwards(w: Any, xs: Any) -> Any:
    return jax.lax.scan(lambda h, x: (h * 0.5 + x @ w, h), jnp.zeros((8, 16)), xs, reverse=True)


def noisy(key: Any, xs: Any) -> Any:
    w = jnp.eye(16)
    keys = jax.random.split(key, 12)
    return jax.lax.scan(lambda h, x: (h + x[0] @ w + jax.random.normal(x[1], h.shape), None), xs[0], (xs, keys))


def result(fn: Any, case: Any) -> list[Any]:
    made = make_inputs(case, 0)
    return jax.tree.leaves(jax.jit(lambda *args: fn(*args))(*made.args))


@pytest.mark.slow
@pytest.mark.parametrize("variant", [HoistedScan(), UnrolledScan()])
@pytest.mark.parametrize(
    "fn", [recurrent, backwards, jax.jit(recurrent), jax.grad(lambda w, xs: recurrent(w, xs)[0].sum())]
)
def test_the_results_are_those_of_the_function(variant: Any, fn: Any) -> None:
    case = make_case(fn, (W, XS))

    changed = variant.change(case)

    for ours, theirs in zip(result(changed.case.fn, case), result(fn, case), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_random_numbers_stay_those_that_the_loop_draws() -> None:
    case = make_case(noisy, (jax.random.key(0), XS))

    changed = HoistedScan().change(case)

    np.testing.assert_allclose(result(changed.case.fn, case)[0], result(noisy, case)[0], rtol=1e-4, atol=1e-4)


def test_a_product_leaves_the_loop() -> None:
    changed = HoistedScan().change(make_case(recurrent, (W, XS)))

    (scan,) = [
        eqn
        for eqn in jax.make_jaxpr(changed.case.fn)(jnp.ones((16, 16)), jnp.ones((12, 8, 16))).jaxpr.eqns
        if eqn.primitive.name == "scan"
    ]
    assert str(scan.params["jaxpr"]).count("dot_general") == 1
    assert changed.facts is not None
    assert changed.facts(None, None, None) == (("hoist", "1 product of each iteration"),)  # pyright: ignore


def test_iterations_are_written_out_as_many_as_are_asked_for() -> None:
    changed = UnrolledScan().change(make_case(recurrent, (W, XS)), "3")

    assert "unroll=3" in str(jax.make_jaxpr(changed.case.fn)(jnp.ones((16, 16)), jnp.ones((12, 8, 16))))


def test_what_has_nothing_to_hoist_says_why() -> None:
    with pytest.raises(NotAvailable, match="each product in its loops needs"):
        HoistedScan().change(make_case(of_state_alone, (W, XS)))
    for variant in (HoistedScan(), UnrolledScan()):
        with pytest.raises(NotMeasured, match="no loop of scan"):
            variant.change(make_case(jnp.sin, (W,)))


@pytest.mark.parametrize("given", ["1", "x", "2.5", 0])
def test_a_number_of_iterations_that_cannot_be_is_quoted(given: Any) -> None:
    with pytest.raises(UsageError, match=f"unroll={given!r}"):
        UnrolledScan().change(make_case(recurrent, (W, XS)), given)
