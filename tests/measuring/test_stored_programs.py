"""A program that a store has is not exported again: by what it is known, and what that tells apart."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax import api
from benchax.measuring import engine
from benchax.measuring.exported import digest_source

X, Y = np.ones(4, np.float32), np.zeros(4, np.float32)


def digest(fn, *args) -> str:
    traced = jax.jit(fn).trace(*args)
    return digest_source(traced, traced.lower())


def test_equal_programs_have_one_digest() -> None:
    """Those of two sessions: what they hold are functions, whose addresses differ."""
    assert digest(lambda x: jax.nn.relu(x) * 2, X) == digest(lambda z: jax.nn.relu(z) * 2, Y)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((lambda x, y: x + 1, X, Y), (lambda x, y: y + 1, X, Y)),  # their lowered texts are equal
        ((lambda x: x + X, X), (lambda x: x + Y, X)),  # their jaxprs read the same
        ((lambda x: x + 1, X), (lambda x: x + 1, X[:2])),
        ((lambda x: x + 1, X), (lambda x: x + 2, X)),
    ],
)
def test_programs_that_differ_have_two(one, other) -> None:
    assert digest(*one) != digest(*other)


def test_what_holds_large_arrays_has_none() -> None:
    large = jnp.ones(100_000)

    assert digest(lambda x: x + large, 1.0) == ""


def test_a_stored_program_is_looked_up_and_stands_in_the_new_row(tmp_path, monkeypatch) -> None:
    exports: list[str] = []
    real = engine.exported
    monkeypatch.setattr(engine, "exported", lambda subject: (exports.append(""), real(subject))[1])
    options = {"store": str(tmp_path), "stages": "build", "memory": False}

    def measure(number: int):
        from benchax.case import make_case

        case = make_case(lambda x: x * number, (X,), name="f")
        (row,) = api.run([case], call=options)
        return row

    first, again, changed = measure(2), measure(2), measure(3)

    assert len(exports) == 2
    assert first.program == again.program != changed.program
    assert again.program is not None
    assert again.program.content is None
    stored = api.opened(str(tmp_path)).query(case="f")
    assert [row.program for row in stored] == [first.program, again.program, changed.program]
