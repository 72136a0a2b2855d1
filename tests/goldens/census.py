"""One word for each function and timer: does the timer agree with a chain of calls? See benchmarks/census.py."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

LIMIT = 24


def sections() -> dict[str, Callable[[], str]]:
    return {"words by function and timer": words}


def words() -> str:
    import census

    file = Path("census.jsonl")
    command = [sys.executable, census.__file__, "--limit", str(LIMIT), "--json", str(file)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)  # 1: it found silent disagreements
    rows = census.read_rows(file)
    return "\n".join(
        sorted(f"{row['name']} {timer}: {census.judge(row, timer)}" for row in rows for timer in census.TIMERS)
    )
