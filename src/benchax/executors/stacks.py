"""Where a process was when it crashed or was stopped, out of what Python's fault handler wrote about it."""

from __future__ import annotations

import re
from pathlib import Path

from benchax.measuring.diagnosis import is_library

# Of frames, but for "  Garbage-collecting", which may stand before the first, and "  ..." behind the last.
_BLOCK = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*\n((?:  \S.*\n?)*)", re.MULTILINE)
_FRAME = re.compile(r'File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')
_OURS = str(Path(__file__).parent)
_MOST_FRAMES = 40


def frames(text: str) -> list[str]:
    """The stack of the thread that ran the job, innermost first, without what lies below the job; empty if there is
    none."""
    blocks = [block.group(1).splitlines() for block in _BLOCK.finditer(text)]
    for block in blocks:
        own = next((i for i, line in enumerate(block) if _OURS in line), None)
        if own is not None:
            return [line.strip() for line in block[:own]][:_MOST_FRAMES]
    return []


def user_line(stack: list[str]) -> str:
    """file:line of the innermost frame of the user's own code; empty if there is none."""
    found = [match for line in stack if (match := _FRAME.match(line))]
    own = next((match for match in found if not is_library(match["file"])), None)
    return f"{own['file']}:{own['line']}" if own else ""
