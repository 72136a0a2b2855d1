"""The project in which the plugin's sessions run. Whoever asks for it starts sessions in processes of their own."""

from __future__ import annotations

import pytest
from pytest_sessions import Project


@pytest.hookimpl(tryfirst=True)  # before `-m` is asked
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "ptjb" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def ptjb(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("COLUMNS", "250")  # so that each row of the table is one line
    pytester.makeini("[pytest]\n")
    return Project(pytester)
