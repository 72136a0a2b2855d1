"""Asks xprof, if it is installed, about a trace: its tools know more about accelerators than our table does.

xprof is never required. It runs in a separate process, on copies of the files. It logs a hundred lines and writes its
own files next to its input, and an error inside it must not affect benchax. Tried with xprof 2.24.2. On traces of a CPU
most of its tables are empty, which `rows` shows.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchax.errors import MissingPackage, NotAvailable, UsageError, one_of

TOOLS = (
    "trace_viewer", "overview_page", "input_pipeline_analyzer", "framework_op_stats", "kernel_stats", "memory_profile",
    "op_profile", "hlo_stats", "roofline_model",
)  # fmt: skip
"""Those that give JSON and need nothing but the trace."""

_LIMIT_S = 300.0
_PROGRAM = """
import sys
from xprof.convert import raw_to_tool_data
tool, out, *files = sys.argv[1:]
data, _ = raw_to_tool_data.xspace_to_tool_data(files, tool, {})
with open(out, "wb") as file:
    file.write(data.encode() if isinstance(data, str) else data or b"")
"""


def ask(tool: str, files: Sequence[Path], python: str = sys.executable) -> Any:
    """Returns the output of `tool` for the `.xplane.pb` files of one run, as parsed JSON.

    Raises:
        UsageError: there is no such tool.
        MissingPackage: xprof is not installed.
        NotAvailable: xprof failed; its last words are quoted.
    """
    if tool not in TOOLS:
        raise UsageError(f"xprof has no tool {tool!r} that we know of", one_of(TOOLS, tool))
    if python == sys.executable and importlib.util.find_spec("xprof") is None:
        raise MissingPackage(
            f"the tool {tool!r} needs the package 'xprof', which is not installed", hint="pip install xprof"
        )
    with tempfile.TemporaryDirectory(prefix="benchax-xprof-") as folder:
        copies = [shutil.copy(file, folder) for file in files]
        out = Path(folder) / "answer.json"
        _run([python, "-c", _PROGRAM, tool, str(out), *copies], tool)
        text = out.read_text(encoding="utf-8") if out.exists() else ""
    if not text:
        raise NotAvailable(f"xprof gave no answer for {tool!r}")
    return json.loads(text)


def _run(command: list[str], tool: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"xprof took more than {_LIMIT_S:.0f} s for {tool!r}") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise NotAvailable(f"xprof failed on {tool!r} with exit code {done.returncode}, and said: {last}")


def rows(answer: Any) -> int | None:
    """How many rows the tables of an answer have together; None: it is not made of tables."""
    counts = [len(table["rows"]) for table in _tables(answer)]
    return sum(counts) if counts else None


def _tables(answer: Any) -> Iterator[dict[str, Any]]:
    """Google's chart format: {"cols": [...], "rows": [...]}, one or a list of them."""
    for table in answer if isinstance(answer, list) else [answer]:
        if isinstance(table, dict) and isinstance(table.get("rows"), list) and "cols" in table:
            yield table
