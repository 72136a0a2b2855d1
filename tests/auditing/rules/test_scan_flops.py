"""FLOP of loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

ID = "scan-flops"


def test_turns_that_xla_does_not_count_are_told(ask_about: Any) -> None:
    finding = ask_about(ID, lambda a: jax.lax.fori_loop(0, 10, lambda i, b: b @ a, a), "f32[64,64]").one

    assert finding.title == "XLA counts 524 kFLOP where 5.24 MFLOP are done"
    assert "10 iterations" in finding.seen[0]


def test_a_loop_of_unknown_length_is_counted_as_far_as_can_be(ask_about: Any) -> None:
    answered = ask_about(ID, lambda a: jax.lax.while_loop(lambda b: b.sum() < 1e9, lambda b: b @ a, a), "f32[64,64]")

    assert all("at least" in finding.title for finding in answered.findings)


def test_a_program_without_loops_has_nothing_to_leave_out(ask_about: Any) -> None:
    assert ask_about(ID, lambda a: a @ a, "f32[64,64]").outcome == "not applicable"


def test_in_a_program_it_is_told_where_the_file_asks_for_the_count(ask_about: Any, tmp_path: Path) -> None:
    loop = "import jax\ndef f(a):\n    return jax.lax.fori_loop(0, 10, lambda i, b: b @ a, a)\n"
    outcomes = []
    for name, text in (("plain", loop), ("counted", f"{loop}flops = lambda c: c.cost_analysis()['flops']\n")):
        file, made = tmp_path / f"{name}.py", dict[str, Any]()
        file.write_text(text)
        exec(compile(text, str(file), "exec"), made)
        parts = {"why_not_called": "it belongs to a program"}
        outcomes.append(ask_about(ID, made["f"], "f32[64,64]", parts=parts).outcome)

    assert outcomes == ["not applicable", "finding"]
