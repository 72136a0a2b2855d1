"""`watch_compiles`: what JAX traces, lowers and compiles inside a block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.monitoring
import numpy as np
import pytest

from benchax.watching import compiles
from benchax.watching.compiles import CompileLog, watch_compiles

X3, X4 = np.ones(3, np.float32), np.ones(4, np.float32)


def fresh() -> Callable[..., Any]:
    """A function that JAX has never seen: its caches go by identity.

    Made of `lax`, since up to jax 0.8 every new `jnp` function inside sends a trace event of its own.
    """

    def twice(x: jax.Array) -> jax.Array:
        return jax.lax.add(x, x)

    return jax.jit(twice)


def kinds(log: CompileLog) -> list[str]:
    return [event.kind for event in log.events]


def test_a_log_is_live_and_ends_with_its_block_and_blocks_may_be_nested():
    function = fresh()

    with watch_compiles() as outer:
        traced = function.trace(X3)
        after_trace = kinds(outer)
        lowered = traced.lower()
        after_lower = kinds(outer)
        lowered.compile()
        with watch_compiles() as inner:
            for _ in range(3):
                function(X4)
        fresh()(X3)
    fresh()(X3)

    assert (after_trace, after_lower) == (["trace"], ["trace", "lower"])
    assert (outer.compiles, inner.compiles) == (3, 1)
    assert outer.is_reliable
    assert inner.is_reliable


def test_an_exception_passes_and_the_listeners_go(monkeypatch: pytest.MonkeyPatch):
    gone: list[str] = []
    logs: list[CompileLog] = []
    unregister = compiles._unregister
    monkeypatch.setattr(compiles, "_unregister", lambda sort, f: gone.append(sort) or unregister(sort, f))

    def block() -> None:
        with watch_compiles() as log:
            logs.append(log)
            fresh()(X3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    fresh()(X3)

    assert logs[0].compiles == 1
    assert logs[0].is_reliable
    assert gone == ["event", "event_duration"]


def test_a_log_whose_listeners_were_cleared_says_so():
    """Blocks outside and inside know it; the next one is well again."""
    with watch_compiles() as outer, watch_compiles() as inner:
        fresh()(X3)
        jax.monitoring.clear_event_listeners()
        fresh()(X3)
    with watch_compiles() as after:
        fresh()(X3)

    assert (inner.compiles, inner.is_reliable) == (1, False)
    assert (outer.compiles, outer.is_reliable) == (1, False)
    assert (after.compiles, after.is_reliable) == (1, True)


def test_a_jax_that_cannot_unregister_leaves_a_listener_that_does_nothing(monkeypatch: pytest.MonkeyPatch):
    for module in (jax.monitoring, jax._src.monitoring):  # noqa: TID251  (before 0.8.1 they are only here)
        for name in [name for name in vars(module) if "unregister" in name]:
            monkeypatch.delattr(module, name)

    with watch_compiles() as log:
        fresh()(X3)
    fresh()(X3)

    assert log.compiles == 1
    assert not log.is_reliable


def test_events_of_others_do_no_harm():
    with watch_compiles() as log:
        jax.monitoring.record_event("/somebody/else", what=3)
        jax.monitoring.record_event_duration_secs("/somebody/else", 0.1, fun_name=7)
        jax.monitoring.record_event_duration_secs("/jax/core/compile/backend_compile_duration", 0.1, fun_name=7)

    assert log.events == [("compile", None, 0.1, None)]
