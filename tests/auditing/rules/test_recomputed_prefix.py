"""Loops that compute a whole sequence for one position of it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

ID = "recomputed-prefix"
L = 24
E = jnp.ones((30, 32))
KEY = jax.random.key(0)


def cell(h: Any, x: Any) -> Any:
    h = jnp.tanh(h @ jnp.ones((32, 32)) + x)
    return h, h


def recurrent(tokens: Any) -> Any:
    x = E[tokens].swapaxes(0, 1)
    _, hs = jax.lax.scan(cell, jnp.zeros((tokens.shape[0], 32)), x)
    return hs.swapaxes(0, 1) @ E.T


def attentive(tokens: Any) -> Any:
    x = E[tokens]
    mask = jnp.tril(jnp.ones((tokens.shape[1], tokens.shape[1]), bool))
    weights = jax.nn.softmax(jnp.where(mask, jnp.einsum("btd,bsd->bts", x, x), -1e9))
    return jnp.einsum("bts,bsd->btd", weights, x) @ E.T


def generate(model: Any, tokens: Any, key: Any) -> Any:
    def write(at: Any, tokens: Any) -> Any:
        logits = model(tokens)[:, at]
        drawn = jax.random.categorical(jax.random.fold_in(key, at), logits)
        return tokens.at[:, at + 1].set(drawn)

    return jax.lax.fori_loop(0, L, write, tokens)


def until_stop(tokens: Any, key: Any) -> Any:
    def write(state: Any) -> Any:
        at, tokens = state
        drawn = recurrent(tokens)[:, at].argmax(-1)
        return at + 1, tokens.at[:, at + 1].set(drawn)

    return jax.lax.while_loop(lambda state: (state[0] < L) & (state[1].sum() < 99), write, (0, tokens))[1]


@pytest.mark.parametrize(
    ("fn", "first", "line"),
    [
        (lambda tokens, key: generate(recurrent, tokens, key), generate, 2),
        (lambda tokens, key: generate(attentive, tokens, key), generate, 2),
        (until_stop, until_stop, 3),
    ],
    ids=["recurrent", "attention", "while"],
)
def test_a_sequence_that_is_computed_for_one_position_is_found(ask_about: Any, fn: Any, first: Any, line: int) -> None:
    found = ask_about(ID, fn, jnp.zeros((64, L + 1), jnp.int32), KEY).one

    assert found.title == "computes 25 positions in each iteration of a loop, to use one"
    assert found.where == (__file__, first.__code__.co_firstlineno + line)
    assert "carry the state" in found.advice


def carried(tokens: Any, key: Any) -> Any:
    def write(at: Any, state: Any) -> Any:
        tokens, h = state
        h, _ = cell(h, E[tokens[:, at]])
        return tokens.at[:, at + 1].set((h @ E.T).argmax(-1)), h

    return jax.lax.fori_loop(0, L, write, (tokens, jnp.zeros((tokens.shape[0], 32))))[0]


def scored(tokens: Any, key: Any) -> Any:
    return recurrent(tokens)[:, tokens[0, 0]]


def all_used(tokens: Any, key: Any) -> Any:
    def write(at: Any, tokens: Any) -> Any:
        return tokens.at[:, at].set(recurrent(tokens).sum((1, 2)).astype(jnp.int32))

    return jax.lax.fori_loop(0, L, write, tokens)


def same_each_time(tokens: Any, key: Any) -> Any:
    def write(at: Any, out: Any) -> Any:
        return out.at[:, at].set(recurrent(tokens)[:, at].argmax(-1))

    return jax.lax.fori_loop(0, L, write, tokens)


@pytest.mark.parametrize("fn", [carried, scored, all_used, same_each_time])
def test_loops_that_go_on_or_need_all_of_it_are_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, jnp.zeros((64, L + 1), jnp.int32), KEY).outcome == "fine"


def test_a_small_one_is_fine(ask_about: Any) -> None:
    given = (jnp.zeros((1, 9), jnp.int32), KEY)

    assert ask_about(ID, lambda tokens, key: generate(recurrent, tokens, key), *given).outcome == "fine"
