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

from benchax.profiling.events import Coverage, Space, unite
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
    begin_ps: int
    end_ps: int
    is_before: bool
    """It was before the recording, so its end is not known."""


def read_compile_marks(space: Space) -> Iterator[CompileMark]:
    """Yields the marks that the listener of `program_recorder.py` left."""
    elapsed_us, is_before = space.number("elapsed_us")[0], space.number("before")[0]
    for i in space.find(lambda name: name.startswith(COMPILED)).tolist():
        kind, name, stack = [*space.name_of(i).removeprefix(COMPILED).split(" ", 2), "", ""][:3]
        end_ps, took_us = int(space.start_ps[i]), int(elapsed_us[i])
        begin_ps = end_ps - took_us * PS_PER_US
        yield CompileMark(kind, program_name(name), decode(stack), took_us, begin_ps, end_ps, bool(is_before[i]))


def program_name(name: str) -> str:
    """The name of a function as that of its program: <lambda> as jit__lambda_, jit(f) as jit_f."""
    inner = re.sub(r"^jit[_(](.*?)\)?$", r"\1", name, flags=re.DOTALL)
    return "jit_" + re.sub(r"[^\w.\-]", "_", inner)


def machine_of(space: Space) -> str | None:
    """Returns the fingerprint of the machine that recorded, or None if the trace has none."""
    found = space.find(lambda name: name.startswith(MACHINE))
    return space.name_of(found[0]).removeprefix(MACHINE) if len(found) else None


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
    cost_share: float | None
    """The share of the time that they took. None: the trace does not have it."""


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
    chosen = space.find(lambda name: name.startswith(SAMPLE))
    chosen = chosen[np.argsort(space.start_ps[chosen], kind="stable")]
    names, stack = np.unique(space.name[chosen], return_inverse=True)
    cpu_us, has_cpu = space.number("cpu_us")
    end = space.find(ENDED.__eq__)[-1:]
    used_us, wall_us = (int(space.number(key)[0][end].sum()) for key in ("used_us", "wall_us"))
    return StackSamples(
        space.start_ps[chosen],
        stack,
        tuple(decode(space.texts[name].removeprefix(SAMPLE)) for name in names.tolist()),
        space.number("late_us")[0][chosen] * PS_PER_US,
        np.where(has_cpu, cpu_us, -1)[chosen],
        space.number("since_us")[0][chosen],
        used_us / wall_us if wall_us else None,
    )


def read_host_thread(space: Space, marks: Sequence[CompileMark]) -> HostThread:
    """Returns the thread with the most calls, or a thread without calls if there were no calls."""
    calls, transfers, queued = (space.find(pattern.fullmatch) for pattern in (_CALLS, _TRANSFERS, _QUEUED))
    thread = int(np.bincount(space.line[calls]).argmax()) if len(calls) else -1

    def here(events: Ints) -> Ints:
        return events[space.line[events] == thread]

    names, name, start, end = _outermost_calls(space, here(space.find(CALL.fullmatch)))
    jax = np.concatenate([here(calls), here(transfers), here(space.find(_JAX.fullmatch))])
    return HostThread(
        names,
        name,
        start,
        end,
        _compiling(space, here(space.find(_COMPILES.fullmatch)), marks, Coverage(start, end)),
        unite(space.start_ps[transfers], space.end_ps[transfers]),
        unite(*_queued(space, queued, np.sort(space.end_ps[here(transfers)]))),
        unite(space.start_ps[jax], space.end_ps[jax]),
    )


def _queued(space: Space, queued: Ints, asked: Ints) -> tuple[Ints, Ints]:
    """From when the thread had asked for a transfer to when another thread began it, which it may be late to."""
    queued = queued[np.argsort(space.start_ps[queued], kind="stable")]
    begun = space.start_ps[queued]
    before = np.concatenate([[-1], np.maximum.accumulate(space.end_ps[queued])])[: len(begun)]
    at = np.searchsorted(asked, begun, side="right") - 1
    is_asked = at >= 0
    since, begun, before = asked[at[is_asked]], begun[is_asked], before[is_asked]
    # It was requested after the previous transfer had ended; otherwise it belongs to that one.
    chosen = since >= before
    return since[chosen], begun[chosen]


def _outermost_calls(space: Space, at: Ints) -> tuple[tuple[str, ...], Ints, Ints, Ints]:
    """(names, which one, starts, ends). JAX writes a call twice, one inside the other; tracing calls others inside."""
    at = at[np.lexsort((-space.end_ps[at], space.start_ps[at]))]
    start = space.start_ps[at]
    reached = np.concatenate([start[:1], np.maximum.accumulate(space.end_ps[at])[:-1]])
    at = at[start >= reached]
    names, name = np.unique(space.name[at], return_inverse=True)
    called = tuple(CALL.sub(r"\1", space.texts[i]) for i in names.tolist())
    return called, name, space.start_ps[at], space.end_ps[at]


def _compiling(space: Space, compiles: Ints, marks: Sequence[CompileMark], calls: Coverage) -> Coverage:
    """Counts a call that compiles as compiling from its beginning to its end, because tracing has no separate event."""
    spans = np.array([(mark.begin_ps, mark.end_ps) for mark in marks if not mark.is_before], np.int64).reshape(-1, 2)
    begins = np.concatenate([space.start_ps[compiles], spans[:, 0]])
    ends = np.concatenate([space.end_ps[compiles], spans[:, 1]])
    middle = (begins + ends) // 2
    at = np.unique(calls.index(middle)[calls.holds(middle)])
    return unite(np.concatenate([begins, calls.start[at]]), np.concatenate([ends, calls.end[at]]))
