"""What an import costs: who only reads rows, or asks for help, does not wait for JAX. Each in a fresh interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from measurement_strategies import measured
from source_tree import modules

from benchax.model import Samples
from benchax.store.database import open_store

HEAVY = {"jax", "jaxlib", "numpy", "pandas"}

# Registered first, so it speaks last: what help texts and exit handlers load late is seen too.
REPORT_AT_EXIT = """
import atexit, json, sys
atexit.register(lambda: print("\\n" + json.dumps(sorted({m.partition(".")[0] for m in sys.modules}))))
"""


def loaded_by(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded when `code` has ended."""
    done = subprocess.run([sys.executable, "-c", REPORT_AT_EXIT + code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def first_loaders(names: Iterable[str], what: str) -> list[str]:
    """Which of the modules `names`, imported one after the other in one fresh interpreter, brought `what`."""
    code = f"""
import importlib, json, sys
for name in {sorted(names)!r}:
    importlib.import_module(name)
    if {what!r} in sys.modules:
        print(json.dumps([name]))
        break
else:
    print("[]")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def package(name: str) -> list[str]:
    return [m for m in modules() if m == name or m.startswith(name + ".")]


@pytest.mark.parametrize("words", ["list", "runs", "show", "show last~1"])
def test_looking_at_rows_loads_nothing_heavy(words: str, project: Path) -> None:
    store = open_store(project / ".benchmarks")
    several = replace(measured(), samples=tuple(Samples("wall", 1, (1.0, 2.0, 3.0), process=i) for i in range(5)))
    for m in (several, several):
        store.append(m)
    code = f"sys.argv = ['benchax', *{words.split()!r}]\nfrom benchax.cli.main import main\nmain()"

    assert loaded_by(code) & (HEAVY | {"scipy", "psycopg"}) == set()


def test_importing_benchax_loads_nothing_heavy() -> None:
    assert loaded_by("import benchax") & HEAVY == set()


@pytest.mark.parametrize("words", ["--help", "run --help", "show --help"])
def test_help_loads_nothing_heavy(words: str) -> None:
    code = f"sys.argv = ['benchax', *{words.split()!r}]\nfrom benchax.cli.main import main\nmain()"

    assert loaded_by(code) & HEAVY == set()


@pytest.mark.parametrize("half", ["benchax.store", "benchax.comparing", "benchax.reporting"])
def test_the_reading_half_never_loads_jax(half: str) -> None:
    assert first_loaders(package(half), "jax") == []


def test_the_engine_does_load_jax() -> None:
    """Else the tests above would pass for want of looking."""
    assert "jax" in loaded_by("import benchax.measuring.engine")
    assert first_loaders(["benchax.errors", "benchax.measuring.engine"], "jax") == ["benchax.measuring.engine"]
