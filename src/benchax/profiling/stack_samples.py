"""The stack of a Python thread at one moment, as the name of an event in the trace.

`stack_sampler.py` writes samples into the trace itself. So they have its clock, travel with its file, and appear next
to the operations in Perfetto; `step_split.py` reads them there. A sample holds the frames of the user's own files, and
the innermost frame, whatever file it is in. The sample omits all frames between them.

The name of an event can hold any text but '#', which begins its stats.
"""

from __future__ import annotations

from typing import NamedTuple

from benchax.errors import FormatError

SAMPLE = "benchax sample: "
COMPILED = "benchax compiled: "
"""Begins the name of an event at the end of a trace, a lowering or a compilation by JAX, with the stack behind it."""
ENDED = "benchax sampled"
"""Names the event at the end of the samples, with what they cost."""
BETWEEN, _FIELDS = " < ", "|"


class SampledFrame(NamedTuple):
    """One frame."""

    file: str
    line: int
    function: str
    owner: str
    """As `source_files.owner_of` has it."""
    is_iterating: bool = False
    """It waits here for the next item of an iterator: in a `for`, or for a generator or a `__next__`."""

    @property
    def place(self) -> str:
        """loader.py:31, with the whole path."""
        return f"{self.file}:{self.line}"


def encode(frames: tuple[SampledFrame, ...]) -> str:
    """Innermost first."""
    return BETWEEN.join(
        _FIELDS.join([_escape(f.file), str(f.line), _escape(f.function), f.owner, "i" if f.is_iterating else ""])
        for f in frames
    )


def decode(text: str) -> tuple[SampledFrame, ...]:
    """Reads a text that `encode` wrote.

    Raises:
        FormatError: the text has another form.
    """
    try:
        return tuple(_frame(*part.split(_FIELDS)) for part in text.split(BETWEEN) if part)
    except (TypeError, ValueError) as error:
        raise FormatError(f"{text[:80]!r} is no stack") from error


def _frame(file: str, line: str, function: str, owner: str, flags: str) -> SampledFrame:
    return SampledFrame(_unescape(file), int(line), _unescape(function), owner, "i" in flags)


_ESCAPES = {"%": "%25", "#": "%23", _FIELDS: "%7C", "<": "%3C"}


def _escape(text: str) -> str:
    for plain, escaped in _ESCAPES.items():
        text = text.replace(plain, escaped)
    return text


def _unescape(text: str) -> str:
    for plain, escaped in reversed(_ESCAPES.items()):
        text = text.replace(escaped, plain)
    return text
