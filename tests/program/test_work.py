"""The work of a program: XLA's count where XLA is right, loops by their trip counts where it is not, and by line."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled_texts import f32, module_of, text_of
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from benchax.program import hlo, work
from benchax.program.compiled import cost
from benchax.program.work import OPAQUE, counts, least_operations, operations, work_by_line
from benchax.results.inspection import Counts, HloOperation, HloOperations, LineWork

X = f32(64, 64)
IMAGES = f32(2, 16, 16, 3)
KERNEL = f32(3, 3, 3, 8)
BATCHED = (f32(8, 32, 16), f32(8, 16, 24))
MATMUL = 2 * 64**3


def count(text: str) -> Counts | None:
    return counts(hlo.parse(text))


def built(fun: Any, *args: Any) -> tuple[jax.stages.Compiled, Counts]:
    compiled = jax.jit(fun).lower(*args).compile()
    found = count(compiled.as_text() or "")
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
def test_ffts_are_counted_as_their_benchmarks_count_them(function, shape, dtype, flops, monkeypatch) -> None:
    """5·N·log2(N), half of it for real numbers; and XLA's sum is corrected to the same."""
    compiled, found = built(function, jnp.ones(shape, dtype))

    assert found.flops == pytest.approx(flops, rel=1e-6)
    corrected = cost(compiled, compiled.as_text())
    assert corrected is not None
    assert corrected.flops == pytest.approx(flops, rel=1e-6)
    monkeypatch.setattr(work, "xla_fft_flops", lambda *_: 1e9)  # another XLA, whose count is not known
    assert cost(compiled, compiled.as_text()) == replace(corrected, flops=None)


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
    """Of the bytes, but for the counter and copies of the carry, too."""
    found, once = counted(chained(turns), X), counted(lambda x: x @ x, X)

    assert found.is_exact
    assert found.flops == pytest.approx(turns * MATMUL, rel=1e-3)
    assert found.bytes_accessed is not None
    assert once.bytes_accessed is not None
    assert once.bytes_accessed * turns <= found.bytes_accessed < 3 * once.bytes_accessed * turns


@pytest.mark.parametrize("turns", [10, 100])
def test_a_turn_reads_its_slice_of_what_is_scanned_and_not_all_of_it(turns: int) -> None:
    found = counted(lambda xs: lax.scan(lambda c, x: (c @ x, c.sum(0)), xs[0], xs)[1], f32(turns, 64, 64))

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


@pytest.mark.parametrize(
    ("fn", "restriction"),
    [
        (
            lambda x: lax.fori_loop(0, x[0, 0].astype(int), lambda _, c: c @ x, x),
            r"the body of the loop \S+ .*is counted once: its trip count is not in the text of the program",
        ),
        (
            lambda x: lax.cond(x.sum() > 0, lambda x: x @ x, lambda x: x + 1, x),
            r"the branches of the conditional \S+ differ: the most that any of them does is counted",
        ),
    ],
    ids=["loop of unknown length", "conditional"],
)
def test_what_restricts_a_count_is_said(fn: Any, restriction: str) -> None:
    found = counted(fn, X)

    assert not found.is_exact
    assert found.flops == pytest.approx(MATMUL, rel=0.01)
    assert re.fullmatch(restriction, found.restrictions[0])


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
    found = count(BY_LIBRARIES)

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

    return text_of(nested, X)


@given(st.data())
def test_a_cut_text_is_counted_or_not_but_never_breaks(data: st.DataObject) -> None:
    text = looping_text()
    assert re.search(r" while\(", text)
    start = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 300))

    found = count(text[:start] + text[start + length :])

    assert found is None or found.flops is None or found.flops >= 0


# ---- by line ----------------------------------------------------------------------------------------------------


NEAR = 0.02


def lines_of(function: Callable[..., Any], *shapes: Any) -> tuple[LineWork, ...]:
    module = module_of(function, *shapes)
    found, known = work_by_line(module), counts(module)
    assert found is not None
    assert known is not None
    if known.flops is not None:
        assert sum(one.flops for one in found) == pytest.approx(known.flops)
        assert sum(one.bytes_accessed for one in found) == pytest.approx(known.bytes_accessed)
    return found


def flops(function: Callable[..., Any], *shapes: Any) -> float:
    """Of the one line of the function."""
    line = f"{__file__}:{function.__code__.co_firstlineno}"
    return sum(one.flops for one in lines_of(function, *shapes) if one.source == line)


@pytest.mark.parametrize(
    ("function", "shapes", "by_hand"),
    [
        (lambda x, w: x @ w, (f32(64, 128), f32(128, 32)), 2 * 64 * 128 * 32),
        (lambda x, w: jax.lax.scan(lambda c, _: (c @ w, None), x, None, 7), (f32(64, 64), f32(64, 64)), 7 * 2 * 64**3),
        (
            lambda x, u: x.at[jnp.arange(0, 4096, 2)].add(u, unique_indices=True, mode="promise_in_bounds"),
            (f32(4096, 512), f32(2048, 512)),  # wide, so that the arithmetic of indices is little beside it
            2048 * 512,
        ),
    ],
    ids=["dense", "scan", "scatter"],
)
def test_operations_of_a_line_are_those_counted_by_hand(
    function: Callable[..., Any], shapes: tuple[Any, ...], by_hand: float
) -> None:
    assert flops(function, *shapes) == pytest.approx(by_hand, rel=NEAR)


def test_library_frames_are_folded_beneath_the_users_line() -> None:
    (line,) = {one.source for one in lines_of(lambda x: jax.nn.gelu(x), f32(64)) if one.source}

    assert line.startswith(f"{__file__}:")


@pytest.mark.parametrize("text", ["", "HloModule m\n"])
def test_a_text_without_a_program_has_no_work(text: str) -> None:
    module = hlo.parse(text)

    assert (counts(module), work_by_line(module), operations(module)) == (None, None, None)


def test_a_function_of_a_library_has_no_line_of_whoever_started_it() -> None:
    """Nothing of a user's is below it: in a test, pytest called the function that called it."""
    text = jax.jit(jax.nn.softmax).lower(f32(64)).compile().as_text() or ""  # with this file among its frames
    folder = str(Path(__file__).parent)
    moved = text.replace(folder, str(Path(pytest.__file__).parent))  # as if this file were pytest's

    found = work_by_line(hlo.parse(moved))

    assert found is not None
    assert {one.source for one in found} == {""}


def test_what_is_fused_belongs_to_its_own_line_and_the_kernel_to_its_last() -> None:
    """XLA:CPU fuses both lines into one kernel, which reads and writes 1000 numbers."""

    def two(x: jax.Array) -> jax.Array:
        y = x + 1
        return y * y * y

    first = two.__code__.co_firstlineno
    found = {one.source: one for one in lines_of(two, f32(1000)) if one.source}
    fused, kernel = found[f"{__file__}:{first + 1}"], found[f"{__file__}:{first + 2}"]

    assert (fused.flops, fused.bytes_accessed, fused.kernel_flops) == (1000, 0, 0)
    assert (kernel.flops, kernel.bytes_accessed, kernel.kernel_flops) == (2000, 8000, 3000)
    # Of a custom call no kernel is known.
    assert any(one.kernel_flops is None for one in lines_of(lambda x: jnp.linalg.cholesky(x), f32(8, 8)))


# ---- one by one -------------------------------------------------------------------------------------------------


LOOP = """HloModule m
%body (c: (s32[], f32[4])) -> (s32[], f32[4]) {
  %c = (s32[], f32[4]) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %v = f32[4] get-tuple-element(%c), index=1
  %w = f32[4] add(%v, %v), metadata={op_name="jit(f)/layer/while/body/cell/add" source_file="/u/m.py" source_line=7}
  %t = tanh[4] tanh(%w)
  ROOT %out = (s32[], f32[4]) tuple(%i, %t)
}
%condition (c: (s32[], f32[4])) -> pred[] {
  %c = (s32[], f32[4]) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %n = s32[] constant(3)
  ROOT %less = pred[] compare(%i, %n), direction=LT
}
ENTRY %main (p: f32[4]) -> f32[4] {
  %p = f32[4] parameter(0)
  %zero = s32[] constant(0)
  %start = f32[4] multiply(%p, %p)
  %both = (s32[], f32[4]) tuple(%zero, %start)
  %loop = (s32[], f32[4]) while(%both), condition=%condition, body=%body, TRIPS
  %result = f32[4] get-tuple-element(%loop), index=1
  %cast = f32[4] bitcast(%result)
  ROOT %last = f32[4] subtract(%cast, %start)
}
"""
TRIPS = 'backend_config={"known_trip_count":{"n":"3"}}, metadata={op_name="jit(f)/layer/while"}'


def read(text: str, **limits: int) -> HloOperations:
    found = operations(hlo.parse(text), **limits)
    assert found is not None
    return found


def by_name(found: HloOperations) -> dict[str, HloOperation]:
    return {one.name: one for one in found.listed}


def test_a_loop_holds_its_body_and_its_condition_with_their_work_of_all_iterations() -> None:
    found = read(LOOP.replace("TRIPS", TRIPS))

    named = by_name(found)
    assert list(named) == ["start", "loop", "last", "less", "w", "t"]
    loop = found.listed.index(named["loop"])
    assert [(one.inside, one.part) for one in (named["loop"], named["w"], named["less"])] == [
        (None, ""), (loop, "body"), (loop, "condition"),
    ]  # fmt: skip
    assert [named[name].flops for name in ("start", "w", "less", "loop")] == [4.0, 12.0, 4.0, 16.0]
    assert (named["t"].transcendentals, named["loop"].remark) == (12.0, "3 iterations")
    assert (named["w"].scope, named["w"].source) == ("layer/cell", "/u/m.py:7")
    # What only groups values is read through.
    reads = {one.name: [found.listed[place].name for place in one.reads] for one in found.listed}
    assert reads == {"start": [], "loop": ["start"], "last": ["loop", "start"], "less": [], "w": [], "t": ["w"]}
    # Beyond a limit the innermost are left out and counted.
    cut = read(LOOP.replace("TRIPS", TRIPS), most=4)
    assert ([*by_name(cut)], cut.left_out, by_name(cut)["loop"].flops) == ([*named][:4], 2, 16.0)


def test_of_a_loop_of_unknown_length_the_work_is_that_of_one_iteration_and_says_so() -> None:
    named = by_name(read(LOOP.replace("TRIPS", "metadata={}").replace("constant(3)", "parameter(1)")))

    assert named["loop"].remark == "counted once: its trip count is not in the text of the program"
    assert named["w"].flops == 4.0


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x, w: jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), c.sum()), x, None, 7), (f32(64, 64), f32(64, 64))),
        (lambda x: jax.lax.while_loop(lambda c: c.sum() > 1, lambda c: c / 2, x), (f32(64),)),
        (lambda i, x: jax.lax.cond(i, lambda x: x @ x, jnp.sin, x), (jax.ShapeDtypeStruct((), bool), f32(64, 64))),
        (jax.grad(lambda x, w: jnp.sort(jnp.tanh(x @ w)).sum()), (f32(32, 16), f32(16, 8))),
    ],
    ids=["scan", "while", "cond", "gradient"],
)
def test_the_outermost_ones_add_up_to_the_work_of_the_program(function: Any, shapes: tuple[Any, ...]) -> None:
    text = text_of(function, *shapes)

    outer = [one for one in read(text).listed if one.inside is None]

    known = count(text)
    assert known is not None
    assert sum(one.flops or 0 for one in outer) == pytest.approx(known.flops)
    assert sum(one.bytes_accessed or 0 for one in outer) == pytest.approx(known.bytes_accessed)


def test_of_a_conditional_the_most_is_counted_and_each_branch_says_its_own() -> None:
    is_less = jax.ShapeDtypeStruct((), bool)
    text = text_of(lambda i, x: jax.lax.cond(i, lambda x: x @ x, jnp.sin, x), is_less, f32(64, 64))

    found = read(text)

    (one,) = (one for one in found.listed if one.opcode == "conditional")
    inside = [each for each in found.listed if each.inside == found.listed.index(one)]
    by_branch = {
        part: sum(each.flops or 0 for each in inside if each.part == part) for part in ("branch 0", "branch 1")
    }
    assert one.remark == "the most that any branch does"
    assert one.flops == max(by_branch.values()) == 2 * 64**3 > min(by_branch.values())


def test_what_nobody_can_look_into_has_no_numbers_and_leaves_none_around_it() -> None:
    text = LOOP.replace("TRIPS", TRIPS).replace(
        "tanh[4] tanh(%w)", 'f32[4] custom-call(%w), custom_call_target="lapack"'
    )

    named = by_name(read(text))

    assert (named["t"].opcode, named["t"].remark) == ("lapack", OPAQUE)
    assert [named[name].flops for name in ("t", "loop", "w", "start")] == [None, None, 12.0, 4.0]
