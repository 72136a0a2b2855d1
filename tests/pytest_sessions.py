"""Real pytest sessions in processes of their own: a folder with test files, under git, and what a session said."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import warm_python

from pytest_jax_bench.csv import files as csv_files

HEAD = """
import jax
import jax.numpy as jnp
import pytest
from pytest_jax_bench import JaxBench

def double(x):
    return jnp.sin(x) * 2

def triple(x):
    return jnp.cos(x) * 3
"""


WITHOUT = [word for plugin in ("hypothesispytest", "syrupy", "jaxtyping") for word in ("-p", f"no:{plugin}")]
"""Plugins that happen to be installed for our own tests: importing them takes a third of a small session."""


@dataclass(frozen=True)
class Project:
    """A folder with tests. `run` is a real session in it."""

    pytester: pytest.Pytester

    @property
    def path(self) -> Path:
        return self.pytester.path

    @property
    def output(self) -> Path:
        return self.path / ".benchmarks"

    def write(self, **files: str) -> None:
        self.pytester.makepyfile(**{name: HEAD + textwrap.dedent(text) for name, text in files.items()})

    def run(self, *arguments: str, code: int = 0) -> Session:
        options = ["-p", "no:cacheprovider", "--basetemp=runpytest-0", *WITHOUT, *arguments]
        command = [sys.executable, "-m", "pytest", *options]
        paths = os.pathsep.join([str(self.path), os.environ.get("PYTHONPATH", "")])
        done = warm_python.run(command, cwd=self.path, env=os.environ | {"PYTHONPATH": paths}, timeout=300)
        text = done.stdout + done.stderr
        assert done.returncode == code, text
        return Session(text, self.output)

    def git(self, *arguments: str) -> str:
        command = ["git", "-c", "user.name=n", "-c", "user.email=e@x", *arguments]
        return subprocess.run(command, cwd=self.path, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, message: str = "x") -> str:
        """Everything that is there; the short hash."""
        self.git("init", "-q")
        (self.path / ".gitignore").write_text("__pycache__\nrunpytest-*\nstdout\nstderr\n")
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")[:7]


@dataclass(frozen=True)
class Session:
    """What a session said and left behind."""

    text: str
    output: Path

    @property
    def table(self) -> list[str]:
        """The lines between the heading of our section and the next heading."""
        _, _, rest = self.text.partition("Pytest Jax Benchmark (PTJB) results")
        lines = rest.splitlines()[1:]
        return lines[: next((i for i, line in enumerate(lines) if line.startswith("==")), len(lines))]

    def line(self, part: str) -> str:
        """The first line of the table with `part` in it."""
        return next(line for line in self.table if part in line)

    def rows(self, part: str = "") -> list[dict[str, Any]]:
        """Of all CSV files with `part` in their path, in order."""
        files = sorted(f for f in self.output.rglob("*.csv") if part in str(f))
        return [row for file in files for row in rows_in(file)]


def rows_in(file: Path) -> list[dict[str, Any]]:
    data = csv_files.read(file)
    return [dict(zip(data.dtype.names or (), row, strict=True)) for row in data.tolist()]
