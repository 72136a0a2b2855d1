"""Threads that sample a running program: the arrays that are alive, and the line of Python that it is at.

`jax.live_arrays()` sees arrays that Python holds or that wait to be freed. It does not see temporaries inside programs,
nor any peak. For peaks see `measuring/memory.py`.

A `Sampler` reads in a separate thread. A reading holds Python's lock for its whole duration, and the program loses that
time: 0.1 ms with a hundred arrays, 2 ms with 2000 (jax 0.10.2, two cores). The lines at which arrays were made cost
more: 0.3 ms with a hundred and 2 ms with 1000. So the sampler asks for them less often. Between readings the thread
sleeps long enough to keep all readings below 2 % of the time, and lines below 0.5 %. If a program holds the lock, for
example in one long call of C code, no reading is possible during that time. The recorded times show this.

Its readings cover the arrays that Python holds on the default backend, the allocator statistics of an accelerator, and
the resident memory of the process. They miss peaks between two readings. Temporaries of a running program are in
resident memory on CPU and in `in_use` on an accelerator, and never in the arrays. Resident memory includes the
profiler's events, too. It rose by 173 MiB in a first recording of one second, and the next recording reused that
memory. Two arrays that share a buffer count twice. The sampler does not collect garbage, because that would change the
program.

The backend must have been started: a reading would start it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import gzip
import inspect
import math
import opcode
import sys
import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple, Self

import jax
import psutil

from benchax.errors import FormatError
from benchax.grouping import group_by
from benchax.profiling.host_thread import BETWEEN, ENDED, SAMPLE, SampledFrame, encode
from benchax.protobuf import ProtoMessage
from benchax.results.profile import Column, Kind, LineMemory, LiveBuffers, Timeline
from benchax.source_files import NOT_YOURS, outward, owner_of

# Finds the user's lines that made the arrays that are alive, from `jax.profiler.device_memory_profile()`.
#
# This is a gzipped profile of pprof. JAX keeps the Python stack with each buffer when it makes the buffer, also for
# calls on the fast path (tried: jax 0.10.2). https://github.com/google/pprof/blob/main/proto/profile.proto has the
# fields.
#
# A buffer belongs to the innermost line of the user's files, if there is one. The profile also has compiled programs,
# which are left out.

MOST_LINES = 20
"""The sampler keeps this many lines, those that held most at some time. The others are combined into one."""
OTHERS = "(other lines)"


def bytes_by_line(profile: bytes) -> dict[str, int]:
    """file.py:12 → bytes of the buffers that were made there.

    Raises:
        FormatError: these bytes are no such profile.
    """
    try:
        if not (data := gzip.decompress(profile)):
            raise EOFError("it is empty")
        whole = ProtoMessage(data)
        texts = whole.texts(6)
        files = {function.number(1): texts[function.number(4)] for function in whole.messages(5)}
        lines: dict[int, str] = {}
        for location in whole.messages(4):
            for line in location.messages(4)[-1:]:
                file = files.get(line.number(1), "")
                is_theirs = bool(file) and owner_of(file) == "user"
                lines[location.number(1)] = f"{file}:{line.number(2)}" if is_theirs else ""
        found = Counter[str]()
        for sample in whole.messages(2):
            labels = {texts[label.number(1)]: texts[label.number(2)] for label in sample.messages(3)}
            if labels.get("kind") == "buffer":
                where = next((lines[at] for at in sample.numbers(1) if lines.get(at)), NOT_YOURS)
                found[where] += sample.numbers(2)[1]  # a count, and bytes
    except (OSError, EOFError, zlib.error, IndexError, KeyError) as error:
        raise FormatError(f"the memory profile of JAX cannot be read: {error!r}") from error
    return dict(found)


def line_columns(readings: Sequence[Mapping[str, int] | None]) -> tuple[LineMemory, ...]:
    """A column for each line, that which held most at some time first. None: this reading was not made."""
    most: Counter[str] = Counter()
    for reading in readings:
        most |= Counter(reading)  # the larger one of each line
    kept: dict[str, tuple[str, ...]] = {line: (line,) for line, _ in most.most_common(MOST_LINES)}
    if rest := tuple(line for line in most if line not in kept):
        kept[OTHERS] = rest
    return tuple(
        LineMemory(name, tuple(None if each is None else sum(each.get(line, 0) for line in lines) for each in readings))
        for name, lines in kept.items()
    )


Live = Mapping[tuple[tuple[int, ...], str], tuple[int, int]]
"""(shape, dtype) → (how many, bytes of all of them)."""

MOST_PROFILE_BYTES = 16 * 2**20
"""The sampler keeps up to this much of JAX's data on lines until the end. A reading has 1 kB, or more if there are many
stacks."""
INTERVAL_S = 0.01
"""Seconds between two readings of the memory, or more: `MOST_SHARE` limits what they cost."""
MOST_SHARE = 0.02
"""The share of the time that readings may take."""
LINES_SHARE = 0.005
"""The part of it that is for the lines at which arrays were made."""
_PATIENCE_S = 5.0
"""Until a thread that does not end, in the middle of a reading, is left alone."""
_STATS: dict[Kind, str] = {"in_use": "bytes_in_use", "peak_in_use": "peak_bytes_in_use"}
_Key = tuple[Kind, str]


def live_arrays() -> list[jax.Array]:
    # JAX lists a donated array for as long as Python holds it, although it no longer has any bytes.
    return [array for array in jax.live_arrays() if not array.is_deleted()]


def live() -> Live:
    """Returns the arrays that are alive now. It collects garbage first: arrays that only a cycle holds are no leak."""
    gc.collect()
    kinds = group_by(live_arrays(), lambda array: (tuple(array.shape), str(array.dtype)))
    return {kind: (len(arrays), sum(array.nbytes for array in arrays)) for kind, arrays in kinds.items()}


def live_bytes(arrays: Live) -> int:
    return sum(size for _, size in arrays.values())


def left_over(before: Live, after: Live) -> tuple[LiveBuffers, ...]:
    """Returns the shapes and dtypes with more arrays now than before, largest first."""
    more = {kind: count - before.get(kind, (0, 0))[0] for kind, (count, _) in after.items()}
    found = [
        LiveBuffers(*kind, more[kind], size * more[kind] // count)
        for kind, (count, size) in after.items()
        if more[kind] > 0
    ]
    return tuple(sorted(found, key=lambda one: (-one.size_bytes, one.shape, one.dtype)))


# ---- while something runs ----------------------------------------------------------------------------------------


def run_paced(
    look: Callable[[float], None],
    over: threading.Event,
    interval_s: float,
    most_share: float,
    cost_s: float = 0.0,
    recent: float = 1.0,
) -> None:
    """Calls `look` every `interval_s`, or less often if it would take more than `most_share` of the time, until `over`.

    Args:
        look: gets how many seconds too late it is. Its exceptions are lost, because the program must not notice them.
        cost_s: the processor time that the first call is expected to take.
        recent: the weight of the last call in what the next one is expected to take.
    """
    pause_s = interval_s
    while True:
        due, used = time.perf_counter() + pause_s, time.thread_time()
        if over.wait(pause_s):
            return
        with contextlib.suppress(Exception):
            look(time.perf_counter() - due)
        cost_s += recent * (time.thread_time() - used - cost_s)
        pause_s = max(interval_s, cost_s / most_share)


class Sampler:
    """Readings from `start` to `stop`, with one at each end."""

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self._failure = ""
        self._began = time.perf_counter()
        self._process = psutil.Process()
        self._devices: list[Any] = []
        self._readings: list[tuple[float, float, dict[_Key, int], bytes | None]] = []
        """When each began, its processor time, its sizes, and the lines if they were asked for."""
        self._profile_bytes = 0
        self._next_profile_s = 0.0
        """When the lines may be asked for again."""
        self._over = threading.Event()
        pace = (self._read, self._over, interval_s, MOST_SHARE - LINES_SHARE)
        self._thread = threading.Thread(target=run_paced, args=pace, name="benchax-memory", daemon=True)

    def start(self) -> Sampler:
        self._began = time.perf_counter()
        self._devices = jax.local_devices()
        self._read()
        self._thread.start()
        return self

    def stop(self) -> Timeline:
        """Once. The last reading is taken here, so that it is of the end."""
        self._over.set()
        self._thread.join(_PATIENCE_S)
        if not self._thread.is_alive():
            self._read()
        return self._timeline()

    def _read(self, late_s: float = 0.0) -> None:
        began, used = time.perf_counter(), time.thread_time()
        try:
            sizes = self._sizes_now()
            profile = self._profile_now(began - self._began)
        except Exception as error:  # the program must not notice
            self._failure = f"{type(error).__name__}: {error}"
            self._over.set()
            return
        # CPU time, not elapsed time: waiting for Python's lock costs the program nothing.
        self._readings.append((began - self._began, time.thread_time() - used, sizes, profile))

    def _profile_now(self, now_s: float) -> bytes | None:
        """The lines at which arrays were made, to be read at the end; None where it is too early, or once there are too
        many."""
        if self._profile_bytes >= MOST_PROFILE_BYTES or (now_s < self._next_profile_s and not self._over.is_set()):
            return None
        used = time.thread_time()
        try:
            found = jax.profiler.device_memory_profile()
        except Exception:  # UNIMPLEMENTED, in whatever type this JAX has for it: then lines are not known
            self._profile_bytes = MOST_PROFILE_BYTES
            return None
        self._profile_bytes += len(found)
        self._next_profile_s = now_s + (time.thread_time() - used) / LINES_SHARE
        return found

    def _sizes_now(self) -> dict[_Key, int]:
        arrays = live_bytes_by_device()
        sizes: dict[_Key, int] = {}
        for device in self._devices:
            sizes["live_arrays", device_name(device)] = arrays[device_name(device)]
            stats: dict[str, int] = {}  # empty on CPU
            with contextlib.suppress(Exception):  # UNIMPLEMENTED, in whatever type this JAX has for it: not known
                stats = device.memory_stats() or {}
            sizes |= {(kind, device_name(device)): stats[name] for kind, name in _STATS.items() if name in stats}
        sizes["resident", ""] = self._process.memory_info().rss
        return sizes

    def _timeline(self) -> Timeline:
        times_s, reading_s = tuple(one[0] for one in self._readings), tuple(one[1] for one in self._readings)
        every_size, profiles = [sizes for _, _, sizes, _ in self._readings], [one[3] for one in self._readings]
        keys = dict.fromkeys(key for sizes in every_size for key in sizes)
        columns = tuple(Column(*key, tuple(sizes.get(key) for sizes in every_size)) for key in keys)
        lines: tuple[LineMemory, ...] = ()
        with contextlib.suppress(FormatError):  # this JAX writes them in another way
            lines = line_columns([None if profile is None else bytes_by_line(profile) for profile in profiles])
        return Timeline(times_s, reading_s, columns, self._failure, lines)


def live_bytes_by_device() -> Counter[str]:
    """Device → bytes of the arrays that are alive, those parts of them that are there."""
    found: Counter[str] = Counter()
    for array in live_arrays():
        part = math.prod(array.sharding.shard_shape(array.shape)) * array.dtype.itemsize
        for device in array.sharding.addressable_devices:
            found[device_name(device)] += part
    return found


def device_name(device: Any) -> str:
    return f"{device.platform}:{device.id}"


# ---- samples of the stack ---------------------------------------------------------------------------------------
#
# Writes the current Python line of the user's thread into the trace, every few milliseconds.
#
# `PacedSampler` reads its stack, and `StackSampler` leaves an event whose name is the stack (`host_thread.py`). The
# event's stats hold the thread's processor time since the last sample, and the delay of the sample.


def annotate(name: str, **stats: Any) -> None:
    """Leaves an event in the trace that is being recorded."""
    with jax.profiler.TraceAnnotation(name, **stats):
        pass


STACK_INTERVAL_S = 0.005
"""Seconds between two samples of the stack, or more: the share below limits what they cost."""
MOST_STACK_SHARE = 0.003
"""The default share of the time that samples can take. On a busy machine the program loses about twice as much again:
it gives Python's lock away, and finds its caches cold. With 0.005 a loop took 1.5 % more processor time
(RESULTS.md)."""
FIRST_COST_S = 1e-4
"""The expected cost of a sample before the first one. If it were 0, the first samples would come too often."""
RECENT = 0.1
"""The weight of the last sample in what the next one is expected to cost."""
SWITCH_S = 0.0005
"""Python's switch interval while samples are taken (docs/about/decisions.md)."""
MOST_FRAMES = 16
"""This many of the user's innermost frames are kept."""


def main_thread() -> int:
    return threading.main_thread().ident or 0


class PacedSampler(ABC):
    """Samples from `start` to `stop` of one thread. `which` says its number before each sample: by default the main
    thread."""

    def __init__(
        self,
        most_share: float = MOST_STACK_SHARE,
        switch_s: float = SWITCH_S,
        which: Callable[[], int] = main_thread,
    ) -> None:
        self.most_share, self.switch_s, self.which = most_share, switch_s, which
        self.thread = which()
        self._over = threading.Event()
        self._runner = threading.Thread(target=self._run, name="benchax-stacks", daemon=True)
        self.used_s = self.lasted_s = 0.0
        """Once it is over: the processor time of its thread, and how long that ran."""
        self._switch_before = sys.getswitchinterval()

    @abstractmethod
    def sample(self, frame: FrameType, late_s: float) -> None:
        """Receives the frame that the thread is in. Its exceptions are lost, because the program must not notice
        them."""

    def start(self) -> Self:
        """Once."""
        self._switch_before = sys.getswitchinterval()
        sys.setswitchinterval(min(self.switch_s, self._switch_before))
        self._runner.start()
        return self

    def stop(self) -> None:
        """Once; the last sample was taken."""
        self._over.set()
        self._runner.join(_PATIENCE_S)
        if (
            abs(sys.getswitchinterval() - min(self.switch_s, self._switch_before)) < 1e-9
        ):  # unless the program has set it
            sys.setswitchinterval(self._switch_before)

    def finish(self) -> None:  # noqa: B027  # only some have something to do
        """On the sampling thread, behind the last sample."""

    def _run(self) -> None:
        began = time.perf_counter()
        # The first samples of a function cost more, and must not make all others rare.
        run_paced(self._look, self._over, STACK_INTERVAL_S, self.most_share, FIRST_COST_S, RECENT)
        self.used_s, self.lasted_s = time.thread_time(), time.perf_counter() - began
        self.finish()

    def _look(self, late_s: float) -> None:
        self.thread = self.which()
        frame = sys._current_frames().get(self.thread)
        if frame is not None:
            self.sample(frame, late_s)


class StackSampler(PacedSampler):
    """Leaves events in the trace that is being recorded. Stopped before that ends, so that the last event is in it."""

    def __init__(self, which: Callable[[], int] = main_thread) -> None:
        super().__init__(which=which)
        self.taken = 0
        self._before: dict[int, tuple[int, int]] = {}
        """Thread → what it had used at its last sample, and when that was."""

    def sample(self, frame: FrameType, late_s: float) -> None:
        self.taken += 1
        stats: dict[str, Any] = {"late_us": max(0, int(late_s * 1e6))}
        with contextlib.suppress(AttributeError, OSError):  # no such clock on this system, or the thread has ended
            stats |= self._processor_time()
        annotate(SAMPLE + describe_stack(frame), **stats)

    def finish(self) -> None:
        used_us, wall_us = int(self.used_s * 1e6), int(self.lasted_s * 1e6)
        annotate(ENDED, samples=self.taken, used_us=used_us, wall_us=wall_us)

    def _processor_time(self) -> dict[str, int]:
        """Returns the thread's processor time since its last sample, and the time since that sample."""
        used, now = _used_ns(self.thread), time.perf_counter_ns()
        before, self._before[self.thread] = self._before.get(self.thread), (used, now)
        return {} if before is None else {"cpu_us": (used - before[0]) // 1000, "since_us": (now - before[1]) // 1000}


def _used_ns(thread: int) -> int:
    """How long a thread ran or was ready to run, if the system reports it; otherwise how long it ran.

    On a busy machine, a thread that computes is off the processor for a part of the time, although it waits for
    nothing.
    """
    if (file := _schedstat_of(thread)) is None:
        return time.clock_gettime_ns(time.pthread_getcpuclockid(thread))
    return sum(map(int, file.read_bytes().split()[:2]))


@functools.lru_cache(maxsize=16)
def _schedstat_of(thread: int) -> Path | None:
    """Returns Linux's file with nanoseconds on a processor, nanoseconds in the queue for one, and how often."""
    native = next((one.native_id for one in threading.enumerate() if one.ident == thread), None)
    file = Path(f"/proc/self/task/{native}/schedstat")
    return file if file.exists() else None


def describe_stack(frame: FrameType | None) -> str:
    """As `marks.encode` writes it, innermost first.

    The innermost frame, the one that the user's own code called to get there, and those of the user's own files.
    """
    places = [place for each in outward(frame) if not (place := _place_of(each)).is_ours]
    own = [i for i, place in enumerate(places) if place.is_own]
    chosen = sorted({0, *own, *(i - 1 for i in own[:1] if i)})[:MOST_FRAMES] if places else []
    parts: list[str] = []
    inside = 0
    for i in chosen:
        is_iterating = any(place.is_iterator for place in places[inside:i])
        parts.append(places[i].iterating if is_iterating else places[i].text)
        inside = i if places[i].is_own else inside
    return BETWEEN.join(parts)


class _Place(NamedTuple):
    """An instruction of a function, which many samples meet."""

    code: CodeType
    """Held, so that no other function gets its number."""
    text: str
    iterating: str
    """The same, where it waits for an iterator that is a function of Python's."""
    is_own: bool
    is_ours: bool
    is_iterator: bool


MOST_PLACES = 20_000
"""Instructions of Python whose place is remembered: a limit of memory."""
_places: dict[tuple[int, int], _Place] = {}
_FOR = opcode.opmap["FOR_ITER"]
_JUMPS = {opcode.opmap[name] for name in ("JUMP_BACKWARD", "RESUME")}
"""Where Python lets other threads run, while it calls nothing."""


def _place_of(frame: FrameType) -> _Place:
    # Compare by identity: the hash of a code object reads all its constants.
    key = id(frame.f_code), frame.f_lasti
    if key in _places:
        return _places[key]
    if len(_places) > MOST_PLACES:
        _places.clear()
    code, file = frame.f_code, frame.f_code.co_filename
    owner = owner_of(file)
    is_generator = bool(code.co_flags & inspect.CO_GENERATOR) and code.co_name != "<genexpr>"
    at = code.co_code[frame.f_lasti] if 0 <= frame.f_lasti < len(code.co_code) else None
    found = SampledFrame(file, frame.f_lineno or 0, code.co_name, owner, at == _FOR, at in _JUMPS)
    iterating = encode((found._replace(is_iterating=True),))
    is_iterator = is_generator or code.co_name == "__next__"
    _places[key] = _Place(code, encode((found,)), iterating, owner == "user", owner == "benchax", is_iterator)
    return _places[key]
