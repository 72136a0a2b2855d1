"""`benchax profile --nsys`: Nsight Systems around a function or a program, or the command line where there is none."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from benchax.cli.console import line, note
from benchax.profiling import nsys

if TYPE_CHECKING:
    from benchax.profiling.nsys import NsysPlan

INSIDE = "--in-nsys"
"""Tells the command that nsys runs to mark its region; hidden."""


def this_command() -> list[str]:
    """The one that is running, as nsys is to run it."""
    given = [word for word in sys.argv[1:] if word != "--nsys"]
    return [sys.executable, "-m", "benchax.cli.main", *given, INSIDE]


def with_nsys(plan: NsysPlan) -> int:
    """Runs it; or prints it, says that nothing was profiled, and returns 2."""
    if not nsys.is_installed():
        line(str(plan))
        where = "The command above is for a machine that has it: https://developer.nvidia.com/nsight-systems"
        note(f"error: there is no nsys on the PATH, so nothing was profiled. {where}")
        return 2
    note(f"running {plan}")
    code = nsys.run(plan)
    if plan.report.exists():
        note(f"Nsight Systems wrote {plan.report}; open it with: nsys-ui {plan.report}")
        return code
    note(f"error: nsys ended with exit code {code} and wrote no {plan.report}")
    return code or 2
