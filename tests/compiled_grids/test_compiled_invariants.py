"""Parts of functions that depend on no input: a compiled grid computes them in every repetition, as a call does."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from benchax.clock import elapsed_s, stamp, tie, tier
from benchax.compiled_grids import compiled
from benchax.compiled_grids.compiled import compiled_grid, scope_of
from benchax.program import census, hlo

X = jnp.asarray(np.random.default_rng(0).random((512, 128)), jnp.float32)


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

    text = grid.jitted.lower(X, np.float32([np.inf]), np.float32(np.inf)).compile().as_text()

    module = hlo.parse(text)
    inside = census.take_census(module, census.timed_body(module, tier().target("stamp"), scope_of(0)))
    alone = census.take_census(hlo.parse(jax.jit(function).lower(X).compile().as_text()))
    assert inside[operation] == alone[operation] > 0


def test_constants_are_folded_as_in_the_function_alone():
    table = np.linspace(0, 1, 512 * 128, dtype=np.float32).reshape(512, 128)
    grid = compiled_grid([lambda x: x + jnp.sin(table)], repeats=3)

    text = grid.jitted.lower(X, np.float32([np.inf]), np.float32(np.inf)).compile().as_text()

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

    alone = jax.jit(scanned).lower(X).compile().as_text()
    grid = compiled_grid([scanned], repeats=3, stop_inside=False)
    timed = grid.jitted.lower(X, np.float32([np.inf]), np.float32(np.inf)).compile().as_text()

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
    shares = [float(plain(X, 30)) / float(tied(X, 30)) for _ in range(5)]

    assert min(shares) < 0.4
    np.testing.assert_allclose(
        jax.jit(lambda x: tie(encode_positions)(stamp(x)[1], x))(X), encode_positions(X), atol=1e-5
    )


@pytest.mark.slow
def test_a_time_is_shown_where_all_of_the_work_was_found_between_the_stamps(monkeypatch):
    """Without branches XLA computes once what no repetition changes: the same functions have no times then."""
    functions = {"encode": encode_positions, "drop out": drop_out, "half": lambda x: x / 2}

    proved = compiled_grid(functions, repeats=3, stop_inside=False)(X)
    monkeypatch.setattr(compiled, "run_in_branch", lambda function, inputs, word: function(inputs))
    hoisted = compiled_grid(functions, repeats=3, stop_inside=False)(X)

    assert proved.unproved == ("", "", "")
    assert "does only" in hoisted.why_not_measured("encode")
    assert "0 of its 32.8 k sine" in hoisted.why_not_measured("encode")
    assert "does only" in hoisted.why_not_measured("drop out")
    assert "0 of its 65.5 k multiply" in hoisted.why_not_measured("half")
    assert "not measured, because inside a loop XLA does only" in hoisted.table()


def test_work_that_cannot_be_found_is_not_said_to_be_timed_nor_that_of_a_users_jit():
    grid = compiled_grid([jnp.sin], repeats=3)
    assert "\nf32[512,128] · cpu · " in str(grid((X,)))
    assert f"· jax {jax.__version__}" in str(grid(X))

    (why,) = compiled.prove("HloModule other", next(iter(grid._traced.values())), [X])
    inside = jax.jit(grid)(X)

    assert why == "its work cannot be found in the optimised program of the grid"
    assert (inside.unproved, inside.circumstances) == (None, None)
    assert "is unknown, because the grid was called inside a jax.jit" in inside.table()
