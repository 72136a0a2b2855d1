"""Names, options, and stored documents are as recorded in tests/goldens; `make goldens-compare` compares the rest."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from goldens import records

SLOW = ("JSON keys", "pytest --")
"""Sections that run commands."""


@pytest.mark.parametrize("part", ["contract", "codec"])
def test_what_programs_of_users_rely_on_is_unchanged(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If you meant the change: make goldens GOLDENS='--only contract,codec'"""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "docs" / "_ext")
    recorded = records.read(part)
    sections = {t: make for t, make in import_module(f"goldens.{part}").sections().items() if not t.startswith(SLOW)}

    now = records.make(sections, 1, lambda title: None)

    different = [title for title in now if recorded.get(title) != now[title]]
    gone = [title for title in recorded if title not in now and not title.startswith((*SLOW, "recorded with"))]
    assert "\n".join(records.difference(t, recorded.get(t, ""), now[t]) for t in different) == ""
    assert gone == []
