"""The handlers of `handlers.c` in Python, as ctypes callbacks: the clock of a machine without a C compiler.

They need the interpreter's lock, so a reading takes 1.3 to 2.2 µs instead of 0.14, and a busy Python thread delays it.
`handlers.c` documents them; the structs are the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, Structure, c_char_p, c_float, c_int, c_int64, c_size_t, c_uint8, c_uint32, c_void_p
from time import perf_counter_ns
from typing import Any

DEADLINE_EXCEEDED = 4
METADATA = 1

api_minor = 1
"""The minor version of XLA's FFI to name, set by `tiers.py` as in `handlers.c`."""


class ApiVersion(Structure):
    _fields_ = (("size", c_size_t), ("extension", c_void_p), ("major", c_int), ("minor", c_int))


class Metadata(Structure):
    _fields_ = (("size", c_size_t), ("api_version", ApiVersion))


class MetadataExtension(Structure):
    _fields_ = (("size", c_size_t), ("type", c_int), ("next", c_void_p), ("metadata", POINTER(Metadata)))


class ErrorArguments(Structure):
    _fields_ = (("size", c_size_t), ("extension", c_void_p), ("message", c_char_p), ("code", c_int))


# PYFUNCTYPE keeps the interpreter's lock: the call is short, and we are in the middle of a handler that has it.
ErrorCreate = ctypes.PYFUNCTYPE(c_void_p, POINTER(ErrorArguments))


class Api(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("extension", c_void_p),
        ("api_version", ApiVersion),
        ("internal", c_void_p),
        ("error_create", ErrorCreate),
    )


class FfiBuffer(Structure):
    _fields_ = (("size", c_size_t), ("extension", c_void_p), ("dtype", c_int), ("data", c_void_p))


class FfiBuffers(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("size", c_int64),
        ("types", c_void_p),
        ("buffers", POINTER(POINTER(FfiBuffer))),
    )


class Scalar(Structure):
    _fields_ = (("dtype", c_int), ("value", POINTER(c_int64)))


class Attributes(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("extension", c_void_p),
        ("size", c_int64),
        ("types", c_void_p),
        ("names", c_void_p),
        ("values", POINTER(POINTER(Scalar))),
    )


class CallFrame(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("extension", POINTER(MetadataExtension)),
        ("api", POINTER(Api)),
        ("context", c_void_p),
        ("stage", c_int),
        ("operands", FfiBuffers),
        ("results", FfiBuffers),
        ("attributes", Attributes),
    )


Handler = Callable[[CallFrame], int | None]
# CFUNCTYPE takes the interpreter's lock for the call: XLA calls from threads of its own, and JAX lets the lock go while
# a program runs.
_C_HANDLER = ctypes.CFUNCTYPE(c_void_p, POINTER(CallFrame))


def _words(buffers: FfiBuffers, i: int) -> Any:
    return ctypes.cast(buffers.buffers[i].contents.data, POINTER(c_uint32))


def _join(words: Any) -> int:
    return words[0] | words[1] << 32


def _split_words(ns: int, words: Any) -> None:
    words[0], words[1] = ns & 0xFFFFFFFF, ns >> 32


def _stamp(frame: CallFrame) -> None:
    results = frame.results
    words = _words(results, results.size - 1)
    # As late as possible, and with no further call behind it, which the next interval would hold.
    ns = perf_counter_ns()
    words[0], words[1] = ns & 0xFFFFFFFF, ns >> 32


def _arm(frame: CallFrame) -> None:
    seconds = ctypes.cast(frame.operands.buffers[0].contents.data, POINTER(c_float))[0]
    now, latest = perf_counter_ns(), _join(_words(frame.operands, 1))
    is_earlier = seconds < max(0, latest - now) * 1e-9
    _split_words(now + max(0, int(seconds * 1e9)) if is_earlier else latest, _words(frame.results, 0))


def _tick(frame: CallFrame) -> int | None:
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


def _spin(frame: CallFrame) -> None:
    until = perf_counter_ns() + frame.attributes.values[0].contents.value[0]
    while perf_counter_ns() < until:
        pass


def _answers_metadata(frame: CallFrame) -> bool:
    if not frame.extension or frame.extension.contents.type != METADATA:
        return False
    version = frame.extension.contents.metadata.contents.api_version
    version.major, version.minor = 0, api_minor
    return True


def _handler(work: Handler) -> Any:
    def call(frame: Any) -> int | None:
        frame = frame.contents
        return None if _answers_metadata(frame) else work(frame)

    return _C_HANDLER(call)


HANDLERS = {
    "benchax_stamp": _handler(_stamp),
    "benchax_arm": _handler(_arm),
    "benchax_tick": _handler(_tick),
    "benchax_spin": _handler(_spin),
}
"""Kept for as long as the process: XLA holds their addresses."""
