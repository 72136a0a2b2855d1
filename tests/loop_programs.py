"""Programs of nested loops, branches and calls, drawn by Hypothesis: each maps a small state to a state of its kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from hypothesis import strategies as st
from jax import lax

WIDTH = 512
"""XLA:CPU compiles loops over less than 1 KiB in another way, with other last digits; `with_deadline` tells."""

State = dict[str, Any]
"""x: f32[WIDTH], s: f32[], h: bf16[2], i: i32[], k: a key."""
Step = Callable[[State], State]


def start() -> State:
    x = jnp.sin(jnp.arange(WIDTH, dtype=jnp.float32))
    return {"x": x, "s": x[2], "h": x[:2].astype(jnp.bfloat16), "i": jnp.int32(3), "k": jax.random.key(7)}


def contract(state: State) -> State:
    """Multiplications that meet additions, which XLA contracts or not, as it finds them."""
    x = state["x"] * state["s"] + 0.7
    return {**state, "x": jnp.tanh(x) * 1.1 + state["x"][::-1] * 0.3, "s": x.mean() * 0.3 + state["s"] * 0.5}


def count(state: State) -> State:
    return {**state, "i": (state["i"] * 5 + 1) % 11, "h": state["h"] * 0.9 + state["s"].astype(jnp.bfloat16)}


def draw_bits(state: State) -> State:
    k, use = jax.random.split(state["k"])
    return {**state, "k": k, "x": state["x"] + 0.1 * jax.random.normal(use, (WIDTH,))}


def sequence(steps: list[Step]) -> Step:
    def run(state: State) -> State:
        for step in steps:
            state = step(state)
        return state

    return run


def fori(step: Step, n: int, is_static: bool) -> Step:
    def run(state: State) -> State:
        bound = n if is_static else state["i"] % (n + 1)
        return lax.fori_loop(0, bound, lambda j, s: {**step(s), "s": s["s"] * 0.9 + j}, state)

    return run


def repeat_while(step: Step, n: int, has_loop_in_condition: bool) -> Step:
    def run(state: State) -> State:
        def goes_on(carry: Any) -> Any:
            j, state = carry
            extra = fori(contract, n, False)(state)["s"] if has_loop_in_condition else state["s"]
            return (j < n) & (extra < 50.0)

        return lax.while_loop(goes_on, lambda c: (c[0] + 1, step(c[1])), (0, state))[1]

    return run


def scan(step: Step, length: int, reverse: bool, unroll: int, takes: bool) -> Step:
    def run(state: State) -> State:
        xs = (
            (jnp.sin(jnp.arange(length * WIDTH)).reshape(length, WIDTH) * state["s"], jnp.arange(length))
            if takes
            else None
        )

        def body(state: State, x: Any) -> Any:
            state = step(state if x is None else {**state, "x": state["x"] * x[0] + x[1]})
            return state, (state["x"], state["k"], state["i"] > 2)

        state, (rows, keys, marks) = lax.scan(body, state, xs, length=length, reverse=reverse, unroll=unroll)
        weights = jnp.arange(1.0, length + 1)[:, None] * (1 + marks[:, None])
        bits = jax.random.key_data(keys).sum().astype(jnp.int32)
        return {**state, "x": jnp.tanh(state["x"] + (rows * weights).sum(0)), "i": (state["i"] + bits) % 13}

    return run


def branch(steps: list[Step]) -> Step:
    return lambda state: lax.switch(state["i"] % len(steps), steps, state)


def called(step: Step, how: str) -> Step:
    if how == "jit":
        return jax.jit(step)
    if how == "remat":
        return jax.checkpoint(step)
    if how == "custom_jvp":
        smooth = jax.custom_jvp(step)
        smooth.defjvp(lambda primals, tangents: (smooth(*primals), tangents[0]))
        return smooth
    inverse = jax.custom_vjp(step)
    inverse.defvjp(lambda state: (step(state), None), lambda _, g: (g,))
    return inverse


def lanes(step: Step) -> Step:
    """vmapped: loops and branches whose predicates differ from lane to lane."""

    def run(state: State) -> State:
        both = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state)
        both["i"] = both["i"] + jnp.array([0, 4])
        return jax.tree.map(lambda leaf: leaf[1], jax.vmap(step)(both))

    return run


def programs(*, forward: bool = False) -> st.SearchStrategy[Step]:
    """Up to about ten parts each; with `forward`, only such as `jax.jvp` takes."""
    ways = ["jit", "remat", "custom_jvp", *([] if forward else ["custom_vjp"])]
    plain = st.sampled_from([contract, count, draw_bits])
    sizes = st.integers(0, 6)
    return st.recursive(
        plain,
        lambda inner: st.one_of(
            st.builds(sequence, st.lists(inner, min_size=2, max_size=3)),
            st.builds(fori, inner, sizes, st.booleans()),
            st.builds(repeat_while, inner, sizes, st.booleans()),
            st.builds(scan, inner, sizes, st.booleans(), st.integers(1, 4), st.booleans()),
            st.builds(branch, st.lists(inner, min_size=2, max_size=3)),
            st.builds(called, inner, st.sampled_from(ways)),
            st.builds(lanes, inner),
        ),
        max_leaves=6,
    )
