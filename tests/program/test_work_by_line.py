"""Operations by line, beside counts by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchax.program import hlo_module
from benchax.program.counts import counts
from benchax.program.work_by_line import scope_of, work_by_line
from benchax.results.inspection import LineWork

NEAR = 0.02


def lines_of(function: Callable[..., Any], *shapes: Any) -> tuple[LineWork, ...]:
    text = jax.jit(function).lower(*shapes).compile().as_text() or ""
    found = work_by_line(text, hlo_module.parse(text))
    assert found is not None
    known = counts(text)
    assert known is not None
    if known.flops is not None:
        assert sum(one.flops for one in found) == pytest.approx(known.flops)
        assert sum(one.bytes_accessed for one in found) == pytest.approx(known.bytes_accessed)
    return found


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def flops(function: Callable[..., Any], *shapes: Any) -> float:
    """Of the one line of the function."""
    line = f"{__file__}:{function.__code__.co_firstlineno}"
    return sum(one.flops for one in lines_of(function, *shapes) if one.source == line)


CONV = ("NHWC", "HWIO", "NHWC")
conv: Any = lambda x, k: jax.lax.conv_general_dilated(x, k, (1, 1), "VALID", dimension_numbers=CONV)  # noqa: E731


@pytest.mark.parametrize(
    ("function", "shapes", "by_hand"),
    [
        (lambda x, w: x @ w, (f32(64, 128), f32(128, 32)), 2 * 64 * 128 * 32),
        (conv, (f32(2, 16, 16, 8), f32(3, 3, 8, 4)), 2 * (2 * 14 * 14 * 4) * (3 * 3 * 8)),
        (lambda x: jnp.fft.fft(x), (jax.ShapeDtypeStruct((8, 1024), jnp.complex64),), 5 * 8 * 1024 * math.log2(1024)),
        (lambda x, w: jax.lax.scan(lambda c, _: (c @ w, None), x, None, 7), (f32(64, 64), f32(64, 64)), 7 * 2 * 64**3),
        (
            lambda x, u: x.at[jnp.arange(0, 4096, 2)].add(u, unique_indices=True, mode="promise_in_bounds"),
            (f32(4096, 512), f32(2048, 512)),  # wide, so that the arithmetic of indices is little beside it
            2048 * 512,
        ),
    ],
    ids=["dense", "conv", "fft", "scan", "scatter"],
)
def test_operations_of_a_line_are_those_counted_by_hand(
    function: Callable[..., Any], shapes: tuple[Any, ...], by_hand: float
) -> None:
    assert flops(function, *shapes) == pytest.approx(by_hand, rel=NEAR)


def test_library_frames_are_folded_beneath_the_users_line() -> None:
    (line,) = {one.source for one in lines_of(lambda x: jax.nn.gelu(x), f32(64)) if one.source}

    assert line.startswith(f"{__file__}:")


def test_what_is_fused_belongs_to_its_own_line() -> None:
    def two(x: jax.Array) -> jax.Array:
        y = x + 1
        return y * y * y

    first = two.__code__.co_firstlineno
    found = {one.source: one.flops for one in lines_of(two, f32(1000))}

    assert found[f"{__file__}:{first + 1}"] == 1000
    assert found[f"{__file__}:{first + 2}"] == 2000


def test_a_scope_is_what_the_program_named() -> None:
    assert scope_of("jit(step)/layer0/while/body/closed_call/attention/dot_general") == "layer0/attention"
    assert scope_of("jit(step)/while/body/eval_jaxpr/attention/dot_general") == "attention"  # as of jax 0.12
    assert scope_of("jit(f)/jit(main)/jit(relu)/max") == ""


def test_a_text_without_a_program_has_no_lines() -> None:
    assert work_by_line("", hlo_module.parse("")) is None


def test_a_function_of_a_library_has_no_line_of_whoever_started_it() -> None:
    """Nothing of a user's is below it: in a test, pytest called the function that called it."""
    text = jax.jit(jax.nn.softmax).lower(f32(64)).compile().as_text() or ""
    folder = str(Path(__file__).parent)
    moved = text.replace(folder, str(Path(pytest.__file__).parent))  # as if this file were pytest's

    found = work_by_line(moved, hlo_module.parse(moved))

    assert found is not None
    assert {one.source for one in found} == {""}


def test_the_flops_of_a_kernel_stand_beside_its_bytes() -> None:
    """XLA:CPU fuses both lines into one kernel, which reads and writes 1000 numbers."""

    def two(x: jax.Array) -> jax.Array:
        y = x + 1
        return y * y * y

    first = two.__code__.co_firstlineno
    found = {one.source: one for one in lines_of(two, f32(1000)) if one.source}
    fused, kernel = found[f"{__file__}:{first + 1}"], found[f"{__file__}:{first + 2}"]

    assert (fused.bytes_accessed, fused.kernel_flops) == (0, 0)
    assert (kernel.bytes_accessed, kernel.kernel_flops) == (8000, 3000)


def test_of_a_custom_call_no_kernel_is_known() -> None:
    found = lines_of(lambda x: jnp.linalg.cholesky(x), f32(8, 8))

    assert any(one.kernel_flops is None for one in found)
