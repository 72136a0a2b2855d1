"""The advice of a document, in the words of the library: functions have options instead of the command line's flags.

Reasons and remarks are stored once and read in two places. On the command line they name flags; in Python they name the
arguments of a call.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from benchax.model import Remark
from benchax.reporting.document import Document, Paragraph, Table, TextRow, rewrite

_WORDS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(flag), python)
    for flag, python in (
        # Where both are said, one is enough.
        (r"--no-jit \(jit=False\)|jit=False, --no-jit|--no-jit", "jit=False"),
        (r"--timeout, timeout_s=", "timeout_s="),
        (r"--store or store=", "store="),
        (r"--timer ([\w,]+)", r'timer="\1"'),
        (r"--processes (\d+)", r"processes=\1"),
        (r"--resolution ([\d.]+%)", r'resolution="\1"'),
        (r"--cold-process", "cold_process=True"),
        (r"--max-time", "max_time_s="),
        (r"--timeout", "timeout_s="),
        (r"--memory-limit", "memory_limit_bytes="),
        # What has no option there is a command in Python, too.
        (r"--time runs it", "benchax.bench times it"),
        (r"(?<!inspect )--time\b", "benchax inspect --time"),
        (r"--json", "asdict()"),
        (r"\(-v lists them\)", "(.checked lists them)"),
        (r"\(-v says why\)", "(.not_measured says why)"),
    )
)


def in_python(document: Document) -> Document:
    """The document with each flag in a remark, a reason or a note as the option that it is in Python."""
    return rewrite(document, _translate_part)


def translate(text: str) -> str:
    for flag, python in _WORDS:
        text = flag.sub(python, text)
    return text


def _translate_part(part: Any) -> Any:
    match part:
        case Remark():
            return replace(part, message=translate(part.message))
        case TextRow():
            return replace(part, value=translate(part.value), detail=translate(part.detail))
        case Paragraph():
            return replace(part, text=translate(part.text))
        case Table():
            return replace(part, note=translate(part.note))
        case _:
            return None
