"""What is said of the memory at its peak: by a real program, and where nothing is known."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import benchax
from benchax.reporting import inspection
from benchax.reporting.terminal import to_text
from benchax.results.inspection import Inspection, Place


def scan_step(ws: Any, x: Any) -> Any:
    def loss(ws: Any) -> Any:
        return (jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0] ** 2).sum()

    return ws - jax.grad(loss)(ws)


def text_of(found: Inspection, part: str, *, full: bool = False) -> str:
    return to_text(inspection.document(found, (part,), full=full), width=200)


def test_the_values_at_the_peak_have_roles_and_lines_and_what_would_free_them() -> None:
    found = benchax.inspect(scan_step, "f32[8,64,64]", "f32[256,64]")

    shown = text_of(found, "memory")

    assert found.peak is not None
    assert "temporaries at their peak: " in shown
    assert f"instruction {found.peak.position + 1} of {found.peak.instructions}, " in shown
    assert "█" in shown
    assert "f32[8,256,64]" in shown
    assert "residual" in shown
    assert "test_peak_memory.py:" in shown
    assert "are residuals, kept on the way forward for the way back: jax.checkpoint would compute them again" in shown
    assert "outputs could have the memory of 128 KiB of arguments, if those were donated" in shown


def test_the_table_by_line_says_what_each_line_keeps_at_the_peak() -> None:
    found = benchax.inspect(scan_step, "f32[8,64,64]", "f32[256,64]")

    head, *lines = text_of(found, "cost").partition("by line\n")[2].splitlines()

    assert head.split("  ")[-1].strip() == "at the peak"
    assert any("test_peak_memory.py" in line and line.rstrip().endswith("KiB") for line in lines)


def test_without_a_peak_the_reason_is_told_and_the_table_by_line_has_no_column_for_it() -> None:
    found = benchax.inspect(lambda x: x + 1, "f32[8]")

    assert "not known, because the program has no temporaries" in text_of(found, "memory")
    assert "at the peak" not in text_of(found, "cost")
    assert "not known, because nobody tells" in text_of(Inspection("f", "", Place()), "memory")
