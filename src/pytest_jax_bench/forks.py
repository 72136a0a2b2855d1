"""Support for `pytest --forked` (pytest-forked): a message instead of a hang, and reports that can travel.

JAX starts threads, and a forked process has none of its parent's: a computation there waits forever. So the plugin
refuses a benchmark in a fork of a process whose JAX has started, with advice.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from benchax.errors import UsageError


@dataclass
class _State:
    parent: int | None = None
    had_started: bool = False
    """Had JAX started in the parent when this process was forked?"""


_state = _State()


def watch() -> None:
    """From now on, remembers in each fork whether JAX had started before it."""
    if _state.parent is None and hasattr(os, "register_at_fork"):
        _state.parent = os.getpid()
        os.register_at_fork(after_in_child=_remember)


def _remember() -> None:
    _state.had_started = _has_jax_started()


def _has_jax_started() -> bool:
    """Private (tried on jax 0.6 to 0.12.0.1); where it is gone, the answer is no, and a hang is what it was before."""
    started = getattr(sys.modules.get("jax._src.xla_bridge"), "backends_are_initialized", None)
    return bool(started and started())


def refuse_broken_fork() -> None:
    """Raises `UsageError` where a computation would wait for ever."""
    if _state.had_started:
        raise UsageError(
            "JAX had started before this test was forked, and no computation would end here",
            "no arrays and no computations when test files are imported",
            "make them inside the test or in a fixture, or leave out --forked: eager memory is measured without it",
        )


def make_portable(report: Any) -> None:
    """Lets a report of pytest 9.1 and later travel through pytest-forked, which (up to 1.7.5) sends all attributes by
    `marshal`, and makes the report again by their names. Can go when pytest-forked sends `nodeid`."""
    if os.getpid() == _state.parent or isinstance(report.__dict__.get("_id", ""), str):
        return
    report.__dict__["nodeid"] = report.nodeid
    report.__dict__["_id"] = report.nodeid
