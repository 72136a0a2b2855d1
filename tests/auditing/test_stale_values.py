"""Values that a compiled function goes on with after they have changed: what is noted, and what is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.auditing.call_counter import CallCounter
from benchax.auditing.recorded_functions import FunctionRecorder

X = jnp.ones(3)
RATE = 1.0


def scaled(x: Any) -> Any:
    return x * RATE


def host(x: Any) -> Any:
    return np.asarray(x) * RATE


class Annealer:
    steps = 0

    def __init__(self) -> None:
        self.temperature, self.weights, self.unread = 2.0, jnp.ones(3), 0
        self.update = jax.jit(self._update)

    def _loss(self, x: Any) -> Any:
        return (x * self.weights / self.temperature).sum()

    def _update(self, x: Any) -> Any:
        return jax.grad(self._loss)(x)


@pytest.fixture
def noted() -> Iterator[Callable[[], dict[str, str]]]:
    """How what was noted so far has changed, by name."""
    counter = CallCounter(60.0)
    functions = FunctionRecorder(counter.note_compile)
    yield lambda: {one["name"]: one["change"] for one in counter.stale.asdict()}
    functions.close()
    counter.close()


def test_a_number_of_the_object_in_a_helper_that_changes_is_noted_with_its_line(noted: Any) -> None:
    annealer = Annealer()
    for _ in range(3):
        annealer.update(X)
        annealer.temperature *= 0.5

    assert noted() == {"self.temperature": "from 2.0 to 1.0"}


def test_an_array_of_the_object_that_is_replaced_is_noted(noted: Any) -> None:
    annealer = Annealer()
    annealer.update(X)
    annealer.weights = annealer.weights * 2
    annealer.update(X)

    assert noted() == {"self.weights": "to another array"}


def test_a_global_and_a_variable_of_the_function_around_are_noted(noted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    step = 0

    def apply(x: Any) -> Any:
        return scaled(x) + step

    apply = jax.jit(apply)
    apply(X)
    monkeypatch.setattr(f"{__name__}.RATE", 3.0)
    step = 1
    apply(X)

    assert noted() == {"step": "from 0 to 1", "RATE": "from 1.0 to 3.0"}


def test_what_changes_is_noted_of_a_static_argument(noted: Any) -> None:
    f = jax.jit(Annealer._loss, static_argnums=0)
    annealer = Annealer()
    f(annealer, X)
    annealer.temperature = 5
    f(annealer, X)

    assert noted() == {"self.temperature": "from 2.0 to 5"}


def test_what_is_not_read_or_compiled_anew_or_read_by_a_callback_is_fine(
    noted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    annealer = Annealer()
    called = jax.jit(lambda x: jax.pure_callback(host, jax.ShapeDtypeStruct((3,), jnp.float32), x))
    for step in range(4):
        annealer.unread = annealer.steps = step
        annealer.update(X)
        monkeypatch.setattr(f"{__name__}.RATE", float(step))
        called(X)
        jax.jit(lambda x: scaled(x))(X)

    assert noted() == {}


def test_names_that_are_made_inside_are_no_outer_ones(noted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @jax.jit
    def f(x: Any) -> Any:
        RATE = 2.0
        return sum(x * RATE for RATE in (RATE, 3.0))

    f(X)
    monkeypatch.setattr(f"{__name__}.RATE", 7.0)
    f(X)

    assert noted() == {}
