"""What does not trace, for a reason that is no branch on a value, is a finding of the rule not-traceable."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

ID = "not-traceable"


def mismatched(a: Any, b: Any) -> Any:
    return a @ b


def branching(x: Any) -> Any:
    return x if x > 0 else -x


def test_the_message_and_the_line_are_told(ask_about: Any) -> None:
    finding = ask_about(ID, jax.jit(mismatched), "f32[2,3]", "f32[2,3]").one

    assert (finding.title, finding.severity) == ("it does not trace", "error")
    assert finding.seen[0].endswith(": return a @ b")
    assert "dot_general" in finding.seen[1]
    assert finding.where is not None
    assert finding.where[0] == __file__


def test_advice_is_told_where_the_error_is_known(ask_about: Any) -> None:
    def scaled(x: Any, kind: Any) -> Any:
        return x * len(kind)

    finding = ask_about(ID, jax.jit(scaled), "f32[3]", object()).one

    assert "declare it static" in finding.advice


def test_a_plain_function_may_still_run_eagerly(ask_about: Any) -> None:
    assert ask_about(ID, mismatched, "f32[2,3]", "f32[2,3]").one.severity == "warning"


def test_what_another_rule_explains_is_left_to_it(ask_about: Any) -> None:
    answered = ask_about(ID, jax.jit(branching), "f32[]")

    assert (answered.outcome, answered.why) == ("not applicable", "branch-on-value explains why it does not")


def test_what_compiles_is_fine(ask_about: Any) -> None:
    assert ask_about(ID, jnp.sin, "f32[3]").outcome == "fine"
