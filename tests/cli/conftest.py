"""The command line, for all tests of it."""

from __future__ import annotations

import pytest
from command_line import Benchax, runner


@pytest.fixture
def benchax(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Benchax:
    return runner(monkeypatch, capsys)
