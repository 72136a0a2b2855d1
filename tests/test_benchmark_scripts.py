"""The scripts in benchmarks/ run by hand only. Their names of benchax's insides must still exist."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_benchmark_script_imports_only_what_exists(script: Path) -> None:
    imports = [node for node in ast.walk(ast.parse(script.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
    missing = [
        f"{node.module}.{alias.name}"
        for node in imports
        if node.module and node.module.split(".")[0] in ("benchax", "pytest_jax_bench")
        for alias in node.names
        if not _exists(node.module, alias.name)
    ]
    assert missing == []


def _exists(module: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(module), name) or bool(importlib.import_module(f"{module}.{name}"))
    except ImportError:
        return False


def test_each_step_that_own_cost_times_is_a_function_of_benchax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS[0].parent))
    steps = importlib.import_module("own_cost").STEPS
    assert [(part, name) for _, part, where, name in steps if not callable(getattr(where, name, None))] == []
