"""Facts read from the text of optimised HLO: on programs compiled here, on kept texts, and on small literal ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled_texts import f32, hlo_text, module_of, text_of
from jax import lax

from benchax.environment import count_cores
from benchax.program import hlo

RANDOM = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "hlo").glob("*/*.txt"))


@pytest.mark.parametrize("module", ["hlo", "graph"])
def test_reading_and_drawing_need_no_jax(module: str) -> None:
    code = f"import sys, benchax.program.{module}; sys.exit('jax' in sys.modules or 'numpy' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- facts of one line ------------------------------------------------------------------------------------------


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


def nested(_: int, c: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 3, lambda _, x: x * 2 + 1, c[0, 0]) * jnp.sin(c @ c)


@pytest.mark.parametrize(
    ("body", "start", "is_kernel", "has_small"),
    [
        (lambda _, c: c * 2 + 1, 1.0, True, True),
        (lambda _, c: jnp.sin(c @ c), RANDOM, False, False),
        (nested, RANDOM, False, True),
    ],
    ids=["small", "large", "a small one inside a large one"],
)
def test_a_small_loop_of_the_entry_is_one_kernel_on_cpu(body: Any, start: Any, is_kernel: bool, has_small: bool):
    text = text_of(lambda n, a: jax.lax.fori_loop(0, n, body, a), 3, start)

    assert hlo.has_small_call(text) is is_kernel
    assert ("xla_cpu_small_call" in text) is has_small
    assert hlo.has_while(text)


@pytest.mark.parametrize(("size", "is_shared"), [(100, False), (1_000_000, True)])
def test_a_large_operation_is_shared_among_threads(size: int, is_shared: bool):
    if count_cores() == 1:
        pytest.skip("there is one thread")

    assert hlo.is_shared_among_threads(text_of(jnp.sin, f32(size))) == is_shared


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
    assert hlo.is_value_dependent(text_of(fn, f32(64, 64))) == is_dependent


def test_library_routines_and_callbacks_are_opaque():
    def both(x: jax.Array) -> jax.Array:
        x = jnp.linalg.cholesky(x)
        return jax.pure_callback(lambda y: y, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    calls = hlo.opaque_calls(text_of(both, jnp.eye(8)))

    assert len(calls) == 2
    assert any("callback" in call for call in calls)
    assert any("potrf" in call for call in calls)
    # Annotations of sharding do no work.
    assert hlo.opaque_calls('%c = f32[3]{0} custom-call(%a), custom_call_target="Sharding"') == ()


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
def test_a_program_that_does_not_depend_on_its_inputs_is_found(fun: Callable[..., Any], depends: bool):
    assert hlo.entry_uses_parameters(text_of(fun, RANDOM, keep_unused=True)) is depends


ATTRIBUTES_ALONE = hlo_text(
    "p = f32[] parameter(0)",
    'c = f32[] constant(1), metadata={op_name="p"}',
    "r = f32[] negate(%c), control-predecessors={%p}",
)
WITH_SHAPES = """ENTRY main {
  p = f32[3]{0} parameter(0)
  ROOT r = (f32[3]{0}, f32[3]{0}) custom-call-start(f32[3]{0} p), custom_call_target="x"
}
"""


@pytest.mark.parametrize(
    ("text", "depends"),
    [
        ("", None),
        ("HloModule f", None),
        ("ENTRY %main () -> f32[] {\n  what is this?\n}\n", None),
        (ATTRIBUTES_ALONE, False),
        (WITH_SHAPES, True),
    ],
)
def test_only_operands_make_a_program_depend(text: str, depends: bool | None):
    assert hlo.entry_uses_parameters(text) is depends


# ---- whole modules ----------------------------------------------------------------------------------------------


def name_of(file: Path) -> str:
    return f"{file.parent.name}/{file.stem}"


@pytest.mark.parametrize("file", GOLDEN, ids=name_of)
def test_every_instruction_is_read_with_all_its_operands(file: Path) -> None:
    text = file.read_text()
    module = hlo.parse(text)

    instructions = [(c, i) for c in module.computations.values() for i in c.instructions]

    assert sum(line.lstrip().startswith(("%", "ROOT")) and " = " in line for line in text.splitlines()) == len(
        instructions
    )
    assert [
        i.name for c, i in instructions if i.opcode != "constant" and i.operands.count("%") != len(c.operands(i))
    ] == []
    assert module.entry is not None
    assert all(c.root is not None for c in module.computations.values())
    reached = {c.name for _, i in instructions for _, c in module.called_computations(i)}
    assert reached | {module.entry.name} == set(module.computations)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (", kind=kLoop, calls=%f.1", [("kind", "kLoop"), ("calls", "%f.1")]),
        (", dimensions={}, x={a, {b, c}}", [("dimensions", "{}"), ("x", "{a, {b, c}}")]),
        (', metadata={op_name="a}, b=\\"{"}, index=1', [("metadata", '{op_name="a}, b=\\"{"}'), ("index", "1")]),
        (', t="a,b", slice={[0:1], [0:8]}', [("t", '"a,b"'), ("slice", "{[0:1], [0:8]}")]),
        (
            ", replica_groups=mesh['d'=4] {'d'}, use_global_device_ids=true",
            [("replica_groups", "mesh['d'=4] {'d'}"), ("use_global_device_ids", "true")],
        ),
        (', backend_config={"n":"5","l":[]}', [("backend_config", '{"n":"5","l":[]}')]),
    ],
)
def test_attributes_are_split_outside_of_brackets_and_quotes(text: str, expected: list[tuple[str, str]]) -> None:
    assert list(hlo.split_entries(text)) == expected


@pytest.mark.parametrize(
    ("key", "value", "names"),
    [
        ("calls", "%f.1", ["f.1"]),
        ("to_apply", "add", ["add"]),
        ("branch_computations", "{%a, %b}", ["a", "b"]),
        ("control-predecessors", "{%x, %y}", ["x", "y"]),
        ("direction", "LT", []),
        ("opaque", '"%f \\"%g\\" %h"', []),
    ],
)
def test_names_are_found_where_a_value_refers_to_something(key: str, value: str, names: list[str]) -> None:
    assert hlo.named_in(key, value) == names
    assert all(f"<{n}>" in hlo.rename(key, value, {n: f"<{n}>"}) for n in names)
    assert hlo.rename(key, value, {"f": "<f>", "h": "<h>"}) == value


@pytest.mark.parametrize("file", [f for f in GOLDEN if f.stem == "odd"], ids=lambda file: file.parent.name)
def test_the_name_of_an_argument_is_what_jax_calls_it(file: Path) -> None:
    entry = hlo.parse(file.read_text()).entry
    assert entry is not None

    names = [hlo.op_name(i) for i in entry.instructions if i.opcode == "parameter"]

    assert names == ["names['a}\" <&> b']", "names['é)(']"]


@pytest.mark.parametrize(
    ("metadata", "line"),
    [
        ('op_name="jit(f)/add" source_file="/home/é.py" source_line=7', "/home/é.py:7"),  # as of jax 0.6
        ("stack_frame_id=9", ""),
        ("stack_frame_id=1", ""),
    ],
)
def test_lines_are_found_in_the_form_of_older_versions_too_and_unknown_ones_are_empty(metadata: str, line: str) -> None:
    tables = "StackFrames\n1 {file_location_id=1}\n"
    text = (
        f"HloModule m\n{tables}\nENTRY %e (b: f32[]) -> f32[] {{\n  %a = f32[] add(%b), metadata={{{metadata}}}\n}}\n"
    )
    module = hlo.parse(text)

    assert [module.user_line(each) for each in module.instructions] == [line]


def test_a_scope_is_what_the_program_named() -> None:
    assert hlo.scope_of("jit(step)/layer0/while/body/closed_call/attention/dot_general") == "layer0/attention"
    assert hlo.scope_of("jit(step)/while/body/eval_jaxpr/attention/dot_general") == "attention"  # as of jax 0.12
    assert hlo.scope_of("jit(f)/jit(main)/jit(relu)/max") == ""


# ---- loops ------------------------------------------------------------------------------------------------------


def counting(start: int, step: int, goes_on: Any) -> Any:
    def run(x: Any) -> Any:
        return lax.while_loop(lambda c: goes_on(c[0]), lambda c: (c[0] + step, c[1] @ x), (jnp.int32(start), x))[1]

    return run


@pytest.mark.parametrize(
    ("fn", "trips"),
    [
        (counting(4, 3, lambda i: i <= 100), 33),
        (counting(9, -3, lambda i: i >= 0), 4),
        (lambda x: lax.scan(lambda c, y: (c * y, c), x[0], x, reverse=True), 8),  # inside of a call
        (lambda x: lax.fori_loop(0, x[0, 0].astype(int), lambda _, c: c @ x, x), None),
        (lambda x: lax.while_loop(lambda c: c.sum() < 3, lambda c: c * 2, x), None),
    ],
)
def test_iterations_are_those_that_xla_proved(fn: Any, trips: int | None) -> None:
    (found,) = module_of(fn, f32(8, 8)).loops.values()

    assert found.trips == trips
    assert found.op_name.endswith("while")
    assert ("known_trip_count" in found.trips_from) is (trips is not None)
