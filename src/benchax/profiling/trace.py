"""Turns a trace into a table: operations by self time, devices by busy and idle time, runs by device time.

`operations.py` finds the calls and adds them up, and `events.py` reads their programs. This module puts them
together with data from the host's threads: steps that the program marked, and the work of the compiler, pass by pass. A
trace without operations gives no empty table. A remark states what the trace has instead, and what to do.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import mean
from typing import NamedTuple

import numpy as np

from benchax.errors import NotMeasured
from benchax.grouping import group_by
from benchax.kept_peaks import kept_peaks
from benchax.model import Remark
from benchax.profiling.events import METADATA, Flags, Space, group_rows, read, self_times, unite
from benchax.profiling.host_thread import machine_of, program_name, read_compile_marks, user_line
from benchax.profiling.operations import (
    KEEP,
    PS,
    Exchange,
    Operations,
    communication_of,
    exchange,
    names_inside,
    operations,
    remark_communication,
    runs_by_device,
)
from benchax.profiling.step_split import read_annotations, split
from benchax.program import hlo
from benchax.program.hlo import FREE, Instruction, Module
from benchax.program.work import BYTES, FLOPS, Adder, Work, is_opaque
from benchax.results.profile import (
    MANY_EVENTS_PER_S,
    CompileCost,
    CompilePass,
    Device,
    Gap,
    Lane,
    Op,
    Profile,
    ProgramSize,
    RecordingCost,
)
from benchax.source_trees import Function, Loop, around, holds, tree_of
from benchax.units import plural

# The time to trace, lower and compile each function, and the passes of XLA that took longest.
#
# The times come from the marks that `program_recorder.py` leaves for each event of `jax.monitoring`. They include
# compilations before the recording. The trace has passes only for compilations during the recording. A pass belongs to
# the function that was compiling when it ran. If two threads compile at once, it belongs to both functions.

# Finds the Python loop and the function around a line, in the text of the file.
#
# A traced program has no Python loops, and many instructions from one line do not prove a loop: `optax` makes hundreds
# in one call. The file shows the loop, if it is there and has not changed since.


class PlaceInFile(NamedTuple):
    """The code around a line."""

    function: str
    """The innermost one; empty: it is of the module."""
    loop_line: int | None
    """Where the innermost loop of that function begins; None: the line is in none."""


def place_of(source: str) -> PlaceInFile | None:
    """Finds the code around file.py:12. Returns None if the file cannot be read."""
    file, _, number = source.rpartition(":")
    tree = tree_of(file)
    if tree is None or not number.isdigit():
        return None
    line = int(number)
    function = next(iter(around(tree, line, Function)), None)
    loops = [loop for loop in around(function or tree, line, Loop) if _repeats(loop, line)]
    name = "" if function is None else getattr(function, "name", "<lambda>")
    return PlaceInFile(name, loops[0].lineno if loops else None)


def _repeats(loop: Loop, line: int) -> bool:
    """Returns whether a loop repeats a line. A loop computes its iterable only once."""
    if not isinstance(loop, ast.For | ast.While):
        return True
    once = [*loop.orelse, *([loop.iter] if isinstance(loop, ast.For) else [])]
    return any(holds(part, line) for part in loop.body) or not any(holds(part, line) for part in once)


# Finds the size of a compiled program, and the line that it repeats most: both make compiling long.
#
# XLA takes time for each instruction. A Python loop is unrolled into the program, and a function is inlined at each
# call. In both cases many instructions come from one line. The user's frames of these instructions differ for an
# inlined function. They are equal for a loop, but also for one call that makes hundreds of instructions, such as an
# optimizer's update. So a loop is reported only if the file has one inside the compiled function: around the line, or
# around the call that leads there.


def program_size(modules: Iterable[Module]) -> ProgramSize | None:
    """Returns the size of the largest of several programs with one name, or None if there is no program."""
    return max(map(_size_of, modules), key=lambda size: size.instructions, default=None)


def _size_of(module: Module) -> ProgramSize:
    every = [*module.instructions]
    working = [each for each in every if each.opcode not in FREE]
    groups = group_by(filter(None, map(module.user_lines, working)), lambda stack: stack[0])
    line, repeated = max(groups.items(), key=lambda pair: len(pair[1]), default=("", []))
    return ProgramSize(
        instructions=len(working),
        constant_bytes=sum(hlo.shape_bytes(each.shape) for each in every if each.opcode == "constant"),
        line=line,
        repeated=len(repeated),
        stacks=len(set(repeated)),
        loop=_loop_of(module.name, repeated[0]) if repeated else "",
    )


def _loop_of(module: str, stack: tuple[str, ...]) -> str:
    """Returns where the innermost loop around these frames begins: file.py:12. Empty if there is no loop, or if it is
    unknown."""
    places = [(source, place_of(source)) for source in stack]
    ends = [i for i, (_, place) in enumerate(places) if place and program_name(place.function) == module]
    # Frames further out belong to the caller of the compiled function, in a loop or not.
    for source, place in places[: ends[0] + 1] if ends else ():
        if place is not None and place.loop_line is not None:
            return f"{source.rpartition(':')[0]}:{place.loop_line}"
    return ""


MOST_PASSES = 3
"""A limit of the display."""


class PassCall(NamedTuple):
    """A pass of the compiler, once."""

    name: str
    start_ps: int
    own_ps: int
    """Without what ran inside of it."""


def compile_costs(space: Space, passes: list[PassCall], known: Iterable[Module] = ()) -> tuple[CompileCost, ...]:
    """Most seconds first; empty where the trace has no marks.

    Args:
        passes: all of them, in the order of time.
        known: the programs that the trace carries.
    """
    modules = group_by(known, lambda module: program_name(module.name))
    found: list[CompileCost] = []
    for name, marks in group_by(read_compile_marks(space), lambda mark: mark.program).items():
        trace_s, lower_s, compile_s = (
            sum(mark.elapsed_us for mark in marks if mark.kind == kind) / 1e6 for kind in ("trace", "lower", "compile")
        )
        compiles = [mark for mark in marks if mark.kind == "compile"]
        source = next((line for mark in reversed(compiles) if (line := user_line(mark.stack))), "")
        longest = _longest(passes, [(mark.begin_ps, mark.end_ps) for mark in compiles if not mark.is_before])
        size = program_size(modules.get(name, ()))
        found.append(CompileCost(name, source, len(compiles), trace_s, lower_s, compile_s, longest, size))
    return tuple(sorted(found, key=lambda one: -one.total_s))


def _longest(calls: list[PassCall], spans: list[tuple[int, int]]) -> tuple[tuple[str, float], ...]:
    """The passes that took longest in these spans, without what ran inside of them."""
    lasted = Counter[str]()
    for begin, end in spans:
        first, last = (bisect_left(calls, time, key=lambda one: one.start_ps) for time in (begin, end))
        for one in calls[first:last]:
            lasted[one.name] += one.own_ps
    return tuple((name, ps / PS) for name, ps in lasted.most_common(MOST_PASSES))


# Remarks for readers of a trace: why it has no operations, which events are missing, and what the numbers leave out.

VIEWER_EVENTS = 1_000_000
"""JAX writes about this many events into `<host>.trace.json.gz` and omits the others (jax-ml/jax#21295)."""
_DROPPED = re.compile(r"drop|truncat|overflow|too many|exceed", re.IGNORECASE)


def _remarks(space: Space, found: Operations, options: Mapping[str, object]) -> Iterator[Remark]:
    for text in space.said:
        if _DROPPED.search(text):
            yield Remark(
                "events-dropped", "error", f"events are missing from this trace, so all sums are too small: {text}"
            )
        else:
            yield Remark("profiler-warning", "warning", f"the profiler says: {text}")
    if not len(found):
        counts = space.count_by_plane()
        planes = ", ".join(f"{plane.name} ({counts[plane.name]} events)" for plane in space.planes)
        reason = f"no operation of a compiled program is in this trace: {_reason(space, options)} (planes: {planes})"
        yield Remark("no-operations", "error", reason)
    elif not found.known:
        yield Remark(
            "no-programs",
            "warning",
            "the trace does not hold the programs, so scopes, lines and communication are not known; record with "
            "enable_hlo_proto=True",
        )
    if open_calls := int(found.is_open.sum()):
        yield Remark(
            "open-calls",
            "warning",
            f"{open_calls} of {plural(len(found), 'call')} of operations had not ended when the recording did, or lost "
            "the mark of the end. They took at least the time that is counted",
        )
    if not space.hosts:
        yield Remark(
            "maybe-cut",
            "warning",
            "the trace does not end with the name of a host, as every trace of JAX does: perhaps it was cut",
        )
    if len(space) >= VIEWER_EVENTS:
        yield Remark(
            "viewer-cut",
            "warning",
            f"{len(space)} events: this table counts all of them, but the files for Perfetto hold about "
            f"{VIEWER_EVENTS}, as JAX cuts them there",
        )
    if any(device.startswith("tpu") for device in found.devices):
        yield Remark(
            "unverified",
            "warning",
            "reading traces of TPUs is written from the source of XLA and was not tried on such a device",
        )


def _reason(space: Space, options: Mapping[str, object]) -> str:
    devices = [plane.name for plane in space.planes if plane.name.startswith("/device:")]
    counts = space.count_by_plane()
    if devices and not any(counts[name] for name in devices):
        return (
            "the device reported nothing; on NVIDIA look for CUPTI_ERROR_INSUFFICIENT_PRIVILEGES in the log (run as "
            "root, or allow profiling for all users in the driver), and end Nsight and other users of CUPTI"
        )
    if options.get("host_tracer_level") == 0:
        return "host_tracer_level=0 records no operation on CPU; leave it at 2"
    if not space.is_host.any():
        return "nothing at all ran, or nothing was recorded; is the work inside the recorded region?"
    # JAX writes the version of each of its backends into the metadata.
    keys = [key for plane in space.planes if plane.name == METADATA for key in plane.keys]
    backends = {key.split("_")[0] for key in keys if key.endswith("_version")}
    if backends & {"cuda", "gpu", "rocm", "tpu"} and not devices:
        return (
            "programs ran, but the trace has no plane of a device: the profiler could not use it; on NVIDIA it needs "
            "CUPTI (libcupti) and the right to use it"
        )
    return (
        "no compiled program ran to its end while recording; call it inside the region, and wait there with "
        "jax.block_until_ready"
    )


# Collects the longest calls of a trace by device and thread, for a timeline.

MOST_CALLS = 3000
"""A recording keeps this many of the longest calls. Shorter ones would be invisible next to them."""


def lanes_of(found: Operations) -> tuple[Lane, ...]:
    """One lane for each device and thread, in the order of devices; calls by their start."""
    lengths = found.end_ps - found.start_ps
    # Among equals, outer calls come first, because they explain more.
    order = np.lexsort((found.depth, -lengths))
    is_kept = np.zeros(len(found), bool)
    is_kept[order[:MOST_CALLS]] = True
    first, lane = group_rows(found.device, found.thread)
    return tuple(_lane(found, at, lane == i, is_kept) for i, at in enumerate(first.tolist()))


def _lane(found: Operations, first: int, mine: Flags, is_kept: Flags) -> Lane:
    shown = np.flatnonzero(mine & is_kept)  # in the order of their starts, as all operations are
    return Lane(
        device=found.devices[int(found.device[first])],
        thread=found.space.lines[int(found.thread[first])].name,
        names=tuple(map(found.name_of, shown.tolist())),
        starts_s=tuple((found.start_ps[shown] / PS).tolist()),
        ends_s=tuple((found.end_ps[shown] / PS).tolist()),
        depths=tuple(found.depth[shown].tolist()),
        n_calls=int(mine.sum()),
    )


_OUTER = ("while", "conditional", "call")
GAPS = 5
"""The number of longest gaps that are kept per device."""

_COMPILES = re.compile(r".*Client::Compile(AndLoad)?|.*Compiler::Compile|XlaCompile|TfrtCpuClient::Compile")
_OF_MODULE = re.compile(r" \(.*\)$", re.DOTALL)


SPOILS = ("no-operations", "events-dropped", "open-calls")
"""Remarks on a recording that lacks some of the work."""


def refuse_incomplete(profile: Profile, more: Sequence[str] = ()) -> None:
    """Raises `NotMeasured`, with the remark, if the recording lacks some of the work, or has a remark of `more`."""
    for remark in profile.remarks:
        if remark.code in (*SPOILS, *more):
            raise NotMeasured(remark.message)


def profile_of(xspace: bytes, *, title: str = "", options: Mapping[str, object] | None = None) -> Profile:
    """Reads a trace.

    Args:
        xspace: the bytes of `<host>.xplane.pb`.
        title: what was profiled.
        options: options of the recording, for the explanation if it is empty.

    Raises:
        FormatError: not a trace, or one that was cut.
    """
    space = read(xspace, KEEP)
    found = operations(space)
    said = exchange(found)
    devices = tuple(_device(found, said, i) for i in range(len(found.devices)))
    compile_ps, passes = read_pass_calls(space)
    runs, machine = runs_by_device(found), machine_of(space)
    remarks = [*_remarks(space, found, options or {})]
    remarks += remark_communication(found, said, devices) if found.known else ()
    return Profile(
        title=title,
        backend=found.devices[0].split(":")[0] if found.devices else "",
        ops=_ops(found),
        devices=devices,
        runs=runs,
        steps=tuple(read_annotations(space)),
        split=split(found, runs),
        passes=_sum_passes(passes),
        compile_s=None if compile_ps is None else compile_ps / PS,
        compile_costs=compile_costs(space, passes, found.known.values()),
        lanes=lanes_of(found),
        fingerprint=machine,
        peaks=kept_peaks(machine) if machine else None,
        n_events=len(space),
        is_truncated=any(remark.code == "events-dropped" for remark in remarks),
        remarks=tuple(remarks),
    )


def _ops(found: Operations) -> tuple[Op, ...]:
    """Grouped by program and name, most self time first."""
    first, group = found.kinds
    calls = np.bincount(group, minlength=len(first)).tolist()
    whole_ps = found.end_ps - found.start_ps
    total, own = (np.bincount(group, values, len(first)).tolist() for values in (whole_ps, found.self_ps))
    is_open = np.bincount(group, found.is_open, len(first)) > 0
    by_program = group_by(first.tolist(), lambda at: int(found.program[at]))
    works = {
        number: work_of_calls(found.known[number], set(map(found.name_of, ats)))
        for number, ats in by_program.items()
        if number in found.known
    }
    everything, ops, texts = max(sum(own), 1), list[Op](), found.space.texts
    for g, at in enumerate(first.tolist()):
        name, (program, line) = found.name_of(at), found.instruction(at)
        scope = hlo.op_name(line) if line else ""
        work = works.get(int(found.program[at]), {}).get(name)
        ops.append(
            Op(
                name=name,
                module=found.module_of(at),
                category=texts[found.category[at]] or (line.opcode if line else ""),
                calls=calls[g],
                total_s=None if is_open[g] else total[g] / PS,
                self_s=own[g] / PS,
                share=own[g] / everything,
                scope=scope or None,
                named_scope=hlo.scope_of(scope),
                source=(program.user_line(line) or None) if program and line else None,
                hlo=_short_text(line) if line else None,
                shape=hlo.plain_shape(line.shape) if line else None,
                flops=None if work is None else float(work[FLOPS] * calls[g]),
                bytes_accessed=None if work is None else float(work[BYTES] * calls[g]),
            )
        )
    return tuple(sorted(ops, key=lambda op: (-op.self_s, op.module, op.name)))


def _short_text(line: Instruction) -> str:
    """Without layouts, and of the attributes those that say what runs."""
    kept = [f", {key}={value}" for key, value in hlo.split_entries(line.attributes) if key in ("kind", *hlo.CALLS)]
    return f"%{line.name} = {hlo.plain_shape(line.shape)} {line.opcode}{line.operands}{''.join(kept)}"


def work_of_calls(module: Module, seen: set[str]) -> dict[str, Work]:
    """Name of an operation → the work of one call; only of those whose work is known.

    If the trace shows the operations inside a loop, the loop itself has no work. Its operations count call by call, so
    no trip count has to be known.

    Args:
        seen: names of the operations of this program that the trace has.
    """
    found: dict[str, Work] = {}
    for computation in module.computations.values():
        for each in computation.instructions:
            if each.name in seen and not is_opaque(each):
                adder = Adder(module)  # one for each, for its restrictions
                is_outer = each.opcode in _OUTER and names_inside(module, each) & seen
                work = Work() if is_outer else adder.instruction(computation, each, is_fused=False)
                if not adder.restrictions:
                    found[each.name] = work
    return found


def _device(found: Operations, said: Exchange, index: int) -> Device:
    # Outermost operations only: those inside a loop run while the loop does.
    mine = np.flatnonzero((found.device == index) & (found.depth == 0))
    # Between its two halves, a communication is in progress and the device is not idle.
    start, end = said.begin_ps[mine], found.end_ps[mine]
    busy, span = unite(start, end), int(end.max() - start.min())
    between = busy.gaps(int(start.min()), int(end.max()))
    longest = np.argsort(between.start - between.end, kind="stable")[:GAPS]
    gaps = tuple(
        Gap(
            int(begin) / PS,
            int(stop - begin) / PS,
            found.name_of(int(mine[np.argmax(end == begin)])),
            found.name_of(int(mine[np.argmax(start == stop)])),
        )
        for begin, stop in zip(between.start[longest], between.end[longest], strict=True)
    )
    exchanged = communication_of(found, said, index)
    return Device(found.devices[index], busy.length / PS, (span - busy.length) / PS, gaps, *exchanged)


def read_pass_calls(space: Space) -> tuple[int | None, list[PassCall]]:
    """Returns (picoseconds inside the compiler, its passes in the order of time); None if nothing was compiled.

    The compiler also works on threads other than the one that called it (code generation in parts). This work runs
    inside those seconds, under the name of the call that waits for it.
    """
    compiles = space.find(_COMPILES.fullmatch)
    at = np.flatnonzero(np.isin(space.line, space.line[compiles]) & space.is_host & (space.duration_ps > 0))
    at = at[np.lexsort((-space.duration_ps[at], space.start_ps[at], space.line[at]))]
    columns = [column[at].tolist() for column in (space.line, space.start_ps, space.end_ps)]
    own_ps, _ = self_times(*columns)
    found: list[PassCall] = []
    total_ps, thread, reach = 0, -1, -1
    for event, is_compiling, line, start, end, own in zip(
        at.tolist(), np.isin(at, compiles).tolist(), *columns, own_ps, strict=True
    ):
        # Events inside a call of the compiler are passes; other events are not.
        if line != thread or start >= reach:
            thread, reach = line, -1
            if not is_compiling:
                continue
            reach = end
            total_ps += end - start
        found.append(PassCall(_OF_MODULE.sub("", space.name_of(event)), start, own))
    return total_ps if len(compiles) else None, sorted(found, key=lambda one: one.start_ps)


def _sum_passes(calls: list[PassCall]) -> tuple[CompilePass, ...]:
    """Most self time first."""
    by_name = group_by(calls, lambda one: one.name).items()
    found = [CompilePass(name, len(each), sum(one.own_ps for one in each) / PS) for name, each in by_name]
    return tuple(sorted(found, key=lambda one: -one.self_s))


def recording_cost(
    found: Profile, unrecorded_s: float | None, why: str, typical: Callable[[Sequence[float]], float] = mean
) -> RecordingCost | None:
    """Returns the cost of recording for a step of a loop, or for a marked call. None: too few events to matter.

    Args:
        unrecorded_s: seconds of one while nothing is recorded. None: not measured, because of `why`.
        typical: how several recorded ones become one number.
    """
    split = found.split
    if split is None or split.mark == "none" or split.events_per_step < MANY_EVENTS_PER_S * split.mean_s:
        return None
    return RecordingCost(typical(split.lengths_s), unrecorded_s, split.events_per_step, "" if unrecorded_s else why)
