"""Integers that wrap around."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ID = "integer-overflow"
FIRST, SECOND = np.random.default_rng(0).integers(0, 256, (2, 4, 4), np.uint8)
COUNTS = np.array([50000, 3], np.int32)
LARGE = np.full(3000, 10**6, np.int32)


class Motion:
    def __init__(self) -> None:
        self.background = jnp.asarray(SECOND)

    def measure(self, frame: Any) -> Any:
        return jnp.mean(jnp.abs(frame - self.background))


def differences_of_rows(frame: Any) -> Any:
    return jax.vmap(jnp.diff)(frame).astype(jnp.float32)


def brighter(frame: Any) -> Any:
    return frame + 40


def slope(w: Any, frame: Any) -> Any:
    return jax.grad(lambda w: jnp.sum((w * (frame - SECOND)) ** 2))(w)


def energy(n: Any) -> Any:
    return jnp.sqrt(jnp.sum(n * n))


def squares(n: Any) -> Any:
    return n**2


def factorial(n: Any) -> Any:
    return jnp.prod(jnp.arange(1, 20) + n)


def total(n: Any) -> Any:
    return jnp.sum(n) / n.size


def running(n: Any) -> Any:
    return jnp.cumsum(n)


FOUND = {
    Motion().measure: (FIRST,),
    differences_of_rows: (FIRST,),
    brighter: (FIRST,),
    slope: (np.float32(1), FIRST),
    energy: (COUNTS,),
    squares: (COUNTS,),
    factorial: (np.int32(1),),
    total: (LARGE,),
    running: (LARGE,),
}


@pytest.mark.parametrize("fn", FOUND)
def test_what_is_out_of_range_with_the_arguments_of_a_call_is_found(ask_about: Any, fn: Any) -> None:
    finding = ask_about(ID, fn, *FOUND[fn], parts={"data": FOUND[fn]}).one

    assert finding.severity == "warning"
    assert "with the arguments of one call" in finding.seen[0]
    assert finding.where[0] == __file__


def test_the_numbers_are_told(ask_about: Any) -> None:
    finding = ask_about(ID, energy, COUNTS, parts={"data": (COUNTS,)}).one

    assert finding.title == "a product in int32 wraps around"
    assert finding.seen[:2] == (
        "with the arguments of one call 1 of 2 results wrap",
        "50000 * 50000 is -1794967296 in int32, not 2500000000",
    )


@pytest.mark.parametrize("fn", [fn for fn in FOUND if fn not in (factorial, brighter)])
def test_what_is_in_range_with_them_is_fine(ask_about: Any, fn: Any) -> None:
    small = tuple(np.zeros_like(one) if one.dtype != np.uint8 else np.full_like(one, 255) for one in FOUND[fn])
    small = tuple(np.repeat(one[:1], len(one), 0) if fn is differences_of_rows else one for one in small)

    assert ask_about(ID, fn, *small, parts={"data": small}).findings == []


def test_without_arguments_it_is_not_known(ask_about: Any) -> None:
    assert ask_about(ID, energy, COUNTS, parts={"data": ()}).outcome == "not checked"


def converted(a: Any) -> Any:
    return a.astype(jnp.float32) - SECOND, 255 - a, jnp.sum(a), jnp.mean(a), jnp.sum(a > 3), jnp.cumsum(a > 3)


def the_larger_side(a: Any) -> Any:
    return jnp.where(a > SECOND, a - SECOND, SECOND - a), jnp.maximum(a, SECOND) - jnp.minimum(a, SECOND)


def as_signed(a: Any) -> Any:
    return (a - SECOND).astype(jnp.int8)


@pytest.mark.parametrize("fn", [converted, the_larger_side, as_signed])
def test_images_whose_differences_fit_are_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, FIRST, parts={"data": (FIRST,)}).findings == []


def congruential(s: Any) -> Any:
    return (s * 1103515245 + 12345) % 1000, (s * 7) & 255


def mixed(s: Any) -> Any:
    return (s ^ (s >> 7)) * 668265261


def windows(s: Any) -> Any:
    total = jnp.cumsum(s)
    return total[2:] - total[:-2]


@pytest.mark.parametrize("fn", [congruential, mixed, windows])
def test_what_wraps_on_purpose_is_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, LARGE, parts={"data": (LARGE,)}).findings == []


def test_random_numbers_and_indices_are_fine(ask_about: Any) -> None:
    def draws(key: Any, x: Any) -> Any:
        key = jax.random.wrap_key_data(key)
        return jax.random.permutation(key, 9), jax.random.randint(key, (3,), 0, 9), jnp.argsort(x)[-1], x[:, 3]

    given = (np.array([1, 2], np.uint32), FIRST)

    assert ask_about(ID, draws, *given, parts={"data": given}).findings == []
