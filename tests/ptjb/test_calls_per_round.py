"""How often a function is called."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.errors import UsageError
from pytest_jax_bench import JaxBench

X = jnp.ones(3)


@pytest.mark.parametrize(
    ("per_round", "warmup", "expected"), [(1, 3, 3 + 7), (4, 3, 3 + 4 * 7), (1, 0, 7), (1, 1, 1 + 7), (4, 0, 1 + 4 * 7)]
)
def test_an_eager_function_is_called_for_each_round_and_warm_up(per_round: int, warmup: int, expected: int) -> None:
    """The first run is one of them, but where a round needs several calls and none are warm-ups."""
    calls = []
    jb = JaxBench(eager_rounds=7, eager_warmup=warmup, calls_per_round=per_round)

    res, _ = jb.measure(lambda x: (calls.append(1), x)[1], x=X, write=False)

    assert len(calls) == expected
    assert res.eager_rounds == 7
    assert res.eager.headline.iterations == per_round
    assert res.eager_peak_bytes == -1
    if (per_round, warmup) == (1, 3):  # without it, a short function is called as often as its times need
        JaxBench(eager_rounds=7, eager_warmup=3).measure(lambda x: (calls.append(1), x)[1], x=X, write=False)
        assert len(calls) > 100


def test_a_jitted_function_is_called_for_each_round_and_warm_up() -> None:
    calls = []

    def count(x):
        calls.append(1)
        return np.asarray(x)

    @jax.jit
    def with_callback(x):
        return jax.pure_callback(count, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    jb = JaxBench(jit_rounds=7, jit_warmup=3, calls_per_round=1)
    res, _ = jb.measure(None, with_callback, X, write=False)

    assert len(calls) == 3 + 7
    assert (res.jit_rounds, res.jit_loops) == (7, 1)


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "1"])
def test_anything_but_a_number_of_calls_is_refused(wrong) -> None:
    with pytest.raises(UsageError, match=f"invalid calls_per_round={wrong!r}"):
        JaxBench(calls_per_round=wrong)


@pytest.mark.parametrize("number", [3, 3.0, np.int64(3)])
def test_a_whole_number_of_another_type_is_one(number) -> None:
    rounds = JaxBench(jit_rounds=number, calls_per_round=number).rounds

    assert (type(rounds.jit_rounds), rounds.jit_rounds, rounds.calls_per_round) == (int, 3, 3)
