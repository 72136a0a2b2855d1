"""Facts read from the text of optimised HLO: on programs compiled here, and on small literal texts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.environment import count_cores
from benchax.program import hlo

RANDOM = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)


def text_of(fun: Callable[..., Any], *args: Any, **options: Any) -> str:
    return jax.jit(fun, **options).lower(*args).compile().as_text() or ""


def test_reading_text_needs_no_jax():
    code = "import sys, benchax.program.hlo; sys.exit('jax' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Sizes


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("f32[]", 4),
        ("f32[64,64]{1,0}", 16384),
        ("bf16[3]{0}", 6),
        ("pred[5]{0}", 5),
        ("c64[2]{0}", 16),
        ("c128[2]{0}", 32),
        ("u8[0]{0}", 0),
        ("f8e4m3fn[10]{0}", 10),
        ("f8e8m0fnu[10]{0}", 10),
        ("s4[9]{0:E(4)}", 5),
        ("u2[9]{0:E(2)}", 3),
        ("f4e2m1fn[10]{0:E(4)}", 5),
        ("s4[9]{0}", 9),
        ("f32[8,128]{1,0:T(8,128)S(1)}", 4096),
        ("s32[<=8]{0}", 32),
        ("token[]", 0),
        ("(f32[3]{0}, (s32[], /*index=2*/pred[4]{0}))", 20),
    ],
)
def test_the_size_of_a_shape(shape: str, size: int):
    assert hlo.shape_bytes(shape) == size


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "complex64", "float16"])
def test_a_captured_array_is_counted_as_a_constant(dtype: str):
    captured = jnp.asarray(RANDOM > 0 if dtype == "bool" else RANDOM, dtype)
    text = text_of(lambda x: x + captured if dtype != "bool" else x ^ captured, captured)

    # A CPU computes the narrow types in wider ones and may store the constant so.
    assert captured.nbytes <= hlo.constant_bytes(text) <= 4 * captured.nbytes + 64


def test_an_argument_is_no_constant():
    assert hlo.constant_bytes(text_of(lambda x, y: x @ y, RANDOM, RANDOM)) == 0


def test_a_constant_that_was_folded_away_shows_only_its_result():
    text = text_of(lambda x: x + RANDOM.sum(0), np.ones(64, np.float32))

    assert 256 <= hlo.constant_bytes(text) < 512


def test_constants_of_every_form_are_counted():
    text = """
  %constant.3 = f32[2,2]{1,0} constant({ { 1, 2 }, { 3, 4 } })
  constant.1 = f32[64]{0} constant({...}), metadata={op_name="x = f32[999] constant(1)"}
  ROOT %constant = c64[2]{0} constant({(1, 2), (3, 0)})
  %packed = s4[8]{0:E(4)} constant({...})
  %pair = (f32[], s32[2]{0}) constant((1, {2, 3}))
  %add = f32[9]{0} add(%a, %constant.3), metadata={op_name="jit(f)/my constant(1)"}
"""

    assert hlo.constant_bytes(text) == 16 + 256 + 16 + 4 + 12


# Aliases


def test_a_donated_argument_that_is_reused_is_aliased():
    text = text_of(
        lambda a, b, c: (b + 1, {"x": c * 2}, a.sum()), *[RANDOM[:n] for n in (3, 4, 5)], donate_argnums=(1, 2)
    )

    assert hlo.aliased_parameters(text) == (1, 2)


def test_nothing_is_aliased_unless_donated():
    assert hlo.aliased_parameters(text_of(lambda x: x + 1, RANDOM)) == ()


@pytest.mark.parametrize(
    ("header", "parameters"),
    [
        ("HloModule f, input_output_alias={ {}: (0, {}, may-alias) }, entry_computation_layout={()->f32[]}", (0,)),
        ("HloModule f, input_output_alias={ {1, 0}: (12, {3}, must-alias), {0}: (2, {}, may-alias) }", (2, 12)),
        ("HloModule f, entry_computation_layout={(f32[3]{0})->f32[3]{0}}, x={ {0}: (7, {}) }", ()),
        ("", ()),
    ],
)
def test_aliases_are_read_from_the_header(header: str, parameters: tuple[int, ...]):
    assert hlo.aliased_parameters(header + "\n%x = f32[] add(%a), input_output_alias={ {}: (9, {}) }") == parameters


# Loops and calls


def test_a_small_loop_becomes_one_kernel_on_cpu():
    text = text_of(lambda n, a: jax.lax.fori_loop(0, n, lambda _, c: c * 2 + 1, a), 3, 1.0)

    assert hlo.has_small_call(text)
    assert hlo.has_while(text)


def test_a_large_loop_does_not():
    text = text_of(lambda n, a: jax.lax.fori_loop(0, n, lambda _, c: jnp.sin(c @ c), a), 3, RANDOM)

    assert not hlo.has_small_call(text)
    assert hlo.has_while(text)


def test_a_small_loop_inside_a_large_one_is_no_kernel_of_the_program():
    def turn(_: int, c: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 3, lambda _, x: x * 2 + 1, c[0, 0]) * jnp.sin(c @ c)

    text = text_of(lambda n, a: jax.lax.fori_loop(0, n, turn, a), 3, RANDOM)

    assert "xla_cpu_small_call" in text
    assert not hlo.has_small_call(text)


@pytest.mark.parametrize(("size", "is_shared"), [(100, False), (1_000_000, True)])
def test_a_large_operation_is_shared_among_threads(size: int, is_shared: bool):
    if count_cores() == 1:
        pytest.skip("there is one thread")

    assert hlo.is_shared_among_threads(text_of(jnp.sin, jax.ShapeDtypeStruct((size,), jnp.float32))) == is_shared


def test_a_program_without_loops_has_none():
    def while_(x: jax.Array) -> jax.Array:
        with jax.named_scope("my while(x)"):
            return jnp.sin(x)

    assert not hlo.has_while(text_of(while_, RANDOM))


@pytest.mark.parametrize(
    ("fn", "is_dependent"),
    [
        (lambda x: jnp.sin(x) @ x, False),
        (lambda x: jax.lax.scan(lambda c, row: (c + row.sum(), c), 0.0, x)[1], False),
        (lambda x: jax.lax.while_loop(lambda y: y.sum() > 1, lambda y: y / 2, x), True),
        (lambda x: jax.lax.cond(x.sum() > 0, jnp.sin, lambda y: y @ y, x), True),
        (jnp.sort, True),
    ],
)
def test_sorts_branches_and_open_loops_take_as_long_as_the_values_say(
    fn: Callable[..., Any], is_dependent: bool
) -> None:
    text = jax.jit(fn).lower(jnp.ones((64, 64))).compile().as_text()

    assert hlo.is_value_dependent(text) == is_dependent


def test_library_routines_and_callbacks_are_opaque():
    def both(x: jax.Array) -> jax.Array:
        x = jnp.linalg.cholesky(x)
        return jax.pure_callback(lambda y: y, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    calls = hlo.opaque_calls(text_of(both, jnp.eye(8)))

    assert len(calls) == 2
    assert any("callback" in call for call in calls)
    assert any("potrf" in call for call in calls)


def test_annotations_of_sharding_are_not_opaque():
    text = '%c = f32[3]{0} custom-call(%a), custom_call_target="Sharding", sharding={replicated}'

    assert hlo.opaque_calls(text) == ()


# Dependence on the inputs


@pytest.mark.parametrize(
    ("fun", "depends"),
    [
        (lambda x: x, True),
        (lambda x: x @ RANDOM, True),
        (lambda x: (jnp.zeros(3), {"a": x[0]}), True),
        (lambda x: jax.lax.fori_loop(0, 3, lambda _, c: jnp.sin(c) @ c, x), True),
        (lambda x: jax.lax.cond(x[0, 0] > 0, lambda: 1.0, lambda: 2.0), True),
        (lambda x: jnp.zeros(5), False),
        (lambda x: RANDOM @ RANDOM, False),
        (lambda x: jnp.sin(jnp.arange(10.0)) * 2, False),
        (lambda x: jnp.zeros(x.shape) * x.shape[0], False),
        (lambda x: jax.random.normal(jax.random.key(0), (3,)), False),
        (lambda x: jax.lax.fori_loop(0, 3, lambda _, c: jnp.sin(c) @ c, RANDOM), False),
    ],
)
@pytest.mark.parametrize("keep_unused", [False, True])
def test_a_program_that_does_not_depend_on_its_inputs_is_found(
    fun: Callable[..., Any], depends: bool, keep_unused: bool
):
    text = text_of(fun, RANDOM, keep_unused=keep_unused)

    assert hlo.entry_uses_parameters(text) is depends


@pytest.mark.parametrize("text", ["", "HloModule f", "ENTRY %main () -> f32[] {\n  what is this?\n}\n"])
def test_a_text_without_a_readable_entry_says_nothing(text: str):
    assert hlo.entry_uses_parameters(text) is None


def test_only_operands_make_a_program_depend():
    """Not attributes, and not the text of a constant."""
    text = """HloModule f

ENTRY %main (p: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %c = f32[] constant(1), metadata={op_name="p"}
  ROOT %r = f32[] negate(%c), control-predecessors={%p}
}
"""

    assert hlo.entry_uses_parameters(text) is False


def test_operands_may_be_printed_with_their_shapes_and_without_percent_signs():
    text = """ENTRY main {
  p = f32[3]{0} parameter(0)
  ROOT r = (f32[3]{0}, f32[3]{0}) custom-call-start(f32[3]{0} p), custom_call_target="x"
}
"""

    assert hlo.entry_uses_parameters(text) is True
