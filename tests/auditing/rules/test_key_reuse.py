"""Random keys that are used more than once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

ID = "key-reuse"
SECOND_NAME = "def draw(key):\n    k, l = key, key\n    a = jax.random.normal(k)\n    return a + jax.random.normal(l)\n"
KEYS = [jax.random.key(0), jax.random.PRNGKey(0)]


def twice(key: Any) -> Any:
    a = jax.random.normal(key, (3,))
    return a + jax.random.uniform(key, (3,))


def test_the_line_of_the_second_use_is_named(ask_about: Any) -> None:
    line = twice.__code__.co_firstlineno

    finding = ask_about(ID, twice, KEYS[0]).one

    assert finding.where == (__file__, line + 2)
    assert finding.seen == (f"drawn from at {__file__}:{line + 1}", f"drawn from at {__file__}:{line + 2}")


def test_a_program_that_gives_the_same_key_at_each_call_is_found(ask_about: Any) -> None:
    fn = jax.jit(lambda x, key: x * jax.random.normal(jax.random.fold_in(key, 3), x.shape))

    assert ask_about(ID, fn, jnp.ones(3), KEYS[1]).outcome == "fine"
    found = ask_about(ID, fn, jnp.ones(3), KEYS[1], parts={"repeated_inputs": frozenset({1})})
    assert found.one.title == "each call draws the same random numbers"


def test_the_line_that_passes_the_same_key_is_told(ask_about: Any) -> None:
    fn = jax.jit(twice)
    parts = {"repeated_inputs": frozenset({0}), "called_at": "train.py:7"}

    found = ask_about(ID, fn, KEYS[1], parts=parts).findings

    (finding,) = [one for one in found if one.title == "each call draws the same random numbers"]
    assert finding.where == (str(Path("train.py").absolute()), 7)
    assert finding.seen[0] == "it is called at train.py:7"
    assert len([text for text in finding.seen if "is drawn" in text]) == 2
    assert finding.advice.startswith("Pass another key at train.py:7")


def test_a_number_that_changes_makes_other_keys(ask_about: Any) -> None:
    fn = jax.jit(lambda key, step: jax.random.normal(jax.random.fold_in(key, step)))

    assert ask_about(ID, fn, KEYS[1], 3, parts={"repeated_inputs": frozenset({0})}).outcome == "fine"


def noisy(x: Any, key: Any) -> Any:
    return x + jax.random.normal(key, x.shape)


def draws_in_a_body(x: Any, key: Any) -> Any:
    def body(total: Any, part: Any) -> Any:
        part = 2 * part
        return total + noisy(part, key), None

    return jax.lax.scan(body, x[0], x)[0]


def passes_a_key_on_again(x: Any, key: Any) -> Any:
    x = noisy(x, key)
    return noisy(x, key)


def test_of_a_loop_the_line_of_its_body_is_named_that_passes_the_key(ask_about: Any) -> None:
    finding = ask_about(ID, draws_in_a_body, jnp.ones((4, 3)), KEYS[0]).one

    assert finding.where == (__file__, draws_in_a_body.__code__.co_firstlineno + 3)
    assert f"{__file__}:{noisy.__code__.co_firstlineno + 1}" in finding.seen[0]


class Search(NamedTuple):
    x: Any
    key: Any


def draw_of_carry(state: Any) -> Any:
    x = 2 * state.x
    return Search(x + jax.random.normal(state.key, x.shape), state.key)


def unpack_and_draw(state: Any) -> Any:
    x, key = state
    sub, _ = jax.random.split(key)
    return Search(x + noisy(x, sub), key)


def draw_of_closure(x: Any, key: Any) -> Any:
    def body(x: Any, _: Any) -> Any:
        return draw_by_helper(x, jax.random.split(key)[0]), None

    return jax.lax.scan(body, x, None, length=3)[0]


def draw_by_helper(x: Any, key: Any) -> Any:
    first, key = jax.random.split(key)
    keys = jax.random.split(first, 2)
    return x + noisy(x, keys[0])


def whole_loop(step: Any) -> Any:
    return lambda x, key: jax.lax.scan(lambda s, _: (step(s), None), Search(x, key), None, length=3)[0]


@pytest.mark.parametrize(
    ("fn", "chooses", "line"),
    [
        (whole_loop(draw_of_carry), draw_of_carry, 2),
        (whole_loop(unpack_and_draw), unpack_and_draw, 3),
        (draw_of_closure, draw_of_closure, 2),
    ],
)
def test_of_a_loop_each_line_on_the_way_to_the_draw_is_named(ask_about: Any, fn: Any, chooses: Any, line: int) -> None:
    finding = ask_about(ID, fn, jnp.ones(3), KEYS[0]).one

    assert (__file__, chooses.__code__.co_firstlineno + line) in finding.lines


def test_a_second_name_of_a_key_is_named(ask_about: Any, tmp_path: Path) -> None:
    file, made = tmp_path / "model.py", dict[str, Any](jax=jax)
    file.write_text(SECOND_NAME)
    exec(compile(SECOND_NAME, str(file), "exec"), made)

    finding = ask_about(ID, made["draw"], KEYS[0]).one

    assert {(str(file), line) for line in (2, 3, 4)} <= set(finding.lines)


def test_of_two_uses_inside_of_one_function_the_second_call_of_it_is_named(ask_about: Any) -> None:
    finding = ask_about(ID, passes_a_key_on_again, jnp.ones(3), KEYS[0]).one

    assert finding.where == (__file__, passes_a_key_on_again.__code__.co_firstlineno + 2)
