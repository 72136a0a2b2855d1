"""Registers the plugin, once. Pytest loads this in each session, under the name `ptjb`.

pytest-jax-bench names the same module as its plugin, `pytest_jax_bench`. Under that name it's registered here as well,
so pytest passes over the second one. Where pytest-jax-bench was installed later, files of ours are gone, and one line
says so.
"""

from __future__ import annotations

import pytest

import pytest_jax_bench

if not hasattr(pytest_jax_bench, "load"):
    raise pytest.UsageError(
        "pytest-jax-bench has replaced files of benchax: pip uninstall pytest-jax-bench, then "
        "pip install --force-reinstall --no-deps benchax"
    )

from pytest_jax_bench import plugin


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    if not pluginmanager.is_registered(plugin):
        pluginmanager.register(plugin, "pytest_jax_bench")
