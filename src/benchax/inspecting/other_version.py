"""The other side of `benchax inspect --diff`: another signature, another function, another commit, another JAX.

Another commit is inspected in a git worktree, another JAX in a separate environment. Both run this same command in a
separate process, and benchax reads its JSON.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from benchax import codec
from benchax.case import Case
from benchax.checkouts.boot import Launch, Selection, run_command_line
from benchax.checkouts.environments import launch_jax
from benchax.checkouts.worktrees import launch_checkout
from benchax.discovery import target_cases
from benchax.errors import BenchaxError, UsageError
from benchax.inspecting.differences import difference
from benchax.inspecting.inspect import inspect_case
from benchax.results.difference import Difference
from benchax.results.inspection import Inspection

PERMITTED = (
    'other inputs such as "f32[2048] axis=0", another function such as module:other, a commit such as ref:main, or '
    "another JAX such as jax:0.9.2"
)
_VERSION = re.compile(r"jax:(\d.*)", re.DOTALL)


def differences(
    cases: Sequence[Case], selection: Selection, other: str, say: Callable[[str], None] = lambda text: None
) -> list[Difference]:
    """Compares each case with its other side. `other` is the second side. For a commit or a JAX it is the first side,
    because it is the older one.

    Args:
        say: receives messages about long steps.

    Raises:
        UsageError: `other` is none of `PERMITTED`, or names something that does not exist.
        BenchaxError: one of the sides cannot be built.
    """
    if other.startswith("ref:"):
        with launch_checkout(other.removeprefix("ref:"), selection.what) as (there, _):
            return _pair(cases, inspect_in(there, selection), there.version.label)
    if version := _VERSION.fullmatch(other):
        return _pair(cases, inspect_in(launch_jax(version[1], say=say), selection), f"jax {version[1]}")
    one = _only(cases, other)
    mine, theirs = inspect_case(one), inspect_case(_other_case(selection, other))
    return [difference(mine, theirs)]


def _only(cases: Sequence[Case], other: str) -> Case:
    if len(cases) != 1:
        raise UsageError(
            f"--diff {other!r} compares one function with another, and there are {len(cases)} cases",
            "a single case",
            "choose one with --filter",
        )
    return cases[0]


def _other_case(selection: Selection, other: str) -> Case:
    """Another function with the same inputs, or the same function with other inputs."""
    words = shlex.split(other) if other.count('"') % 2 == 0 and other.count("'") % 2 == 0 else other.split()
    if not words:
        raise UsageError(f"--diff {other!r} says nothing", PERMITTED)
    if _is_target(words[0]):
        return target_cases(words[0], words[1:] or selection.what[1:])[0]
    if not _is_target(selection.what[0]):
        raise UsageError(f"--diff {other!r} cannot be: benchmarks in files bring their own inputs", PERMITTED)
    return target_cases(selection.what[0], words)[0]


def _is_target(word: str) -> bool:
    return ":" in word and not Path(word).exists()


def inspect_in(launch: Launch, selection: Selection) -> list[Inspection]:
    """Returns the output of `benchax inspect --json` in a process of another version.

    Raises:
        BenchaxError: the process reports an error.
    """
    done = run_command_line(launch, ["inspect", "--json", *selection.words(selection.what)])
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        reason = next((line for line in lines if line.startswith("error: ")), lines[-1])
        raise BenchaxError(f"not inspected with {launch.version.label}: {reason.removeprefix('error: ')}")
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
