"""The advice of a document, in the words of the library: functions have options instead of the command line's flags.

Reasons and remarks are stored once and read in two places. On the command line they name flags; in Python they name the
arguments of a call.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, TypeVar, cast

from benchax.model import Remark
from benchax.reporting.document import Document, Paragraph, Table, TextRow

T = TypeVar("T")

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
    return _translate(document)


def translate(text: str) -> str:
    for flag, python in _WORDS:
        text = flag.sub(python, text)
    return text


def _translate(value: T) -> T:
    if isinstance(value, tuple):
        return cast("T", tuple(_translate(each) for each in cast("tuple[Any, ...]", value)))
    if isinstance(value, Remark):
        return dataclasses.replace(value, message=translate(value.message))
    if isinstance(value, TextRow):
        return dataclasses.replace(value, value=translate(value.value), detail=translate(value.detail))
    if isinstance(value, Paragraph):
        return dataclasses.replace(value, text=translate(value.text))
    if isinstance(value, Table):
        return dataclasses.replace(value, note=translate(value.note))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value) if isinstance(getattr(value, f.name), tuple)]
        changed: dict[str, Any] = {name: _translate(getattr(value, name)) for name in names}
        return dataclasses.replace(value, **changed) if changed else value
    return value
