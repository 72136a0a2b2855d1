"""The keys under which a session keeps what its hooks and its benchmarks share.

Apart from the hooks, which import what reads these: so nothing imports the module of the hooks.
"""

from __future__ import annotations

from typing import Any

import pytest

from pytest_jax_bench.options import PluginSettings

SETTINGS = pytest.StashKey[PluginSettings]()
SESSION = pytest.StashKey[str]()
PROCESS = pytest.StashKey[int]()
"""The process that collected the tests: a test that runs in another one is in a fork."""
STARTED = pytest.StashKey[bool]()
"""Had JAX started when the current test began, in the process that collected it?"""
MEASURED = pytest.StashKey[list[dict[str, Any]]]()
"""The records of an item, until they are put on a report."""
MARKED = pytest.StashKey[dict[str, dict[str, Any]]]()
"""Marker keywords by nodeid, where this process has collected the tests."""
FIXTURE = pytest.StashKey[Any]()
"""The object behind the fixture `benchmark` of an item."""
HELD = pytest.StashKey[set[str]]()
"""The stores that are held open until the session ends."""
