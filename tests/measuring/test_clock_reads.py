"""Which clocks a function reads while it is traced, and who else may be watching."""

from __future__ import annotations

import cProfile
import sys
import time

import jax.numpy as jnp

import benchax
from benchax.measuring.purity import watch_clock_reads


def test_a_reading_of_the_clock_is_told_with_its_line() -> None:
    with watch_clock_reads() as reads:
        time.perf_counter_ns()
        abs(-1)

    assert [read.name for read in reads] == ["time.perf_counter_ns"]
    assert reads[0].file == __file__


def test_a_hook_of_a_debugger_is_put_back() -> None:
    def hook(*_: object) -> None:
        pass

    sys.setprofile(hook)
    try:
        with watch_clock_reads():
            pass
        left = sys.getprofile()
    finally:
        sys.setprofile(None)

    assert left is hook


def test_cprofile_goes_on_beside_a_measurement_which_says_what_it_did_not_look_for() -> None:
    profiler = cProfile.Profile()

    profiler.enable()
    try:
        row = benchax.bench(lambda x: x + 1, jnp.ones(3), store="off", stages="build")
        time.perf_counter_ns()
    finally:
        profiler.disable()

    assert row.failure is None
    assert any("perf_counter_ns" in str(entry.code) for entry in profiler.getstats())
    # Since Python 3.12 profilers do not exclude one another.
    is_excluded = sys.version_info < (3, 12)
    expected = "a profiler (cProfile) is watching this process" if is_excluded else None
    assert {a.what: a.why for a in row.not_measured}.get("purity.clock_reads") == expected
