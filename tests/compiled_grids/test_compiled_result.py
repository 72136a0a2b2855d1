"""Reading of a compiled grid on the host, from stamps made by hand."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from benchax.clock.handlers import nanoseconds
from benchax.compiled_grids.compiled_result import Circumstances, CompiledGridResult, Status
from benchax.errors import UsageError
from benchax.model import Remark

US = 1000
NEVER = 2**64 - 1


def words(ns) -> np.ndarray:
    ns = np.asarray(ns, np.uint64)
    return np.stack([ns & 0xFFFFFFFF, ns >> 32], axis=-1).astype(np.uint32)


def result(durations_us, status, limit_us=1000, cost_ns=200, took_us=500, guard_us=0, **more) -> CompiledGridResult:
    """One function, begun just before the low word of the clock overflows."""
    begun, repeats = 2**32 - 1500, max(6, len(durations_us))
    times = np.zeros((1, repeats, 3), np.int64)
    for i, duration_us in enumerate(durations_us):
        times[0, i] = np.cumsum([begun, round(duration_us * US) + cost_ns, cost_ns])
    limit = NEVER if limit_us is None else begun + limit_us * US
    fields = {
        "outputs": None,
        "timings": None,
        "count": np.array([len(durations_us)]),
        "runs": np.array([1]),
        "status": np.array([status]),
        "stamps": words(times),
        "guard": words([[begun, begun + guard_us * US]]),
        "span": words([[begun, limit, begun + took_us * US]]),
        "names": ("f",),
        "notes": ("",),
        "guarded": (guard_us > 0,),
        "unstoppable": ((),),
        "clock": "prebuilt",
        "unproved": ("",),
    }
    return CompiledGridResult(**(fields | more))


def test_times_are_net_and_what_was_not_repeated_is_masked():
    r = result([10, 12, 11], Status.stopped)

    net = r.seconds()

    assert net.mask.tolist() == [[False] * 3 + [True] * 3]
    np.testing.assert_allclose(net.compressed(), [10e-6, 12e-6, 11e-6], rtol=1e-9)
    np.testing.assert_allclose(r.seconds(raw=True).compressed(), [10.2e-6, 12.2e-6, 11.2e-6], rtol=1e-9)
    assert r.stamp_cost_s.tolist() == pytest.approx([0.2e-6])
    assert r.summary("f").median_s == pytest.approx(11e-6)
    several = result([100, 120, 110], Status.ok, cost_ns=2000, runs=np.array([10]))
    np.testing.assert_allclose(several.seconds().compressed(), net.compressed(), rtol=1e-9)
    np.testing.assert_allclose(several.seconds(raw=True).compressed(), r.seconds(raw=True).compressed(), rtol=1e-9)
    assert several.stamp_cost_s.tolist() == pytest.approx([0.2e-6]), "what is subtracted counts for one run, too"


def test_the_table_says_of_what_where_and_beside_what():
    busy = Remark("busy", "warning", "the machine was busy: other processes used 40 % of the CPU.")
    r = result([10] * 6, Status.ok, circumstances=Circumstances("f32[8]", "cpu · EPYC · jax 0.10.2", busy))

    assert str(r).startswith("f has the least median, 10.0 µs (1 of 1 measured, results not compared)\n")
    assert "\nf32[8] · cpu · EPYC · jax 0.10.2\n" in str(r)
    assert "the machine was busy" in str(r)
    assert "busy" not in str(result([10] * 6, Status.ok))


def test_a_preempted_reading_of_nothing_spoils_no_time():
    spoiled = result([10] * 12, Status.ok)
    spoiled.stamps[0, 3:, 2] = words(nanoseconds(spoiled.stamps)[0, 3:, 2] + 10**6)
    spoiled.stamps[0, 4:, :2] = words(nanoseconds(spoiled.stamps)[0, 4:, :2] + 10**6)

    np.testing.assert_allclose(spoiled.seconds().compressed(), [10e-6] * 12, rtol=1e-3)


def test_a_line_says_the_median_its_interval_and_how_many_it_is_of():
    _, _, _, line, *_, last = str(result([10, 12, 11, 11.5, 10.5, 11], Status.ok)).splitlines()

    assert line.split("  ")[0:1] == ["f"]
    for part in ("ok", "11.0 µs", "10.0 – 12.0 µs", "6/6", "500 µs"):
        assert part in line
    assert last == ("one compiled call of 500 µs; clock: prebuilt, its readings of 200 ns subtracted")


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (result([], Status.timed_out, guard_us=1000), "a single call did not end within 1.00 ms"),
        (result([], Status.stopped, guard_us=700), "there was time for its guarded run only, of 700 µs"),
        (result([], Status.not_run), "its time was up before it ran"),
        (result([], Status.wrong_shape, notes=("it returns f32[2]",)), "it returns f32[2]"),
        (result([], Status.stopped), "there was no time for a long enough reading within 1.00 ms"),
        (result([0.005] * 6, Status.ok), "it takes less than 10 ns, and reading the clock takes 200 ns"),
        (result([5] * 6, Status.ok, unproved=("only a half of it",)), "only a half of it"),
    ],
)
def test_what_has_no_time_has_a_reason(made, why):
    assert made.why_not_measured(0) == why
    assert made.summary(0) is None
    assert f"not measured, because {why}" in made.table()
    assert "nan" not in made.table()


def test_what_ended_late_says_so_and_why_and_no_limit_is_no_limit():
    late = result([3000], Status.stopped, took_us=3000, unstoppable=(("pure_callback",),))
    unlimited = result([10], Status.ok, limit_us=None)

    assert "ended 2.00 ms after its limit, because nothing stops pure_callback" in late.table()
    assert "after its limit" not in result([500], Status.stopped, took_us=1050).table()
    assert "nothing stops pure_callback" in (late._repr_html_() or "")
    assert unlimited.limit_s.tolist() == [np.inf]
    assert "limit" not in unlimited.table()


def test_the_guarded_run_is_masked_where_there_was_none_and_an_unknown_function_is_refused():
    assert result([10], Status.ok).guard_s.mask.tolist() == [True]
    assert result([10], Status.ok, guard_us=20).guard_s.tolist() == pytest.approx([20e-6])
    with pytest.raises(UsageError, match="one of: f"):
        result([10], Status.ok).summary("g")


def test_it_is_a_pytree_that_keeps_what_is_no_array():
    leaves, tree = jax.tree.flatten(result([10], Status.ok))

    assert jax.tree.unflatten(tree, leaves).names == ("f",)
