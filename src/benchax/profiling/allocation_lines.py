"""Which lines of the user's the arrays that are alive were made at, out of `jax.profiler.device_memory_profile()`.

That is a profile of pprof, gzipped: JAX keeps the stack of Python with each buffer when it is made, also of calls that
take the fast path (tried: jax 0.10.2). https://github.com/google/pprof/blob/main/proto/profile.proto has the fields.

A buffer belongs to the innermost line of the user's own files; what no line of theirs made has none. Compiled programs
are in the profile, too, and are left out.
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence

from benchax.errors import FormatError
from benchax.protobuf import VARINT, Field, fields, varint
from benchax.results.profile import LineMemory
from benchax.source_files import NOT_YOURS, owner_of

MOST_LINES = 20
"""So many are kept, those that held most at some time; the others are one together."""
OTHERS = "(other lines)"


def bytes_by_line(profile: bytes) -> dict[str, int]:
    """file.py:12 → bytes of the buffers that were made there.

    Raises:
        FormatError: these bytes are no such profile.
    """
    try:
        if not (data := gzip.decompress(profile)):
            raise EOFError("it is empty")
        return _Pprof(data).bytes_by_line()
    except (OSError, EOFError, zlib.error, IndexError, KeyError, UnicodeDecodeError) as error:
        raise FormatError(f"the memory profile of JAX cannot be read: {error!r}") from error


def line_columns(readings: Sequence[Mapping[str, int] | None]) -> tuple[LineMemory, ...]:
    """A column for each line, that which held most at some time first. None: this reading was not made."""
    most: Counter[str] = Counter()
    for reading in readings:
        for line, size in (reading or {}).items():
            most[line] = max(most[line], size)
    kept = [line for line, _ in most.most_common(MOST_LINES)]
    columns = [
        LineMemory(line, tuple(None if reading is None else reading.get(line, 0) for reading in readings))
        for line in kept
    ]
    if len(most) > len(kept):
        listed = set(kept)
        rest = tuple(
            None if reading is None else sum(size for line, size in reading.items() if line not in listed)
            for reading in readings
        )
        columns.append(LineMemory(OTHERS, rest))
    return tuple(columns)


class _Pprof:
    """One profile, as far as it is needed."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._samples: list[Field] = []
        self._texts: list[str] = []
        self._files: dict[int, int] = {}
        self._locations: dict[int, tuple[int, int]] = {}
        for each in fields(data, 0, len(data)):
            if each.number == 2:
                self._samples.append(each)
            elif each.number == 4:
                self._read_location(each)
            elif each.number == 5:
                function = self._numbers(each)
                self._files[function.get(1, 0)] = function.get(4, 0)
            elif each.number == 6:
                self._texts.append(data[each.start : each.end].decode())
        self._lines = {number: self._line(*place) for number, place in self._locations.items()}

    def bytes_by_line(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for sample in self._samples:
            locations, values, labels = self._read_sample(sample)
            if labels.get("kind") == "buffer":
                found[next((self._lines[at] for at in locations if self._lines.get(at)), NOT_YOURS)] += values[1]
        return dict(found)

    def _read_sample(self, sample: Field) -> tuple[list[int], list[int], dict[str, str]]:
        """(ids of its stack, innermost first; its values, a count and bytes; its labels)"""
        repeated: dict[int, list[int]] = {1: [], 2: []}
        labels: dict[str, str] = {}
        for each in fields(self._data, sample.start, sample.end):
            if each.number in repeated:
                repeated[each.number] += [each.value] if each.wire == VARINT else self._packed(each)
            elif each.number == 3:
                label = self._numbers(each)
                labels[self._texts[label.get(1, 0)]] = self._texts[label.get(2, 0)]
        return repeated[1], repeated[2], labels

    def _read_location(self, location: Field) -> None:
        number = 0
        for each in fields(self._data, location.start, location.end):
            if each.number == 1:
                number = each.value
            elif each.number == 4:
                line = self._numbers(each)
                self._locations[number] = line.get(1, 0), line.get(2, 0)

    def _line(self, function: int, line: int) -> str:
        """Empty where it is not the user's."""
        file = self._texts[self._files.get(function, 0)]
        is_theirs = bool(file) and not file.startswith("<") and owner_of(file) == "user"
        return f"{file}:{line}" if is_theirs else ""

    def _numbers(self, message: Field) -> dict[int, int]:
        return {each.number: each.value for each in fields(self._data, message.start, message.end)}

    def _packed(self, numbers: Field) -> list[int]:
        found: list[int] = []
        at = numbers.start
        while at < numbers.end:
            value, at = varint(self._data, at, numbers.end)
            found.append(value)
        return found
