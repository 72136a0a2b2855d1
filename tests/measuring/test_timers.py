"""The contract of timers, once over all of them; then what is peculiar to each."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functions_by_hand import count_frames, under
from jax_versions import tells_runs

from benchax import bench
from benchax.clock import handlers, tier
from benchax.errors import NotAvailable, NotMeasured
from benchax.measuring import timers
from benchax.measuring.timers import TIMERS, embedding, loop, wall
from benchax.measuring.timers.base import FED_BACK, FRESH_COPIES, Subject, on_fresh_stack
from benchax.model import Measurement, Samples
from benchax.program.census import OperationTally, compare
from benchax.program.hlo import has_small_call
from benchax.watching.compiles import watch_compiles

# `serial` are those that look at the length of what they time: a neighbour disturbs it.


def steps(n):
    """A serial chain of n dependent steps: time in proportion to n, on one thread."""
    return lambda x: jax.lax.fori_loop(0, n, lambda i, y: y * 0.999999 + 1e-6, x)


def per_call_s(prepared, iterations, samples=15):
    return median(prepared.sample(iterations) for _ in range(samples)) / iterations / 1e9


@pytest.fixture(params=[pytest.param(name, marks=[tells_runs] * (name == "device")) for name in TIMERS])
def timer(request):
    return TIMERS[request.param]


@pytest.mark.serial
def test_a_sample_grows_with_its_iterations(timer, subject):
    """By medians of each length: `loop` takes a difference, and a preemption of the other one makes it negative."""
    prepared = timer.prepare(subject(steps(3000), jnp.ones(16)))
    few = max(8, prepared.least_iterations)

    short, long = zip(*[(prepared.sample(few), prepared.sample(20 * few)) for _ in range(9)], strict=True)

    assert 4 * median(short) < median(long) < 100 * median(short)


@pytest.mark.parametrize("outputs", [jnp.ones(3), (jnp.ones(3),)], ids=["an array", "a tree"])
@pytest.mark.parametrize("name", ["wall", "pipelined"])
def test_the_function_is_called_as_often_as_was_asked(name, outputs, subject):
    calls = []
    prepared = TIMERS[name].prepare(subject(lambda x: calls.append(x) or outputs, jnp.ones(3), jit=False))
    calls.clear()

    prepared.sample(10)

    assert len(calls) == 10


GIVEN = {
    "dict": (lambda d: {"s": d["a"] + d["b"].sum(), "n": d["a"] * 2}, {"a": jnp.ones(60), "b": jnp.ones((2, 2))}),
    "key": (lambda k: jax.random.normal(k, (600,)), jax.random.key(0)),
    "weak scalar": (lambda x, scale: x * scale, jnp.ones(800, jnp.bfloat16), 2.5),
    "bool": (lambda m: ~m, jnp.ones(900, bool)),
    "tuple": (lambda x: (x, x.astype(jnp.int8)), jnp.ones(500, jnp.complex64).real),
}


# Three timers run the function's own executable, whatever that takes.
EACH_GIVEN = [
    pytest.param(name, kind, marks=[tells_runs] * (name == "device"))
    for name in TIMERS
    for kind in GIVEN
    if name in ("in_graph", "loop") or kind in ("dict", "key")
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), EACH_GIVEN)
def test_pytrees_keys_and_scalars_can_be_timed(name, kind, subject):
    prepared = TIMERS[name].prepare(subject(*GIVEN[kind]))

    assert prepared.sample(max(2, prepared.least_iterations)) != 0


def positions(x):
    """Positional encodings: of its 65,536 sines and cosines none depends on the input."""
    at = jnp.arange(x.shape[0])[:, None] * jnp.exp(jnp.arange(x.shape[1] // 2) * -0.1)
    return x + jnp.concatenate([jnp.sin(at), jnp.cos(at)], -1)


def dropout(x):
    return jnp.where(jax.random.bernoulli(jax.random.key(0), 0.5, x.shape), 2 * x, 0)


def loop_over_constants(x):
    return x + jax.lax.fori_loop(0, 100, lambda i, c: jnp.sin(c) + 1, jnp.zeros(1000)).sum()


def constant_work_in_a_scan(x):
    """XLA moves the sines out of this scan, also where the function stands alone."""

    def step(carry, _):
        return carry * 0.5 + jnp.sin(jnp.arange(4096.0) * x[0]), carry.sum()

    return jax.lax.scan(step, jnp.zeros(4096), None, length=50)


CONSTANT_WORK = [
    pytest.param(positions, jnp.ones((512, 128)), id="positions"),
    pytest.param(dropout, jnp.ones((512, 128)), id="dropout"),
    pytest.param(loop_over_constants, jnp.ones(8), id="loop"),
    pytest.param(constant_work_in_a_scan, jnp.ones(8), id="scan"),
]


def test_what_surrounds_functions_of_equal_inputs_is_compiled_once(subject):
    first, second = (subject(fn, jnp.ones((3, 5))) for fn in (jnp.sin, jnp.cos))
    TIMERS["in_graph"].prepare(first)

    with watch_compiles() as log:
        TIMERS["in_graph"].prepare(second)

    assert log.compiles == 1  # the one around the function itself


SMALL = jnp.ones(
    (64, 128)
)  # since jax 0.12 XLA:CPU shares larger ones among threads, and a loop around them runs on one


@pytest.mark.parametrize("name", ["in_graph", "loop"])
@pytest.mark.parametrize(
    ("fn", "x"),
    [
        pytest.param(positions, SMALL, id="positions"),
        pytest.param(dropout, SMALL[:4], id="dropout"),
        *CONSTANT_WORK[2:],
        pytest.param(jnp.tanh, jnp.ones((64, 64)), id="tanh"),
    ],
)
def test_a_timer_with_a_program_of_its_own_shows_that_it_does_the_function_s_work(name, fn, x, subject):
    found = TIMERS[name].prepare(subject(fn, x)).census

    timed, alone = (OperationTally({name: pair[i] for name, *pair in found.operations}) for i in (0, 1))
    assert compare(timed, alone).is_same
    assert sum(alone.values()) >= 4096


@pytest.mark.parametrize("name", ["in_graph", "loop"])
def test_a_program_that_leaves_out_work_has_no_number_and_names_what_is_missing(name, subject, monkeypatch):
    monkeypatch.delitem(embedding.FORMS, "branch")

    with pytest.raises(NotMeasured) as raised:
        TIMERS[name].prepare(subject(positions, jnp.ones((512, 128))))

    assert raised.value.problem == (
        "inside a loop XLA does only 0 of its 32.8 k sine, 0 of its 32.8 k cosine, 0 of its 65.6 k multiply operations "
        "every time"
    )


@pytest.mark.parametrize("name", ["in_graph", "loop"])
def test_a_program_that_does_more_than_the_function_has_no_number(name, subject, monkeypatch):
    monkeypatch.setattr(embedding, "FORMS", {"direct": lambda body, values, word: body(body(values))})

    with pytest.raises(
        NotMeasured, match=r"into more than it is by itself: 8\.19 k instead of 4\.10 k tanh operations$"
    ):
        TIMERS[name].prepare(subject(jnp.tanh, jnp.ones((64, 64))))


def test_what_xla_folds_by_itself_is_folded_in_the_timing_program(subject):
    made = subject(lambda x: x + jnp.sin(jnp.array([1.0, 2.0, 3.0])).sum(), jnp.ones(2000))

    found = TIMERS["in_graph"].prepare(made).census

    assert "sine" not in [name for name, *_ in found.operations]


def test_a_key_that_is_returned_is_made_every_time(subject):
    made = subject(lambda k: jax.random.split(k, 5000), jax.random.key(0))

    found = TIMERS["in_graph"].prepare(made).census

    assert {name: timed for name, timed, _ in found.operations}["xor"] > 5000


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_copies_for_a_function_that_donates_are_made_before_the_clock_starts(subject, monkeypatch):
    made = subject(lambda x: x[:4] + 1, "f32[64]", donate=[0])  # no output fits, so each call gets a copy
    prepared = TIMERS["wall"].prepare(made)
    order = list[str]()
    calls, clock = Subject.calls, wall.perf_counter_ns
    monkeypatch.setattr(Subject, "calls", lambda self, n: order.append("copies") or calls(self, n))
    monkeypatch.setattr(wall, "perf_counter_ns", lambda: order.append("clock") or clock())

    prepared.sample(3)

    assert order == ["copies", "clock", "clock"]


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize(
    ("fn", "args", "of_the_case", "why", "names"),
    [
        (lambda: jnp.ones(3), (), {}, "it takes no arrays", ("in_graph", "loop")),
        (
            lambda x: x.sum(),
            ("f32[8]",),
            {"donate": [0]},
            "it donates arguments that its outputs",
            ("in_graph", "loop"),
        ),
        (lambda x: x + 1, ("f32[8]",), {"jit": False}, "given without jit cannot be called inside another", ("loop",)),
        (lambda x: jnp.ones(3) * 2, ("f32[8]",), {}, "does not depend on its inputs", ("loop",)),
        (lambda x: (), ("f32[8]",), {}, "it returns no arrays|does not depend on its inputs", ("in_graph", "loop")),
        (lambda x: x * 2, ("c64[2]",), {}, r"complex64\[2\] gives it nothing to tie one trip to the next", ("loop",)),
    ],
)
def test_a_program_around_the_function_refuses_what_it_cannot_serve_and_says_why(
    fn, args, of_the_case, why, names, subject
):
    made = subject(fn, *args, **of_the_case)

    for name in names:
        with pytest.raises(NotMeasured, match=why):
            TIMERS[name].prepare(made)


def test_a_loop_for_one_thread_does_not_time_what_xla_shares_among_several(subject, monkeypatch):
    """Since jax 0.12 XLA:CPU makes one machine function of loops around large operations as well."""
    monkeypatch.setattr(loop, "is_shared_among_threads", lambda hlo: True)

    with pytest.raises(NotMeasured, match="for one thread, and shares the function itself among several"):
        TIMERS["loop"].prepare(subject(lambda a: jnp.sin(a) + 1, jnp.float32(1.0)))


@pytest.mark.serial
@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (lambda a: jnp.sin(a) + 1, (jnp.float32(1.0),)),
        (lambda k: jax.random.uniform(k), (jax.random.key(0),)),
        (lambda x, scale: x * scale, (jnp.ones(2, jnp.bfloat16), 2.5)),
    ],
    ids=["array", "key", "weak scalar"],
)
def test_the_trips_of_a_tiny_body_are_tied_and_labelled(fn, args, subject):
    """XLA:CPU makes one machine function of it, in which a plain barrier loop measures nothing at all."""
    prepared = TIMERS["loop"].prepare(subject(fn, *args))

    assert prepared.regime == "single kernel"
    assert 1e-10 < per_call_s(prepared, 20_000) < 10e-6


def test_a_small_module_of_equinox_that_is_returned_ties_the_trips_by_its_arrays(subject):
    """Its first leaf may be a function."""
    equinox = pytest.importorskip("equinox")

    class Small(equinox.Module):
        activation: object
        weight: jax.Array

    step = equinox.filter_jit(lambda module: equinox.tree_at(lambda m: m.weight, module, jnp.tanh(module.weight)))

    prepared = TIMERS["loop"].prepare(subject(step, Small(jax.nn.relu, jnp.ones(4))))

    assert {name: timed for name, timed, _ in prepared.census.operations}["tanh"] == 4


def test_a_bigger_body_runs_thunk_by_thunk(subject):
    made = subject(lambda x: jnp.tanh(x @ x), jnp.ones((64, 64)) * 0.01)

    assert TIMERS["loop"].prepare(made).regime == "thunks"
    assert not has_small_call(made.hlo)


def test_a_function_that_cannot_run_in_a_loop_is_a_reason_not_a_crash(subject):
    state = []

    def leaky(x):
        state.append(x)
        return x + (state[-2] if len(state) > 2 else 0)

    made = subject(leaky, jnp.ones(500))
    state.append(None)

    with pytest.raises(NotMeasured, match="it cannot run inside a compiled loop"):
        TIMERS["loop"].prepare(made)


def test_pipelined_refuses_outputs_that_cannot_be_queued(subject, monkeypatch):
    from benchax.measuring.timers import pipelined

    made = subject(lambda x: x + 1, "f32[1024]")
    monkeypatch.setattr(pipelined, "QUEUED_BYTES", 16 * 1024)

    with pytest.raises(NotMeasured, match=r"8 queued calls would hold 32.0 KiB at once, more than 16.0 KiB"):
        pipelined.prepare(made)


@pytest.mark.parametrize(
    ("text", "platform", "call_s", "names"),
    [
        ("auto", "cpu", 1e-4, ("in_graph", "wall", "pipelined", "loop")),
        ("auto", "cpu", 0.1, ("wall",)),
        ("loop, wall", "cpu", 0.1, ("loop", "wall")),
        ("auto", "gpu", 1e-4, ("device", "wall", "pipelined", "loop")),
        ("auto", "tpu", 5e-3, ("wall", "device", "pipelined")),
        ("auto", "gpu", 0.1, ("wall",)),
    ],
)
def test_timers_are_chosen_by_the_length_of_a_call_and_others_say_why_not(text, platform, call_s, names):
    every, _ = timers.choose(text, 1e-6, platform=platform)

    chosen, left_out = timers.choose(text, call_s, platform=platform)

    assert chosen == names
    assert {*names, *(each.what.removeprefix("samples.") for each in left_out if each.why)} == {*every}


def test_timers_that_are_left_out_for_a_long_call_name_call_and_limit():
    _, left_out = timers.choose("auto", 0.027, calls=5, platform="cpu")

    why = "a call takes 27.0 ms (the least of 5), above 10.0 ms, where dispatch is below 1 % of it"
    assert {each.what: each.why for each in left_out} == dict.fromkeys(
        ("samples.in_graph", "samples.pipelined", "samples.loop"),
        f"{why}; --timer in_graph,pipelined,loop measures it",
    )


@pytest.mark.parametrize(
    ("text", "per_call_s", "why"),
    [
        ("auto", 20e-6, "in_graph has answered the same question; --timer in_graph,loop measures both"),
        ("auto", 0.2e-6, ""),
        ("auto", None, ""),
        ("in_graph,loop", 20e-6, ""),
    ],
)
def test_the_loop_is_left_out_where_the_clock_has_answered(text, per_call_s, why):
    taken = [Samples("in_graph", 1, (per_call_s,))] if per_call_s else []

    assert timers.why_not_needed("loop", text, taken) == why
    assert timers.why_not_needed("wall", text, taken) == ""


def spinning(ns):
    return lambda x: handlers.spin(tier(), x * 2, ns)


@pytest.mark.serial
def test_the_clock_inside_reads_a_function_of_known_duration(subject):
    prepared = TIMERS["in_graph"].prepare(subject(spinning(50_000), jnp.ones(4)))

    readings = prepared.take(1, 200)

    assert len(readings) == 200
    assert min(readings) >= 50_000
    assert min(readings) - prepared.overhead_s(1) * 1e9 < 55_000  # the least of many: whatever disturbs, lengthens


@pytest.mark.serial
def test_the_clock_s_own_cost_is_known_for_each_number_of_repetitions(subject):
    prepared = TIMERS["in_graph"].prepare(subject(spinning(1_000), jnp.ones(4)))

    prepared.take(1, 50)
    prepared.take(64, 50)

    assert 0 < prepared.overhead_s(1) < prepared.overhead_s(64)


def test_a_function_of_several_outputs_is_timed_until_the_last_one(subject):
    both = lambda x: (x + 1, handlers.spin(tier(), x * 2, 300_000))  # noqa: E731
    prepared = TIMERS["in_graph"].prepare(subject(both, jnp.ones(4)))

    assert min(prepared.take(1, 20)) >= 300_000


def test_without_a_clock_the_reason_is_given(subject, monkeypatch):
    def nothing():
        raise NotAvailable("prebuilt: gone; built: there is no C compiler 'cc'; python: gone")

    monkeypatch.setattr("benchax.measuring.timers.in_graph.tier", nothing)

    with pytest.raises(NotMeasured, match="there is no clock for compiled code here: prebuilt: gone; built"):
        TIMERS["in_graph"].prepare(subject(lambda x: x + 1, jnp.ones(4)))


# ---- feedback ---------------------------------------------------------------------------------------------------
#
# A donating function gets its outputs back as its next arguments, as in `state = step(state)`, where they fit.

Make = Callable[..., Subject]


@pytest.mark.parametrize("name", ["wall", "pipelined"])
@pytest.mark.parametrize(("factor", "expected"), [(2.0, [1, 2, 4, 8, 16]), (1e30, [1, 1, 1, 1])])
def test_each_call_of_a_sample_gets_what_the_one_before_returned_while_that_stays_finite(
    name: str, factor: float, expected: list[float], subject: Make
) -> None:
    seen: list[float] = []

    def step(x: Any) -> Any:
        jax.debug.callback(lambda first: seen.append(float(first)), x[0])
        return x * factor

    prepared = TIMERS[name].prepare(subject(step, jnp.ones(4), donate=[0]))
    seen.clear()
    prepared.sample(4)
    jax.effects_barrier()

    assert seen == expected


@pytest.mark.parametrize(("name", "rows"), [("in_graph", 8 * [[1, 2, 4, 8]]), ("loop", [[1, 2], [1, 2, 4, 8, 16, 32]])])
def test_a_repetition_inside_a_program_gets_what_the_one_before_returned(
    name: str, rows: list[list[float]], subject: Make
) -> None:
    seen: list[float] = []

    def step(scale: Any, state: Any) -> Any:
        jax.debug.callback(lambda first: seen.append(float(first)), state["w"][0], ordered=False)
        return state["w"].sum(), {"w": state["w"] * scale}

    prepared = TIMERS[name].prepare(subject(step, jnp.float32(2), {"w": jnp.ones(4)}, donate=[1]))
    seen.clear()
    prepared.sample(4)
    jax.effects_barrier()

    assert seen == [value for row in rows for value in row]


@pytest.mark.serial
@pytest.mark.parametrize("name", ["in_graph", "loop"])
def test_inside_a_program_an_update_in_place_copies_nothing(name: str, subject: Make) -> None:
    def update(x: Any) -> Any:
        return x.at[3].add(1.0)

    donated, copied = (TIMERS[name].prepare(subject(update, jnp.ones(2**18), donate=donate)) for donate in ([0], []))

    assert min(donated.sample(8) for _ in range(5)) < 0.3 * min(copied.sample(8) for _ in range(5))


def _with_loss(batch: Any, state: Any) -> Any:
    return state["w"].sum(), {"w": state["w"] * 0.5 + batch.sum()}


def _until_small(x: Any) -> Any:
    """Done at once with what it returns."""
    return jax.lax.while_loop(lambda y: jnp.abs(y).max() > 0.1, lambda y: y / 2, x)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize("name", ["wall", "pipelined", pytest.param("device", marks=tells_runs)])
@pytest.mark.parametrize(
    ("fn", "args", "donate", "regime"),
    [
        (lambda x: jnp.sin(x), ("f32[100000]",), [0], FED_BACK),
        (_with_loss, ("f32[100000]", {"w": "f32[100000]"}), [1], FED_BACK),
        (lambda x, y: (jnp.sin(y), jnp.cos(x)), ("f32[100000]", "f32[100000]"), [0, 1], FED_BACK),
        (lambda x: jnp.sin(x).sum(), ("f32[100000]",), [0], FRESH_COPIES),
        (lambda x: jnp.sort(x), ("f32[10000]",), [0], FRESH_COPIES),
        (_until_small, ("f32[100000]",), [0], FRESH_COPIES),
        (lambda x: jax.lax.fori_loop(0, 9, lambda _, y: jnp.sin(y), x), ("f32[100000]",), [0], FED_BACK),
        (lambda x: jnp.sin(x), ("f32[100000]",), [], None),
    ],
)
def test_what_a_timer_gives_to_calls_that_donate_is_said(
    name: str, fn: Any, args: Any, donate: list[int], regime: str | None, subject: Make
) -> None:
    made = subject(fn, *args, donate=donate)

    assert TIMERS[name].prepare(made).regime == regime
    assert not any(leaf.is_deleted() for leaf in made.inputs.data)


def test_fresh_copies_are_remarked(bench: Callable[..., Measurement]) -> None:
    m = bench(lambda x: jnp.sin(x).sum(), "f32[1000]", donate=[0], options={"timer": "wall"})

    assert "wall gave each call fresh copies" in {r.code: r.message for r in m.remarks}["fresh-copies"]
    fed = bench(lambda x: jnp.sin(x), "f32[1000]", donate=[0], options={"timer": "wall"})
    assert "fresh-copies" not in {r.code for r in fed.remarks}


# ---- an empty stack ------------------------------------------------------------------------------------------------


VARIABLE: ContextVar[str] = ContextVar("VARIABLE", default="not set")


@pytest.mark.parametrize("timer", ["wall", "pipelined"])
def test_timers_of_calls_call_from_an_empty_stack(timer: str) -> None:
    seen: list[int] = []

    def eager(x: Any) -> Any:
        seen.append(count_frames())
        return x + 1

    row = bench(eager, np.ones(4, np.float32), jit=False, timer=timer, processes=1, max_time_s=0.02, store="off")

    timed = row.summary(timer)
    assert timed is not None
    assert sum(count <= 4 for count in seen) >= timed.n


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_calls_share_a_stack_also_after_an_error_and_from_other_threads(error: BaseException) -> None:
    def sample(n: int) -> int:
        if n < 0:
            raise error
        return 10 * n + count_frames()

    read = on_fresh_stack(sample)

    assert [under(20, lambda n=n: read(n)) for n in (1, 2)] == [12, 22]  # two frames: what makes calls, and `sample`
    with pytest.raises(type(error)) as caught:
        read(-1)
    assert caught.value is error
    assert read(3) == 32
    with ThreadPoolExecutor(1) as other:
        assert other.submit(read, 4).result() == 42
    assert read(5) == 52


def test_between_calls_it_holds_neither_arguments_nor_results() -> None:
    add = on_fresh_stack(lambda x: x + 1)

    for _ in range(2):
        given = np.zeros(3)
        made = add(given)
        alive = weakref.ref(given), weakref.ref(made)
        del given, made
        assert [ref() for ref in alive] == [None, None]


def test_what_holds_in_a_context_holds_in_each_reading() -> None:
    read = on_fresh_stack(lambda n: int(jax.config.jax_enable_checks) + len(VARIABLE.get()))

    found = [read(1)]
    token = VARIABLE.set("")
    with jax.enable_checks(True):
        found.append(read(1))
    VARIABLE.reset(token)

    assert found == [len("not set"), 1]
