from __future__ import annotations

from typing import Any

import audits_by_hand as made

from benchax.reporting import display  # noqa: F401  # what print needs
from benchax.results.audit import Checklist, Tick

TICKS = (
    Tick("memory", "Donate buffers", "yes", "nothing found by donation-possible"),
    Tick("memory", "Profile memory", "not checked", "it does not trace"),
    Tick("precision", "Compute in bf16", "no", "tried: it saves 3 ms"),
    Tick("devices", "Shard", "not applicable", "there is one device"),
)


def test_each_line_has_its_mark_and_why_below_a_heading_that_counts(snapshot: Any) -> None:
    assert str(Checklist("step", "f32[8]", TICKS, 41.0)) == snapshot


def test_any_text_survives() -> None:
    hostile = Checklist(made.HOSTILE, made.HOSTILE, (Tick(made.HOSTILE, made.HOSTILE, "no", made.HOSTILE),))

    assert "a[red]b" in str(hostile)
    assert "<script>" not in (hostile._repr_html_() or "")
