"""A grid in one jitted call: the right times in the right order, limits that hold."""

from __future__ import annotations

import math
from statistics import median

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warm_python
from functions_by_hand import X, double, endless_scan, forever, looping
from jax import lax

from benchax.clock import deadline, handlers, stamps
from benchax.clock.handlers import nanoseconds
from benchax.compiled_grids import compiled
from benchax.compiled_grids.compiled import compiled_grid
from benchax.errors import NotAvailable, NotMeasured, UsageError
from benchax.progress import ProgressEvent
from benchax.watching.compiles import watch_compiles

pytestmark = pytest.mark.usefixtures("optimized")  # durations are looked at

LATE_S = 5.0
"""How much later than its limit something may end on a machine that is busy with other things."""


def spinning(us: float):
    """A function of known duration."""
    return lambda x: handlers.spin(handlers.tier(), x * 1.5, round(us * 1000))


# --- the clock ------------------------------------------------------------------------------------------------------

KNOWN_US = np.array([20 + 10 * k for k in range(16)])
SLACK_US = 15


def checked(grid, tries: int) -> str:
    """What is wrong with the times of functions of known durations; empty if all is well.

    Of many readings the least, because whatever disturbs a known wait can only lengthen it.
    """
    least_us = np.full(16, np.inf)
    for _ in range(tries):
        result = grid(X)
        least_us = np.minimum(least_us, result.seconds(raw=True).min(axis=1).filled(0) * 1e6)
        if (np.diff(nanoseconds(result.stamps).reshape(-1)) < 0).any():
            return "they overlap, or came in another order"
        if (least_us < KNOWN_US).any():
            return "one took less than it is known to take"
        if (least_us <= KNOWN_US + SLACK_US).all():
            return ""
    return "one took longer than it is known to take"


def sixteen():
    return compiled_grid([spinning(us) for us in KNOWN_US], repeats=10)


def aside(inputs):
    """A stamp that nothing is made to wait for."""
    return inputs, stamps.stamp(inputs)[1]


@pytest.mark.slow
def test_sixteen_functions_come_in_order_none_overlaps_and_each_is_as_long_as_it_is_known_to_be(monkeypatch):
    """And the check sees a clock that is not pinned."""
    assert checked(sixteen(), tries=100) == ""
    monkeypatch.setattr(compiled, "stamp", aside)
    # A branch waits for the time that decides it, which pins the function as well.
    monkeypatch.setattr(compiled, "run_in_branch", lambda function, inputs, word: function(inputs))
    assert checked(sixteen(), tries=3) != ""


def test_a_time_is_net_of_the_stamps_cost_which_was_measured_beside_it():
    result = compiled_grid([spinning(50), double], repeats=30)(X)

    raw, net = result.seconds(raw=True), result.seconds()
    assert (result.stamp_cost_s > 0).all()
    assert (result.stamp_cost_s < 100e-6).all()
    subtracted = (raw - net).filled(0)
    assert (subtracted > 0.2 * result.stamp_cost_s[:, None]).all()
    np.testing.assert_allclose(np.median(subtracted, axis=1), result.stamp_cost_s, rtol=0.5)
    np.testing.assert_allclose(result.timings, raw, rtol=1e-6)


@pytest.mark.slow
def test_a_function_below_a_reading_of_the_clock_runs_several_times_in_each_and_has_a_time():
    def seed_f1(x):
        return x**2 - 1

    h = compiled_grid(
        {"f1": seed_f1, "f2": lambda x: x / 2, "chain": lambda x: lax.fori_loop(0, 20, lambda i, y: jnp.sin(y), x)},
        repeats=50,
    )
    x = jnp.linspace(0.1, 1.0, 1024)  # 64 take 10 ns, which is what the clock cannot tell from nothing on some machines
    result = h(x)

    assert result.status_names == ["ok"] * 3
    assert min(result.runs[:2]) > 10
    assert [result.why_not_measured(k) for k in range(3)] == [None] * 3
    f1_s, f2_s, chain_s = (result.summary(k).median_s for k in range(3))
    assert 0 < max(f1_s, f2_s) < chain_s
    np.testing.assert_array_equal(result.outputs[0], jax.jit(seed_f1)(x))


def test_a_short_function_of_known_duration_is_read_within_a_tenth():
    """Two durations, side by side: what a dispatch costs cancels."""
    assert compiled_grid([spinning(200), looping], repeats=3)(X).runs.tolist() == [1, 1], "a long one runs once in each"
    h = compiled_grid([spinning(0), spinning(1), spinning(2)], repeats=100)
    shares = []
    while len(shares) < 10 and not any(abs(np.array(shares) - 1).max(axis=1) < 0.1 if shares else []):
        none_s, one_s, two_s = (h(X).summary(k).median_s for k in range(3))
        shares.append(((one_s - none_s) / 1e-6, (two_s - none_s) / 2e-6))

    assert min(abs(np.array(shares) - 1).max(axis=1)) < 0.1


def test_the_clock_without_a_compiler_serves_as_well(monkeypatch):
    slow = handlers.load("python")
    for module in (compiled, stamps, deadline):
        monkeypatch.setattr(module, "tier", lambda: slow)

    result = compiled_grid([spinning(100), forever, double], repeats=5)(X, timeout_s=[60, 0.02, 60])

    assert result.clock == "python"
    assert result.status_names == ["ok", "timed_out", "ok"]
    assert 100e-6 <= result.seconds(raw=True)[0].min() < 100e-6 + 1


# --- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_endless_loops_are_stopped_at_their_limit_and_the_functions_after_them_run():
    result = compiled_grid([double, forever, endless_scan, jnp.sin], repeats=20)(X, timeout_s=[60, 0.02, 0.03, 60])

    assert result.status_names == ["ok", "timed_out", "timed_out", "ok"]
    assert (result.elapsed_s[1:3] >= [0.02, 0.03]).all()
    assert (result.elapsed_s[1:3] < LATE_S).all()
    assert result.count.tolist() == [20, 0, 0, 20]
    np.testing.assert_array_equal(result.outputs[3], jax.jit(jnp.sin)(X))
    assert np.isnan(result.outputs[1]).all()


def test_between_repetitions_a_limit_stops_what_has_no_loops_and_one_for_the_whole_call_the_last_functions():
    result = compiled_grid([spinning(3000), double], repeats=1000)(X, timeout_s=[0.02, 60])

    assert result.status_names == ["stopped", "ok"]
    assert 1 <= result.count[0] < 10
    assert 0.02 <= result.elapsed_s[0] < LATE_S
    result = compiled_grid([spinning(20_000), forever, double], repeats=1, timeout_s=60)(X, total_timeout_s=0.2)
    assert result.status_names == ["ok", "timed_out", "not_run"]
    assert 0.2 <= result.total_s < LATE_S


def test_without_stopping_inside_a_call_comes_to_its_end():
    result = compiled_grid([lambda x: lax.fori_loop(0, 10, lambda i, c: spinning(5000)(c), x)], stop_inside=False)(
        X, timeout_s=0.01
    )

    assert (result.status_names, result.count.tolist(), result.guarded) == (["stopped"], [1], (False,))
    assert result.elapsed_s[0] >= 0.05
    assert "after its limit" in result.table()


def test_the_repetitions_are_of_the_function_as_it_was_given_and_need_time_for_a_second_run(monkeypatch):
    monkeypatch.setattr(compiled, "interruptible", slowed_by(5000))
    result = compiled_grid([looping], repeats=10)(X)
    monkeypatch.setattr(compiled, "interruptible", slowed_by(300_000))
    once = compiled_grid([looping], repeats=10)(X, timeout_s=0.5)

    assert result.guarded == (True,)
    assert result.guard_s[0] > 5e-3 > result.seconds().min()
    assert (once.status_names, once.count.tolist()) == (["stopped"], [0])
    assert once.why_not_measured(0).startswith("there was time for its guarded run only, of 3")
    np.testing.assert_array_equal(once.outputs[0], jax.jit(looping)(X))


def slowed_by(us: int):
    """As if it cost that much to look at the clock."""

    def interruptible(f, **options):
        g = deadline.interruptible(f, **options)

        def slow(until, *args):
            outputs, is_expired = g(until, *args)
            return [handlers.spin(handlers.tier(), y, us * 1000) for y in outputs], is_expired

        return slow

    return interruptible


def test_another_limit_compiles_nothing():
    h = compiled_grid([double, forever], repeats=3)
    h(X, timeout_s=0.01).status.block_until_ready()

    with watch_compiles() as log:
        for own, total in [(0.02, None), ([60, 0.01], 60), (np.float64(0.01), np.float32(0.02)), ("5ms", jnp.inf)]:
            h(X, own, total).status.block_until_ready()

    assert not log.was_asked


@pytest.mark.parametrize(
    "limit", [0, -1.0, math.nan, [1, 2, 3], [1.0, 0.0], "soon", True, {}, np.ones((2, 2))], ids=str
)
@pytest.mark.parametrize("name", ["timeout_s", "total_timeout_s"])
def test_a_limit_that_cannot_be_is_refused_and_may_be_infinite_and_a_text_for_each_function(name, limit):
    said = rf"^{name}=(.|\n)*\nexpected a number of seconds above 0"
    with pytest.raises(UsageError, match=said):
        compiled_grid([double, double], **{name: limit})
    with pytest.raises(UsageError, match=said):
        compiled_grid([double, double])(X, **{name: limit})
    assert compiled_grid([double, double], timeout_s=["500ms", math.inf]).timeout_s.tolist() == [0.5, math.inf]


@pytest.mark.slow
def test_a_traced_limit_that_cannot_be_lets_nothing_run():
    program = jax.jit(lambda t: compiled_grid([forever, double], repeats=3)(X, timeout_s=t))

    assert [program(limit).status_names for limit in (0.0, -1.0, math.nan)] == [["not_run", "not_run"]] * 3


# --- inside other programs, and elsewhere ---------------------------------------------------------------------------


def test_it_works_inside_of_a_users_jit_with_limits_that_are_traced():
    @jax.jit
    def program(x, own_s, total_s):
        h = compiled_grid([double, forever, jnp.sin], repeats=4)
        result = h(x + 1, timeout_s=[60.0, own_s, 60.0], total_timeout_s=total_s)
        return result, jnp.nanmean(result.timings), result.outputs[2] * 2

    result, mean_s, doubled = program(X, 0.02, 60.0)

    assert result.status_names == ["ok", "timed_out", "ok"]
    assert mean_s > 0
    np.testing.assert_allclose(doubled, 2 * np.sin(X + 1), rtol=1e-6)
    assert program(X, 0.02, 1e-9)[0].status_names == ["not_run"] * 3


IN_A_FRESH_PROCESS = """
import jax, jax.numpy as jnp
from benchax.compiled_grids.compiled import compiled_grid
program = jax.jit(lambda x: compiled_grid([jnp.sin], repeats=2)(x))
print(program(jnp.ones(8)).status_names)
mesh = jax.sharding.Mesh(jax.devices(), ("i",))
x = jax.device_put(jnp.ones(8), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("i")))
try:
    compiled_grid([jnp.sin])(x)
except Exception as error:
    print(error)
"""


def test_the_clock_is_found_inside_of_a_jit_and_data_on_several_devices_are_refused():
    assert warm_python.run_on_devices(2, IN_A_FRESH_PROCESS).startswith(
        "['ok']\nnot available here, because an input is spread over 2 devices, "
        "and a reading of the clock would gather them on one"
    )


def test_a_jax_whose_loops_cannot_be_rewritten_still_measures_and_says_so(monkeypatch):
    def unavailable(until, *args):
        raise NotAvailable("this JAX is strange")

    monkeypatch.setattr(compiled, "interruptible", lambda f, **options: unavailable)

    result = compiled_grid([looping], repeats=3)(X)

    assert result.status_names == ["ok"]
    assert "cannot be stopped inside, because this JAX is strange" in result.table()


@pytest.mark.skipif(not hasattr(jax, "new_ref"), reason="this JAX has no references")
def test_a_reference_is_refused_in_words():
    with pytest.raises(UsageError, match="a compiled grid of a reference"):
        compiled_grid([double])(jax.new_ref(jnp.zeros(3)))


@pytest.mark.parametrize(
    ("functions", "options", "x"),
    [
        ([], {}, X),
        ([3], {}, X),
        ([double], {"repeats": 0}, X),
        ([double], {"repeats": 2.5}, X),
        ([double], {"clip": (1, -1)}, X),
        ([double], {}, {"nothing": None}),
    ],
)
def test_what_cannot_be_a_grid_is_refused(functions, options, x):
    with pytest.raises(UsageError):
        compiled_grid(functions, **options)(x)


def test_another_platform_is_refused(monkeypatch):
    h = compiled_grid([double])
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")

    with pytest.raises(NotAvailable, match="this runs on tpu"):
        h(np.ones(3))


def test_progress_is_told_what_is_traced_and_nothing_where_all_is_compiled() -> None:
    told: list[ProgressEvent] = []
    h = compiled_grid({"sin": jnp.sin, "cos": jnp.cos}, repeats=2, progress=told.append)

    h(jnp.ones(3))
    assert [(event.item, event.doing) for event in told] == [
        ("sin", "trace"),
        ("cos", "trace"),
        ("compiled_grid of 2 functions × 2: sin, cos", "compile and run"),
    ]

    h(jnp.ones(3))
    assert len(told) == 3


# --- a loop in Python beside it ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_both_ways_are_timed_and_each_says_what_a_run_takes():
    h = compiled_grid({"relu": jax.nn.relu, "softmax": jax.nn.softmax}, repeats=20)

    found = h.compare_python_loop({"64": X, "8 × 8": X.reshape(8, 8)}, rounds=3)

    assert [*found.python.run_s] == [("relu", "64"), ("softmax", "64"), ("relu", "8 × 8"), ("softmax", "8 × 8")]
    assert len(found.python.took_s) == len(found.compiled.took_s) == len(found.ratios) == 3
    assert found.python.runs == 80
    assert found.compiled.runs > 80
    # A call has the function in it, and its own dispatch: on any machine more than the function alone.
    known = {key: run_s for key, run_s in found.compiled.run_s.items() if run_s is not None}  # a busy machine hides one
    assert known
    assert all(found.python.run_s[key] > run_s > 0 for key, run_s in known.items())
    assert found.python.first_s > min(found.python.took_s)
    assert found.compiled.first_s > min(found.compiled.took_s)
    assert median(found.ratios) > 1  # a neighbour may disturb one of the rounds
    text = str(found)
    assert f"The comparison took {found.elapsed_s:.2f} seconds." in text
    assert "\n64: f32[64]\n8 × 8: f32[8,8]" in text
    assert text.startswith("A run costs ")
    assert "times as much in the Python loop as in the compiled one" in text


def test_what_never_ends_is_left_out_of_the_python_loop_with_its_reason():
    h = compiled_grid([jnp.sin, forever], repeats=5, timeout_s=[60, 0.02])

    found = h.compare_python_loop({"x": X}, rounds=1)

    assert [*found.python.run_s] == [("sin", "x")]
    assert found.left_out == {("forever", "x"): "a single call did not end within 20.0 ms"}
    assert "forever, x: left out, because a single call did not end within 20.0 ms" in str(found)
    with pytest.raises(NotMeasured, match=r"no function ends within its limit: a single call did not end"):
        compiled_grid([forever], repeats=5, timeout_s=0.02).compare_python_loop({"x": X}, rounds=1)
    for data in (X, {}, [X]):
        with pytest.raises(UsageError, match="expected a mapping from labels to data"):
            h.compare_python_loop(data)
