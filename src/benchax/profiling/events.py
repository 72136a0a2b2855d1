"""Reads an XSpace, the profiler's own format, into the columns of `space.py`.

It does not use `jax.profiler.ProfileData`, for three reasons. JAX 0.6.0 and 0.6.1 do not have it. It gives one Python
object after another (`benchmarks/profiles.py`). Without it, benchax can read a trace on a machine without JAX.

The numbers of the fields come from xplane.proto (openxla/xla, xla/tsl/profiler/protobuf), as JAX 0.6 to 0.10.2 write
it. The reader skips unknown fields, as protobuf does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchax.errors import FormatError
from benchax.profiling.space import NUMBER, REAL, TEXT, Plane, Space, Stats, TraceLine
from benchax.protobuf import BYTES, FIXED64, PADDING, VARINT, Ints, alike, broken, fields, signed, together

LONGEST_PS = 10**18
"""Eleven days: no recording is longer."""
_EVENT = 4 << 3 | BYTES
"""The tag of an event inside its line."""
CHUNK = 100_000
"""The number of events to read at once. It limits the memory for events that are not kept."""
_STAT_KINDS = {2: REAL, 3: NUMBER, 4: NUMBER, 5: TEXT, 6: TEXT, 7: TEXT}


def read(xspace: bytes, keep: Collection[str] | None = None) -> Space:
    """Reads a serialized XSpace, what `<host>.xplane.pb` holds.

    Args:
        xspace: the bytes.
        keep: names of the stats of events that are wanted; None for all. Fewer take less memory.

    Raises:
        FormatError: these bytes are not a whole XSpace; the message says where reading stopped.
    """
    parts: dict[int, list[tuple[int, int]]] = {}
    for part in fields(xspace, 0, len(xspace)):
        if part.wire == BYTES:
            parts.setdefault(part.number, []).append((part.start, part.end))
    if 1 not in parts:
        raise FormatError(
            f"these {len(xspace)} bytes hold no plane of a trace",
            "a whole XSpace message, as JAX writes it into <host>.xplane.pb",
        )
    # One line of a real trace begins at a time in ns since 1970, which does not fit into int64 as ps.
    began = [_began_ns(xspace, *at) for plane in parts[1] for at in _of(xspace, *plane, 3)]
    origin_ns = min((time for time in began if time is not None), default=0)
    reader = _PlaneReader(xspace, keep, origin_ns)
    planes = tuple(reader.plane(start, end) for start, end in parts[1])
    errors, warnings, hosts = (tuple(_word(xspace, *at) for at in parts.get(n, [])) for n in (2, 3, 4))
    return Space(planes, hosts, errors, warnings, reader.texts)


def _of(data: bytes, start: int, end: int, number: int) -> Iterator[tuple[int, int]]:
    """Finds the positions of the messages in field `number` of this message."""
    return ((f.start, f.end) for f in fields(data, start, end) if f.number == number and f.wire == BYTES)


def _began_ns(data: bytes, start: int, end: int) -> int | None:
    """Returns when a line began; None where it has no event, and then often no time either."""
    began = 0
    for part in fields(data, start, end):
        if part.number == 3:
            began = signed(part.value)
        elif part.number == 4:
            return began
    return None


def _word(data: bytes, start: int, end: int) -> str:
    return data[start:end].decode(errors="replace")


class _PlaneReader:
    """Reads planes, and keeps each text once."""

    def __init__(self, data: bytes, keep: Collection[str] | None, origin_ns: int) -> None:
        self.data = data
        self.array = np.frombuffer(data + bytes(PADDING), np.uint8)
        self.keep = keep
        self.origin_ns = origin_ns
        self.texts: list[str] = []
        self.codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        found = self.codes.setdefault(text, len(self.texts))
        if found == len(self.texts):
            self.texts.append(text)
        return found

    def plane(self, start: int, end: int) -> Plane:
        parts: dict[int, list[tuple[int, int]]] = {}
        for part in fields(self.data, start, end):
            if part.wire == BYTES:
                parts.setdefault(part.number, []).append((part.start, part.end))
        name = _word(self.data, *parts[2][-1]) if 2 in parts else ""
        stat_names = {i: self.code(named.name) for i, named in self._metadata(parts.get(5, []))}
        events = dict(self._metadata(parts.get(4, [])))
        shared, blobs = self._of_names(events, stat_names)
        names = {i: named.name for i, named in events.items()}
        lines = tuple(self.line(*at, names, stat_names, shared) for at in parts.get(3, []))
        numbers, words = self._of_plane(parts.get(6, []), stat_names)
        display = {i: named.display_name for i, named in events.items() if named.display_name}
        return Plane(name, lines, names, display, blobs, numbers, words)

    def _metadata(self, entries: list[tuple[int, int]]) -> Iterator[tuple[int, _Named]]:
        """Yields (id, metadata) from a map from ids to messages, for events or for stats."""
        for start, end in entries:
            for at in _of(self.data, start, end, 2):
                yield self._read_named(*at)

    def _read_named(self, start: int, end: int) -> tuple[int, _Named]:
        number, name, display, stats = 0, "", "", []
        for part in fields(self.data, start, end):
            if part.number == 1:
                number = signed(part.value)
            elif part.number == 2:
                name = _word(self.data, part.start, part.end)
            elif part.number == 4:
                display = _word(self.data, part.start, part.end)
            elif part.number == 5:
                stats.append((part.start, part.end))
        return number, _Named(name, display, stats)

    def _of_names(
        self, events: Mapping[int, _Named], stat_names: Mapping[int, int]
    ) -> tuple[dict[str, dict[int, int]], dict[str, dict[int, bytes]]]:
        """Stats that belong to the names of events: (texts and numbers, bytes)."""
        shared: dict[str, dict[int, int]] = {}
        blobs: dict[str, dict[int, bytes]] = {}
        for name_id, named in events.items():
            for key, number, value in self._stats(named.stats, stat_names):
                if number == 6 and isinstance(value, bytes):
                    blobs.setdefault(key, {})[name_id] = value
                elif isinstance(value, str):
                    shared.setdefault(key, {})[name_id] = self.code(value)
                elif isinstance(value, int):
                    shared.setdefault(key, {})[name_id] = value
        return shared, blobs

    def _of_plane(
        self, entries: list[tuple[int, int]], stat_names: Mapping[int, int]
    ) -> tuple[dict[str, int], dict[str, str]]:
        found = [(key, value) for key, _, value in self._stats(entries, stat_names)]
        return (
            {key: value for key, value in found if isinstance(value, int)},
            {key: value for key, value in found if isinstance(value, str)},
        )

    def _stats(
        self, entries: list[tuple[int, int]], stat_names: Mapping[int, int]
    ) -> Iterator[tuple[str, int, int | str | bytes | float]]:
        """(key, field number, value) of single stats."""
        for start, end in entries:
            key = ""
            for part in fields(self.data, start, end):
                if part.number == 1 and part.wire == VARINT:
                    key = self.texts[stat_names[part.value]] if part.value in stat_names else ""
                elif part.number in (3, 4) and part.wire == VARINT:
                    yield key, part.number, signed(part.value)
                elif part.number == 2 and part.wire == FIXED64:
                    yield key, 2, float(np.frombuffer(self.data, np.float64, 1, part.start)[0])
                elif part.number == 5 and part.wire == BYTES:
                    yield key, 5, _word(self.data, part.start, part.end)
                elif part.number == 6 and part.wire == BYTES:
                    yield key, 6, self.data[part.start : part.end]
                elif part.number == 7 and part.wire == VARINT and part.value in stat_names:
                    yield key, 7, self.texts[stat_names[part.value]]

    def line(
        self,
        start: int,
        end: int,
        names: Mapping[int, str],
        stat_names: Mapping[int, int],
        shared: Mapping[str, Mapping[int, int]],
    ) -> TraceLine:
        name, display, began_ns = "", "", self.origin_ns
        starts: list[int] = []
        ends: list[int] = []
        at = start
        while at < end:
            # Events are nearly all of a line, and stand one behind the other: one pass takes them together.
            begins, stops, at = alike(self.data, at, end, _EVENT)
            starts += begins
            ends += stops
            part = next(fields(self.data, at, end), None)
            if part is None:
                break
            at = part.after
            if part.number == 2:
                name = _word(self.data, part.start, part.end)
            elif part.number == 11:
                display = _word(self.data, part.start, part.end)
            elif part.number == 3:
                began_ns = signed(part.value)
        where = np.array(starts, np.int64), np.array(ends, np.int64)
        chunks = [
            self._events(where[0][i : i + CHUNK], where[1][i : i + CHUNK], i, stat_names)
            for i in range(0, len(starts), CHUNK)
        ] or [self._events(*where, 0, stat_names)]
        name_id, offset_ps, duration_ps = (
            np.concatenate(column) for column in zip(*(c[:3] for c in chunks), strict=True)
        )
        stats = Stats(*(np.concatenate(column) for column in zip(*(c[3] for c in chunks), strict=True)))
        began_ps = (began_ns - self.origin_ns) * 1000 if starts else 0
        # Only a damaged file has such times, and sums of them would not fit.
        if not (_plausible(offset_ps) and _plausible(duration_ps) and 0 <= began_ps <= LONGEST_PS):
            raise broken(start, f"a time below zero, or above {LONGEST_PS} ps, in the line that begins")
        return TraceLine(display or name, names, name_id, offset_ps + began_ps, duration_ps, stats, shared, self.texts)

    def _events(
        self, start: Ints, end: Ints, first: int, stat_names: Mapping[int, int]
    ) -> tuple[Ints, Ints, Ints, Stats]:
        """Returns (name ids, offsets, durations, stats) of the events at these positions; `first` is the index of the
        first."""
        columns = np.zeros((4, len(start)), np.int64)
        owners: list[Ints] = []
        starts: list[Ints] = []
        ends: list[Ints] = []
        for which, number, wire, value, at in together(self.array, start, end):
            for field_number in (1, 2, 3):
                of_field = (number == field_number) & (wire == VARINT)
                columns[field_number, which[of_field]] = value[of_field]
            stat = (number == 4) & (wire == BYTES)
            owners.append(which[stat])
            starts.append(at[stat])
            ends.append(at[stat] + value[stat])
        none = [np.zeros(0, np.int64)]
        owner = np.concatenate(owners or none)
        stats = self._stat_columns(
            owner + first, np.concatenate(starts or none), np.concatenate(ends or none), stat_names
        )
        return columns[1], columns[2], columns[3], stats

    def _stat_columns(self, owner: Ints, start: Ints, end: Ints, stat_names: Mapping[int, int]) -> Stats:
        key = np.zeros(len(owner), np.int64)
        kind = np.full(len(owner), 255, np.uint8)
        values = np.zeros(len(owner), np.int64)
        written: list[tuple[Ints, Ints, Ints]] = []
        for which, number, wire, value, at in together(self.array, start, end):
            of_key = (number == 1) & (wire == VARINT)
            key[which[of_key]] = value[of_key]
            for field_number, sort in _STAT_KINDS.items():
                chosen = number == field_number
                if not chosen.any():
                    continue
                kind[which[chosen]] = sort
                if field_number == 2:
                    values[which[chosen]] = self._doubles(at[chosen])
                elif field_number == 7:
                    values[which[chosen]] = _rename(value[chosen], stat_names)
                elif sort == TEXT:
                    written.append((which[chosen], at[chosen], value[chosen]))
                else:
                    values[which[chosen]] = value[chosen]
        names = _rename(key, stat_names)
        wanted = self._select(names) & (kind != 255)
        for which, at, length in written:
            for i, begin, size in zip(which.tolist(), at.tolist(), length.tolist(), strict=True):
                if wanted[i]:
                    values[i] = self.code(_word(self.data, begin, begin + size))
        return Stats(owner[wanted].astype(np.int32), names[wanted].astype(np.int32), kind[wanted], values[wanted])

    def _doubles(self, at: Ints) -> Ints:
        eight = self.array[at[:, None] + np.arange(8)]
        return np.ascontiguousarray(eight).view("<i8")[:, 0].astype(np.int64)

    def _select(self, names: Ints) -> NDArray[np.bool_]:
        if self.keep is None:
            return names >= 0
        return np.isin(names, [self.codes[key] for key in self.keep if key in self.codes])


class _Named(NamedTuple):
    """The plane's data about the events, or the stats, of one id."""

    name: str
    display_name: str
    stats: list[tuple[int, int]]


def _plausible(times_ps: Ints) -> bool:
    return not len(times_ps) or bool(times_ps.min() >= 0 and times_ps.max() <= LONGEST_PS)


def _rename(ids: Ints, names: Mapping[int, int]) -> Ints:
    """`names[i]` for each id; -1 for an id that has no name."""
    different, where = np.unique(ids, return_inverse=True)
    return np.array([names.get(int(i), -1) for i in different], np.int64)[where] if len(ids) else ids
