"""The outputs of a grid in one jitted call are those of direct calls. Nothing here looks at durations: programs are
compiled at the lowest level."""

from __future__ import annotations

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functions_by_hand import X, double, forever, looping
from jax import lax

from benchax.clock import elapsed_s, stamp, tie, tier
from benchax.compiled_grids import compiled
from benchax.compiled_grids.compiled import compiled_grid, scope_of
from benchax.errors import UsageError
from benchax.program import census, hlo

OF_A_VECTOR = {
    "vector": lambda x: jnp.sin(x) * 2,
    "jitted": jax.jit(lambda x: x * x),
    "loop": looping,
    "input itself": lambda x: x,
    "in place": lambda x: x.at[0].set(5),
    "cond": lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
}
"""In one call: they return what looks alike."""
SAME = {
    "tree": (lambda d: {"s": d["a"].sum(), "n": (d["b"] + 1, None)}, {"a": X, "b": jnp.arange(3)}),
    "several arguments": (lambda a, b: a * b, (X, jnp.float32(3))),
    "numpy": (jnp.cumsum, np.arange(5.0)),
    "bf16 and a number": (lambda a, b: a * b, (X.astype(jnp.bfloat16), 2.5)),
    "a number": (lambda x: jnp.arange(4, dtype=jnp.int8) * x, 2),
    "bool": (lambda x: x > 0.5, X),
    "complex": (jnp.fft.fft, X),
    "key in": (lambda k: jax.random.normal(k, (5,)), jax.random.key(1)),
    "key out": (jax.random.split, jax.random.key(1)),
    "loop over integers": (lambda n: lax.while_loop(lambda c: c < 10**5, lambda c: c + n, n), jnp.int32(3)),
    "scan": (lambda x: lax.scan(lambda c, y: (c + y, c * y), 0.0, x), X),
    "empty": (lambda x: x[:0], X),
}


@pytest.mark.slow
def test_outputs_of_each_function_are_those_of_a_direct_call():
    result = compiled_grid(OF_A_VECTOR, repeats=3)(X)

    assert result.status_names == ["ok"] * len(OF_A_VECTOR)
    for row, function in enumerate(OF_A_VECTOR.values()):
        assert is_same(jax.jit(function)(X), result.outputs[row])


@pytest.mark.slow
@pytest.mark.parametrize("name", SAME)
def test_outputs_are_those_of_a_direct_call(name):
    function, x = SAME[name]
    expected = jax.jit(function)(*x) if type(x) is tuple else jax.jit(function)(x)

    result = compiled_grid([function, function], repeats=3)(x)

    assert result.status_names == ["ok", "ok"]
    for row in (0, 1):
        outputs = jax.tree.map(lambda leaf, row=row: leaf[row], result.outputs)
        assert jax.tree.structure(expected) == jax.tree.structure(outputs)
        assert jax.tree.all(jax.tree.map(is_same, expected, outputs))


def is_same(a, b) -> bool:
    if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
        return a.dtype == b.dtype and is_same(jax.random.key_data(a), jax.random.key_data(b))
    return a.dtype == b.dtype and np.array_equal(a, b)


def test_the_data_are_left_as_they_were_and_a_function_is_traced_once():
    x, calls = jnp.arange(1000.0), []

    def counted(x):
        calls.append(x)
        return looping(x)

    jax.block_until_ready(compiled_grid([lambda x: x.at[:].set(0), counted], repeats=5)(x))

    np.testing.assert_array_equal(x, np.arange(1000.0))
    assert len(calls) == 1


def test_other_shapes_are_marked_and_not_run():
    functions = {
        "first": double,
        "short": lambda x: forever(x)[:2],
        "pair": lambda x: (x, x),
        "int": lambda x: x.astype(int),
        "last": double,
    }

    result = compiled_grid(functions, repeats=3)(X)

    assert result.names == ("first", "short", "pair", "int", "last")
    assert result.status_names == ["ok", "wrong_shape", "wrong_shape", "wrong_shape", "ok"]
    assert result.why_not_measured("short") == "it returns f32[2], not f32[64]"
    assert result.why_not_measured("pair") == "it returns (f32[64], f32[64]), not f32[64]"
    assert np.isnan(result.outputs[1:4]).all()


@pytest.mark.slow
@pytest.mark.parametrize("like", [lambda x: x, X, jax.ShapeDtypeStruct((64,), jnp.float32)])
def test_what_outputs_should_look_like_can_be_said(like):
    result = compiled_grid([jnp.sum, double], repeats=3, like=like)(X)

    assert result.status_names == ["wrong_shape", "ok"]
    assert result.outputs.shape == (2, 64)


def test_a_function_that_raises_is_a_row_and_the_next_one_says_what_outputs_look_like():
    def broken(x):
        raise ValueError("no good\nat all")

    def noisy(x):
        jax.debug.callback(lambda: None, ordered=True)  # in a loop, which is JAX's affair
        return x

    result = compiled_grid([broken, lambda x: "text", double, noisy], repeats=3)(X)

    assert result.status_names[:3] == ["error", "error", "ok"]
    assert result.status_names[3] in ("ok", "error")
    assert result.why_not_measured(0) == "it cannot be traced: ValueError: no good"
    assert compiled_grid([broken], repeats=3)(X).outputs is None


def test_what_does_not_depend_on_its_inputs_has_outputs_and_no_time():
    jitted = jax.jit(lambda x: jnp.arange(64.0) * 2)

    result = compiled_grid([jitted, double, lambda x: forever(jnp.zeros(64))], repeats=3)(X, timeout_s=[60, 60, 0.02])

    assert result.status_names == ["constant", "ok", "timed_out"]
    np.testing.assert_array_equal(result.outputs[0], np.arange(64) * 2)
    assert "does not depend on its inputs" in result.why_not_measured(0)


@pytest.mark.parametrize(("fill", "x", "expected"), [(None, X, math.nan), (7, X, 7), (None, jnp.arange(64), 0)])
def test_rows_without_outputs_are_filled_and_integers_which_have_no_nan_with_zeros(fill, x, expected):
    result = compiled_grid([double, jnp.sum], repeats=1, fill=fill)(x)

    np.testing.assert_array_equal(result.outputs, [x * 2, np.full(64, expected)])


def test_outputs_are_clipped_then_freed_of_nan_and_stacked_as_columns_beside_ones():
    x = jnp.array([0.0, 2.0, -3.0, jnp.nan])
    h = compiled_grid([double, jnp.sum], repeats=1, clip=(-1, 1), nan_to_num=True)

    result = h(x)

    expected = [[0, 0, 1], [1, 0, 1], [-1, 0, 1], [0, 0, 1]]
    np.testing.assert_array_equal(result.stacked(), expected)
    np.testing.assert_array_equal(jax.jit(lambda x: h(x).stacked())(x), expected)
    with pytest.raises(UsageError, match="functions that return one vector"):
        compiled_grid([jnp.sum], repeats=1)(X).stacked()


# ---- parts of functions that depend on no input: a compiled grid computes them in every repetition, as a call does ---


MATRIX = jnp.asarray(np.random.default_rng(0).random((512, 128)), jnp.float32)


def encode_positions(x, positions=None):
    positions = jnp.arange(512.0) if positions is None else positions
    angles = positions[:, None] * jnp.exp(-jnp.arange(64.0) * 0.14)
    return x + jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)


def drop_out(x, key=None):
    key = jax.random.key(0) if key is None else key
    return jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0)


def loop_over_constants(x, start=None):
    start = jnp.ones(16) if start is None else start
    return x + lax.fori_loop(0, 4000, lambda i, a: jnp.sin(a) + 0.1, start).sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operation", "function"),
    [("sine", encode_positions), ("shift-right-logical", drop_out), ("sine", loop_over_constants)],
)
def test_in_the_optimised_program_it_stands_inside_the_repetition(operation: str, function):
    grid = compiled_grid([function], repeats=30, stop_inside=False)

    text = grid.jitted.lower(MATRIX, np.float32([np.inf]), np.float32(np.inf)).compile().as_text()

    module = hlo.parse(text)
    inside = census.take_census(module, census.timed_body(module, tier().target("stamp"), scope_of(0)))
    alone = census.take_census(hlo.parse(jax.jit(function).lower(MATRIX).compile().as_text()))
    assert inside[operation] == alone[operation] > 0


def test_constants_are_folded_as_in_the_function_alone():
    table = np.linspace(0, 1, 512 * 128, dtype=np.float32).reshape(512, 128)
    grid = compiled_grid([lambda x: x + jnp.sin(table)], repeats=3)

    text = grid.jitted.lower(MATRIX, np.float32([np.inf]), np.float32(np.inf)).compile().as_text()

    assert " sine(" not in text


def test_what_xla_does_not_move_out_of_an_inner_loop_stays_in_it():
    """A zero that a scan hands on unchanged would let XLA move the sines out of it: 40 µs for 2 ms."""

    def scanned(x):
        return lax.scan(lambda c, _: (c + jnp.sin(jnp.arange(128.0)), None), x, None, length=8)[0]

    def inner_bodies(text: str) -> list[str]:
        called = dict(re.findall(r"^%?([\w.\-]+) [^\n]*\{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL))
        bodies = [called[name] for name in re.findall(r"body=%?([\w.\-]+)", text)]
        inner = [body for body in bodies if "benchax_stamp" not in body]
        return [body + "".join(called[n] for n in re.findall(r"calls=%?([\w.\-]+)", body)) for body in inner]

    alone = jax.jit(scanned).lower(MATRIX).compile().as_text()
    grid = compiled_grid([scanned], repeats=3, stop_inside=False)
    timed = grid.jitted.lower(MATRIX, np.float32([np.inf]), np.float32(np.inf)).compile().as_text()

    assert any(" sine(" in body for body in inner_bodies(alone))
    assert any(" sine(" in body for body in inner_bodies(timed))


def test_a_tied_function_between_stamps_holds_all_of_its_work():
    def timed(function):
        def readings(x, repeats):
            def once(_, state):
                x, least = state
                x, start = stamp(x)
                y = function(start, x)
                (x, y, start), end = stamp((x, y, start))
                return x, jnp.minimum(least, elapsed_s(start, end))

            return lax.fori_loop(0, repeats, once, (x, jnp.inf))[1]

        return jax.jit(readings)

    plain, tied = timed(lambda _, x: encode_positions(x)), timed(tie(encode_positions))
    shares = [float(plain(MATRIX, 30)) / float(tied(MATRIX, 30)) for _ in range(5)]

    assert min(shares) < 0.4
    np.testing.assert_allclose(
        jax.jit(lambda x: tie(encode_positions)(stamp(x)[1], x))(MATRIX), encode_positions(MATRIX), atol=1e-5
    )


@pytest.mark.slow
def test_a_time_is_shown_where_all_of_the_work_was_found_between_the_stamps(monkeypatch):
    """Without branches XLA computes once what no repetition changes: the same functions have no times then."""
    functions = {"encode": encode_positions, "drop out": drop_out, "half": lambda x: x / 2}

    proved = compiled_grid(functions, repeats=3, stop_inside=False)(MATRIX)
    monkeypatch.setattr(compiled, "run_in_branch", lambda function, inputs, word: function(inputs))
    hoisted = compiled_grid(functions, repeats=3, stop_inside=False)(MATRIX)

    assert proved.unproved == ("", "", "")
    assert "does only" in hoisted.why_not_measured("encode")
    assert "0 of its 32.8 k sine" in hoisted.why_not_measured("encode")
    assert "does only" in hoisted.why_not_measured("drop out")
    assert "0 of its 65.5 k multiply" in hoisted.why_not_measured("half")
    assert "not measured, because inside a loop XLA does only" in hoisted.table()


def test_work_that_cannot_be_found_is_not_said_to_be_timed_nor_that_of_a_users_jit():
    grid = compiled_grid([jnp.sin], repeats=3)
    assert "\nf32[512,128] · cpu · " in str(grid((MATRIX,)))
    assert f"· jax {jax.__version__}" in str(grid(MATRIX))

    (why,) = compiled.prove("HloModule other", next(iter(grid._traced.values())), [MATRIX])
    inside = jax.jit(grid)(MATRIX)

    assert why == "its work cannot be found in the optimised program of the grid"
    assert (inside.unproved, inside.circumstances) == (None, None)
    assert "is unknown, because the grid was called inside a jax.jit" in inside.table()
