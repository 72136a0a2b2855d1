"""Rules about tracing."""

from __future__ import annotations

import datetime
import functools
import gc
import inspect
import random
import re
import time
from collections.abc import Callable, Iterator
from time import perf_counter as read_clock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

from benchax import clock
from benchax.auditing.audit import ask
from benchax.auditing.evidence import Evidence
from benchax.auditing.rules.tracing import branch_on_value, host_callback, impure_function, leaked_tracer
from benchax.case import make_case
from benchax.results.audit import Checked, Finding

# ---- branch-on-value -------------------------------------------------------------------------------------------------


def asked(fn: Callable[..., Any], *args: Any, **settings: Any) -> tuple[list[Finding], Checked]:
    return ask(branch_on_value, Evidence(make_case(fn, args, **settings)))


def condition(x: Any) -> Any:
    if x > 0:
        return x
    return 2 * x


def repeat(x: Any, n: Any) -> Any:
    i = 0
    while i < n:
        i += 1
    return x + i


def counted(x: Any, n: Any) -> Any:
    for _ in range(n):
        x = x + 1
    return x


def chosen(x: Any) -> Any:
    return x if x > 0 else -x


@pytest.mark.parametrize(
    ("fn", "args", "text", "what", "argument", "remedy"),
    [
        (condition, (1.0,), "if x > 0", "if", "x", "jnp.where"),
        (repeat, (1.0, 3), "while i < n", "while", "n", "jax.lax.while_loop"),
        (counted, (1.0, 3), "for _ in range(n)", "the loop", "n", "jax.lax.fori_loop"),
        (chosen, (1.0,), "if x > 0", "if", "x", "jnp.where"),
    ],
)
def test_the_argument_the_line_and_the_remedies_are_told(
    fn: Any, args: tuple[Any, ...], text: str, what: str, argument: str, remedy: str
) -> None:
    (finding,), _ = asked(fn, *args)

    lines, first = inspect.getsourcelines(fn)
    line = first + next(i for i, each in enumerate(lines) if text in each)
    assert finding.title == f"{what} needs the value of argument {argument}, which is not known while tracing"
    assert finding.where == (__file__, line)
    assert text in finding.seen[0]
    assert finding.advice.split(".")[0].startswith("Here: jax" if remedy[:4] == "jax." else "Here: jnp")
    assert remedy in finding.advice
    assert all(way in finding.advice for way in ("static_argnames", "jax.lax.cond", "jit only the inner part"))


@pytest.mark.parametrize(
    ("fn", "title", "remedy"),
    [
        (lambda x, n: jnp.concatenate([x] * n), "[x] * n needs a size from the value of argument n", "dynamic_slice"),
        (lambda x, n: x[:n], "x[:n] needs a size from the value of argument n", "dynamic_slice"),
        (lambda x, n: np.sin(x), "np.sin(x) needs the value of argument x", "Use jnp.sin"),
        (lambda x, n: x[x > n], "x[x > n] selects a number of elements that is not known while tracing", "jnp.where"),
    ],
    ids=["repeated list", "slice", "numpy", "mask"],
)
def test_what_is_no_branch_is_told_by_its_expression_with_its_own_remedies(fn: Any, title: str, remedy: str) -> None:
    (finding,), _ = asked(jax.jit(fn), jnp.ones(4), 3)

    assert finding.title.startswith(title)
    assert finding.severity == "error"
    assert remedy in finding.advice
    assert "jax.lax.cond" not in finding.advice


def test_it_is_an_error_of_what_is_jitted_and_a_warning_else() -> None:
    (plain,), _ = asked(condition, 1.0)
    (jitted,), _ = asked(jax.jit(condition), 1.0)

    assert (plain.severity, jitted.severity) == ("warning", "error")


def test_a_condition_on_a_shape_or_on_a_static_argument_is_fine() -> None:
    def by_rank(x: Any) -> Any:
        return x.sum() if x.ndim == 2 else x

    assert asked(by_rank, jnp.ones((2, 2)))[1].outcome == "fine"
    assert asked(repeat, 1.0, 3, static=("n",))[1].outcome == "fine"


def test_another_error_is_not_its_business() -> None:
    def wrong(x: Any) -> Any:
        raise RuntimeError("no")

    findings, answer = asked(wrong, 1.0)

    assert (findings, answer.outcome) == ([], "not applicable")
    assert "RuntimeError: no" in answer.why


# ---- not-traceable ---------------------------------------------------------------------------------------------------


def mismatched(a: Any, b: Any) -> Any:
    return a @ b


def branching(x: Any) -> Any:
    return x if x > 0 else -x


def test_the_message_and_the_line_are_told(ask_about: Any) -> None:
    finding = ask_about("not-traceable", jax.jit(mismatched), "f32[2,3]", "f32[2,3]").one

    assert (finding.title, finding.severity) == ("it does not trace", "error")
    assert finding.seen[0].endswith(": return a @ b")
    assert "dot_general" in finding.seen[1]
    assert finding.where is not None
    assert finding.where[0] == __file__


def test_advice_is_told_where_the_error_is_known(ask_about: Any) -> None:
    def scaled(x: Any, kind: Any) -> Any:
        return x * len(kind)

    finding = ask_about("not-traceable", jax.jit(scaled), "f32[3]", object()).one

    assert "declare it static" in finding.advice


def test_a_plain_function_may_still_run_eagerly(ask_about: Any) -> None:
    assert ask_about("not-traceable", mismatched, "f32[2,3]", "f32[2,3]").one.severity == "warning"


def test_what_another_rule_explains_is_left_to_it(ask_about: Any) -> None:
    answered = ask_about("not-traceable", jax.jit(branching), "f32[]")

    assert (answered.outcome, answered.why) == ("not applicable", "branch-on-value explains why it does not")


def test_what_compiles_is_fine(ask_about: Any) -> None:
    assert ask_about("not-traceable", jnp.sin, "f32[3]").outcome == "fine"


# ---- leaked-tracer ---------------------------------------------------------------------------------------------------

kept: list[Any] = []
numbers: list[Any] = []


def asked_of_leak(fn: Callable[..., Any]) -> tuple[list[Finding], Checked]:
    return ask(leaked_tracer, Evidence(make_case(fn, (jnp.ones((3, 4)),))))


def keeps(x: Any) -> Any:
    kept.append(x * 2)
    return x


def uses(x: Any) -> Any:
    if kept:
        return x + kept[-1]
    kept.append(x * 2)
    return x


@pytest.fixture
def unfrozen() -> Iterator[None]:
    """The collector of garbage knows who holds what, but not of what `conftest.py` has put aside."""
    gc.unfreeze()
    yield
    gc.collect()
    gc.freeze()


@pytest.mark.slow
@pytest.mark.usefixtures("unfrozen")
def test_a_traced_value_in_a_global_is_found_and_its_holder_named() -> None:
    (finding,), _ = asked_of_leak(jax.jit(keeps))
    kept.clear()

    assert finding.severity == "error"
    assert "a traced value float32[3,4] is still held after the trace" in finding.seen
    assert any(text.startswith("held by ") and text.endswith(".kept") for text in finding.seen)
    assert finding.where is not None
    assert finding.where[0] == __file__


def test_a_value_of_an_earlier_trace_that_is_used_is_found() -> None:
    jax.jit(uses).trace(jnp.ones((3, 4)))

    (finding,), _ = asked_of_leak(uses)
    kept.clear()

    assert finding.title == "uses a value of an earlier trace"


def notes(x: Any) -> Any:
    numbers.append(x.shape)
    return x * 2


def nested(x: Any) -> Any:
    loss = jax.checkpoint(lambda y: jax.lax.scan(lambda c, r: (c + r, r), y[0], y)[0].sum())
    return jax.vmap(jnp.sin)(jax.grad(loss)(x))


@pytest.mark.parametrize("fn", [jax.jit(notes), nested])
def test_a_number_in_a_global_and_inner_transformations_are_no_leak(fn: Any) -> None:
    findings, answer = asked_of_leak(fn)

    assert (findings, answer.outcome, answer.why) == ([], "fine", "")


def test_what_jax_itself_keeps_of_callbacks_in_differentiated_loops_is_no_leak() -> None:
    def loss(x: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            carry = jnp.tanh(carry)
            jax.debug.callback(numbers.append, carry.sum())
            return carry, None

        return jax.lax.scan(step, x, length=3)[0].sum()

    findings, answer = asked_of_leak(jax.jit(jax.grad(loss)))

    assert findings == []
    assert answer.outcome in ("fine", "not checked")


# ---- impure-function -------------------------------------------------------------------------------------------------

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


def asked_of_impure(fn: Callable[..., Any], *args: Any) -> tuple[list[Finding], Checked]:
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


def of_a_closure(seen: list[int]) -> Any:
    return lambda x: (seen.append(1), x + 1)[1]


@pytest.mark.parametrize(
    ("fn", "name", "change", "of", "text"),
    [
        (jax.jit(appends), "log", r"went from \d+ to \d+ members", appends, "log.append"),
        (jax.jit(counts), "calls", r"went from \d+ to \d+", counts, "calls += 1"),
        (jax.jit(helped), "log", r"went from \d+ to \d+ members", None, ""),  # by a function that it calls
        (of_a_closure([]), "seen", "went from", None, ""),
        (Model(), "self", "", None, ""),
    ],
)
def test_what_changes_is_named_with_its_line_and_values(fn: Any, name: str, change: str, of: Any, text: str) -> None:
    (finding,), _ = asked_of_impure(fn)

    assert finding.title == f"changes {name!r} while it is traced, but not when it runs compiled"
    assert of is None or finding.where == (__file__, line_of(of, text))
    assert re.match(f"{name!r} .*{change}.* in one trace$", finding.seen[0])
    assert "was traced twice" in finding.seen[1]
    assert finding.severity == ("warning" if hasattr(fn, "lower") else "info")


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


def noisy(x: Any) -> Any:
    y = x * 2
    return y + np.random.normal(size=3)


def corrupt(rng: np.random.Generator, x: Any) -> Any:
    return x + rng.standard_normal(x.shape)


RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("fn", "args", "of", "text", "seen"),
    [
        (jax.jit(Counting.update, static_argnums=0), (Counting(), X), Counting, "self.count += 1", ""),
        (draws, (X,), draws, "random.random()", "constant "),
        (jax.jit(noisy), (X,), noisy, "np.random.normal", ""),
        (
            jax.jit(lambda x: corrupt(RNG, x) * 2),
            (X,),
            corrupt,
            "return x + rng",
            "the constant float32[3] has another value",
        ),
    ],
    ids=["counter", "Python", "NumPy", "generator"],
)
def test_what_makes_two_programs_is_told_where_it_is_drawn_or_used(
    fn: Any, args: Any, of: Any, text: str, seen: str
) -> None:
    (finding,), _ = asked_of_impure(fn, *args)

    assert finding.title == "becomes a different program each time it is traced"
    assert finding.where == (__file__, line_of(of, text))
    assert finding.seen[0].startswith("from one trace to the next ")
    assert seen in finding.seen[0]
    assert finding.severity == "warning"


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
    findings, answer = asked_of_impure(fn)

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
    findings, _ = asked_of_impure(jax.jit(fn))

    found = [f for f in findings if "clock" in f.title]
    assert found[0].title == f"reads the clock by {name} while it is traced, but not when it runs compiled"
    assert found[0].where == (__file__, line_of(fn, text))
    assert found[0].severity == "warning"


def test_clocks_that_libraries_read_and_a_clock_in_the_program_are_fine() -> None:
    def stamped(x: Any) -> Any:
        return clock.stamp(jax.nn.softmax(x))[0]

    assert asked_of_impure(jax.jit(stamped))[0] == []


# ---- host-callback ---------------------------------------------------------------------------------------------------

optax = pytest.importorskip("optax")


def ignore(value: Any) -> None:
    pass


def shows(a: Any) -> Any:
    jax.debug.callback(ignore, a[0])
    return jax.jit(lambda b: (jax.debug.callback(ignore, b[0]), b * 2)[1])(a)


def shows_in_a_loop(a: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda i, b: (jax.debug.callback(ignore, i), b + 1)[1], a)


def computes(a: Any) -> Any:
    return jax.pure_callback(np.sin, a, a)


def test_debugging_callbacks_are_left_out_to_measure_them(ask_about: Any, result_of: Any) -> None:
    answered = ask_about("host-callback", shows, "f32[100]", ratio=0.05)

    assert answered.one.title == "calls Python from compiled code (2 ×)"
    assert answered.one.where == (__file__, shows.__code__.co_firstlineno + 1)
    assert answered.one.gain.startswith("measured: 1.00 ms → 50.0 µs per call")
    ((before, without),) = answered.pairs
    assert "callback" not in str(jax.make_jaxpr(without.fn)(np.ones(100, "f4")))
    np.testing.assert_array_equal(result_of(before), result_of(without))


def test_one_that_stands_in_the_branch_of_an_error_is_a_hint(ask_about: Any) -> None:
    def checked(a: Any) -> Any:
        return jax.lax.cond(a[0] > 0, lambda b: (jax.debug.callback(ignore, b[0]), b)[1], lambda b: b, a)

    answered = ask_about("host-callback", checked, "f32[100]")

    assert answered.one.severity == "info"
    assert answered.one.seen[-1].startswith("all of them are in branches")
    assert ask_about("host-callback", shows, "f32[100]", ratio=0.05).one.severity == "warning"


def test_those_in_loops_are_counted_and_the_gain_is_not_guessed(ask_about: Any) -> None:
    answered = ask_about("host-callback", shows_in_a_loop, "f32[100]", ratio=0.05)

    assert (answered.pairs, answered.one.gain) == ([], None)
    assert "1 of them in loops" in answered.one.seen[0]
    assert answered.one.seen[1] == "gain not measured for 1: they are in loops or branches"


def test_callbacks_that_give_results_are_not_left_out(ask_about: Any) -> None:
    answered = ask_about("host-callback", computes, "f32[100]", ratio=0.05)

    assert answered.one.seen[0].startswith("1 × pure_callback")
    assert answered.one.seen[1] == "gain not measured for 1: the rest of the program can need their results"
    assert (answered.pairs, answered.one.gain) == ([], None)


@pytest.mark.parametrize("ordered", [False, True])
def test_an_io_callback_without_results_is_left_out_to_measure_it(
    ask_about: Any, result_of: Any, ordered: bool
) -> None:
    def logs_its_loss(params: Any, batch: Any) -> Any:
        loss, grads = jax.value_and_grad(lambda p: optax.l2_loss(batch @ p).mean())(params)
        io_callback(ignore, None, loss, ordered=ordered)
        return optax.apply_updates(params, optax.sgd(0.1).update(grads, optax.sgd(0.1).init(params))[0])

    answered = ask_about("host-callback", logs_its_loss, "f32[8]", "f32[4,8]", ratio=0.1)

    assert answered.one.title == "calls Python from compiled code (1 ×)"
    assert answered.one.gain.startswith("measured: 1.00 ms → 100 µs per call")
    assert not any("results" in line for line in answered.one.seen)
    ((before, without),) = answered.pairs
    assert "io_callback" not in str(jax.make_jaxpr(without.fn)(np.ones(8, "f4"), np.ones((4, 8), "f4")))
    np.testing.assert_allclose(result_of(before), result_of(without), rtol=1e-6)


def test_of_both_kinds_those_without_results_are_measured(ask_about: Any) -> None:
    def both(a: Any) -> Any:
        io_callback(ignore, None, a[0])
        return jax.pure_callback(np.sin, a, a)

    answered = ask_about("host-callback", both, "f32[100]", ratio=0.5)

    assert answered.one.gain is not None
    assert any(line.startswith("without those that give no results") for line in answered.one.seen)
    assert answered.one.seen[-1] == "gain not measured for 1: the rest of the program can need their results"


def test_a_function_without_callbacks_is_fine(ask_about: Any) -> None:
    assert ask_about("host-callback", lambda a: a * 2, "f32[100]").outcome == "fine"


@pytest.mark.slow
@pytest.mark.serial
def test_the_cost_of_a_callback_is_really_measured() -> None:
    (finding,) = host_callback.check(Evidence(make_case(shows, ("f32[100]",), {}), max_time_s=60))

    assert finding.gain is not None
    assert finding.gain_s is not None
    assert finding.gain_s > 0


def test_what_a_library_calls_is_an_info_at_the_line_that_asks_for_it(ask_about: Any) -> None:
    equinox = pytest.importorskip("equinox")

    def checked(a: Any) -> Any:
        return jax.grad(lambda b: equinox.debug.backward_nan(b).sum())(a)

    finding = ask_about("host-callback", checked, "f32[100]").one

    assert finding.severity == "info"
    assert finding.where[0] == __file__
    assert any("are in an installed package" in text for text in finding.seen)
