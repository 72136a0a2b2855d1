"""A trace as columns of NumPy: one entry per event, over all planes and lines; its programs; and spans of time.

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
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchax.errors import FormatError
from benchax.program import hlo
from benchax.protobuf import BYTES, PADDING, VARINT, Ints, ProtoMessage, alike, broken, fields, signed, together

HOST, METADATA = "/host:CPU", "/host:metadata"
LONGEST_PS = 10**18
"""Eleven days: no recording is longer. Only a damaged file has such times, and sums of them would not fit."""
IMPLAUSIBLE = f"a time below zero, or above {LONGEST_PS} ps, in the line that begins"
_EVENT = 4 << 3 | BYTES
"""The tag of an event inside its line."""
_NUMBERS, _TEXTS, _REFERENCE = (3, 4), (5, 6), 7
"""The fields of a stat that have its value. A stat with a fraction (2) is left out."""
CHUNK = 100_000
"""The number of events to read at once. It limits the memory for events that are not kept."""
Flags = NDArray[np.bool_]


class Stats(NamedTuple):
    """The stats of events, one entry per stat. If an event has two with one key, the later one counts."""

    owner: NDArray[np.int32]
    """Which event."""
    key: NDArray[np.int32]
    """Index into `Space.texts`."""
    is_text: Flags
    value: Ints
    """A number; for a text the index into `Space.texts`."""


class Plane(NamedTuple):
    """A device, the host, or a table of metadata."""

    name: str
    keys: tuple[str, ...]
    """Keys of its own stats: of the texts among them."""


class TraceLine(NamedTuple):
    """A thread, or a stream of a device."""

    plane: str
    name: str


@dataclass(frozen=True, eq=False)
class Space:
    """A whole trace. Columns of one length: an entry per event, in the order of the file."""

    planes: tuple[Plane, ...]
    lines: tuple[TraceLine, ...]
    texts: list[str] = field(repr=False)
    """The first one is empty."""
    line: Ints
    """Index into `lines`."""
    name: Ints
    """Index into `texts`. On a device the short name, if there is one: on TPU the other is a whole line of HLO."""
    start_ps: Ints
    """Since the earliest line began."""
    duration_ps: Ints
    stats: Stats
    programs: tuple[tuple[str, bytes], ...] = field(repr=False)
    """Names that have bytes: the programs of the plane `/host:metadata`, each an HloProto."""
    hosts: tuple[str, ...]
    said: tuple[str, ...]
    """The errors and warnings of the profiler."""

    def __len__(self) -> int:
        return len(self.name)

    @cached_property
    def end_ps(self) -> Ints:
        return self.start_ps + self.duration_ps

    @cached_property
    def is_host(self) -> Flags:
        """Which events are of a thread of the host."""
        return np.array([line.plane == HOST for line in self.lines], np.bool_)[self.line]

    def name_of(self, event: int) -> str:
        return self.texts[self.name[event]]

    def count_by_plane(self) -> Counter[str]:
        """The number of events of each plane."""
        return Counter(self.lines[line].plane for line in self.line.tolist())

    def count_events(self, begin_ps: int, end_ps: int) -> int:
        """Counts the events that begin between the two times."""
        return int(((self.start_ps >= begin_ps) & (self.start_ps < end_ps)).sum())

    def find(self, is_wanted: Callable[[str], object]) -> Ints:
        """Returns the events of the host whose name is wanted."""
        wanted = np.array([bool(is_wanted(text)) for text in self.texts], np.bool_)
        return np.flatnonzero(wanted[self.name] & self.is_host)

    def text(self, key: str) -> Ints:
        """Returns, for each event, the index into `texts` of its stat `key`; 0 for those that have none."""
        return self._column(key, True)[0]

    def number(self, key: str) -> tuple[Ints, Flags]:
        """(values, which events have the stat at all)."""
        return self._column(key, False)

    def _column(self, key: str, is_text: bool) -> tuple[Ints, Flags]:
        column, has = np.zeros(len(self), np.int64), np.zeros(len(self), np.bool_)
        # A key is one text, and so one index.
        code = self.texts.index(key) if key in self.texts else -1
        chosen = np.flatnonzero((self.stats.key == code) & (self.stats.is_text == is_text))
        owner = self.stats.owner[chosen]
        column[owner], has[owner] = self.stats.value[chosen], True
        return column, has


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
    reader = _Reader(xspace, keep)
    read_planes = tuple(map(reader.plane, planes))
    said = tuple(text for number in (2, 3) for text in whole.texts(number))
    return reader.space(read_planes, tuple(whole.texts(4)), said)


class _Reader:
    """Reads planes into columns, and keeps each text once."""

    def __init__(self, data: bytes, keep: Collection[str] | None) -> None:
        self.data = data
        self.array = np.frombuffer(data + bytes(PADDING), np.uint8)
        self.keep = keep
        self.codes: dict[str, int] = {"": 0}
        self.lines: list[TraceLine] = []
        self.began: list[tuple[int, int | None]] = []
        """Where each line is in the data, and its time in ns: None without an event. Then it often has none."""
        self.events: list[NDArray[np.int64]] = []
        """Pieces of the columns line, name, offset from the beginning of the line, and duration."""
        self.stats: list[Stats] = []
        self.n_events = 0
        self.programs: list[tuple[str, bytes]] = []

    def code(self, text: str) -> int:
        return self.codes.setdefault(text, len(self.codes))

    def plane(self, plane: ProtoMessage) -> Plane:
        title = plane.text(2)
        words = {one.number(1): one.text(2) for one in _values_of(plane, 5)}
        codes = {word_id: self.code(word) for word_id, word in words.items()}
        names: dict[int, int] = {}
        shared: dict[tuple[int, bool], dict[int, int]] = {}
        for one in _values_of(plane, 4):
            name_id, name = one.number(1), one.text(2)
            names[name_id] = self.code((title.startswith("/device:") and one.text(4)) or name)
            for key, value in _single_stats(one.messages(5), words):
                if isinstance(value, bytes):
                    self.programs.append((name, value))
                elif self.keep is None or key in self.keep:
                    of_key = shared.setdefault((self.code(key), isinstance(value, str)), {})
                    of_key[name_id] = self.code(value) if isinstance(value, str) else value
        for at in plane.parts(3, BYTES):
            self.line(title, at.start, at.end, names, codes, shared)
        own = _single_stats(plane.messages(6), words)
        return Plane(title, tuple(key for key, value in own if isinstance(value, str)))

    def line(
        self,
        plane: str,
        at: int,
        end: int,
        names: Mapping[int, int],
        words: Mapping[int, int],
        shared: Mapping[tuple[int, bool], Mapping[int, int]],
    ) -> None:
        """Reads a thread or a stream.

        Args:
            names, words: names of events and texts of stats: their number in the plane → index into `Space.texts`.
            shared: stats that belong to a name and so to all its events: (key, is it a text?) → name → value.
        """
        place, title, began_ns = at, "", 0
        starts: list[int] = []
        ends: list[int] = []
        while at < end:
            # A line consists almost only of consecutive events, so one pass takes them together.
            begins, stops, at = alike(self.data, at, end, _EVENT)
            starts += begins
            ends += stops
            part = next(fields(self.data, at, end), None)
            if part is None:
                break
            at = part.after
            if part.number in (2, 11):  # the name, and after it the one to show, if there is one
                title = _word(self.data, part.start, part.end) or title
            elif part.number == 3:
                began_ns = signed(part.value)
        self.lines.append(TraceLine(plane, title))
        self.began.append((place, began_ns if starts else None))
        for i in range(0, len(starts), CHUNK):
            where = np.array([starts[i : i + CHUNK], ends[i : i + CHUNK]], np.int64)
            columns, stats = self._events(*where)
            if ((columns[2:] < 0) | (columns[2:] > LONGEST_PS)).any():
                raise broken(place, IMPLAUSIBLE)
            # These come before the event's own stats, which take precedence.
            for (key, is_text), values in shared.items():
                owner = np.flatnonzero(np.isin(columns[1], list(values)))
                self._add_stats(owner, np.full(len(owner), key), is_text, _rename(columns[1, owner], values))
            self._keep_stats(*stats, words)
            columns[1] = _rename(columns[1], names)
            self.events.append(columns)
            self.n_events += columns.shape[1]

    def _events(self, start: Ints, end: Ints) -> tuple[NDArray[np.int64], tuple[Ints, Ints, Ints]]:
        """Returns (the columns of `events`, with numbers of names; owner, start and end of each stat)."""
        columns = np.zeros((4, len(start)), np.int64)
        columns[0] = len(self.lines) - 1
        stats = [np.zeros((3, 0), np.int64)]
        for which, number, wire, value, at in together(self.array, start, end):
            for field_number in (1, 2, 3):
                of_field = (number == field_number) & (wire == VARINT)
                columns[field_number, which[of_field]] = value[of_field]
            stat = (number == 4) & (wire == BYTES)
            stats.append(np.stack([which[stat], at[stat], at[stat] + value[stat]]))
        owner, begin, stop = np.concatenate(stats, axis=1)
        return columns, (owner, begin, stop)

    def _keep_stats(self, owner: Ints, start: Ints, end: Ints, words: Mapping[int, int]) -> None:
        key, kind, values, place = np.zeros((4, len(owner)), np.int64)
        for which, number, wire, value, at in together(self.array, start, end):
            of_key = (number == 1) & (wire == VARINT)
            key[which[of_key]] = value[of_key]
            of_value = (number >= min(_NUMBERS)) & (number <= _REFERENCE)
            for column, found in ((kind, number), (values, value), (place, at)):
                column[which[of_value]] = found[of_value]
        key = _rename(key, words)
        is_kept = (
            True if self.keep is None else np.isin(key, [self.codes[one] for one in self.keep if one in self.codes])
        )
        wanted = np.flatnonzero((kind > 0) & is_kept)
        kind, values, place = kind[wanted], values[wanted], place[wanted]
        is_reference = kind == _REFERENCE
        values[is_reference] = _rename(values[is_reference], words)
        for i in np.flatnonzero(np.isin(kind, _TEXTS)).tolist():
            begin, length = int(place[i]), int(values[i])
            values[i] = self.code(_word(self.data, begin, begin + length))
        self._add_stats(owner[wanted], key[wanted], kind > max(_NUMBERS), values)

    def _add_stats(self, owner: Ints, key: Ints, is_text: Flags | bool, value: Ints) -> None:
        """`owner` counts from the first event that is not yet in `events`."""
        of_event, is_texts = (owner + self.n_events).astype(np.int32), np.broadcast_to(np.array(is_text), len(owner))
        self.stats.append(Stats(of_event, key.astype(np.int32), is_texts, value))

    def space(self, planes: tuple[Plane, ...], hosts: tuple[str, ...], said: tuple[str, ...]) -> Space:
        # A real trace begins at a time in ns since 1970. In ps, it does not fit into int64.
        origin_ns = min((ns for _, ns in self.began if ns is not None), default=0)
        began_ps = [0 if ns is None else (ns - origin_ns) * 1000 for _, ns in self.began]
        for (place, _), time_ps in zip(self.began, began_ps, strict=True):
            if time_ps > LONGEST_PS:
                raise broken(place, IMPLAUSIBLE)
        line, name, offset_ps, duration_ps = np.concatenate([np.zeros((4, 0), np.int64), *self.events], axis=1)
        start_ps = offset_ps + np.array(began_ps, np.int64)[line]
        self._add_stats(name[:0], name[:0], False, name[:0])  # there may be no others
        stats: list[Any] = [np.concatenate(column) for column in zip(*self.stats, strict=True)]
        return Space(
            planes,
            tuple(self.lines),
            list(self.codes),
            line,
            name,
            start_ps,
            duration_ps,
            Stats(*stats),
            tuple(self.programs),
            hosts,
            said,
        )


def _single_stats(stats: list[ProtoMessage], words: Mapping[int, str]) -> Iterator[tuple[str, int | str | bytes]]:
    """Yields (key, value) of single stats, without numbers that have a fraction."""
    for one in stats:
        key = words.get(one.number(1), "")
        found: list[int | str | bytes] = [signed(part.value) for n in _NUMBERS for part in one.parts(n, VARINT)]
        found += [*one.texts(5), *one.bytes_of(6)]
        found += [words[part.value] for part in one.parts(_REFERENCE, VARINT) if part.value in words]
        yield from ((key, value) for value in found)


def _values_of(plane: ProtoMessage, number: int) -> Iterator[ProtoMessage]:
    """Yields the values of a map, which protobuf writes as messages of a key (1) and a value (2)."""
    return (value for entry in plane.messages(number) for value in entry.messages(2))


def _word(data: bytes, start: int, end: int) -> str:
    return data[start:end].decode(errors="replace")


def _rename(ids: Ints, names: Mapping[int, int]) -> Ints:
    """`names[i]` for each id, or 0 for an id that has no name."""
    first, group = group_rows(ids)
    return np.array([names.get(i, 0) for i in ids[first].tolist()], np.int64)[group]


# ---- compiled programs ------------------------------------------------------------------------------------------
#
# JAX puts the optimised module of every program into the trace (plane `/host:metadata`, option `enable_hlo_proto`), as
# the protobuf message HloProto. jaxlib prints it as text, and `program/hlo.py` reads that. A module that jaxlib cannot
# read is left out: its operations then have no scope.

_NAMED = re.compile(r".*\((?P<program>-?\d+)\)", re.DOTALL)
_HOMES = ("jaxlib._hlo", "jaxlib._jax", "jaxlib.xla_extension")
"""Where jaxlib has HloModule: since 0.9 or so, in 0.7 and 0.8, and until 0.6."""


def programs(space: Space) -> dict[int, hlo.Module]:
    """Program id → program, of those that ran, as far as the trace has them.

    The trace has every program that the process ever compiled: after a day in a notebook, thousands.
    """
    numbers, has_number = space.number("program_id")
    ran = set(np.unique(numbers[has_number]).tolist())
    found: dict[int, hlo.Module] = {}
    for name, blob in space.programs:
        named = _NAMED.fullmatch(name)
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
