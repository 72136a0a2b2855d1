"""Loops that measure themselves, and what is found from outside: within 5 % of a step; of transfers not all is seen."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from source_tree import PACKAGE

from benchax.hooks.command import run
from benchax.profiling.program_recorder import HOOK
from benchax.profiling.trace import profile_of
from benchax.results.steps import StepSplit

LOOPS = PACKAGE.parent.parent / "benchmarks" / "step_loops.py"
NEAR = 0.05
LESS = {"transfer": 0.2}
"""What a thread of JAX's does before the first copy has no event, so that transfers are told too low: 14 points at most
of all runs so far, and 4 in most."""


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
    truth, found = measure(kind, steps, project)

    part = found.parts[0]
    assert part.kind == kind
    assert truth - LESS.get(kind, NEAR) <= part.share <= truth + NEAR
    assert not line or line in part.lines[0].source
