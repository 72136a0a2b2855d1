"""`auditing/recording.py`: real compilations, heard as JAX tells of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.auditing.recorded_functions import MOST_KEPT, FunctionRecorder, RecordedFunction


@pytest.fixture
def heard() -> Iterator[Callable[[], list[RecordedFunction]]]:
    functions = FunctionRecorder()
    yield functions.close
    functions.close()


def test_shapes_and_static_values_are_kept_and_no_array(heard: Callable[[], list[RecordedFunction]]) -> None:
    @partial(jax.jit, static_argnames="times", donate_argnums=0)
    def step(state: Any, x: Any, scale: Any, times: int) -> Any:
        return jax.tree.map(lambda s: s * scale + times, state), x.sum()

    step({"w": jnp.ones((2, 3))}, np.ones(4), 0.5, times=7)

    (met,) = heard()
    (state, x, scale), times = met.args, met.kwargs["times"]
    assert (state["w"].shape, x.dtype, scale, times) == ((2, 3), jnp.float32, 0.5, 7)
    assert not any(isinstance(leaf, jax.Array | np.ndarray) for leaf in jax.tree.leaves((met.args, met.kwargs)))
    assert met.place.name == "step"
    assert (set(met.case.static), set(met.case.donate)) == ({3, "times"}, {0, "state"})
    assert met.why_not == ""


def test_small_arrays_are_copied_with_their_names_before_they_are_donated(
    heard: Callable[[], list[RecordedFunction]],
) -> None:
    @partial(jax.jit, donate_argnums=0, static_argnames="times")
    def step(state: Any, scale: float, key: Any, *, times: int) -> Any:
        return state["w"] * scale * times + jax.random.normal(key)

    step({"w": jnp.ones(3)}, 1e-3, jax.random.key(0), times=2)

    (met,) = heard()
    w, scale, key = met.inputs
    assert (w.tolist(), scale, key.shape) == ([1, 1, 1], 1e-3, ())
    assert met.input_names == ("state['w']", "scale", "key")


def test_of_large_arrays_integers_are_copied(
    heard: Callable[[], list[RecordedFunction]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchax.auditing.copied_inputs.MOST_COPIED_OF_CALL", 100)

    jax.jit(lambda x, i: x[i])(jnp.ones(200), jnp.arange(5))

    (met,) = heard()
    assert met.inputs[0] is None
    assert met.inputs[1].tolist() == [0, 1, 2, 3, 4]


def test_a_function_that_is_compiled_by_hand_is_kept_with_its_arguments(
    heard: Callable[[], list[RecordedFunction]],
) -> None:
    @partial(jax.jit, static_argnames="times", donate_argnums=0)
    def step(state: Any, x: Any, times: int) -> Any:
        return state + x.sum() * times

    step.lower(jnp.ones(3), jnp.arange(4), times=2).compile()

    (met,) = heard()
    assert (met.place.name, met.kwargs["times"], met.input_names) == ("step", 2, ("state", "x"))
    assert [one.tolist() for one in met.inputs] == [[1, 1, 1], [0, 1, 2, 3]]
    assert met.compile_s > 0
    assert len(met.jaxpr.in_avals) == 2


def test_of_shapes_that_it_is_lowered_for_no_contents_are_known(heard: Callable[[], list[RecordedFunction]]) -> None:
    jax.jit(jnp.cumsum).lower(jax.ShapeDtypeStruct((3,), jnp.float32)).compile()
    jax.jit(lambda x: x * 2).lower(jax.ShapeDtypeStruct((3,), jnp.float32))

    (met,) = heard()
    assert met.inputs == (None,)
    assert met.args[0].shape == (3,)


def test_jax_is_as_before_afterwards() -> None:
    lower, compiles = jax.stages.Traced.lower, jax.stages.Lowered.compile
    functions = FunctionRecorder()
    assert (jax.stages.Traced.lower, jax.stages.Lowered.compile) != (lower, compiles)
    functions.close()

    assert (jax.stages.Traced.lower, jax.stages.Lowered.compile) == (lower, compiles)


def test_those_that_took_longest_to_compile_are_kept(heard: Callable[[], list[RecordedFunction]]) -> None:
    def long(x: Any) -> Any:
        for _ in range(200):
            x = jnp.sin(x) @ jnp.cos(x)
        return x

    for short in (lambda x: x + 1, lambda x: x + 2, lambda x: x + 3):
        jax.jit(short, inline=False)(jnp.ones((4, 4)))
    jax.jit(lambda x: x + 4)(jnp.ones((4, 4)))
    jax.jit(long)(jnp.ones((4, 4)))

    kept = heard()
    assert len(kept) <= MOST_KEPT
    assert kept[0].place.name == "long"
    assert [met.compile_s for met in kept] == sorted((met.compile_s for met in kept), reverse=True)


def test_functions_that_one_line_makes_again_and_again_are_one(heard: Callable[[], list[RecordedFunction]]) -> None:
    for turn in range(MOST_KEPT + 2):
        jax.jit(lambda x, turn=turn: x * turn)(jnp.ones(3))

    assert len(heard()) == 1


def test_operations_and_what_runs_inside_a_function_are_not_kept(heard: Callable[[], list[RecordedFunction]]) -> None:
    inner = jax.jit(lambda x: x * 3)

    @jax.jit
    def outer(x: Any) -> Any:
        return inner(x) + 1

    outer(jnp.arange(5) + 2)

    assert [met.place.name for met in heard()] == ["outer"]


def test_shardings_of_its_own_are_a_reason_not_to_look(heard: Callable[[], list[RecordedFunction]]) -> None:
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    jax.jit(lambda x: x + 4, in_shardings=here)(jnp.ones(3))

    (met,) = heard()
    assert met.why_not == "its jax.jit was given shardings"


def test_after_the_end_nothing_is_kept() -> None:
    functions = FunctionRecorder()
    functions.close()

    jax.jit(lambda x: x - 5)(jnp.ones(3))

    assert functions.close() == []
