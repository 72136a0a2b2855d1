"""What an audit finds in each program of benchmarks/planted, and which rules it can't check."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

LIMIT_S = 300
TIMED = ("cache-off", "compile-share", "page-faulting-output")
"""Rules whose answer depends on how long something takes on this machine: their lines can be missing."""


def sections() -> dict[str, Callable[[], str]]:
    from audit_planted import PLANTED, WITHOUT

    planted = {f"{kind}: {p.name}": (p.text, p.devices) for kind, programs in PLANTED.items() for p in programs}
    clean = {f"{kind}: {name}": (text, 1) for kind, texts in WITHOUT.items() for name, text in texts.items()}
    return {title: partial(audit, *program) for title, program in (planted | clean).items()}


def audit(program: str, devices: int) -> str:
    """One line for each finding, and one for each rule that isn't checked."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(program, encoding="utf-8")
        command = [sys.executable, "-m", "benchax", "audit", "--output", "audit.json", "--", sys.executable, "train.py"]
        environment = os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=LIMIT_S, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"exit {done.returncode}: {(done.stderr.strip() or ' ').splitlines()[-1]}")
        return describe(json.loads(Path(folder, "audit.json").read_text(encoding="utf-8")))


def describe(audit: dict) -> str:
    found = sorted(f"{f['severity']} {f['rule']} {_line(f['where'])}" for f in audit["findings"])
    silenced = sorted(f"silenced {s['finding']['rule']}" for s in audit["suppressed"])
    unchecked = [
        f"not checked {c['rule']}: {_plain(c['why'])}" for c in audit["checked"] if c["outcome"] == "not checked"
    ]
    lines = [*found, *silenced, *sorted(unchecked)] or ["nothing"]
    return "\n".join("~ " * any(f" {rule}" in line for rule in TIMED) + line for line in lines)


def _line(where: list | None) -> str:
    if where is None:
        return "no line"
    return f"line {where[1]}" if Path(where[0]).name == "train.py" else f"{Path(where[0]).name}:{where[1]}"


def _plain(why: str) -> str:
    """Without numbers and folders, which differ from run to run."""
    return re.sub(r"\d[\d.,]*", "N", re.sub(r"/\S*/", "", why))
