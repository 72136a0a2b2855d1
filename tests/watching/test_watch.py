"""`watch`: what is counted, for whom, and what it survives. Why something was compiled: `test_reasons.py`."""

from __future__ import annotations

import contextlib
import gc
import json
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import field, make_dataclass
from functools import partial
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest
from jax_versions import shows_calls

import benchax
from benchax.errors import UsageError
from benchax.results.watch import Watch
from benchax.watching import compiles, frames
from benchax.watching.compiles import CompileLog, watch_compiles
from benchax.watching.transfers import watch_transfers
from benchax.watching.watch import StepCalls, watch

X3, X4 = np.ones(3, np.float32), np.ones(4, np.float32)


def fresh() -> Callable[..., Any]:
    """A function that JAX has never seen: its caches go by identity.

    Made of `lax`, since up to jax 0.8 every new `jnp` function inside sends a trace event of its own.
    """

    def twice(x: jax.Array) -> jax.Array:
        return jax.lax.add(x, x)

    return jax.jit(twice)


def test_a_call_is_told_with_its_function_its_line_and_its_arguments():
    twice = fresh()

    with benchax.watch() as w:
        twice(X3)

    (compiled,) = w.compiles
    assert compiled.function == "twice"
    assert compiled.arguments == "x: f32[3]"
    assert (compiled.is_eager, compiled.from_cache, compiled.is_nested) == (False, False, False)
    assert compiled.trace_s is not None
    assert compiled.lower_s is not None
    here = Path(__file__)
    call, defined = (str(text).rsplit(":", 1) for text in (compiled.where, compiled.defined))
    assert {Path(call[0]).name, Path(defined[0]).name} == {here.name}
    lines = here.read_text(encoding="utf-8").splitlines()
    assert lines[int(call[1]) - 1].strip() == "twice(X3)"
    assert lines[int(defined[1]) - 1].strip().startswith("def twice")


def test_what_dataclasses_make_of_a_class_is_no_line_of_yours():
    twice = fresh()
    made = make_dataclass("Made", [("x", Any, field(default_factory=partial(twice, X3)))])

    with benchax.watch() as w:
        made()

    (compiled,) = w.compiles
    assert Path(str(compiled.where).rpartition(":")[0]).name == Path(__file__).name


def test_functions_are_counted_and_ranked_by_what_they_cost():
    one, other = fresh(), jax.jit(lambda x: x)

    with benchax.watch() as w:
        one(X3)
        one(X4)
        other(X3)

    twice = next(f for f in w.functions if f.function == "twice")
    assert (twice.traces, twice.lowerings, twice.compiles, twice.cache_hits) == (2, 2, 2, 0)
    assert twice.total_s == pytest.approx(twice.trace_s + twice.lower_s + twice.compile_s)
    assert [f.total_s for f in w.functions] == sorted((f.total_s for f in w.functions), reverse=True)
    assert w.total_s == pytest.approx(sum(c.total_s for c in w.compiles))
    assert [c.is_first for c in w.compiles] == [True, False, True]
    assert w.recompiles == [w.compiles[1]]


def test_eager_operations_are_apart_and_a_users_jit_of_one_is_not():
    with benchax.watch() as w:
        jnp.ones((2, 3, 5, 7))
        jax.jit(jnp.tanh)(X3)
        jax.jit(jnp.ones, static_argnums=0)((3, 7))

    assert w.eager
    assert all("broadcast" in c.function or "convert" in c.function for c in w.eager)
    assert [c.function for c in w.compiles if not c.is_eager] == ["jit(tanh)", "ones"]


@pytest.mark.parametrize(("name", "is_its_own"), [("_identity_fn", True), ("ones", False)])
def test_a_function_that_jax_keeps_private_is_jitted_by_jax_alone(monkeypatch, name: str, is_its_own: bool):
    fun = FunctionType((lambda x: x).__code__, {}, name)
    fun.__module__ = "jax.made"
    monkeypatch.setitem(sys.modules, "jax.made", SimpleNamespace(**{name: fun}))

    assert frames.is_of_jax(fun) == is_its_own


def test_lowering_by_hand_is_known_by_its_call():
    twice = fresh()

    with benchax.watch() as w:
        lowered = twice.lower(jax.ShapeDtypeStruct((5,), jnp.float32))
        assert w.compiles == []
        lowered.compile()

    assert [(c.function, c.arguments, c.is_first) for c in w.compiles] == [("twice", "x: f32[5]", True)]


def test_programs_of_the_persistent_cache_are_told_apart(cache: Path):
    with benchax.watch() as w:
        fresh()(X3)
        fresh()(X3)

    assert [c.from_cache for c in w.compiles] == [False, True]
    assert (w.cache_hits, w.cache_writes, w.cache_dir) == (1, 1, str(cache))
    assert sum(f.cache_hits for f in w.functions) == 1


@pytest.mark.parametrize(("threads", "seen"), [("this", 0), ("all", 1)])
def test_other_threads_are_counted_where_that_is_wanted(threads: Any, seen: int):
    with benchax.watch(threads=threads) as w:
        thread = threading.Thread(target=fresh(), args=(X3,), name="loader")
        thread.start()
        thread.join()

    assert [c.thread for c in w.compiles] == ["loader"] * seen
    assert (w.share is None) == (threads == "all")


def test_threads_at_once_do_not_mix_their_programs():
    functions = [fresh() for _ in range(4)]
    barrier = threading.Barrier(4)

    def work(i: int) -> None:
        barrier.wait()
        functions[i](np.ones(10 + i, np.float32))

    with benchax.watch(threads="all") as w:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sorted(c.arguments for c in w.compiles) == [f"x: f32[{10 + i}]" for i in range(4)]
    assert all(c.trace_s is not None and c.lower_s is not None for c in w.compiles)


def test_an_unknown_choice_of_threads_is_told():
    with pytest.raises(UsageError, match="invalid threads='other'\nexpected one of: this, all"):
        benchax.watch("other").__enter__()  # type: ignore[arg-type]


def test_blocks_may_be_nested_and_each_explains_for_itself():
    twice = fresh()

    with benchax.watch() as outer:
        twice(X3)
        with benchax.watch() as inner:
            twice(X4)

    assert (len(outer.compiles), len(inner.compiles)) == (2, 1)
    if frames.can_tell_earlier_calls():  # else the inner one cannot know of the outer one's call
        assert outer.reasons == inner.reasons
    assert outer.compiles[1].why == "x: shape f32[3] → f32[4]"
    plain = json.loads(json.dumps(outer.asdict()))
    assert plain["compiles"][1]["reasons"] == [{"kind": "shape", "text": "x: shape f32[3] → f32[4]"}]
    assert (plain["functions"][0]["compiles"], plain["share"]) == (2, outer.share)


def test_a_watch_is_live_and_stays_as_it_is_afterwards():
    twice = fresh()

    with benchax.watch() as w:
        twice(X3)
        assert (len(w.compiles), w.wall_s, w.share) == (1, None, None)
    twice(X4)

    assert len(w.compiles) == 1
    assert w.wall_s is not None
    assert w.share is not None
    assert 0 < w.share <= 1


def test_a_failure_of_ours_is_a_remark_and_not_the_users_error(monkeypatch: pytest.MonkeyPatch):
    def fail() -> None:
        raise RuntimeError("no such frame")

    monkeypatch.setattr(frames, "calling", fail)

    with benchax.watch() as w:
        assert fresh()(X3).shape == (3,)

    assert [(r.code, r.severity) for r in w.remarks] == [("watch-failed", "warning")]
    assert "no such frame" in w.remarks[0].message


def test_a_jax_whose_frames_cannot_be_read_still_counts(monkeypatch: pytest.MonkeyPatch):
    """Another version of JAX: names stay, reasons are "not known"."""
    monkeypatch.setattr(frames, "_PJIT", "/nowhere.py")
    twice = fresh()

    with benchax.watch() as w:
        twice(X3)
        twice(X4)

    assert [c.function for c in w.compiles] == ["twice", "twice"]
    assert [c.why for c in w.compiles] == [
        "first program of this name",
        "not known why: this JAX doesn't show its call",
    ]
    assert all(Path(str(c.where).rsplit(":", 1)[0]).name == Path(__file__).name for c in w.compiles)


def test_no_array_of_the_user_is_kept_alive():
    twice = fresh()
    x = jax.device_put(X3)

    with benchax.watch() as w:
        twice(x)
    ref = weakref.ref(x)
    del x
    gc.collect()

    assert len(w.compiles) == 1
    assert ref() is None


# ---- `watch_compiles`: what JAX traces, lowers and compiles inside a block ------------------------------------------


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


# ---- in which steps of a loop something is compiled: real loops, watched call by call -------------------------------


@contextlib.contextmanager
def stepping() -> Iterator[Watch]:
    """Its `steps` are there after the block."""
    with watch("all") as found:
        calls = StepCalls(found)
        with watch_transfers(hear=calls.hear):
            yield found
    found.steps = calls.find()


def programs(found: Watch) -> list[int]:
    assert found.steps is not None
    return [one.programs for one in found.steps.steps]


@shows_calls
def test_a_step_is_a_call_of_the_function_that_repeats() -> None:
    @jax.jit
    def step(x: jax.Array) -> jax.Array:
        return x + 1

    with stepping() as found:
        once = jax.jit(lambda x: jnp.sin(x))(jnp.ones(3))
        for n in (2, 3, 3, 2, 4, 4):
            step(np.ones(n))

    steps = found.steps
    assert steps is not None
    assert once is not None
    assert steps.function == "step"
    assert str(steps.defined).endswith(f"test_watch.py:{step.__wrapped__.__code__.co_firstlineno}")
    assert programs(found) == [1, 1, 0, 0, 1, 0]
    assert [one.again for one in steps.steps] == [0, 1, 0, 0, 1, 0]
    assert steps.before.programs == len(found.compiles) - 3
    assert steps.steps[0].spent_s > 0


@shows_calls
def test_a_report_every_few_steps_does_not_make_these_one_and_what_is_called_before_is_none() -> None:
    init, step, rows = jax.jit(lambda x: jnp.exp(jnp.sin(x)) + jnp.cos(x)), jax.jit(lambda x: x * 2), np.ones(5)

    with stepping() as found:
        for _ in range(5):
            init(rows)
        for i in range(20):
            y = step(rows)
            if i % 4 == 0:
                float(jnp.sum(y) + jnp.max(y))

    assert len(programs(found)) == 20


@shows_calls
def test_gradients_that_are_accumulated_are_one_step() -> None:
    gradient, update = jax.jit(lambda x: jnp.exp(x) * x), jax.jit(lambda x: x - 1)

    with stepping() as found:
        for _ in range(12):
            for _ in range(3):
                gradient(np.ones(5))
            update(np.ones(5))

    assert len(programs(found)) in (11, 12)


def test_without_a_loop_there_are_no_steps() -> None:
    with stepping() as found:
        jax.jit(lambda x: x + 1)(np.ones(3))

    assert found.steps is None


def test_calls_of_other_threads_are_no_steps() -> None:
    def work() -> None:
        for _ in range(5):
            jax.jit(lambda x: x + 1)(np.ones(3))

    with stepping() as found:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    assert found.steps is None
