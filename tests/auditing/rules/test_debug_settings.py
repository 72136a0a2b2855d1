"""Settings for debugging that are left on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import pytest

from benchax.auditing.host_calls import HostCalls

ID = "debug-settings"


@pytest.fixture
def noted(noted: HostCalls) -> Iterator[HostCalls]:
    yield noted
    jax.config.update("jax_debug_nans", False)


def test_a_setting_that_is_left_on_is_found_with_its_line(ask_about_program: Any, noted: HostCalls) -> None:
    jax.config.update("jax_debug_nans", True)

    finding = ask_about_program(ID, host=noted.asdict()).one

    assert finding.title.startswith("jax_debug_nans is on: each call waits")
    assert finding.where[0] == __file__
    assert "JAX_DEBUG_NANS=1" in finding.advice


def test_a_setting_of_the_environment_has_no_line(ask_about_program: Any) -> None:
    finding = ask_about_program(ID, host={"settings": {"jax_disable_jit": ""}}).one

    assert (finding.where, "JAX_DISABLE_JIT" in finding.seen[0]) == (None, True)


def test_what_was_turned_off_again_is_fine(ask_about_program: Any, noted: HostCalls) -> None:
    jax.config.update("jax_debug_nans", True)
    jax.config.update("jax_debug_nans", False)

    assert ask_about_program(ID, host=noted.asdict()).outcome == "fine"


def test_what_was_not_noted_is_not_called_fine(ask_about_program: Any) -> None:
    assert ask_about_program(ID).outcome == "not checked"
