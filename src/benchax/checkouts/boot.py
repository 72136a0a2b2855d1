"""Starts a process of another version: its Python, and its search path for modules.

    sys.path there:  before (a worktree)  →  the packages of its own Python  →  behind (those of this program)

So JAX, NumPy and SciPy come from the other version, and the user's code comes from the worktree. benchax and all its
requirements are the same on both sides.
"""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchax.model import Version

_BOOT = """
import json, os, site, sys
boot = json.loads(sys.argv[1])
if boot["core"] is not None:
    os.sched_setaffinity(0, [boot["core"]])
sys.path[:0] = boot["before"]
for path in boot["behind"]:
    if path in boot["sites"]:
        site.addsitedir(path)
    elif path not in sys.path:
        sys.path.append(path)
argument = boot["argument"]
"""
"""The core first: whatever is imported counts the cores to make its threads. `addsitedir` also finds what is installed
editable."""
COMMAND_LINE = """
sys.argv = ["benchax", *argument]
from benchax.cli.main import main
main()
"""
"""A program for `run_program`: the argument is the words behind `benchax`."""
_SEARCHED_FIRST = ("PYTHONPATH", "PYTHONHOME", "__PYVENV_LAUNCHER__")
"""Variables of this program's environment: they would put its packages before those of the other one."""


@dataclass(frozen=True)
class Selection:
    """Which cases: what, pattern, params and options as for `benchax run`."""

    what: tuple[str, ...] = (".",)
    """Paths, or a function and its inputs."""
    pattern: str = ""
    params: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """By name, in values that JSON knows; what a benchmark sets itself is stronger."""

    def words(self, what: Sequence[str]) -> list[str]:
        """Returns it as words of a command line, with the paths `what`; leaves out the options."""
        params = [word for param in self.params for word in ("-p", param)]
        return [*(["-k", self.pattern] if self.pattern else []), *params, "--", *what]


@dataclass(frozen=True)
class Launch:
    """How processes of one version are started.

    Modules are looked for in `before`, in the environment that `python` belongs to, and then in `behind`.
    """

    version: Version
    python: str = sys.executable
    folder: Path = Path()
    """Where it works: relative paths and pyproject.toml."""
    before: tuple[str, ...] = ()
    behind: tuple[str, ...] = field(default_factory=lambda: tuple(path for path in sys.path if path))

    def command(self, program: str, argument: Any, core: int | None = None) -> list[str]:
        """The command that runs `program` there: Python text, which finds `argument`, a value that JSON knows.

        Args:
            core: it runs on this one alone.
        """
        boot = {
            "core": core,
            "before": self.before,
            "behind": self.behind,
            "sites": [*site.getsitepackages(), site.getusersitepackages()],
            "argument": argument,
        }
        # Without -P the working folder would come first, before the worktree.
        return [self.python, "-P", "-c", _BOOT + program, json.dumps(boot)]


def clean_environ() -> dict[str, str]:
    """The variables of this process, without those that would bring its packages to another Python."""
    return {name: value for name, value in os.environ.items() if name not in _SEARCHED_FIRST}


def run_program(launch: Launch, program: str, argument: Any) -> subprocess.CompletedProcess[str]:
    """Returns the output of a program in a process of that version (`Launch.command`)."""
    return subprocess.run(
        launch.command(program, argument),
        cwd=launch.folder,
        env=clean_environ(),
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        check=False,
    )
