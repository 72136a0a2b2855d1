"""The source of instructions: the user's lines, from the text of an optimised program.

JAX 0.6 writes `source_file="…" source_line=7` into an instruction's metadata. Later versions write `stack_frame_id=3`
and four tables before the first computation. One of the tables shows which frame called which.
"""

from __future__ import annotations

import re

from benchax.program import hlo_module
from benchax.program.hlo import Instruction
from benchax.source_files import is_library, is_runner

_FILE = re.compile(r'source_file="((?:[^"\\]|\\.)*)"')
_LINE = re.compile(r"source_line=(\d+)")
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_NAMED = re.compile(r'^(\d+) "((?:[^"\\]|\\.)*)"$')
_NUMBERED = re.compile(r"^(\d+) \{(.*)\}$")


class SourceTables:
    """Knows the tables of one module."""

    def __init__(self, hlo_text: str) -> None:
        tables = _tables(hlo_text)
        self.files = {m[1]: hlo_module.unescape(m[2]) for line in tables["FileNames"] if (m := _NAMED.match(line))}
        self.locations = _number_tables(tables["FileLocations"])
        self.frames = _number_tables(tables["StackFrames"])

    def line(self, instruction: Instruction) -> str:
        """file:line of the innermost frame."""
        metadata = hlo_module.attributes(instruction).get("metadata", "")
        if (file := _FILE.search(metadata)) and (line := _LINE.search(metadata)):
            return f"{hlo_module.unescape(file[1])}:{line[1]}"
        frame = _FRAME.search(metadata)
        return self._line_of(frame[1]) if frame else ""

    def user_line(self, instruction: Instruction) -> str:
        """Returns file:line of the innermost frame of the user's own files, otherwise of the innermost one of all. It
        is empty if that frame belongs to the code that called a library's function for the user."""
        frame = _FRAME.search(hlo_module.attributes(instruction).get("metadata", ""))
        number = int(frame[1]) if frame else 0
        for _ in range(len(self.frames)):
            line = self._line_of(str(number))
            if not line or not is_library(line.rpartition(":")[0]):
                break
            # Counted from 1 above the numbers of the table, so that 1 is none.
            number = int(self.frames.get(str(number), {}).get("parent_frame_id", "1")) - 1
        else:
            line = ""
        line = line or self.line(instruction)
        return "" if is_runner(line.rpartition(":")[0]) else line

    def _line_of(self, frame: str) -> str:
        location = self.locations.get(self.frames.get(frame, {}).get("file_location_id", ""))
        name = self.files.get(location.get("file_name_id", "")) if location else None
        return f"{name}:{location['line']}" if name and location and "line" in location else ""


def _tables(hlo_text: str) -> dict[str, list[str]]:
    """Returns the lines of each table, by its heading. The tables come before the first computation."""
    found: dict[str, list[str]] = {"FileNames": [], "FileLocations": [], "StackFrames": []}
    lines: list[str] = []
    for line in hlo_text.split("\n"):
        if line.endswith("{") and not line.startswith("HloModule"):
            break
        if not line[:1].isdigit():
            lines = found.get(line.strip(), [])
        else:
            lines.append(line)
    return found


def _number_tables(lines: list[str]) -> dict[str, dict[str, str]]:
    return {m[1]: dict(re.findall(r"(\w+)=(\d+)", m[2])) for line in lines if (m := _NUMBERED.match(line))}
