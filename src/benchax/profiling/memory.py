"""The arrays that are alive: before and after some code, or repeatedly while other code runs.

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
import gc
import gzip
import math
import threading
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import psutil

from benchax.errors import FormatError
from benchax.protobuf import ProtoMessage
from benchax.results.profile import Column, Kind, LineMemory, LiveBuffers, Timeline
from benchax.source_files import NOT_YOURS, owner_of

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
                is_theirs = bool(file) and not file.startswith("<") and owner_of(file) == "user"
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
        for line, size in (reading or {}).items():
            most[line] = max(most[line], size)
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
MOST_SHARE = 0.02
"""The share of the time that readings may take."""
LINES_SHARE = 0.005
"""The part of it that is for the lines at which arrays were made."""
_PATIENCE_S = 5.0
"""Until a thread that does not end, in the middle of a reading, is left alone."""
_STATS: dict[Kind, str] = {"in_use": "bytes_in_use", "peak_in_use": "peak_bytes_in_use"}
_Key = tuple[Kind, str]


def live_arrays() -> list[jax.Array]:
    # A donated array stays in JAX's list for as long as Python holds it, and has no bytes any more.
    return [array for array in jax.live_arrays() if not array.is_deleted()]


def live() -> Live:
    """Returns the arrays that are alive now. It collects garbage first: arrays that only a cycle holds are no leak."""
    gc.collect()
    sizes: dict[tuple[tuple[int, ...], str], list[int]] = defaultdict(list)
    for array in live_arrays():
        sizes[tuple(array.shape), str(array.dtype)].append(array.nbytes)
    return {kind: (len(each), sum(each)) for kind, each in sizes.items()}


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


class Sampler:
    """Readings from `start` to `stop`, with one at each end."""

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self.interval_s = interval_s
        self._failure = ""
        self._began = time.perf_counter()
        self._process = psutil.Process()
        self._devices: list[Any] = []
        self._times_s: list[float] = []
        self._reading_s: list[float] = []
        self._sizes: list[dict[_Key, int]] = []
        self._profiles: list[bytes | None] = []
        self._profile_bytes = 0
        self._next_profile_s = 0.0
        """When the lines may be asked for again."""
        self._sizes_s = 0.0
        """The time that the sizes of the last reading took."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="benchax-memory", daemon=True)

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

    def _run(self) -> None:
        share = MOST_SHARE - LINES_SHARE
        while not self._failure and not self._over.wait(max(self.interval_s, self._sizes_s / share)):
            self._read()

    def _read(self) -> None:
        began, used = time.perf_counter(), time.thread_time()
        try:
            sizes = self._sizes_now()
            self._sizes_s = time.thread_time() - used
            profile = self._profile_now(began - self._began)
        except Exception as error:  # the program must not notice
            self._failure = f"{type(error).__name__}: {error}"
            return
        self._times_s.append(began - self._began)
        # Not the time that passed: waiting for Python's lock costs the program nothing.
        self._reading_s.append(time.thread_time() - used)
        self._sizes.append(sizes)
        self._profiles.append(profile)

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
        keys = dict.fromkeys(key for sizes in self._sizes for key in sizes)
        columns = (Column(*key, tuple(sizes.get(key) for sizes in self._sizes)) for key in keys)
        lines: tuple[LineMemory, ...] = ()
        with contextlib.suppress(FormatError):  # this JAX writes them in another way
            lines = line_columns([None if profile is None else bytes_by_line(profile) for profile in self._profiles])
        return Timeline(tuple(self._times_s), tuple(self._reading_s), tuple(columns), self._failure, lines)


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
