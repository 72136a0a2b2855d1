"""`benchax demo watch`: the three loops of JAX's page on jit compilation."""

from __future__ import annotations

import pytest
from command_line import Benchax


@pytest.mark.slow
def test_a_loop_that_jits_a_new_function_in_each_turn_compiles_in_each_turn(benchax: Benchax) -> None:
    done = benchax("demo", "watch")

    rows = [line.split("  ") for line in done.out.splitlines()[1:4]]
    assert {row[0]: next(filter(None, row[1:])).strip() for row in rows} == {
        "jax.jit(partial(body))": "20",
        "jax.jit(lambda i: body(i))": "20",
        "jax.jit(body)": "0",
    }
    assert "partial(body) at example.py:19: new function object" in done.out
    assert "<lambda> at example.py:26: new function object" in done.out
    assert "20 iterations of one loop" in done.err
    assert done.code == 0
