"""Measured time over true time, rounded to 0.1, for functions of known duration. See benchmarks/accuracy.py."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable


def sections() -> dict[str, Callable[[], str]]:
    return {"ratio to the truth": ratios}


def ratios() -> str:
    """Lines "tool: 1.1 1.0 1.0 1.0", for 1, 10, 100 and 1000 µs."""
    import accuracy

    done = subprocess.run([sys.executable, accuracy.__file__, "--quick"], stdout=subprocess.PIPE, text=True, check=True)
    table = done.stdout.partition("ratio to the truth\n")[2].partition("\n\n")[0].splitlines()[1:]
    lines = []
    for line in table:
        name, *cells = re.split(r"  +", re.sub(r" \[[^]]*\]", "", line))
        lines.append(f"{name}: " + " ".join(_round(cell) for cell in cells))
    return "\n".join(lines)


def _round(cell: str) -> str:
    return f"{float(cell):.1f}" if cell.replace(".", "").isdigit() else cell
