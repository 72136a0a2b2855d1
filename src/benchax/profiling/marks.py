"""Marks that benchax writes into a trace during a recording, as names of events: stacks, compilations, the machine.

So these have the clock of the trace, travel with its file, and appear next to the operations in Perfetto. A sample of
the stack holds the frames of the user's own files, and the innermost frame, whatever file it is in. The sample omits
all frames between them.

The name of an event can hold any text but '#', which begins its stats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from benchax.profiling.events import HOST, Space

SAMPLE = "benchax sample: "
COMPILED = "benchax compiled: "
"""Begins the name of an event at the end of a trace, a lowering or a compilation by JAX, with the stack behind it."""
ENDED = "benchax sampled"
"""Names the event at the end of the samples, with what they cost."""
MACHINE = "benchax machine: "
"""Begins the name of an event with the fingerprint of the machine."""
OURS = "benchax "
"""Begins all of these."""
PS_PER_US = 1_000_000
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
    """Reads a text that `encode` wrote. Returns no frames if the text has another form, as of another version."""
    try:
        return tuple(_frame(*part.split(_FIELDS)) for part in text.split(BETWEEN) if part)
    except (TypeError, ValueError):
        return ()


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


def user_line(stack: tuple[SampledFrame, ...]) -> str:
    """Returns the innermost line of the user's code; empty without one."""
    return next((frame.place for frame in stack if frame.owner == "user"), "")


class CompileMark(NamedTuple):
    """A trace, a lowering or a compilation that JAX reported."""

    kind: str
    program: str
    stack: tuple[SampledFrame, ...]
    elapsed_us: int
    end_ps: int
    is_before: bool
    """It was before the recording, so its end is not known."""


def read_compile_marks(space: Space) -> Iterator[CompileMark]:
    """Yields the marks that the listener of `program_recorder.py` left."""
    for line in space.host_lines:
        elapsed, before = line.number("elapsed_us")[0], line.number("before")[0]
        for i in line.find(lambda name: name.startswith(COMPILED)).tolist():
            text = line.names[int(line.name_id[i])].removeprefix(COMPILED)
            kind, name, stack = [*text.split(" ", 2), "", ""][:3]
            yield CompileMark(
                kind, program_name(name), decode(stack), int(elapsed[i]), int(line.start_ps[i]), bool(before[i])
            )


def program_name(name: str) -> str:
    """The name of a function as that of its program: <lambda> as jit__lambda_, jit(f) as jit_f."""
    inner = re.sub(r"^jit[_(](.*?)\)?$", r"\1", name, flags=re.DOTALL)
    return "jit_" + re.sub(r"[^\w.\-]", "_", inner)


def machine_of(space: Space) -> str | None:
    """Returns the fingerprint of the machine that recorded, or None if the trace has none."""
    plane = space.plane(HOST)
    names = plane.names.values() if plane else ()
    return next((name.removeprefix(MACHINE) for name in names if name.startswith(MACHINE)), None)
