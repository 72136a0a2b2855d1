"""Loops that measure themselves, and what is found from outside: within 5 % of a step."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median

import pytest
from source_tree import PACKAGE

from benchax.hooks.command import run
from benchax.profiling.program_recorder import HOOK
from benchax.profiling.trace import profile_of
from benchax.results.steps import StepSplit

LOOPS = PACKAGE.parent.parent / "benchmarks" / "step_loops.py"
NEAR = 0.05
RUNS = 3
"""The middle one of so many is held against the truth: a neighbour on the machine spoils one of them, rarely two."""


def measure(kind: str, steps: int, folder: Path) -> tuple[float, StepSplit]:
    """(the share that the loop measured itself, what was found)"""
    settings = {"folder": str(folder / "profile"), "samples_stack": True, "least_steps": 10}

    ended = run([sys.executable, str(LOOPS), kind, str(steps), str(folder / "truth.json")], HOOK, settings, limit_s=300)

    assert ended.exit_code == 0
    (report,) = ended.reports
    found = profile_of(Path(report.result["xplane"]).read_bytes()).split
    assert found is not None
    truth = json.loads((folder / "truth.json").read_text())
    return truth["planted_s"] / truth["whole_s"], found


def fresh_folder(project: Path, run: int) -> Path:
    folder = project / str(run)
    folder.mkdir()
    return folder


@pytest.mark.slow
@pytest.mark.serial  # what a neighbour takes from the loop is in its own measurement, but not evenly
@pytest.mark.parametrize(
    ("kind", "steps", "line"),
    [
        ("input", 60, "step_loops.py:34"),
        ("python", 60, "step_loops.py:41"),
        ("device", 30, ""),
        ("transfer", 40, "step_loops.py"),
        ("compile", 20, "step_loops.py"),
    ],
)
def test_the_planted_part_of_a_step_is_found_with_its_line(kind: str, steps: int, line: str, project: Path) -> None:
    measured = [measure(kind, steps, fresh_folder(project, run)) for run in range(RUNS)]

    parts = [found.parts[0] for _, found in measured]
    assert {part.kind for part in parts} == {kind}
    assert abs(median(part.share - truth for part, (truth, _) in zip(parts, measured, strict=True))) <= NEAR
    assert not line or sum(line in part.lines[0].source for part in parts) > RUNS / 2
