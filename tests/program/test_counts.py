"""Our own count of a program's work: XLA's where XLA is right, and loops by their trip counts where it is not."""

from __future__ import annotations

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from benchax.program import instruction_work
from benchax.program.cost import cost
from benchax.program.counts import counts, least_operations
from benchax.results.inspection import Counts

X = jax.ShapeDtypeStruct((64, 64), jnp.float32)
IMAGES = jax.ShapeDtypeStruct((2, 16, 16, 3), jnp.float32)
KERNEL = jax.ShapeDtypeStruct((3, 3, 3, 8), jnp.float32)
BATCHED = (jax.ShapeDtypeStruct((8, 32, 16), jnp.float32), jax.ShapeDtypeStruct((8, 16, 24), jnp.float32))
MATMUL = 2 * 64**3


def built(fun: Any, *args: Any) -> tuple[jax.stages.Compiled, Counts]:
    compiled = jax.jit(fun).lower(*args).compile()
    found = counts(compiled.as_text() or "")
    assert found is not None
    return compiled, found


def counted(fun: Any, *args: Any) -> Counts:
    return built(fun, *args)[1]


def convolve(images: Any, kernel: Any, **how: Any) -> Any:
    how = {"window_strides": (1, 1), "padding": "SAME", **how}
    return lax.conv_general_dilated(images, kernel, dimension_numbers=("NHWC", "HWIO", "NHWC"), **how)


def pooled(images: Any) -> Any:
    return lax.reduce_window(images, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


STRAIGHT = {
    "matmul": (lambda x: x @ x, X),
    "two matmuls and between": (lambda x: jnp.tanh(x @ x) @ x + 1, X),
    "batched matmul": (lambda a, b: jnp.einsum("bij,bjk->bik", a, b), *BATCHED),
    "matrix times vector": (lambda x: x @ x[0], X),
    "elementwise": (lambda x: (x * 2 + 1) * x - jnp.maximum(x, 0), X),
    "transcendentals": (lambda x: jax.nn.sigmoid(x) * jnp.exp(x) + x**2.5 + lax.rsqrt(x), X),
    "sum": (jnp.sum, X),
    "mean of an axis": (lambda x: x.mean(0), X),
    "softmax": (jax.nn.softmax, X),
    "argmax": (lambda x: x.argmax(1), X),
    "transposed": (lambda x: x.T + 1, X),
    "convolution": (convolve, IMAGES, KERNEL),
    "strided": (functools.partial(convolve, window_strides=(2, 2), padding="VALID"), IMAGES, KERNEL),
    "dilated": (functools.partial(convolve, rhs_dilation=(2, 2)), IMAGES, KERNEL),
    "transposed convolution": (lambda i, k: lax.conv_transpose(i, k, (2, 2), "SAME"), IMAGES, KERNEL),
    "gradient of a convolution": (jax.grad(lambda k, i: (convolve(i, k) ** 2).sum()), KERNEL, IMAGES),
    "pooling": (pooled, IMAGES),
    "cumulative sum": (lambda x: jnp.cumsum(x[0]), X),
    "update in place": (lambda x: lax.dynamic_update_slice(x, x[:2, :2] * 2, (3, 3)), X),
    "scatter": (lambda x: x.at[jnp.array([1, 2, 5])].add(1.0), X),
    "complex matmul": (lambda x: (x + 1j) @ (x + 2j), X),
    "gradient": (jax.grad(lambda x: jnp.sum(jnp.tanh(x @ x))), X),
}


@pytest.mark.parametrize("name", STRAIGHT)
def test_without_loops_the_count_is_that_of_xla(name: str) -> None:
    compiled, found = built(*STRAIGHT[name])

    theirs = compiled.cost_analysis() or {}

    assert found.is_exact
    assert found.flops == pytest.approx(theirs.get("flops", 0), rel=0.01)
    assert found.transcendentals == pytest.approx(theirs.get("transcendentals", 0), rel=0.01)
    assert found.bytes_accessed == pytest.approx(theirs["bytes accessed"], rel=0.01)


@pytest.mark.parametrize(
    ("function", "shape", "dtype", "flops"),
    [
        (jnp.fft.fft, (4096,), "complex64", 5 * 4096 * 12),
        (jnp.fft.ifft, (8, 4096), "complex64", 8 * 5 * 4096 * 12),
        (jnp.fft.rfft, (4096,), "float32", 2.5 * 4096 * 12),
        (jnp.fft.irfft, (2049,), "complex64", 2.5 * 4096 * 12),
        (jnp.fft.fft2, (64, 32), "complex64", 5 * 64 * 32 * 11),
        (jnp.fft.fft, (1000,), "complex64", 5 * 1000 * np.log2(1000)),
    ],
)
def test_ffts_are_counted_as_their_benchmarks_count_them(function, shape, dtype, flops) -> None:
    """5·N·log2(N), half of it for real numbers; and XLA's sum is corrected to the same."""
    compiled, found = built(function, jnp.ones(shape, dtype))

    assert found.flops == pytest.approx(flops, rel=1e-6)
    corrected = cost(compiled, compiled.as_text())
    assert corrected is not None
    assert corrected.flops == pytest.approx(flops, rel=1e-6)


def test_a_count_of_ffts_that_is_not_known_is_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, _ = built(jnp.fft.fft, jnp.ones(64, "complex64"))
    monkeypatch.setattr(instruction_work, "xla_fft_flops", lambda *_: 1e9)

    found = cost(compiled, compiled.as_text())

    assert found is not None
    assert found.flops is None


def test_the_least_that_a_cumulative_sum_needs_is_one_operation_each() -> None:
    compiled, found = built(lambda x: jnp.cumsum(x.ravel()), X)
    written = jax.jit(lambda x: jnp.cumsum(x.ravel())).lower(X).as_text(dialect="hlo")

    assert least_operations(written) == X.size
    assert least_operations(compiled.as_text()) <= found.flops
    assert least_operations("") is None


def chained(turns: int) -> Any:
    return lambda x: lax.scan(lambda c, _: (c @ x, None), x, None, length=turns)[0]


@pytest.mark.parametrize("turns", [1, 10, 100])
def test_a_loop_counts_as_often_as_it_turns(turns: int) -> None:
    found = counted(chained(turns), X)

    assert found.is_exact
    assert found.flops == pytest.approx(turns * MATMUL, rel=1e-3)


def test_a_loop_is_the_unrolled_program_in_bytes_too() -> None:
    """But for the counter, and copies of the carry."""

    def unrolled(x: Any) -> Any:
        y = x
        for _ in range(10):
            y = y @ x
        return y

    loop, straight = counted(chained(10), X), counted(unrolled, X)

    assert loop.flops == pytest.approx(straight.flops, rel=1e-3)
    assert straight.bytes_accessed is not None
    assert loop.bytes_accessed == pytest.approx(2 * straight.bytes_accessed, rel=0.3)


@pytest.mark.parametrize("turns", [10, 100])
def test_a_turn_reads_its_slice_of_what_is_scanned_and_not_all_of_it(turns: int) -> None:
    stacked = jax.ShapeDtypeStruct((turns, 64, 64), jnp.float32)

    found = counted(lambda xs: lax.scan(lambda c, x: (c @ x, c.sum(0)), xs[0], xs)[1], stacked)

    assert found.bytes_accessed is not None
    assert found.bytes_accessed / turns < 10 * 64 * 64 * 4


def test_nested_loops_multiply_and_know_what_they_stand_in() -> None:
    def nested(x: Any) -> Any:
        return lax.fori_loop(0, 10, lambda _, c: lax.fori_loop(3, 10, lambda _, d: d @ x, c), x)

    found = counted(nested, X)

    outer, inner = found.loops
    assert found.flops == pytest.approx(70 * MATMUL, rel=1e-3)
    assert (outer.trips, inner.trips) == (10, 7)
    assert (outer.inside, inner.inside) == (None, outer.name)


def test_a_loop_of_unknown_length_is_counted_once_and_said() -> None:
    found = counted(lambda x: lax.fori_loop(0, x[0, 0].astype(int), lambda _, c: c @ x, x), X)

    (loop,) = found.loops
    assert loop.trips is None
    assert not found.is_exact
    assert found.flops == pytest.approx(MATMUL, rel=1e-3)
    assert found.restrictions[0].startswith(f"the body of the loop {loop.name} ")
    assert found.restrictions[0].endswith("is counted once: its trip count is not in the text of the program")


def test_of_a_conditional_the_greater_branch_is_counted_and_said() -> None:
    found = counted(lambda x: lax.cond(x.sum() > 0, lambda x: x @ x, lambda x: x + 1, x), X)

    assert found.flops == pytest.approx(MATMUL, rel=0.01)
    assert not found.is_exact
    assert "differ: the most that any of them does is counted" in found.restrictions[0]


def test_a_custom_call_leaves_a_hole_and_a_sum_with_a_hole_is_none() -> None:
    found = counted(lambda x: jnp.linalg.cholesky(x @ x), X)

    assert (found.flops, found.transcendentals, found.bytes_accessed) == (None, None, None)
    assert found.arithmetic_intensity is None
    assert not found.is_exact
    assert [count for _, count in found.opaque_calls] == [1]
    assert found.opaque_calls[0][0] in found.restrictions[0]


# As jax 0.11.2 wrote them for an H100.
BY_LIBRARIES = """HloModule jit_f

ENTRY %main.1 (x.1: f32[1024,512], y.1: f32[512,256], i.1: f32[8,32,32,16], k.1: f32[32,3,3,16]) -> (f32[1024,256], f32[8,32,32,32]) {
  %x.1 = f32[1024,512]{1,0} parameter(0)
  %y.1 = f32[512,256]{1,0} parameter(1)
  %i.1 = f32[8,32,32,16]{3,2,1,0} parameter(2)
  %k.1 = f32[32,3,3,16]{3,2,1,0} parameter(3)
  %custom-call.1 = (f32[1024,256]{1,0}, s8[33554432]{0}) custom-call(%x.1, %y.1), custom_call_target="__cublas$lt$matmul", metadata={op_name="jit(f)/dot_general"}, backend_config={"gemm_backend_config":{"alpha_real":1,"beta":0,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]},"epilogue":"DEFAULT"}}
  %cudnn-conv.1 = (f32[8,32,32,32]{3,2,1,0}, u8[0]{0}) custom-call(%i.1, %k.1), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convForward", backend_config={}
  %a.1 = f32[1024,256]{1,0} get-tuple-element(%custom-call.1), index=0
  %b.1 = f32[8,32,32,32]{3,2,1,0} get-tuple-element(%cudnn-conv.1), index=0
  ROOT %tuple.1 = (f32[1024,256]{1,0}, f32[8,32,32,32]{3,2,1,0}) tuple(%a.1, %b.1)
}
"""  # noqa: E501


def test_products_and_convolutions_by_libraries_of_a_gpu_are_counted_without_their_workspace() -> None:
    found = counts(BY_LIBRARIES)

    assert found is not None
    # Of the 32 places along an axis 31 meet the image at each side of the window.
    assert found.flops == 2 * 1024 * 512 * 256 + 2 * 8 * 32 * 16 * (3 * 32 - 2) ** 2
    arrays = 1024 * 512 + 512 * 256 + 1024 * 256 + 8 * 32 * 32 * 16 + 32 * 3 * 3 * 16 + 8 * 32 * 32 * 32
    assert found.bytes_accessed == 4 * arrays
    assert found.opaque_calls == ()


def test_sorting_rows_is_not_sorting_all() -> None:
    """64 rows of 64: log2(64) comparisons per element, where XLA takes log2(4096)."""
    assert counted(jnp.sort, X).flops == 64 * 64 * 6


def test_instructions_and_fusions_are_counted_in_the_text() -> None:
    found = counted(lambda x: jnp.tanh(x @ x) @ x, X)

    opcodes = dict(found.instructions)
    assert opcodes["dot"] == 2
    assert opcodes["tanh"] == 1
    assert found.fusions == opcodes.get("fusion", 0)
    assert found.arithmetic_intensity == pytest.approx(2.0 * MATMUL / (found.bytes_accessed or 1), rel=0.01)


@functools.cache
def looping_text() -> str:
    def nested(x: Any) -> Any:
        return lax.fori_loop(0, 4, lambda _, c: lax.cond(c[0, 0] > 0, jnp.sin, jnp.cos, c @ x), x)

    return jax.jit(nested).lower(X).compile().as_text() or ""


def test_a_text_without_a_program_has_no_count() -> None:
    assert counts("") is None
    assert counts("HloModule m\n") is None


@given(st.data())
def test_a_cut_text_is_counted_or_not_but_never_breaks(data: st.DataObject) -> None:
    text = looping_text()
    start = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 300))

    found = counts(text[:start] + text[start + length :])

    assert found is None or found.flops is None or found.flops >= 0


def test_the_text_of_the_strategy_has_a_loop() -> None:
    assert re.search(r" while\(", looping_text())
