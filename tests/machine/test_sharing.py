"""Processes that share an accelerator take its memory as they need it, unless the user has decided otherwise."""

from __future__ import annotations

import pytest

from benchax import environment
from benchax.environment import flags, memory_on_demand
from benchax.workers.pool import Pool


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "has_jax_plugins", lambda: True)


def test_where_there_may_be_an_accelerator_nothing_is_taken_beforehand(plugins: None) -> None:
    assert memory_on_demand({}) == {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


@pytest.mark.parametrize(
    "chosen", ["XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_ALLOCATOR"]
)
def test_what_the_user_has_chosen_stays(plugins: None, chosen: str) -> None:
    assert memory_on_demand({chosen: "any"}) == {}


def test_without_a_backend_for_accelerators_there_is_nothing_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "has_jax_plugins", lambda: False)

    assert memory_on_demand({}) == {}


def test_workers_have_it_unless_their_pool_says_otherwise(plugins: None) -> None:
    name = "XLA_PYTHON_CLIENT_PREALLOCATE"

    assert Pool().environ == {name: "false"}
    assert Pool(environ={name: "true"}).environ == {name: "true"}


def test_rows_with_and_without_it_may_be_put_side_by_side() -> None:
    assert flags({"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}) == {}
