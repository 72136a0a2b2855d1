"""Finds outputs so large that each call gets new pages from the system, and pays for each page (CPU)."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from time import perf_counter

import jax

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Gain, NotApplicable, rule
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.units import count, percent, seconds, size

try:
    import resource
except ImportError:  # Windows, which does not tell
    resource = None

LARGE_BYTES = 32 << 20
"""glibc maps larger blocks again each time (its M_MMAP_THRESHOLD grows up to this)."""
CALLS = 3
SHARE = 0.5
"""The share of the pages of the outputs that must have been faulted in."""

OF_OUTPUTS = (
    "Donate an argument of the same shape, so that the output reuses its pages (rule donation-possible), or return "
    "less: a sum, a slice, a narrower dtype."
)
OF_TEMPORARIES = (
    "It returns little; what is large lives only inside of the call. Work in parts, so that temporaries stay below "
    f"{size(LARGE_BYTES)}: jax.lax.map(f, xs, batch_size=...), or a scan over parts. benchax inspect names the lines "
    "that make them."
)


@rule("page-faulting-output", "do its outputs need new pages in each call?", "info")
def page_faulting_output(e: Evidence) -> Iterable[Finding]:
    if e.platform != "cpu":
        raise NotApplicable(f"memory of {e.platform} comes from a pool that JAX keeps")
    memory = e.inspection.memory
    if memory is None or memory.output_bytes is None:
        raise NotMeasured("the compiler does not tell the size of the outputs")
    # Temporaries are as new as outputs. What an output takes over from a donated argument has its pages already.
    fresh = memory.output_bytes - (memory.alias_bytes or 0) + (memory.temp_bytes or 0)
    if fresh < LARGE_BYTES:
        return
    faults = _faults_per_call(e)
    expected = fresh / mmap.PAGESIZE
    # The size alone proves nothing, since the allocator's threshold moves: counted faults do.
    if faults < SHARE * expected:
        return
    # From one thread, where XLA may touch from several: so the gain is an estimate, and "up to".
    touching = _touching_s(fresh)
    run = e.measurement.find_summary()
    # What is gained is a part of the call, whatever touching the pages from one thread takes.
    gained = touching if run is None else min(touching, run.median_s)
    returned = memory.output_bytes - (memory.alias_bytes or 0)
    is_returned = returned >= SHARE * fresh
    what = "outputs and temporaries" if returned >= LARGE_BYTES else "temporaries"
    whole = "" if run is None else f", of {seconds(run.median_s)} that a call takes"
    yield page_faulting_output.finding(
        f"{size(fresh)} of {what} are new pages in each call",
        [
            f"{count(faults)} page faults per call; {size(fresh)} are {count(expected)} pages",
            f"touching as many new pages takes {seconds(touching)} here{whole}",
            f"that is {percent(min(1.0, faults / expected))} of its pages",
        ],
        OF_OUTPUTS if is_returned else OF_TEMPORARIES,
        where=e.def_where,
        gain=Gain(f"estimated: up to {seconds(gained)} per call", gained),
    )


def _faults_per_call(e: Evidence) -> float:
    """Minor page faults of this process, of warm calls. Results are dropped before the next call."""
    if resource is None:
        raise NotMeasured("this system does not tell page faults")
    call = e.prepared.program.call
    # All inputs before the first count: making them faults pages in as well.
    calls = [e.fresh_inputs() for _ in range(CALLS + 1)]
    before = 0
    for i, (args, kwargs) in enumerate(calls):
        if i == 1:  # the first one warms up
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        jax.block_until_ready(call(*args, **kwargs))
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / CALLS


def _touching_s(size_bytes: int) -> float:
    """Writes a byte into each page of this much new memory, in Python's own fastest way, and returns the quickest of
    three times."""
    best = float("inf")
    for _ in range(3):
        # Mapped anew each time, as glibc maps such an output: memory of Python's own would have its pages already.
        with mmap.mmap(-1, size_bytes) as pages:
            begun = perf_counter()
            pages[:: mmap.PAGESIZE] = bytes(-(-size_bytes // mmap.PAGESIZE))
            best = min(best, perf_counter() - begun)
    return best
