"""Functions that do more than give a result."""

from __future__ import annotations

import datetime
import functools
import inspect
import random
import time
from collections.abc import Callable
from time import perf_counter as read_clock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax import clock
from benchax.auditing.audit import ask
from benchax.auditing.evidence import Evidence
from benchax.auditing.rules.tracing import impure_function
from benchax.case import make_case
from benchax.results.audit import Checked, Finding

X = jnp.ones(3)
log: list[Any] = []
memo: dict[str, Any] = {}
calls = 0


class Counting:
    def __init__(self) -> None:
        self.count = 0

    def update(self, x: Any) -> Any:
        rate = 0.5**self.count
        self.count += 1
        return x * rate


def asked(fn: Callable[..., Any], *args: Any) -> tuple[list[Finding], Checked]:
    return ask(impure_function, Evidence(make_case(fn, args or (X,))))


def line_of(fn: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(fn)
    return first + next(i for i, line in enumerate(lines) if text in line)


def appends(x: Any) -> Any:
    log.append(x.shape)
    return x + 1


def counts(x: Any) -> Any:
    global calls
    calls += 1
    return x + 1


def prints(x: Any) -> Any:
    print("shape", x.shape)  # noqa: T201  (what is looked for)
    return x + 1


def draws(x: Any) -> Any:
    return x + random.random()


def helped(x: Any) -> Any:
    return appends(x) * 2


class Model:
    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, x: Any) -> Any:
        self.seen += 1
        return x + 1


def remembers(x: Any) -> Any:
    if "n" not in memo:
        memo["n"] = 2.0
    return x * memo["n"]


def test_a_list_that_grows_is_named_with_its_line() -> None:
    (finding,), _ = asked(jax.jit(appends))

    assert finding.title == "changes 'log' while it is traced, and not when it runs compiled"
    assert finding.where == (__file__, line_of(appends, "log.append"))
    assert finding.seen[0] == f"'log' went from {len(log) - 1} to {len(log)} members in one trace"
    assert "was traced twice" in finding.seen[1]
    assert finding.severity == "warning"


def test_a_counter_is_named_with_its_values() -> None:
    (finding,), _ = asked(jax.jit(counts))

    assert finding.seen[0] == f"'calls' went from {calls - 1} to {calls} in one trace"
    assert finding.where == (__file__, line_of(counts, "calls += 1"))


def test_what_a_function_that_it_calls_changes_is_seen() -> None:
    (finding,), _ = asked(jax.jit(helped))

    assert "'log'" in finding.title


def test_a_closure_and_an_object_are_seen() -> None:
    def of(seen: list[int]) -> Any:
        return lambda x: (seen.append(1), x + 1)[1]

    (closure,), _ = asked(of([]))
    (model,), _ = asked(Model())

    assert "'seen'" in closure.title
    assert "'self'" in model.title


def test_a_print_is_shown_with_its_line_and_does_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    e = Evidence(make_case(jax.jit(prints), (X,)))
    assert e.failure is None
    capsys.readouterr()

    (finding,), _ = ask(impure_function, e)

    assert finding.seen[0] == "printed by a trace: 'shape (3,)'"
    assert finding.where == (__file__, line_of(prints, "print("))
    assert "jax.debug.print" in finding.advice
    assert "io_callback" in finding.advice
    assert capsys.readouterr().out == ""


def test_a_counter_of_a_static_argument_makes_two_programs_and_its_line_is_told() -> None:
    (finding,), _ = asked(jax.jit(Counting.update, static_argnums=0), Counting(), X)

    assert finding.title == "gives another program each time it is traced"
    assert finding.where == (__file__, line_of(Counting, "self.count += 1"))


def test_a_random_number_of_python_makes_two_programs() -> None:
    (finding,), _ = asked(draws)

    assert finding.title == "gives another program each time it is traced"
    assert finding.seen[0].startswith("from one trace to the next constant ")
    assert finding.severity == "warning"


def test_the_line_that_draws_random_numbers_of_numpy_is_named() -> None:
    def noisy(x: Any) -> Any:
        y = x * 2
        return y + np.random.normal(size=3)

    (finding,), _ = asked(jax.jit(noisy))

    assert finding.where == (__file__, noisy.__code__.co_firstlineno + 2)


def corrupt(rng: np.random.Generator, x: Any) -> Any:
    return x + rng.standard_normal(x.shape)


def test_an_array_that_is_drawn_while_it_is_traced_is_told_where_it_is_used() -> None:
    rng = np.random.default_rng(0)

    (finding,), _ = asked(jax.jit(lambda x: corrupt(rng, x) * 2))

    assert finding.where == (__file__, corrupt.__code__.co_firstlineno + 1)
    assert "has other values" in finding.seen[0]


def test_of_what_is_not_jitted_it_is_a_hint_only() -> None:
    (finding,), _ = asked(appends)

    assert finding.severity == "info"


@pytest.mark.parametrize(
    "fn",
    [
        jax.jit(lambda x: jnp.sin(x) + 1),
        remembers,
        functools.partial(lambda n, x: x * n, 2.0),
        jax.jit(jax.grad(lambda x: jax.nn.relu(x).sum())),
        lambda x: (jax.debug.print("{x}", x=x), x)[1],
    ],
)
def test_a_pure_function_and_a_memo_are_fine(fn: Callable[..., Any]) -> None:
    findings, answer = asked(fn)

    assert (findings, answer.outcome, answer.why) == ([], "fine", "")


def adds_the_time(x: Any) -> Any:
    return x * time.time()  # noqa: TID251  (what is looked for)


def times_itself(x: Any) -> Any:
    begun = read_clock()
    y = jnp.fft.fft(x).real
    took.append(read_clock() - begun)
    return y


def dates(x: Any) -> Any:
    return x + datetime.datetime.now(tz=datetime.UTC).hour


took: list[float] = []


@pytest.mark.parametrize(
    ("fn", "name", "text"),
    [
        (adds_the_time, "time.time", "x * time.time()"),
        (times_itself, "time.perf_counter", "begun ="),
        (dates, "datetime.now", "datetime.now("),
    ],
)
def test_a_clock_is_named_with_its_line_though_two_traces_agree(fn: Any, name: str, text: str) -> None:
    findings, _ = asked(jax.jit(fn))

    found = [f for f in findings if "clock" in f.title]
    assert found[0].title == f"reads the clock by {name} while it is traced, and not when it runs compiled"
    assert found[0].where == (__file__, line_of(fn, text))
    assert found[0].severity == "warning"


def test_clocks_that_libraries_read_and_a_clock_in_the_program_are_fine() -> None:
    def stamped(x: Any) -> Any:
        return clock.stamp(jax.nn.softmax(x))[0]

    assert asked(jax.jit(stamped))[0] == []
