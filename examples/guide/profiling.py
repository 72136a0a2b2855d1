"""Chapters 6 and 7: where the time goes, and the whole checklist."""

from __future__ import annotations

import jax
from guide_page import TIME_S, inputs_of, section

import benchax
from benchax import workloads


@section("6. Profiling")
def profiling() -> None:
    """*"Profile before optimizing."*

    This is the trace of JAX's profiler as a table. You can also open the file in Perfetto or XProf
    ([profiling](profiling.md)).
    """
    weights, _ = inputs_of(workloads.transformer)
    x = jax.random.normal(jax.random.key(0), (4, 128, 128))
    print(benchax.profile(jax.jit(workloads.transformer), weights, x))


@section("7. The checklist")
def the_checklist() -> None:
    """This answers every line of the usual checklist for one function, with measurements."""
    print(benchax.checklist(workloads.train_step, *inputs_of(workloads.train_step), max_time_s=2 * TIME_S))
