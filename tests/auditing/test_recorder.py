"""`auditing/recorder`: what a log holds of real calls, and what can be asked of it."""

from __future__ import annotations

import gc
import sysconfig
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_versions import shows_calls

from benchax.auditing.audit import audit_run, evidence_of
from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.recorder.functions import MOST_KEPT, FunctionRecorder, outer_values
from benchax.auditing.recorder.hooks import CallWindows, HostHooks
from benchax.auditing.recorder.log import Event, Log, call_lines, keys_used_twice, pairs_of, use_of
from benchax.watching.watch import watch

pytestmark = shows_calls


@pytest.fixture
def run() -> Iterator[SimpleNamespace]:
    """A program that is recorded until the test asks for what was seen, by `run.end()`."""
    log = Log()
    functions = FunctionRecorder(log)
    calls, hooks = CallWindows(log, functions, 60.0), HostHooks(log)
    found = SimpleNamespace(log=log, kept=None, functions=functions)

    def end() -> Log:
        if found.kept is None:
            calls.close()
            hooks.close()
            found.kept = functions.close()
        return log

    found.end = end
    yield found
    end()


class Doubling:
    def step(self, x: Any) -> Any:
        return 2 * x


def jitted(body: Callable[..., Any] = lambda x: x + 1, **settings: Any) -> Any:
    """A new function each time."""
    return jax.jit(lambda *args: body(*args), **settings)


def test_a_state_that_the_program_lets_go_of_is_not_held(run: Any) -> None:
    step = jitted(lambda w, x: w + x)
    w, x = jnp.ones(3), jnp.ones(3)
    for _ in range(4):
        w = step(w, x)

    use = use_of(run.end(), run.log.function(step.__wrapped__))

    assert use.held == {1}
    assert use.repeated == {1}
    assert use.carried == (3, ((0, 0),))


def test_equal_numbers_repeat_and_others_do_not(run: Any) -> None:
    step = jitted(lambda a, b: a + b)
    for i in range(4):
        step(2.0, i)

    assert use_of(run.end(), run.log.function(step.__wrapped__)).repeated == {0}


def test_two_calls_say_nothing_of_what_repeats(run: Any) -> None:
    step, x = jitted(), jnp.ones(3)
    step(x)
    step(x)

    assert use_of(run.end(), run.log.function(step.__wrapped__)).repeated == frozenset()


def test_the_log_keeps_no_array_alive_and_takes_no_other_for_it(run: Any) -> None:
    first = jnp.ones(3) + 1
    (serial,) = run.log.ids((first,))
    gone = weakref.ref(first)
    del first
    gc.collect()

    assert gone() is None
    assert run.log.died[serial] <= len(run.log.events)
    assert run.log.ids((jnp.ones(3) + 2,)) != (serial,)


def test_calls_that_need_one_another_are_in_turn_through_operations_too(run: Any) -> None:
    step, apart = jitted(lambda x: x * 0.5), jitted(lambda x: x - 1)
    x, given = jnp.ones(3), jnp.zeros(3)
    for _ in range(5):
        x = step(x) + 1
        apart(given)

    lines = {line.function: line for line in call_lines(run.end())}

    assert lines[run.log.function(step.__wrapped__)].in_turn == 5
    assert lines[run.log.function(apart.__wrapped__)].in_turn == 1


def test_arguments_that_differ_are_counted_by_their_bytes(run: Any) -> None:
    step, table = jitted(lambda x, table: x + table.sum()), jnp.ones(1000)
    for i in range(3):
        step(jnp.full(10, float(i)), table)

    (line,) = (line for line in call_lines(run.end()) if line.function == run.log.function(step.__wrapped__))

    assert line.fresh_bytes == 40


def test_numpy_arguments_are_told_by_name_and_whether_they_are_the_same(run: Any) -> None:
    @jax.jit
    def step(params, batch):
        return params["w"] + batch

    w = np.ones(3, np.float32)
    for _ in range(4):
        step({"w": w}, np.zeros(3, np.float32))

    (line,) = (line for line in call_lines(run.end()) if line.name == "step")

    assert line.numpy == [("params['w']", 4, 3), ("batch", 4, 0)]


@pytest.mark.parametrize(
    "argument",
    [jax.random.key(0), jax.random.split(jax.random.key(0)), jax.random.PRNGKey(0), 1.0, np.ones(2), {"none": None}],
    ids=["typed key", "typed keys", "raw key", "number", "NumPy", "nothing"],
)
def test_a_call_is_seen_whatever_it_is_given(run: Any, argument: Any) -> None:
    step = jitted(lambda state, _: state + 1)
    for _ in range(3):
        step(jnp.ones(3), argument)

    assert sum(event.function == run.log.function(step.__wrapped__) for event in run.end().of("call")) == 3


def test_an_operation_tells_the_function_of_jax_that_the_line_calls(run: Any) -> None:
    x, key = jnp.ones(3), jax.random.key(0)
    x[1]
    jax.random.fold_in(key, 1)
    jnp.asarray(3.5)

    called = {
        event.note for event in run.end().of("operation") if event.where.rpartition(":")[0].endswith("recorder.py")
    }

    assert {"__getitem__", "fold_in", "asarray"} <= called


@pytest.mark.parametrize("transform", [lambda f: jax.vmap(f), lambda f: jax.grad(lambda x: f(x).sum())])
def test_a_jitted_function_under_a_transformation_is_seen(run: Any, transform: Any) -> None:
    @jax.jit
    def wave(x):
        return jnp.sin(x)

    outside, x = transform(wave), jnp.ones(3)
    for _ in range(3):
        outside(x)

    events = [event for event in run.end().of("call") if event.note == "batched"]

    assert {event.by for event in events} == {"wave"}
    assert len(events) >= 3
    assert "test_recorder.py:" in events[0].where


def test_of_programs_that_are_compiled_by_hand_one_is_kept_with_its_compile_time(run: Any) -> None:
    step = jitted(lambda x: x + 1)
    for n in (3, 4):
        step.lower(jnp.ones(n)).compile()

    run.end()

    assert [one.compile_s > 0 for one in run.kept] == [True]


@pytest.mark.parametrize("fn", [partial(lambda x, n: x + n, n=1), jitted(lambda x: x - 2), Doubling().step])
def test_a_call_has_the_name_of_the_function_that_was_compiled(run: Any, fn: Any) -> None:
    with watch("all") as seen:
        jax.jit(fn)(jnp.ones(3))

    (line,) = (one for one in call_lines(run.end()) if one.function == run.log.function(fn))

    assert line.name in {compiled.function for compiled in seen.compiles}


def test_what_a_window_does_not_see_is_no_pair(run: Any) -> None:
    step, x = jitted(), jnp.ones(3)
    step(x)
    run.log.add(Event("window", "", ""))
    step(x)

    assert sum(event.function == run.log.function(step.__wrapped__) for event in run.end().of("call")) == 2
    assert list(pairs_of(run.log, run.log.function(step.__wrapped__))) == []


def test_a_key_that_two_lines_use_is_found_and_a_split_one_is_not(run: Any) -> None:
    key, other = jax.random.split(jax.random.key(0))
    jax.random.normal(key)
    jax.random.uniform(key)
    jax.random.normal(other)

    (uses,) = keys_used_twice(run.end())

    assert [event.by for event in uses] == ["normal", "uniform"]


LIBRARY = """
def init(key):
    jax.random.split(key)
    return jax.random.normal(key)

def apply(key):
    return jax.random.normal(key)

traced = []

def remember(x):
    traced.append(x)
    return x + 1
"""


@pytest.fixture
def library() -> Any:
    """Functions whose file lies in an installed package."""
    names: dict[str, Any] = {"jax": jax}
    exec(compile(LIBRARY, f"{sysconfig.get_path('purelib')}/library/init.py", "exec"), names)
    return SimpleNamespace(**names)


@pytest.mark.parametrize(
    ("use", "times"),
    [
        (lambda library, key: library.init(key), []),
        (lambda library, key: (jax.random.normal(key), library.init(key)), [3]),
        (lambda library, key: [library.apply(key) for _ in range(5)], [5]),
    ],
)
def test_what_a_package_does_with_one_key_in_one_call_is_its_own(
    run: Any, library: Any, use: Any, times: list[int]
) -> None:
    use(library, jax.random.key(0))

    assert [len(events) for events in keys_used_twice(run.end())] == times


def test_a_traced_value_that_a_package_keeps_is_no_fault_of_the_program(run: Any, library: Any) -> None:
    with watch("all") as seen:
        jax.jit(library.remember)(jnp.ones(3))
    run.end()

    audit = audit_run(ProgramEvidence(seen, run.log), run.kept, ["leaked-tracer"])

    assert [(checked.outcome, "belongs to a package" in checked.why) for checked in audit.checked] == [
        ("not applicable", True)
    ]


def test_the_functions_that_took_longest_to_compile_are_kept_with_shapes(run: Any) -> None:
    def main() -> None:
        for i in range(MOST_KEPT + 2):
            made: dict[str, Any] = {}
            exec(compile(f"def f{i}(x): return x + {i}", f"file{i}.py", "exec"), made)
            jax.jit(made[f"f{i}"])(np.ones(i + 1, np.float32))

    main()
    run.end()

    assert len(run.kept) == MOST_KEPT
    assert all(isinstance(one.call.args[0], jax.ShapeDtypeStruct) for one in run.kept)
    assert [one.compile_s for one in run.kept] == sorted((one.compile_s for one in run.kept), reverse=True)


def test_a_late_nan_is_found_with_the_arguments_that_gave_it(run: Any) -> None:
    @jax.jit
    def root(x):
        return jnp.sqrt(x - 0.1)

    for i in range(30):
        root(jnp.float32(2.0 - 0.1 * i)).block_until_ready()
    run.end()

    (kept,) = (one for one in run.kept if one.place.name == "root")
    evidence = evidence_of(run.log, kept, "trace")

    assert evidence.nan_at == 21
    assert float(evidence.data[0]) == pytest.approx(0.0, abs=1e-5)


def test_what_a_function_reads_from_around_it_is_compared_with_what_is_there_later() -> None:
    scale, table, kept = [2.0, 3.0], jnp.ones(3), jnp.ones(3)

    class Sampler:
        temperature = 1.0

        def step(self, x: Any) -> Any:
            def body(c: Any) -> Any:
                return c * self.temperature

            return body(x) * scale[0] * table * kept

    sampler = Sampler()
    before = outer_values(sampler.step, {})
    sampler.temperature = 0.5
    scale[0], table = 1.0, jnp.ones(3)
    now = outer_values(sampler.step, {})

    assert {name: value.change(now[name]) for name, value in before.items()} == {
        "self.temperature": "from 1.0 to 0.5",
        "scale": "from (2.0, 3.0) to (1.0, 3.0)",
        "table": "to another array",
        "kept": "",
    }


def test_what_a_callback_reads_is_of_the_moment_in_which_it_runs() -> None:
    scale, seen = 2.0, []

    def log(x: Any) -> Any:
        jax.debug.callback(lambda value: seen.append(value * scale), x)
        return x

    assert outer_values(log, {}) == {}


def test_a_signature_has_all_inputs(run: Any) -> None:
    step = jitted(lambda *xs: sum(xs))
    step(*(jnp.ones(3) for _ in range(8)))
    run.end()

    (kept,) = (one for one in run.kept if one.serial == run.log.function(step.__wrapped__))

    assert evidence_of(run.log, kept, "trace").signature == ", ".join(["f32[3]"] * 8)


def test_a_program_and_its_functions_are_audited_together(run: Any) -> None:
    @jax.jit
    def draw(key):
        return jax.random.normal(key) + jax.random.uniform(key)

    @jax.jit
    def draw_once(key):
        return jax.random.normal(key)

    with watch("all") as seen:
        draw_once(jax.random.key(1))
        draw(jax.random.key(0))
    run.end()
    evidence = ProgramEvidence(seen, run.log)

    audit = audit_run(evidence, run.kept, ["key-reuse", "donation-unused", "not-jitted"])

    assert [finding.rule for finding in audit.findings] == ["key-reuse"]
    assert audit.findings[0].seen[-1].startswith("of draw(")
    outcomes = {checked.rule: checked.outcome for checked in audit.checked}
    assert outcomes["key-reuse"] == "finding"  # of one function, though the other is fine
    assert outcomes["not-jitted"] != "finding"
    assert any("inspected" in remark.message for remark in audit.remarks)
