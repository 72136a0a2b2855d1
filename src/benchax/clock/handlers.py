"""The clock of compiled code: the handlers of `handlers.c`, how they are loaded and tested, and calls of them.

On a CPU there are three tiers, best first. `tier` chooses the best one that tells the truth here.

    prebuilt   compiled when benchax was installed
    built      compiled at first use, kept in the user's cache folder
    python     ctypes callbacks: ten times slower, and always there on a CPU

An NVIDIA GPU has one, `cuda`: see `cuda.py`.

Handlers are registered once per process and permanently, under names that contain the tier. So the next tier can
replace one that fails its test.

The library is plain C (`handlers.c`) and depends on neither Python nor JAX. A library that is built at first use is
kept in the user's cache folder. Its name identifies the source, the compiler and the machine. `stamps.py` and
`deadline.py` are what others use.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shlex
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from ctypes import POINTER, Structure, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint8, c_uint32, c_void_p
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import platformdirs
from jax import lax

from benchax.clock import cuda
from benchax.errors import NotAvailable, UsageError

Name = Literal["prebuilt", "built", "python", "cuda"]
VERSION = 1
"""The version of the handlers' interface, as in `handlers.c`."""
MAJOR, OLDEST, NEWEST = 0, 1, 5
"""Versions of XLA's FFI whose call frame was seen to be laid out as `handlers.c` has it: jax 0.6 to 0.12."""

SOURCE = Path(__file__).with_name("handlers.c")


@dataclass(frozen=True)
class Tier:
    """A clock that XLA knows."""

    name: Name
    reasons: tuple[str, ...] = ()
    """Why the better tiers do not serve."""

    @property
    def can_raise(self) -> bool:
        """Whether a handler can end its program with an error."""
        return self.name != "cuda"

    def target(self, handler: str) -> str:
        """The name of a handler ("stamp", "arm", "tick", "spin") or kernel ("stamp", "tick", "spin") of this tier."""
        return f"benchax_{handler}" if self.name == "cuda" else f"benchax_{handler}_{self.name}"


@lru_cache(maxsize=3)
def load(name: Name) -> Tier:
    """Loads and registers one tier, untested.

    Raises:
        NotAvailable: it cannot be had here.
    """
    minor = _api_minor()
    handlers = LOADERS[name](minor)
    # Registered before there is a backend, a handler that XLA refuses would keep the backend from starting at all.
    try:
        jax.devices("cpu")
    except RuntimeError as error:
        raise NotAvailable(f"JAX has no CPU backend here: {error}") from None
    found = Tier(name)
    for handler in ("stamp", "arm", "tick", "spin"):
        capsule = jax.ffi.pycapsule(handlers(f"benchax_{handler}"))
        try:
            jax.ffi.register_ffi_target(found.target(handler), capsule, platform="cpu")
        except Exception as error:
            first_line, _, _ = str(error).partition("\n")
            raise NotAvailable(f"XLA refuses the handler: {first_line}") from None
    return found


def _api_minor() -> int:
    """The version that the handlers name: XLA's own, from the header that jaxlib ships, or the newest that we know.

    XLA refuses a handler of a version above its own, and one that is too old for it. Below that a minor version adds
    and renames, and moves nothing (c_api.h); the self-test then judges.
    """
    header = Path(jax.ffi.include_dir(), "xla/ffi/api/c_api.h")
    try:
        text = header.read_text(encoding="utf-8")
    except OSError as error:
        raise NotAvailable(f"the version of XLA's FFI is unknown: {error}") from None
    major, minor = (int(re.search(rf"#define XLA_FFI_API_{part} (\d+)", text)[1]) for part in ("MAJOR", "MINOR"))  # type: ignore[index]
    if major != MAJOR or minor < OLDEST:
        raise NotAvailable(f"XLA's FFI has version {major}.{minor}; known are {MAJOR}.{OLDEST} to {MAJOR}.{NEWEST}")
    return min(minor, NEWEST)


Handlers = Callable[[str], Any]


def _library(path: Path, minor: int) -> Handlers:
    try:
        library = ctypes.CDLL(str(path))
        found = ctypes.c_int.in_dll(library, "benchax_handlers_version").value
        ctypes.c_int.in_dll(library, "benchax_api_minor").value = minor
    except (OSError, ValueError) as error:
        raise NotAvailable(f"{path.name} cannot be loaded: {error}") from None
    if found != VERSION:
        raise NotAvailable(f"{path.name} is of version {found}, not {VERSION}: install benchax again")
    return lambda name: getattr(library, name)


LOADERS: dict[Name, Callable[[int], Handlers]] = {
    "prebuilt": lambda minor: _library(prebuilt(), minor),
    "built": lambda minor: _library(build_library(), minor),
    "python": lambda minor: _interpreted_handlers(minor),
}


def prebuilt() -> Path:
    """The library that came with the installation.

    Raises:
        NotAvailable: there was no compiler then.
    """
    # It is not a Python module, but setuptools names it like one: native.cpython-311-x86_64-linux-gnu.so
    library = SOURCE.with_name("native" + (sysconfig.get_config_var("EXT_SUFFIX") or ".so"))
    if not library.exists():
        raise NotAvailable("benchax was installed without a C compiler")
    return library


def build_library(folder: Path | None = None) -> Path:
    """The library in the user's cache folder, compiled now if it is not there yet (0.1 to 0.2 s).

    Args:
        folder: another place to keep it.

    Raises:
        NotAvailable: no compiler, or it fails, or the folder cannot be written to.
    """
    compiler = os.environ.get("CC") or "cc"
    # The name contains the machine, because machines can share users' folders.
    facts = SOURCE.read_text(encoding="utf-8") + compiler + platform.platform() + platform.machine()
    folder = folder or platformdirs.user_cache_path("benchax")
    library = folder / f"handlers-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.so"
    if not library.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Under a name of its own first: another process may be doing the same.
            with tempfile.TemporaryDirectory(dir=folder) as work:
                made = Path(work, library.name)
                command = [*shlex.split(compiler), "-O2", "-shared", "-fPIC", "-o", str(made), str(SOURCE)]
                subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
                made.replace(library)
        except FileNotFoundError:
            raise NotAvailable(f"there is no C compiler {compiler!r}") from None
        except subprocess.CalledProcessError as error:
            first_line = (error.stderr.strip().splitlines() or [""])[0]
            raise NotAvailable(f"{compiler!r} cannot compile {SOURCE.name}: {first_line}") from None
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotAvailable(f"the clock cannot be built in {folder}: {error}") from None
    return library


# ---- calls of the handlers -------------------------------------------------------------------------------------------


NEVER = np.array([2**32 - 1, 2**32 - 1], np.uint32)
"""A time that no clock reaches."""
FIRST_STRIP = np.array([0, 0, 1], np.uint32)
"""The state of `tick` before the first look."""


def stamp(tier: Tier, arrays: list[jax.Array], after: Sequence[jax.Array] = ()) -> tuple[list[jax.Array], jax.Array]:
    """(the same arrays, aliased; the time, u32[2], when they and those of `after` are computed)."""
    if tier.name == "cuda":
        return cuda.stamp(arrays, after)
    # Two words of 32 bits, because without x64 the first operation on an int64 would truncate it.
    call = jax.ffi.ffi_call(
        tier.target("stamp"),
        [*(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays), jax.ShapeDtypeStruct((2,), jnp.uint32)],
        # An alias passes an array through without a copy, except for one at the start of the program. A separate result
        # would be copied at each reading.
        input_output_aliases={i: i for i in range(len(arrays))},
    )
    *passed, time = call(*arrays, *after)
    return passed, time


def spin(tier: Tier, x: jax.Array, ns: int) -> jax.Array:
    """`x`, `ns` nanoseconds later: a function of known duration, to measure measuring with."""
    if tier.name == "cuda":
        return cuda.spin(x, ns)
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.ffi.ffi_call(tier.target("spin"), shape, input_output_aliases={0: 0})(x, ns=np.int64(ns))


def deadline(tier: Tier, seconds: Any, after: Any, latest: Any = NEVER) -> jax.Array:
    """Returns the time (u32[2]) `seconds` after `after` was computed, or `latest` if that is earlier.

    Args:
        seconds: f32[], can be traced. Infinity and NaN mean no separate limit; a value at or below 0 has passed
            already.
        after: an array that is ready when the time begins to run; it is not read.
        latest: u32[2].
    """
    given = jnp.asarray(seconds, jnp.float32), jnp.asarray(latest, jnp.uint32), jnp.asarray(after)
    if tier.name == "cuda":
        return cuda.deadline(*given)
    # The handlers ignore `after`. As their operand, it makes XLA compute it first.
    return jax.ffi.ffi_call(tier.target("arm"), jax.ShapeDtypeStruct((2,), jnp.uint32))(*given)


def tick(tier: Tier, until: Any, state: Any, after: Any, *, must_raise: bool = False) -> tuple[jax.Array, jax.Array]:
    """Looks at the clock after a strip of a loop.

    Args:
        until: u32[2], the deadline.
        state: u32[3]: when it looked last (0: never) and how many iterations the strip had; see FIRST_STRIP.
        after: an array that the strip has computed, such as its counter; a small one.
        must_raise: ends the whole program with DEADLINE_EXCEEDED where the deadline has passed; see `Tier.can_raise`.

    Returns:
        (state, is_expired): u32[3] with the length of the next strip in its last word, and bool[].
    """
    given = jnp.asarray(until, jnp.uint32), jnp.asarray(state, jnp.uint32), jnp.asarray(after)
    if tier.name == "cuda":
        return cuda.tick(*given)
    shapes = (jax.ShapeDtypeStruct((3,), jnp.uint32), jax.ShapeDtypeStruct((), jnp.bool_))
    state, is_expired = jax.ffi.ffi_call(tier.target("tick"), shapes)(*given, hard=np.int64(must_raise))
    return state, is_expired


def target_of(eqn: Any) -> str:
    """The name of the handler or the kernel that an equation calls; empty if it calls none."""
    target = str(eqn.params.get("target_name", ""))
    return str(dict(eqn.params["attributes"])["name"]) if target == cuda.TARGET else target


# ---- the test of a tier ----------------------------------------------------------------------------------------------
#
# Which clock to use: the best tier that tells the truth here. What it must pass before a number is made with it:
#
# One compiled program holds sixteen functions of known duration, each between two stamps. They must come in order, none
# overlapping the next, each as long as it is known to be; and the times must never step back. Sixteen, because with
# fewer XLA:CPU keeps the order by itself and a clock that is not pinned looks right.


FUNCTIONS = 16
SPIN_NS = 20_000
SLACK_NS = {"prebuilt": 1_000, "built": 1_000, "python": 10_000, "cuda": 20_000}
"""The largest excess over a known duration in the best case: for XLA's call of the functions, and of Python ones.
Unverified for kernels: three launches of some 5 µs."""
TRIES = 50
READINGS = 1000


def default_platform() -> str:
    """Where arrays go that are put nowhere else: "cpu", "gpu", "tpu"."""
    device = getattr(jax.config, "jax_default_device", None)  # a device, the name of a platform, or None
    name = getattr(device, "platform", device) or jax.default_backend()
    return {"cuda": "gpu", "rocm": "gpu"}.get(name, name)


def tier() -> Tier:
    """The clock of programs on the default device; found, loaded and tested at the first call.

    Raises:
        NotAvailable: no tier loads or passes its test, or this device has no clock.
    """
    return find_tier(default_platform())


@lru_cache(maxsize=2)
def find_tier(platform: str) -> Tier:
    """Finds the best tier of a platform that passes its test; see `tier`."""
    if platform == "gpu":
        made_for = jax.devices()[0].client.platform_version.strip()
        if not made_for.startswith("cuda"):
            raise NotAvailable(f"JAX runs this GPU by {made_for!r}, not by CUDA")
        check(Tier("cuda"))
        return Tier("cuda")
    if platform != "cpu":
        raise NotAvailable(f"none is made for {platform} yet")
    reasons: list[str] = []
    for name in LOADERS:
        try:
            check(load(name))
        except NotAvailable as error:
            reasons.append(f"{name}: {error.problem}")
        else:
            return Tier(name, tuple(reasons))
    raise NotAvailable("; ".join(reasons))


def nanoseconds(time: Any) -> np.ndarray:
    """Stamps u32[..., 2] as int64 nanoseconds [...]; what is later than these can say, such as never, is their last.

    Raises:
        UsageError: these are no stamps.
    """
    words = np.asarray(time)
    if words.dtype.kind not in "iu" or words.shape[-1:] != (2,):
        raise UsageError(f"{time!r} isn't a time", "times as `stamp` returns them: u32[..., 2]")
    words = words.astype(np.int64)
    high = words[..., 1]
    return np.where(high < 2**31, words[..., 0] + (high << 32), np.iinfo(np.int64).max)


def check(tier: Tier) -> None:
    """Raises `NotAvailable` with what was seen, if this clock is not to be trusted."""
    x = np.zeros(8, np.float32)
    try:
        # Compiled ahead: the first stamp can be requested while a function is being traced.
        program = jax.jit(partial(_sixteen, tier=tier)).lower(jax.ShapeDtypeStruct(x.shape, x.dtype)).compile()
        runs = [nanoseconds(program(x)) for _ in range(3)]
    except Exception as error:
        first_line, _, _ = str(error).partition("\n")
        raise NotAvailable(f"its test does not run: {type(error).__name__}: {first_line}") from None
    for times in runs:
        judge_order(times)
    least = np.min([times[:, 1] - times[:, 0] for times in runs], axis=0)
    # A busy machine only makes a known duration longer, and only a wrong clock makes it shorter. So take the smallest
    # of many.
    for _ in range(TRIES):
        if (judged := judge_length(least, tier)) is None:
            return
        times = nanoseconds(program(x))
        least = np.minimum(least, times[:, 1] - times[:, 0])
    raise NotAvailable(judged)


def _sixteen(x: jax.Array, tier: Tier) -> jax.Array:
    """u32[16, 2, 2]: start and end of each function."""
    times = []
    for i in range(FUNCTIONS):
        (x,), start = stamp(tier, [x * 1.5 + i])
        (x,), end = stamp(tier, [spin(tier, x, SPIN_NS)])
        times.append(jnp.stack([start, end]))
    return jnp.stack(times)


def judge_order(times: np.ndarray) -> None:
    """Raises `NotAvailable` unless the times [functions, 2] in ns, row by row, never step back."""
    if (np.diff(times.ravel()) < 0).any():
        raise NotAvailable("its readings are not in the order of the program")


def judge_length(least_ns: np.ndarray, tier: Tier) -> str | None:
    """The error in the least durations of the known ones; None if there is no error."""
    too_short, excess = least_ns.min() - SPIN_NS, np.median(least_ns) - SPIN_NS
    if too_short < 0:
        return f"a function of {SPIN_NS} ns was read as {least_ns.min()} ns"
    if excess > SLACK_NS[tier.name]:
        return f"functions of {SPIN_NS} ns were read as {int(excess) + SPIN_NS} ns at best"
    return None


def readings_ns(tier: Tier) -> np.ndarray:
    """The nanoseconds between readings with nothing in between, int64[READINGS - 1]."""

    def program(x: jax.Array) -> jax.Array:
        return lax.scan(lambda x, _: stamp(tier, x), [x], None, length=READINGS)[1]

    return np.diff(nanoseconds(jax.jit(program)(np.zeros(8, np.float32))))


def reading_s(tier: Tier) -> float:
    """Median seconds between two readings with nothing in between."""
    return float(np.median(readings_ns(tier))) / 1e9


def step_s(tier: Tier) -> float | None:
    """The step of the clock, if all of the differences between readings have one in common; None: they are all 0."""
    return float(np.gcd.reduce(readings_ns(tier))) / 1e9 or None


# ---- handlers in Python ----------------------------------------------------------------------------------------------
#
# The handlers of `handlers.c` as ctypes callbacks: the clock of a machine without a C compiler.
#
# They need the interpreter's lock, so a reading takes 1.3 to 2.2 µs instead of 0.14, and a busy Python thread delays
# it. `handlers.c` documents them; the structs are the same.


DEADLINE_EXCEEDED = 4
METADATA = 1


def _struct(name: str, **fields: Any) -> Any:
    return type(name, (Structure,), {"_fields_": tuple(fields.items())})


ApiVersion = _struct("ApiVersion", size=c_size_t, extension=c_void_p, major=c_int, minor=c_int)
Metadata = _struct("Metadata", size=c_size_t, api_version=ApiVersion)
MetadataExtension = _struct("MetadataExtension", size=c_size_t, type=c_int, next=c_void_p, metadata=POINTER(Metadata))
ErrorArguments = _struct("ErrorArguments", size=c_size_t, extension=c_void_p, message=c_char_p, code=c_int)
# PYFUNCTYPE keeps the interpreter's lock: the call is short, and we are in the middle of a handler that has it.
ErrorCreate = ctypes.PYFUNCTYPE(c_void_p, POINTER(ErrorArguments))
Api = _struct(
    "Api", size=c_size_t, extension=c_void_p, api_version=ApiVersion, internal=c_void_p, error_create=ErrorCreate
)
FfiBuffer = _struct("FfiBuffer", size=c_size_t, extension=c_void_p, dtype=c_int, data=c_void_p)
FfiBuffers = _struct(
    "FfiBuffers",
    struct_size=c_size_t,
    extension=c_void_p,
    size=c_int64,
    types=c_void_p,
    buffers=POINTER(POINTER(FfiBuffer)),
)
Scalar = _struct("Scalar", dtype=c_int, value=POINTER(c_int64))
Attributes = _struct(
    "Attributes",
    struct_size=c_size_t,
    extension=c_void_p,
    size=c_int64,
    types=c_void_p,
    names=c_void_p,
    values=POINTER(POINTER(Scalar)),
)
CallFrame = _struct(
    "CallFrame",
    size=c_size_t,
    extension=POINTER(MetadataExtension),
    api=POINTER(Api),
    context=c_void_p,
    stage=c_int,
    operands=FfiBuffers,
    results=FfiBuffers,
    attributes=Attributes,
)

Handler = Callable[[Any], int | None]
"""Takes a `CallFrame`."""
# CFUNCTYPE takes the interpreter's lock for the call: XLA calls from its own threads, and JAX releases the lock while a
# program runs.
_C_HANDLER = ctypes.CFUNCTYPE(c_void_p, POINTER(CallFrame))


def _words(buffers: Any, i: int) -> Any:
    return ctypes.cast(buffers.buffers[i].contents.data, POINTER(c_uint32))


def _join(words: Any) -> int:
    return words[0] | words[1] << 32


def _split_words(ns: int, words: Any) -> None:
    words[0], words[1] = ns & 0xFFFFFFFF, ns >> 32


def _stamp(frame: Any) -> None:
    results = frame.results
    words = _words(results, results.size - 1)
    # Read the clock as late as possible: any call after it would count in the next interval.
    ns = perf_counter_ns()
    words[0], words[1] = ns & 0xFFFFFFFF, ns >> 32


def _arm(frame: Any) -> None:
    seconds = ctypes.cast(frame.operands.buffers[0].contents.data, POINTER(c_float))[0]
    now, latest = perf_counter_ns(), _join(_words(frame.operands, 1))
    is_earlier = seconds < max(0, latest - now) * 1e-9
    _split_words(now + max(0, int(seconds * 1e9)) if is_earlier else latest, _words(frame.results, 0))


def _tick(frame: Any) -> int | None:
    state, found = _words(frame.operands, 1), _words(frame.results, 0)
    now, last, strip = perf_counter_ns(), _join(state), state[2]
    is_expired = now >= _join(_words(frame.operands, 0))
    if is_expired and frame.attributes.values[0].contents.value[0]:
        why = ErrorArguments(
            ctypes.sizeof(ErrorArguments), None, b"benchax: the time limit was reached", DEADLINE_EXCEEDED
        )
        return frame.api.contents.error_create(ctypes.byref(why))
    _split_words(now, found)
    found[2] = next_strip(strip, now - last) if last else strip
    ctypes.cast(frame.results.buffers[1].contents.data, POINTER(c_uint8))[0] = is_expired
    return None


def next_strip(strip: int, elapsed_ns: int) -> int:
    """Iterations until the next look at the clock, as in `handlers.c`."""
    if elapsed_ns < 25_000:
        strip *= 8
    elif elapsed_ns < 200_000:
        strip *= 2
    elif elapsed_ns > 1_000_000:
        strip = int(strip * (500_000 / elapsed_ns))
    return max(1, min(strip, 1 << 28))


def _spin(frame: Any) -> None:
    until = perf_counter_ns() + frame.attributes.values[0].contents.value[0]
    while perf_counter_ns() < until:
        pass


_kept: dict[str, Any] = {}
"""Kept for as long as the process: XLA holds their addresses."""


def _interpreted_handlers(minor: int) -> Handlers:
    def make(work: Handler) -> Any:
        def call(frame: Any) -> int | None:
            frame = frame.contents
            if not frame.extension or frame.extension.contents.type != METADATA:
                return work(frame)
            version = frame.extension.contents.metadata.contents.api_version
            version.major, version.minor = 0, minor
            return None

        return _C_HANDLER(call)

    for name, work in {"stamp": _stamp, "arm": _arm, "tick": _tick, "spin": _spin}.items():
        _kept[f"benchax_{name}"] = make(work)
    return _kept.__getitem__
