"""A function that is another one in each trace is refused by name; what is merely written in Python is not."""

from __future__ import annotations

import cProfile
import datetime
import functools
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import benchax
from benchax.measuring import purity
from benchax.measuring.purity import difference, watch_clock_reads
from benchax.measuring.state import changes, state_of

X = jnp.linspace(0.0, 1.0, 4096)
ACCUMULATED: list[Any] = []
COUNT = 0
PARAMS = jnp.ones(4096)
MEMO: dict[Any, Any] = {}


def with_python_random(x: Any) -> Any:
    return x * random.random()


def with_numpy_random(x: Any) -> Any:
    return x + np.random.rand(4096).astype(np.float32)


def with_the_time(x: Any) -> Any:
    # Not the seconds since the machine was started: after some hours float32 knows them to 4 ms only.
    return jnp.sin(x) * (time.perf_counter_ns() % 1_000_003)


def with_a_counter(x: Any) -> Any:
    global COUNT
    COUNT += 1
    return x + COUNT


def inside_a_loop(x: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda _, y: y * random.random(), x)


def growing(x: Any) -> Any:
    ACCUMULATED.append(1.0)
    return sum((x * value for value in ACCUMULATED), x)


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (with_python_random, "constant 0."),
        (with_numpy_random, "the constant float32[4096] has|the constant f32[4096]|a constant"),
        (with_the_time, "constant"),
        (with_a_counter, "became"),
        (inside_a_loop, "constant 0."),
        (growing, "operations|became"),
        (jax.jit(with_python_random), "constant 0."),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_two_traces_that_differ_are_refused_by_name(fn, words, bench) -> None:
    m = bench(fn, X, options={"timer": "in_graph,wall,loop"})

    (remark,) = [r for r in m.remarks if r.code == "impure"]
    assert remark.severity == "error"
    assert any(word in remark.message for word in words.split("|")), remark.message
    line = with_python_random.__code__.co_firstlineno + 1
    assert fn is not with_python_random or f"test_purity.py:{line}" in remark.message
    assert [s.timer for s in m.samples] == ["wall"]
    assert m.why_absent("samples.in_graph").startswith("two traces of it differ: ")
    assert m.why_absent("numerics").startswith("two traces of it differ, so that no other run of it is a reference")


def learning(x: Any) -> Any:
    global PARAMS
    PARAMS = PARAMS - 0.1 * x
    return (PARAMS * x).sum()


def recording(x: Any) -> Any:
    ACCUMULATED.append(x.sum())
    return x * 2


RECORDING = jax.jit(functools.partial(recording))


def calling(x: Any) -> Any:
    return RECORDING(x)


@pytest.mark.parametrize(("fn", "name"), [(learning, "PARAMS"), (recording, "ACCUMULATED"), (calling, "ACCUMULATED")])
def test_traced_values_that_are_left_behind_are_a_failure_and_put_back(fn, name, bench) -> None:
    params, listed = PARAMS, list(ACCUMULATED)

    m = bench(fn, X)

    assert m.failure is not None
    assert m.failure.message.startswith(f"{fn.__name__} leaves a traced value in {name!r}")
    assert "return the new value" in m.failure.advice
    assert PARAMS is params
    assert listed == ACCUMULATED


def counting(x: Any) -> Any:
    global COUNT
    COUNT += 1
    return jnp.tanh(x)


def memoizing(x: Any) -> Any:
    if "table" not in MEMO:
        MEMO["table"] = np.arange(4096.0, dtype=np.float32)
    return x + MEMO["table"]


@functools.lru_cache
def table(n: int) -> Any:
    return np.arange(n, dtype=np.float32)


def printing(x: Any) -> Any:
    print("tracing")  # noqa: T201 (what is tested)
    return x + table(4096)


@pytest.mark.parametrize("fn", [counting, memoizing, printing], ids=lambda fn: fn.__name__)
def test_what_does_not_reach_the_program_is_not_refused(fn, bench) -> None:
    m = bench(fn, X, options={"timer": "in_graph,wall"})

    assert m.failure is None
    assert m.numerics.agrees
    assert "traces" not in (m.why_absent("samples.in_graph") or "")  # on a busy machine it may be too short
    assert not [r for r in m.remarks if r.code == "impure"]
    changed = [r.message for r in m.remarks if r.code == "changed-by-tracing"]
    assert len(changed) == (fn is counting)
    assert not changed or "'COUNT' (went from" in changed[0]


def test_a_function_that_is_long_to_trace_says_that_nobody_looked(bench, monkeypatch) -> None:
    monkeypatch.setattr("benchax.measuring.purity.LONGEST_TRACE_S", 0.0)

    m = bench(jnp.sin, X, options={"timer": "wall"})

    assert m.why_absent("purity").startswith("tracing it takes ")


def branches(x: Any) -> Any:
    y = jax.lax.cond(x.sum() > 0, lambda y: jnp.sort(y), lambda y: -y, x)
    return jax.lax.scan(lambda c, v: (c + v, jax.nn.gelu(c)), 0.0, y)[1], jax.random.normal(jax.random.key(0), (3,))


@pytest.mark.parametrize(
    "fn",
    [
        branches,
        jax.grad(lambda x: jnp.sin(x).sum()),
        jax.vmap(lambda x: jnp.linalg.norm(x)),
        lambda x: jnp.fft.rfft(x),
        lambda x: jax.hessian(lambda y: (y**3).sum())(x[:4]),
        lambda x: jax.lax.custom_root(
            lambda y: y**2 - x, x + 1.0, lambda f, y: jnp.sqrt(x), lambda g, y: y / g(jnp.ones_like(y))
        ),
        lambda x: jax.pure_callback(lambda y: y, jax.ShapeDtypeStruct((4096,), jnp.float32), x),
        lambda x: x + np.full(4096, np.nan, np.float32),
    ],
    ids=range(8),
)
def test_two_traces_of_an_ordinary_function_are_the_same_program(fn) -> None:
    first, second = (jax.make_jaxpr(lambda x: fn(x))(X) for _ in range(2))

    assert difference(first, second) is None


def test_programs_that_differ_in_one_place_are_told_apart() -> None:
    of = [lambda x: x + 1.0, lambda x: x - 1.0, lambda x: x + 2.0, lambda x: x[:3], lambda x: x[:4], lambda x: x]
    jaxprs = [jax.make_jaxpr(fn)(X) for fn in of]

    found = {difference(one, other) is None for one in jaxprs for other in jaxprs if one is not other}

    assert found == {False}


def test_a_clock_that_is_read_while_tracing_is_a_remark_with_its_line(bench: Any) -> None:
    def scaled(x: Any) -> Any:
        return x * time.perf_counter()

    m = bench(scaled, jnp.ones(8), options={"stages": "build"})

    (remark,) = [r for r in m.remarks if r.code == "reads-clock"]
    assert remark.severity == "warning"
    assert f"(time.perf_counter at {__file__}:{scaled.__code__.co_firstlineno + 1})" in remark.message
    assert not [r for r in bench(jnp.sin, jnp.ones(8), options={"stages": "build"}).remarks if r.code == "reads-clock"]


# ---- clock reads ------------------------------------------------------------------------------------------------
#
# Which clocks a function reads while it is traced, and who else may be watching.


@pytest.mark.parametrize("are_tools_taken", [False, True])
def test_clocks_are_seen_however_they_are_called_and_in_this_thread_alone(
    are_tools_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where other tools have taken `sys.monitoring`, as on Python 3.11, the watch asks for each call."""
    if are_tools_taken:
        monkeypatch.setattr(purity, "_TOOLS", ())
    now = functools.partial(datetime.datetime.now)
    reading = threading.Event()

    def beside() -> None:
        while not reading.wait(1e-4):
            time.monotonic()

    other = threading.Thread(target=beside)
    other.start()
    for _ in range(2):
        with watch_clock_reads() as reads:
            time.monotonic()
            datetime.datetime.now(datetime.UTC)
            time.perf_counter_ns(*())
            now()
    reading.set()
    other.join()

    # A partial calls in C, which Python does not see.
    assert [read.name for read in reads] == ["time.monotonic", "datetime.now", "time.perf_counter_ns"]
    assert {read.file for read in reads} == {__file__}
    assert len({read.line for read in reads}) == 3


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


# ---- surroundings -----------------------------------------------------------------------------------------------
#
# What a function can reach beside its arguments, before and after.


def changed(by: Callable[[Any], Any], held: Any) -> dict[str, str]:
    def fn() -> Any:
        return held

    before = state_of(fn)
    by(held)
    return changes(before, state_of(fn))


class Holder:
    def __init__(self) -> None:
        self.inner = {"a": [1, 2]}


@pytest.mark.parametrize(
    ("held", "by", "words"),
    [
        ([1], lambda v: v.append(2), "went from 1 to 2 members"),
        ({"a": 1}, lambda v: v.update(a=2), "has other contents"),
        ({1, 2}, lambda v: v.clear(), "went from 2 to 0 members"),
        ([[1]], lambda v: v[0].append(2), "has other contents"),
        (np.zeros(3), lambda v: v.fill(1), "has other contents"),
        (Holder(), lambda v: v.inner["a"].append(3), "has other contents"),
    ],
)
def test_a_change_in_place_is_told(held: Any, by: Callable[[Any], Any], words: str) -> None:
    assert changed(by, held) == {"held": words}


ITSELF: list[Any] = []
ITSELF.append(ITSELF)


@pytest.mark.parametrize(
    "held", [[1, {"a": np.ones(3)}], Holder(), 3, float("nan"), None, {"é": "\n" * 10_000}, ITSELF], ids=range(7)
)
def test_what_stays_as_it_is_is_no_change(held: Any) -> None:
    assert changed(lambda v: None, held) == {}
