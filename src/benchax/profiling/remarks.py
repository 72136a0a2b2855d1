"""What a reader of a trace must know: why there are no operations, what was dropped, what the numbers leave out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np

from benchax.model import Remark
from benchax.profiling.compiled_modules import CompiledModule
from benchax.profiling.operations import HOST, Operations
from benchax.profiling.space import Space
from benchax.units import plural

VIEWER_EVENTS = 1_000_000
"""JAX writes about so many events into `<host>.trace.json.gz` and leaves out the others (jax-ml/jax#21295)."""
_DROPPED = re.compile(r"drop|truncat|overflow|too many|exceed", re.IGNORECASE)


def remark_dropped(space: Space) -> tuple[Remark, ...]:
    """What the profiler itself says to have left out of the trace."""
    return tuple(
        Remark("events-dropped", "error", f"events are missing from this trace, so all sums are too small: {text}")
        for text in (*space.errors, *space.warnings)
        if _DROPPED.search(text)
    )


def of(
    space: Space, found: Operations, known: Mapping[int, CompiledModule], options: Mapping[str, object]
) -> Iterator[Remark]:
    """All but those of `remark_dropped`."""
    for text in (*space.errors, *space.warnings):
        if not _DROPPED.search(text):
            yield Remark("profiler-warning", "warning", f"the profiler says: {text}")
    if not len(found):
        reason = f"no operation of a compiled program is in this trace: {why(space, options)}"
        yield Remark("no-operations", "error", reason)
    elif not known:
        text = (
            "the trace does not hold the programs, so scopes, lines and communication are not known; record with "
            "enable_hlo_proto=True"
        )
        yield Remark("no-programs", "warning", text)
    if (open_calls := int(found.is_open.sum())) and len(found):
        text = (
            f"{open_calls} of {plural(len(found), 'call')} of operations had not ended when the recording did, or lost "
        )
        yield Remark("open-calls", "warning", text + "the mark of the end: they took at least the time that is counted")
    if not space.hosts:
        text = "the trace does not end with the name of a host, as those of JAX do: it may have been cut"
        yield Remark("maybe-cut", "warning", text)
    if space.n_events >= VIEWER_EVENTS:
        text = f"{space.n_events} events: this table counts all of them, but the files for Perfetto hold about "
        yield Remark("viewer-cut", "warning", f"{text}{VIEWER_EVENTS}, as JAX cuts them there")
    if len(found) and _is_of_tpu(found):
        text = "reading traces of TPUs is written from the source of XLA and was not tried on such a device"
        yield Remark("unverified", "warning", text)


def why(space: Space, options: Mapping[str, object]) -> str:
    """Which planes and threads there are instead, and what to do."""
    planes = ", ".join(f"{plane.name} ({sum(map(len, plane.lines))} events)" for plane in space.planes)
    return f"{_reason(space, options)} (planes: {planes})"


def _reason(space: Space, options: Mapping[str, object]) -> str:
    host = space.plane(HOST)
    devices = [plane for plane in space.planes if plane.name.startswith("/device:")]
    if devices and not any(len(line) for plane in devices for line in plane.lines):
        return (
            "the device reported nothing; on NVIDIA look for CUPTI_ERROR_INSUFFICIENT_PRIVILEGES in the log (run as "
            "root, or allow profiling for all users in the driver), and end Nsight and other users of CUPTI"
        )
    if options.get("host_tracer_level") == 0:
        return "host_tracer_level=0 records no operation on CPU; leave it at 2"
    if host is None or not any(len(line) for line in host.lines):
        return "nothing at all ran, or nothing was recorded; is the work inside the recorded region?"
    if _has_accelerator(space) and not devices:
        return (
            "programs ran, but the trace has no plane of a device: the profiler could not use it; on NVIDIA it needs "
            "CUPTI (libcupti) and the right to use it"
        )
    return (
        "no compiled program ran to its end while recording; call it inside the region, and wait there with "
        "jax.block_until_ready"
    )


def _has_accelerator(space: Space) -> bool:
    """Did JAX have another backend than CPU? It writes the version of each into the metadata."""
    metadata = space.plane("/host:metadata")
    words = metadata.words if metadata else {}
    return any(name.endswith("_version") and name.split("_")[0] in ("cuda", "gpu", "rocm", "tpu") for name in words)


def _is_of_tpu(found: Operations) -> bool:
    return any(found.devices[int(i)].startswith("tpu") for i in np.unique(found.device))
