"""Many draws of one categorical distribution."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchax.auditing.recorder.views import Carried

ID = "categorical-draws"
KEY = jax.random.key(0)
LOGITS = jnp.zeros(600)


def sites(key: Any, logits: Any) -> Any:
    return jax.random.categorical(key, logits, shape=(4000,))


def by_hand(key: Any, logits: Any) -> Any:
    return jnp.argmax(logits[None, :] + jax.random.gumbel(key, (4000, logits.size)), axis=-1)


def by_keys(key: Any, logits: Any) -> Any:
    return jax.vmap(lambda key: jax.random.categorical(key, logits))(jax.random.split(key, 4000))


def by_uniform_numbers(key: Any, logits: Any) -> Any:
    return jnp.argmax(logits - jnp.log(-jnp.log(jax.random.uniform(key, (4000, 600)))), axis=-1)


def in_a_loop(key: Any, logits: Any) -> Any:
    return jax.lax.map(lambda key: sites(key, logits), jax.random.split(key, 3))


@pytest.mark.parametrize("fn", [sites, by_hand, by_keys, by_uniform_numbers, in_a_loop])
def test_draws_with_a_number_for_each_category_are_found(ask_about: Any, fn: Any) -> None:
    finding = ask_about(ID, fn, KEY, LOGITS).one

    assert finding.title == "4.00 k draws of 600 categories make a random number for each pair"
    assert "makes 2.40 M random numbers" in finding.seen[0]
    assert "; 4.00 k would do" in finding.seen[0]


def test_the_line_of_the_draws_is_named(ask_about: Any) -> None:
    assert ask_about(ID, sites, KEY, LOGITS).one.where == (__file__, sites.__code__.co_firstlineno + 1)


def test_draws_of_several_distributions_are_told_together(ask_about: Any) -> None:
    def species(keys: Any, logits: Any) -> Any:
        return jax.vmap(sites)(keys, logits)

    finding = ask_about(ID, species, jax.random.split(KEY, 2), jnp.zeros((2, 600))).one

    assert finding.seen[0].endswith("; 8.00 k would do")


@pytest.mark.parametrize(("calls", "fn", "count"), [(0, sites, 0), (20, sites, 1), (0, in_a_loop, 1)])
def test_what_a_program_does_once_may_make_more_numbers(ask_about: Any, calls: int, fn: Any, count: int) -> None:
    parts = {"why_not_called": "its program has ended", "carried": Carried(calls, ())}

    assert len(ask_about(ID, fn, KEY, LOGITS, parts=parts).findings) == count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "logits"),
    [
        (lambda key, logits: jax.random.categorical(key, logits), jnp.zeros((4000, 600))),
        (lambda key, logits: jax.random.categorical(key, logits, shape=(400,)), LOGITS),
        (lambda key, logits: jax.random.categorical(key, logits, shape=(400_000,)), jnp.zeros(4)),
        (lambda key, logits: jax.random.choice(key, 600, (4000,), p=jax.nn.softmax(logits)), LOGITS),
        (lambda key, logits: jnp.argmax(logits + jax.random.normal(key, (4000, 600)), axis=1), LOGITS),
        (lambda key, logits: jnp.argmax(logits + jax.random.uniform(key, (4000, 600)), axis=1), LOGITS),
        (lambda key, logits: jnp.argmax(logits + jnp.ones((4000, 600)), axis=1), LOGITS),
    ],
    ids=[
        "other distributions",
        "few draws",
        "few categories",
        "by the sum",
        "normal noise",
        "uniform noise",
        "no draw",
    ],
)
def test_other_draws_are_fine(ask_about: Any, fn: Any, logits: Any) -> None:
    assert ask_about(ID, fn, KEY, logits).outcome == "fine"
