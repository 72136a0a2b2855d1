"""The project in which the plugin's sessions run."""

from __future__ import annotations

import pytest
from pytest_sessions import Project


@pytest.fixture
def ptjb(pytester: pytest.Pytester) -> Project:
    pytester.makeini("[pytest]\n")
    return Project(pytester)
