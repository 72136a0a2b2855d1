"""A trace as columns of NumPy: planes, their lines, the events of each line, and the programs; and spans of time.

A plane is a device or the host. A line is a thread or a stream. An event has a name, a start, a duration and statistics
("stats") such as `hlo_op` and `run_id`. `trace.py` interprets the events.

XSpace is the profiler's own format. benchax does not use `jax.profiler.ProfileData`. JAX 0.6.0 and 0.6.1 do not have
it. It gives one Python object after another (`benchmarks/profiles.py`). Without it, benchax can read a trace without
the import of JAX.

The numbers of the fields come from xplane.proto (openxla/xla, xla/tsl/profiler/protobuf), as JAX 0.6 to 0.10.2 write
it. The reader skips unknown fields, as protobuf does.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchax.errors import FormatError
from benchax.program import hlo
from benchax.protobuf import BYTES, PADDING, VARINT, Ints, ProtoMessage, alike, broken, fields, signed, together

HOST = "/host:CPU"
TEXT, NUMBER = 0, 1
"""Kinds of a stat. Text is kept as an index into `Space.texts`."""
_STAT_KINDS = {3: NUMBER, 4: NUMBER, 5: TEXT, 6: TEXT, 7: TEXT}
"""By the number of their field; numbers with a fraction are left out."""
LONGEST_PS = 10**18
"""Eleven days: no recording is longer."""
_EVENT = 4 << 3 | BYTES
"""The tag of an event inside its line."""
CHUNK = 100_000
"""The number of events to read at once. It limits the memory for events that are not kept."""


class Stats(NamedTuple):
    """The stats of a line's events, one entry per stat."""

    owner: NDArray[np.int32]
    """Which event."""
    key: NDArray[np.int32]
    """Index into `Space.texts`."""
    kind: NDArray[np.uint8]
    value: Ints
    """A number; for a text the index into `Space.texts`."""


@dataclass(frozen=True, eq=False)
class TraceLine:
    """A thread, or a stream of a device. Columns of one length: an entry per event, in the order of the file."""

    name: str
    names: Mapping[int, str]
    """The names of events, by what `name_id` holds; shared by the lines of a plane."""
    name_id: Ints
    start_ps: Ints
    """Since the earliest line of the whole space began."""
    duration_ps: Ints
    stats: Stats
    shared: Mapping[str, Mapping[int, int]]
    """Stats that belong to a name and so to all its events: stat → name_id → value, as in `Stats.value`."""
    texts: list[str] = field(repr=False)

    def __len__(self) -> int:
        return len(self.name_id)

    def text(self, key: str) -> Ints:
        """Returns, for each event, the index into `texts` of its stat `key`; -1 for those that have none."""
        return self._column(key, TEXT, -1)[0]

    def number(self, key: str) -> tuple[Ints, NDArray[np.bool_]]:
        """(values, which events have the stat at all)."""
        return self._column(key, NUMBER, 0)

    def find(self, is_wanted: Callable[[str], object]) -> Ints:
        """Returns the places of the events whose name is wanted."""
        return np.flatnonzero(np.isin(self.name_id, [i for i, name in self.names.items() if is_wanted(name)]))

    def _column(self, key: str, kind: int, default: int) -> tuple[Ints, NDArray[np.bool_]]:
        column = np.full(len(self), default, np.int64)
        has = np.zeros(len(self), np.bool_)
        for name_id, value in self.shared.get(key, {}).items():
            of_name = self.name_id == name_id
            # These come before the event's own stats, which take precedence.
            column[of_name], has[of_name] = value, True
        # A key is one text, and so one index.
        code = self.texts.index(key) if key in self.texts else -1
        chosen = (self.stats.key == code) & (self.stats.kind == kind)
        column[self.stats.owner[chosen]] = self.stats.value[chosen]
        has[self.stats.owner[chosen]] = True
        return column, has


@dataclass(frozen=True, eq=False)
class Plane:
    """A device, the host, or a table of metadata."""

    name: str
    lines: tuple[TraceLine, ...]
    names: Mapping[int, str]
    """The names of events, by id."""
    display_names: Mapping[int, str]
    blobs: Mapping[str, Mapping[int, bytes]]
    """Stats of names that are bytes: stat → name id → bytes. `hlo_proto` of the plane `/host:metadata` is one."""
    words: Mapping[str, str]
    """Stats of the plane itself that are texts."""


@dataclass(frozen=True, eq=False)
class Space:
    """A whole trace."""

    planes: tuple[Plane, ...]
    hosts: tuple[str, ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    texts: list[str]

    @property
    def n_events(self) -> int:
        return sum(len(line) for plane in self.planes for line in plane.lines)

    @property
    def host_lines(self) -> list[TraceLine]:
        """The threads of the host that have events."""
        plane = self.plane(HOST)
        return [line for line in plane.lines if len(line)] if plane else []

    def plane(self, name: str) -> Plane | None:
        return next((plane for plane in self.planes if plane.name == name), None)

    def count_events(self, begin_ps: int, end_ps: int) -> int:
        """Counts the events that begin between the two times."""
        lines = (line for plane in self.planes for line in plane.lines)
        return sum(int(((line.start_ps >= begin_ps) & (line.start_ps < end_ps)).sum()) for line in lines)


# ---- reading ----------------------------------------------------------------------------------------------------


def read(xspace: bytes, keep: Collection[str] | None = None) -> Space:
    """Reads a serialized XSpace, what `<host>.xplane.pb` holds.

    Args:
        xspace: the bytes.
        keep: names of the stats of events that are wanted; None for all. Fewer take less memory.

    Raises:
        FormatError: these bytes are not a whole XSpace; the message says where reading stopped.
    """
    whole = ProtoMessage(xspace)
    planes = whole.messages(1)
    if not planes:
        raise FormatError(
            f"these {len(xspace)} bytes hold no plane of a trace",
            "a whole XSpace message, as JAX writes it into <host>.xplane.pb",
        )
    # One line of a real trace begins at a time in ns since 1970. In ps, it does not fit into int64.
    began = [_began_ns(xspace, part.start, part.end) for plane in planes for part in plane.parts(3, BYTES)]
    origin_ns = min((time for time in began if time is not None), default=0)
    reader = _PlaneReader(xspace, keep, origin_ns)
    errors, warnings, hosts = (tuple(whole.texts(number)) for number in (2, 3, 4))
    return Space(tuple(map(reader.plane, planes)), hosts, errors, warnings, reader.texts)


def _began_ns(data: bytes, start: int, end: int) -> int | None:
    """Returns when a line began; None where it has no event, and then often no time either."""
    began = 0
    for part in fields(data, start, end):
        if part.number == 3:
            began = signed(part.value)
        elif part.number == 4:
            return began
    return None


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

    def plane(self, plane: ProtoMessage) -> Plane:
        stat_names = {one.number(1): self.code(one.text(2)) for one in _values_of(plane, 5)}
        names: dict[int, str] = {}
        display: dict[int, str] = {}
        shared: dict[str, dict[int, int]] = {}
        blobs: dict[str, dict[int, bytes]] = {}
        for one in _values_of(plane, 4):
            name_id, names[one.number(1)] = one.number(1), one.text(2)
            if shown := one.text(4):
                display[name_id] = shown
            for key, value in self._stats(one.messages(5), stat_names):
                if isinstance(value, bytes):
                    blobs.setdefault(key, {})[name_id] = value
                else:
                    shared.setdefault(key, {})[name_id] = self.code(value) if isinstance(value, str) else value
        lines = tuple(self.line(at.start, at.end, names, stat_names, shared) for at in plane.parts(3, BYTES))
        words = {key: value for key, value in self._stats(plane.messages(6), stat_names) if isinstance(value, str)}
        return Plane(plane.text(2), lines, names, display, blobs, words)

    def _stats(
        self, stats: list[ProtoMessage], stat_names: Mapping[int, int]
    ) -> Iterator[tuple[str, int | str | bytes]]:
        """Yields (key, value) of single stats, without numbers that have a fraction."""
        for one in stats:
            code = stat_names.get(one.number(1))
            key = "" if code is None else self.texts[code]
            for number in (3, 4):
                yield from ((key, signed(part.value)) for part in one.parts(number, VARINT))
            yield from ((key, text) for text in one.texts(5))
            yield from ((key, blob) for blob in one.bytes_of(6))
            for part in one.parts(7, VARINT):
                if part.value in stat_names:
                    yield key, self.texts[stat_names[part.value]]

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
            # A line consists almost only of consecutive events, so one pass takes them together.
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
                if field_number == 7:
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

    def _select(self, names: Ints) -> NDArray[np.bool_]:
        if self.keep is None:
            return names >= 0
        return np.isin(names, [self.codes[key] for key in self.keep if key in self.codes])


def _values_of(plane: ProtoMessage, number: int) -> Iterator[ProtoMessage]:
    """Yields the values of a map, which protobuf writes as messages of a key (1) and a value (2)."""
    return (value for entry in plane.messages(number) for value in entry.messages(2))


def _word(data: bytes, start: int, end: int) -> str:
    return data[start:end].decode(errors="replace")


def _plausible(times_ps: Ints) -> bool:
    return not len(times_ps) or bool(times_ps.min() >= 0 and times_ps.max() <= LONGEST_PS)


def _rename(ids: Ints, names: Mapping[int, int]) -> Ints:
    """`names[i]` for each id; -1 for an id that has no name."""
    different, where = np.unique(ids, return_inverse=True)
    return np.array([names.get(int(i), -1) for i in different], np.int64)[where] if len(ids) else ids


# ---- compiled programs ------------------------------------------------------------------------------------------
#
# JAX puts the optimised module of every program into the trace (plane `/host:metadata`, option `enable_hlo_proto`), as
# the protobuf message HloProto. jaxlib prints it as text, and `program/hlo.py` reads that. A module that jaxlib cannot
# read is left out: its operations then have no scope.

METADATA = "/host:metadata"
_NAMED = re.compile(r".*\((?P<program>-?\d+)\)", re.DOTALL)
_HOMES = ("jaxlib._hlo", "jaxlib._jax", "jaxlib.xla_extension")
"""Where jaxlib has HloModule: since 0.9 or so, in 0.7 and 0.8, and until 0.6."""


def programs(space: Space) -> dict[int, hlo.Module]:
    """Program id → program, of those that ran, as far as the trace has them.

    The trace has every program that the process ever compiled: after a day in a notebook, thousands.
    """
    plane = space.plane(METADATA)
    numbers = [line.number("program_id") for plane in space.planes for line in plane.lines]
    ran = {int(number) for values, has in numbers for number in np.unique(values[has])}
    found: dict[int, hlo.Module] = {}
    for blobs in plane.blobs.values() if plane else ():
        for name_id, blob in blobs.items():
            named = _NAMED.fullmatch(plane.names.get(name_id, "")) if plane else None
            if named is None or int(named["program"]) not in ran:
                continue
            with suppress(FormatError):  # of a version to come; what is known of the operations is shown without it
                for proto in ProtoMessage(blob).bytes_of(1):  # the only one of an HloProto
                    if text := text_of(proto):
                        found[int(named["program"])] = hlo.parse(text)
    return found


def text_of(proto: bytes) -> str | None:
    """A HloModuleProto as XLA prints it; None where this jaxlib has another way to it, or cannot read it."""
    for home in _HOMES:
        with suppress(Exception):  # private: harmless, since what is not known is not shown
            reader: Any = importlib.import_module(home)
            return reader.HloModule.from_serialized_hlo_module_proto(proto).to_string()
    return None


# ---- arithmetic on spans of time --------------------------------------------------------------------------------
#
# Arithmetic on spans of time: the time that they cover together, the gaps between them, and their nesting.
#
# A `Coverage` is a union of spans. Layers above one another are united from the top down, and each is what it
# adds to those above it: `length_between(united) - length_between(above)`. So a moment counts once, under the topmost
# layer, and the parts of a step add up to the step.
#
# The nesting shows how long each call of an operation took by itself. There are two ways to find it. If the program is
# known, an operation is inside a loop under two conditions. The program says so, and the loop is in progress in that
# run, on any thread. XLA:CPU continues the body of a loop on another thread, and runs independent operations at the
# same time.
# If the program is not known, an operation is inside another one of its thread if it begins there.

# ---- groups of rows ---------------------------------------------------------------------------------------------
#
# `np.unique(axis=0)` compares rows as bytes: 3 s for a million of three columns. Columns of a trace have few different
# values, mostly indices into a table, which can be counted instead of sorted.

SPARE = 4
"""The largest table, as a multiple of the column's length. Values that are further apart are sorted."""


def group_rows(*columns: Ints) -> tuple[Ints, Ints]:
    """(the first row of each group, the group of each row); groups are in the order of their values."""
    group = number_rows(*columns)
    first = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]  # of several writes the last one stays
    return first, group


def number_rows(*columns: Ints) -> Ints:
    """One number for each different row, from 0 up, in the order of the values."""
    whole = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        codes, count = _number(column)
        # Renumber after each column, so that the products of many columns fit into an int64.
        whole, _ = _number(whole * count + codes)
    return whole


def _number(column: Ints) -> tuple[Ints, int]:
    """(the rank of each value among the different ones, how many these are)."""
    if not len(column):
        return column.astype(np.int64), 0
    low, high = int(column.min()), int(column.max())
    if high - low >= SPARE * len(column):
        values, codes = np.unique(column, return_inverse=True)
        return codes.astype(np.int64), len(values)
    is_there = np.zeros(high - low + 1, np.bool_)
    is_there[column - low] = True
    rank = np.cumsum(is_there) - 1
    return rank[column - low], int(rank[-1]) + 1


# ---- unions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Coverage:
    """Spans in order. No two of them touch."""

    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> int:
        return int((self.end - self.start).sum())

    def length_between(self, begin: Ints, end: Ints) -> Ints:
        """How much of each stretch the spans cover."""
        return self._until(end) - self._until(begin)

    def holds(self, times: Ints) -> NDArray[np.bool_]:
        """Whether each moment lies in one of the spans."""
        at = self.index(times)
        return (at >= 0) & (times < self.end[np.maximum(at, 0)]) if len(self) else np.zeros(len(times), np.bool_)

    def index(self, times: Ints) -> Ints:
        """Which span begins last before each moment; -1 before the first."""
        return np.searchsorted(self.start, times, side="right") - 1

    def gaps(self, begin: int, end: int) -> Coverage:
        """Returns the parts of a stretch that the spans do not cover."""
        start, stop = np.clip(self.start, begin, end), np.clip(self.end, begin, end)
        starts, ends = np.concatenate([[begin], stop]), np.concatenate([start, [end]])
        chosen = ends > starts
        return Coverage(starts[chosen], ends[chosen])

    def _until(self, times: Ints) -> Ints:
        """How much is covered before each moment."""
        if not len(self):
            return np.zeros(len(times), np.int64)
        before = np.concatenate([[0], np.cumsum(self.end - self.start)])
        at = self.index(times)
        inside = np.minimum(times, self.end[np.maximum(at, 0)]) - self.start[np.maximum(at, 0)]
        return np.where(at >= 0, before[np.maximum(at, 0)] + inside, 0)


def unite(start: Ints, end: Ints) -> Coverage:
    """The union of spans in any order; those without length are left out."""
    chosen = end > start
    order = np.argsort(start[chosen], kind="stable")
    starts, ends = start[chosen][order], end[chosen][order]
    if not len(starts):
        return Coverage(starts, ends)
    reach = np.maximum.accumulate(ends)
    is_first = np.concatenate([[True], starts[1:] > reach[:-1]])
    last = np.concatenate([np.flatnonzero(is_first)[1:] - 1, [len(starts) - 1]])
    return Coverage(starts[is_first], reach[last])


def unite_all(*parts: Coverage) -> Coverage:
    """The union of several."""
    return unite(np.concatenate([part.start for part in parts]), np.concatenate([part.end for part in parts]))


# ---- what runs inside what ---------------------------------------------------------------------------------------


def self_times(
    group: list[int],
    start: list[int],
    end: list[int],
    names: Sequence[int] = (),
    inside: Sequence[frozenset[int] | None] | None = None,
) -> tuple[list[int], list[int]]:
    """(self time, depth) of intervals that are sorted by group, start, and end backwards.

    An interval is inside another one of its group if it begins there. Rounded clocks can make it end after the outer
    one. The part after that end is not subtracted from the outer one. Two at once are subtracted once.

    Args:
        names: of the intervals, for `inside`.
        inside: for each interval, the names that can be inside it, as in the body of a loop. Without it, all can be.
    """
    own = [b - a for a, b in zip(start, end, strict=True)]
    depth = [0] * len(own)
    covered: dict[int, int] = {}
    under_way: list[int] = []
    current: int | None = None
    for i, (g, a, b) in enumerate(zip(group, start, end, strict=True)):
        if g != current:
            current, under_way = g, []
        under_way = [j for j in under_way if end[j] > a]
        around = under_way if inside is None else [j for j in under_way if names[i] in (inside[j] or ())]
        if around:
            outer = around[-1]
            until = max(a, covered.get(outer, 0))
            own[outer] -= max(0, min(b, end[outer]) - until)
            covered[outer] = max(until, b)
            depth[i] = len(around)
        if inside is None or inside[i]:
            under_way.append(i)
    return own, depth
