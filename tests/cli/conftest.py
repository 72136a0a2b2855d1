"""The command line, for all tests of it."""

from __future__ import annotations

import pytest
from command_line import Benchax, runner


@pytest.fixture
def benchax(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Benchax:
    return runner(monkeypatch, capsys)


@pytest.fixture(autouse=True)
def one_process_unless_asked(monkeypatch: pytest.MonkeyPatch, plain_environment: None) -> None:
    """Else `benchax run` takes readings of several processes: four seconds in each of a hundred tests."""
    monkeypatch.setenv("BENCHAX_PROCESSES", "1")
