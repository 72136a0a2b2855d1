"""Runs other tools as their users do: a real pytest session in a process of its own, whose results are read afterwards.

The interpreter may be another one than ours (`--python`), so that the peers' plugins need not live beside benchax. What
is not installed there is `None` in `versions`, and its rows are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PACKAGES = ("pytest-benchmark", "pytest-jax-bench")
HERE = Path(__file__).parent

_ASK = """
import importlib.metadata as m, json, sys
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""


def versions(python: str) -> dict[str, str | None]:
    """The versions of the peers, and of the jax that they will use, in that interpreter; None: not installed."""
    answer = subprocess.run(
        [python, "-c", _ASK, "jax", *PACKAGES], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    return json.loads(answer.stdout)


def add_option(parser: argparse.ArgumentParser) -> None:
    """`--python`, the same in every script."""
    help = "interpreter that has the peers (default: this one)"
    # Absolute, since peers run in folders of their own; not resolved: only the link leads to its environment.
    parser.add_argument("--python", default=sys.executable, type=os.path.abspath, help=help)


def described(found: Mapping[str, str | None]) -> str:
    return "peers: " + "   ".join(f"{name} {version or 'not installed'}" for name, version in found.items())


def session(python: str, test: str, folder: Path, options: Sequence[str] = ()) -> None:
    """Runs the test file with this text in `folder`, with benchmarks/ and benchax on the path.

    Raises:
        RuntimeError: pytest did not end well; with the end of what it said.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "test_peer.py"
    file.write_text(test, encoding="utf-8")
    # Not all of src/: our own pytest_jax_bench is there, which would take the place of the peer.
    path = folder / "path"
    path.mkdir(exist_ok=True)
    if not (path / "benchax").exists():
        (path / "benchax").symlink_to(HERE.parent / "src" / "benchax")
    # --rootdir: no configuration that happens to lie around the temporary folder.
    command = [python, "-m", "pytest", "-q", "--rootdir", str(folder), str(file), *options]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (HERE, path)))},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"pytest of {python} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
