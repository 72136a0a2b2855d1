"""A precision that changes nothing here."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

ID = "precision-setting-idle"


def exact(a: Any) -> Any:
    return jnp.matmul(a, a, precision="highest")


def test_a_precision_that_makes_no_other_program_is_told(ask_about: Any) -> None:
    finding = ask_about(ID, exact, "f32[32,32]").one

    assert finding.title == "precision highest changes nothing on cpu"
    assert finding.where == (__file__, exact.__code__.co_firstlineno + 1)
    assert finding.seen[1] == "the compiled program is the same without it"


def test_one_in_a_loop_is_not_checked(ask_about: Any) -> None:
    answered = ask_about(ID, lambda a: jax.lax.fori_loop(0, 3, lambda i, b: exact(b), a), "f32[32,32]")

    assert answered.outcome == "not checked"


def test_a_precision_that_is_not_asked_for_cannot_be_idle(ask_about: Any) -> None:
    assert ask_about(ID, lambda a: a @ a, "f32[32,32]").outcome == "not applicable"
