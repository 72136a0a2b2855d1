"""The other side of `benchax inspect --diff`: another signature, another function, another commit, another JAX.

Another commit is inspected in a git worktree, another JAX in an environment of its own; both by this very command in a
process of its own, whose JSON is read.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import site
import subprocess
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchax import codec
from benchax.case import Case
from benchax.discovery import target_cases
from benchax.errors import BenchaxError, UsageError
from benchax.inspecting.differences import difference
from benchax.inspecting.inspect import inspect_case
from benchax.model import Version
from benchax.pairing.environments import environment
from benchax.pairing.partners import Launch
from benchax.pairing.worktrees import launched
from benchax.results.difference import Difference
from benchax.results.inspection import Inspection

PERMITTED = (
    'other inputs such as "f32[2048] axis=0", another function such as module:other, a commit such as ref:main, or '
    "another JAX such as jax:0.9.2"
)
_VERSION = re.compile(r"jax:(\d.*)", re.DOTALL)


BOOT = """
import json, site, sys
told = json.loads(sys.argv[1])
sys.path[:0] = told["before"]
for path in told["behind"]:
    if path in told["sites"]:
        site.addsitedir(path)
    elif path not in sys.path:
        sys.path.append(path)
sys.argv = ["benchax", *told["words"]]
from benchax.cli.main import main
main()
"""
"""Packages of the program that asks come last, so that the other environment's own win, as in `pairing/partners.py`."""
_OWN = ("PYTHONPATH", "PYTHONHOME", "__PYVENV_LAUNCHER__")
"""Of this program's environment: they would put its packages before those of the other one."""


class Asked(NamedTuple):
    """What is inspected on this side: as for `benchax run`."""

    what: tuple[str, ...]
    pattern: str = ""
    params: tuple[str, ...] = ()


def differences(
    cases: Sequence[Case], asked: Asked, other: str, say: Callable[[str], None] = lambda text: None
) -> list[Difference]:
    """Each case beside its other side: `other` is the second, of a commit or a JAX the first, as it is the older one.

    Args:
        say: told what takes long.

    Raises:
        UsageError: `other` is none of `PERMITTED`, or names something that does not exist.
        BenchaxError: one of the sides cannot be built.
    """
    if other.startswith("ref:"):
        with _of_commit(other.removeprefix("ref:"), asked) as (label, found):
            return _pair(cases, found, label)
    if version := _VERSION.fullmatch(other):
        return _pair(cases, _of_version(version[1], asked, say), f"jax {version[1]}")
    one = _only(cases, other)
    mine, theirs = inspect_case(one), inspect_case(_other_case(asked, other))
    return [difference(mine, theirs)]


def _only(cases: Sequence[Case], other: str) -> Case:
    if len(cases) != 1:
        raise UsageError(
            f"--diff {other!r} compares one function with another, and there are {len(cases)} cases",
            "a single case",
            "choose one with --filter",
        )
    return cases[0]


def _other_case(asked: Asked, other: str) -> Case:
    """Another function with the same inputs, or the same function with other inputs."""
    words = shlex.split(other) if other.count('"') % 2 == 0 and other.count("'") % 2 == 0 else other.split()
    if not words:
        raise UsageError(f"--diff {other!r} says nothing", PERMITTED)
    if _is_target(words[0]):
        return target_cases(words[0], words[1:] or asked.what[1:])[0]
    if not _is_target(asked.what[0]):
        raise UsageError(f"--diff {other!r} cannot be: benchmarks in files bring their own inputs", PERMITTED)
    return target_cases(asked.what[0], words)[0]


def _is_target(word: str) -> bool:
    return ":" in word and not Path(word).exists()


@contextmanager
def _of_commit(ref: str, asked: Asked) -> Generator[tuple[str, list[Inspection]], None, None]:
    with launched(ref, asked.what) as (there, _):
        yield there.version.label, inspected_by(there, asked)


def _of_version(version: str, asked: Asked, say: Callable[[str], None]) -> list[Inspection]:
    python = environment(version, say)
    return inspected_by(Launch(Version(f"jax {version}", jax=version), str(python), Path.cwd()), asked)


def inspected_by(launch: Launch, asked: Asked) -> list[Inspection]:
    """What `benchax inspect --json` says in a process of another version.

    Raises:
        BenchaxError: it says an error.
    """
    options = [*(["-k", asked.pattern] if asked.pattern else []), *(w for p in asked.params for w in ("-p", p))]
    words = ["inspect", *options, "--json", "--", *asked.what]
    told = {
        "before": launch.before,
        "behind": launch.behind,
        "sites": [*site.getsitepackages(), site.getusersitepackages()],
        "words": words,
    }
    done = subprocess.run(
        [launch.python, "-P", "-c", BOOT, json.dumps(told)],
        cwd=launch.folder,
        env={name: value for name, value in os.environ.items() if name not in _OWN},
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        told_why = next((line for line in said if line.startswith("error: ")), said[-1])
        raise BenchaxError(f"not inspected with {launch.version.label}: {told_why.removeprefix('error: ')}")
    return [codec.decode_inspection(line) for line in done.stdout.splitlines()]


def _pair(cases: Sequence[Case], found: Sequence[Inspection], label: str) -> list[Difference]:
    """The other side first, by name."""
    theirs = {each.name: each for each in found}
    pairs = [(case, theirs[case.id.label]) for case in cases if case.id.label in theirs]
    if not pairs:
        names = ", ".join(repr(case.id.label) for case in cases)
        raise UsageError(f"{label} has none of the cases {names}", "a case of one name on both sides")
    found_here = [(other, inspect_case(case)) for case, other in pairs]
    return [
        difference(other, mine, (_call_label(label, other), _call_label("now", mine))) for other, mine in found_here
    ]


def _call_label(label: str, found: Inspection) -> str:
    return f"{label}: {found.name}({found.signature})"
