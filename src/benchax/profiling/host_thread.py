"""The work of the thread that begins the programs: compiling, moving data, JAX's own work, or something else.

It comes from the events that JAX and XLA leave on the lines of the host. Their names are the names in jax 0.6.2 and
0.10.2. If another version names an event differently, its time counts as the program's own Python. The stack samples
then correct this as far as they can. benchax ignores the names that a program gives to its own annotations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote, unquote

import numpy as np

from benchax.profiling.events import HOST, Coverage, Space, TraceLine, unite
from benchax.protobuf import Ints

# Marks that benchax writes into a trace during a recording, as names of events: stacks, compilations, the machine.
#
# So these have the clock of the trace, travel with its file, and appear next to the operations in Perfetto. A sample of
# the stack holds the frames of the user's own files, and the innermost frame, whatever file it is in. The sample omits
# all frames between them.
#
# The name of an event can hold any text but '#', which begins its stats.

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
_PLAIN = " !\"$&'()*+,/:;=>?@[\\]^`{}"
"""Stays readable in the name of an event. All else that is no letter, digit, or -._~ is escaped as in a URL."""


class SampledFrame(NamedTuple):
    """One frame."""

    file: str
    line: int
    function: str
    owner: str
    """As `source_files.owner_of` has it."""
    is_iterating: bool = False
    """It waits here for the next item of an iterator: in a `for`, or for a generator or a `__next__`."""
    is_jumping: bool = False
    """It is at the end of a round of a loop, or at the beginning of a function: it calls nothing."""

    @property
    def place(self) -> str:
        """loader.py:31, with the whole path."""
        return f"{self.file}:{self.line}"


def encode(frames: tuple[SampledFrame, ...]) -> str:
    """Innermost first."""
    return BETWEEN.join(
        _FIELDS.join(
            [_escape(f.file), str(f.line), _escape(f.function), f.owner, "i" * f.is_iterating + "j" * f.is_jumping]
        )
        for f in frames
    )


def _escape(text: str) -> str:
    return quote(text, _PLAIN, errors="replace")


def decode(text: str) -> tuple[SampledFrame, ...]:
    """Reads a text that `encode` wrote. Returns no frames if the text has another form, as of another version."""
    try:
        return tuple(_frame(*part.split(_FIELDS)) for part in text.split(BETWEEN) if part)
    except (TypeError, ValueError):
        return ()


def _frame(file: str, line: str, function: str, owner: str, flags: str) -> SampledFrame:
    return SampledFrame(unquote(file), int(line), unquote(function), owner, "i" in flags, "j" in flags)


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


CALL = re.compile(r"PjitFunction\((.*)\)", re.DOTALL)
_CALLS = re.compile(r"PjitFunction\(.*|ExecuteReplicated\.__call__|.*::ExecuteHelper(OnSingleDevice)?", re.DOTALL)
_COMPILES = re.compile(r"backend_compile(_and_load)?|lower_sharding_computation|trace_to_jaxpr.*")
_TRANSFERS = re.compile(
    r"DevicePut.*|shard_args|[HD]2[HD] Dispatch|.*batched_copy_array.*|BatchedCopy.*|CopyToMemorySpace|"
    r".*BufferFromHost.*|PjRtCpuBuffer::CopyToDevice|ArrayImpl\.copy_to_host_async"
)
_QUEUED = re.compile(r"[HD]2[HD] Dispatch")
_JAX = re.compile(
    r"np\.asarray\(jax\.Array\)|ParseArguments|PythonRefManager::.*|Wait for \w+ holds|CommonPjRt.*|PjRt.*"
)


@dataclass(frozen=True, eq=False)
class StackSamples:
    """StackSamples of the stack, in the order of time."""

    time_ps: Ints
    stack: Ints
    """Index into `stacks`."""
    stacks: tuple[tuple[SampledFrame, ...], ...]
    late_ps: Ints
    """How much later a sample came than it was due."""
    cpu_us: Ints
    """Processor time of the thread since the sample before; -1 where it is not known."""
    since_us: Ints
    used_us: int | None
    """The total time of all of them. None: the trace does not have it."""
    wall_us: int | None

    @property
    def cost_share(self) -> float | None:
        return self.used_us / self.wall_us if self.used_us is not None and self.wall_us else None


@dataclass(frozen=True, eq=False)
class HostThread:
    """The thread that begins the programs."""

    names: tuple[str, ...]
    """The names of the functions that it calls, by `call_name`."""
    call_name: Ints
    call_start: Ints
    call_end: Ints
    """Outermost calls of compiled functions, in the order of time."""
    compiles: Coverage
    transfers: Coverage
    """On all threads."""
    queued: Coverage
    """When a transfer had been asked for, and the thread that does it had not begun."""
    jax: Coverage
    """JAX's own work, calls and transfers included."""


def read_samples(space: Space) -> StackSamples:
    """All of them; none where the trace has none."""
    for line in space.host_lines:
        chosen = line.find(lambda name: name.startswith(SAMPLE))
        if not len(chosen):
            continue
        chosen = chosen[np.argsort(line.start_ps[chosen], kind="stable")]
        ids = sorted(set(line.name_id[chosen].tolist()))
        late, _ = line.number("late_us")
        cpu, has_cpu = line.number("cpu_us")
        since, _ = line.number("since_us")
        cost: tuple[int | None, int | None] = (None, None)
        for end in line.find(ENDED.__eq__).tolist():
            cost = int(line.number("used_us")[0][end]), int(line.number("wall_us")[0][end])
        return StackSamples(
            line.start_ps[chosen],
            np.searchsorted(ids, line.name_id[chosen]),
            tuple(decode(line.names[i].removeprefix(SAMPLE)) for i in ids),
            late[chosen] * PS_PER_US,
            np.where(has_cpu, cpu, -1)[chosen],
            since[chosen],
            *cost,
        )
    none = np.zeros(0, np.int64)
    return StackSamples(none, none, (), none, none, none, None, None)


def read_host_thread(space: Space, marks: Sequence[CompileMark]) -> HostThread:
    """Returns the thread with the most calls, or a thread without calls if there were no calls."""
    lines = space.host_lines
    none = np.zeros(0, np.int64)
    transfers = [_chosen(line, _TRANSFERS) for line in lines]
    calling = max(lines, key=lambda line: len(_chosen(line, _CALLS)[0]), default=None)
    if calling is None:
        empty = unite(none, none)
        return HostThread((), none, none, none, empty, empty, empty, empty)
    begins, ends = (np.concatenate([none, *column]) for column in zip(*transfers, strict=True))
    moved = unite(begins, ends)
    queued = unite(*_queued([_chosen(line, _QUEUED) for line in lines], _chosen(calling, _TRANSFERS)[1]))
    names, name, start, end = _outermost_calls(calling)
    compiled = _compiling(calling, marks, start, end)
    jax = [_chosen(calling, pattern) for pattern in (_CALLS, _TRANSFERS, _JAX)]
    everything = unite(*(np.concatenate(column) for column in zip(*jax, strict=True)))
    return HostThread(names, name, start, end, compiled, moved, queued, everything)


def _queued(dispatches: list[tuple[Ints, Ints]], asked: Ints) -> tuple[Ints, Ints]:
    """From when the thread had asked for a transfer to when another thread began it, which it may be late to."""
    none = np.zeros(0, np.int64)
    start, end = (np.concatenate([none, *column]) for column in zip(*dispatches, strict=True))
    order = np.argsort(start, kind="stable")
    start, before = start[order], np.concatenate([[-1], np.maximum.accumulate(end[order])])[: len(start)]
    asked = np.sort(asked)
    at = np.searchsorted(asked, start, side="right") - 1
    since = asked[np.maximum(at, 0)] if len(asked) else np.zeros(len(start), np.int64)
    # It was requested after the previous transfer had ended; otherwise it belongs to that one.
    chosen = (at >= 0) & (since >= before)
    return since[chosen], start[chosen]


def _chosen(line: TraceLine, pattern: re.Pattern[str]) -> tuple[Ints, Ints]:
    """(starts, ends) of the events of such a name."""
    at = line.find(pattern.fullmatch)
    return line.start_ps[at], line.start_ps[at] + line.duration_ps[at]


def _outermost_calls(line: TraceLine) -> tuple[tuple[str, ...], Ints, Ints, Ints]:
    """(names, which one, starts, ends). JAX writes a call twice, one inside the other; tracing calls others inside."""
    at = line.find(CALL.fullmatch)
    end = line.start_ps[at] + line.duration_ps[at]
    order = np.lexsort((-end, line.start_ps[at]))
    at, end = at[order], end[order]
    start = line.start_ps[at]
    reach = np.maximum.accumulate(end)
    is_outer = np.concatenate([[True], start[1:] >= reach[:-1]]) if len(at) else np.zeros(0, np.bool_)
    ids = line.name_id[at][is_outer]
    different = sorted(set(ids.tolist()))
    return (
        tuple(CALL.sub(r"\1", line.names[i]) for i in different),
        np.searchsorted(different, ids),
        start[is_outer],
        end[is_outer],
    )


def _compiling(line: TraceLine, marks: Sequence[CompileMark], start: Ints, end: Ints) -> Coverage:
    """Counts a call that compiles as compiling from its beginning to its end, because tracing has no separate event."""
    begins, ends = _chosen(line, _COMPILES)
    inside = [mark for mark in marks if not mark.is_before]
    ends = np.concatenate([ends, np.array([mark.end_ps for mark in inside], np.int64)])
    begun = np.array([mark.end_ps - mark.elapsed_us * PS_PER_US for mark in inside], np.int64)
    begins = np.concatenate([begins, begun])
    middle = (begins + ends) // 2
    at = np.searchsorted(start, middle, side="right") - 1
    is_inside = (at >= 0) & (middle < end[np.maximum(at, 0)]) if len(start) else np.zeros(len(middle), np.bool_)
    calls = np.unique(at[is_inside])
    return unite(np.concatenate([begins, start[calls]]), np.concatenate([ends, end[calls]]))
