"""--ptjb-fail-slower: programs are run side by side, and only what that shows fails a session."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from csv_rows_by_hand import a_row

from benchax.comparing.gate import parse
from benchax.measuring.paired import PairedAnswer, Side, SideFacts
from benchax.model import CaseId, Version
from benchax.options import resolve
from benchax.paired_runs.paired_run import Group, PairedRun, PairedSamples
from pytest_jax_bench import JaxBench, baseline, fail_slower, side_by_side
from pytest_jax_bench.baseline import MetricVerdict
from pytest_jax_bench.options import PluginSettings

PLANTED = """
import os

def steps(n):  # so many dependent steps
    return lambda x: jax.lax.fori_loop(0, n, lambda i, x: x * 0.999 + 1e-6, x)

IS_CHANGED = "CHANGED" in os.environ
"""

SLOWDOWNS = (
    PLANTED
    + """
def measure(jax_bench, f, *args):
    jax_bench(jit_rounds=20, jit_warmup=1).measure(None, jax.jit(f), *args)

def test_by_value(jax_bench):
    scale = 2 if IS_CHANGED else 1
    measure(jax_bench, lambda x, n: jax.lax.fori_loop(0, n * scale, lambda i, x: x * 0.999, x), jnp.ones(8), 30_000)

def test_by_a_third(jax_bench):
    measure(jax_bench, steps(40_000 if IS_CHANGED else 30_000), jnp.ones(8))

def test_rewritten(jax_bench):
    measure(jax_bench, lambda x: steps(30_000)(x - 1 if IS_CHANGED else x + 1), jnp.ones(8))
"""
)


@pytest.mark.serial
def test_a_slower_program_fails_the_session_and_one_that_is_as_fast_does_not(ptjb, monkeypatch) -> None:
    """Also where only the test's own inputs show it: of random whole numbers, all below 100, it would take no time."""
    ptjb.write(test_g=SLOWDOWNS)
    ptjb.commit()
    ptjb.run()

    monkeypatch.setenv("CHANGED", "1")
    session = ptjb.run("--ptjb-fail-slower", "10%", code=1)

    slower = [line for line in session.text.splitlines() if line.startswith("SLOWER")]
    assert [line.split()[1] for line in slower] == ["test_g.py::test_by_value", "test_g.py::test_by_a_third"]
    assert all("(limit 10 %), against" in line for line in slower)
    assert "3 of 3 measurements compared side by side (--ptjb-fail-slower): 2 slower, 1 same" in session.text
    assert any("test_by_value #base: " in line and "returns a different result from" in line for line in session.table)
    assert "Traceback" not in session.text
    assert "3 passed" in session.text


BIGGER = (
    PLANTED
    + """
def test_bigger(jax_bench):
    def f(x):
        y = steps(30_000)(x)
        return y, jnp.broadcast_to(y[0], (1000 if IS_CHANGED else 10,))

    jax_bench(jit_rounds=20, jit_warmup=1).measure(None, jax.jit(f), jnp.ones(8))
"""
)


@pytest.mark.serial
@pytest.mark.parametrize("how", [["-n", "2"], ["--forked"]], ids=["xdist", "forked"])
def test_a_greater_program_fails_the_session_from_any_process(how: list[str], ptjb, monkeypatch) -> None:
    pytest.importorskip("xdist" if "-n" in how else "pytest_forked")
    ptjb.write(test_m=BIGGER)
    ptjb.commit()
    ptjb.run()

    monkeypatch.setenv("CHANGED", "1")
    session = ptjb.run("--ptjb-fail-slower", "peak=0", *how, code=1)

    (line,) = [line for line in session.text.splitlines() if line.startswith("SLOWER")]
    assert "test_m.py::test_bigger #base: peak " in line
    assert "(limit 0 B)" in line


VERSIONS = (Version("old"), Version("new"))
CONTEST = PairedRun(CaseId("f"), tuple(Side(v.label) for v in VERSIONS), VERSIONS, resolve({}))


def compiles_in(monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
    """Processes in which the candidate runs as fast as the baseline, and compiles in so many seconds, not 0.1: in the
    first measurement, in the second."""
    each, known = iter(seconds), dict[int, float]()
    ns = 1_000_000 + np.arange(3 * 25 * 2).reshape(3, 25, 2) % 7 * 1000

    def take(taken: PairedSamples, *_: Any) -> None:
        process = len(taken.groups)
        compile_s = known[id(taken)] = known.get(id(taken)) or next(each)
        facts = [SideFacts(builds=[{"compile": each}]) for each in (0.1, compile_s + process / 1000)]
        taken.groups.append(Group(process, (0, 1), PairedAnswer(facts, 1, ns)))

    monkeypatch.setattr(PairedSamples, "take", take)


@pytest.mark.parametrize(("second_s", "is_alarm"), [(0.2, True), (0.1, False)])
def test_a_longer_compilation_counts_when_new_processes_confirm_it(
    second_s: float, is_alarm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiles_in(monkeypatch, 0.2, second_s)

    found = fail_slower.compare_programs(CONTEST, parse("run=5%,compile=50%"))

    compilation = next(c for c in found if c.metric == "compile")
    assert compilation.confirmed is is_alarm
    assert (compilation.verdict == "slower") is is_alarm


def test_without_a_limit_of_compiling_nothing_is_run_again_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    compiles_in(monkeypatch, 0.2)

    found = fail_slower.compare_programs(CONTEST, parse("5%"))

    assert {c.metric: c.verdict for c in found} == {"run": "same", "compile": "unclear"}


UNCOMPARED = """
import os

def test_moved(jax_bench):
    jax_bench(jit_rounds=3).measure(None, jax.jit(lambda x, n: x * n, static_argnums=1), jnp.ones(8), 3, tag="moved")

def test_eager(jax_bench):
    jax_bench(eager_rounds=3).measure(double, x=jnp.ones(3))

def test_calls_back(jax_bench):
    jax_bench(jit_rounds=3).measure(None, lambda x: jax.pure_callback(lambda v: v, x, x), jnp.ones(3))

def test_donates(jax_bench):
    jax_bench(jit_rounds=3).measure(None, jax.jit(double, donate_argnums=0), jnp.ones(3))

def test_untimed(jax_bench):
    jax_bench(jit_warmup=1).measure(None, double, jnp.ones(3))

def test_other_inputs(jax_bench):
    jax_bench(jit_rounds=3).measure(None, double, jnp.ones(4 if "CHANGED" in os.environ else 3))
"""


def test_what_cannot_be_compared_says_why_and_fails_nothing(ptjb, monkeypatch) -> None:
    ptjb.write(test_u=UNCOMPARED)
    ptjb.commit()
    ptjb.run()

    ptjb.write(test_u="\n# further down\n" + UNCOMPARED)
    monkeypatch.setenv("CHANGED", "1")
    session = ptjb.run("--ptjb-fail-slower", "0%", "-v")

    assert "test_moved #moved: same: the program is the same, against" in session.text
    assert "test_donates #base: same: the program is the same, against" in session.text
    assert "2 of 6 measurements compared side by side" in session.text
    for test, why in {
        "test_eager": "only jitted functions have a program",
        "test_calls_back": "it has no program that could run again: it cannot be exported",
        "test_untimed": "its run time was not measured",
        "test_other_inputs": "error in inputs: the inputs are f32[4], and this version takes f32[3]",
    }.items():
        (line,) = [line for line in session.table if f"{test} #base: not compared" in line]
        assert f"because {why}" in line


def test_without_the_database_nothing_is_compared(ptjb) -> None:
    """People keep the CSV files under git; the programs are not there."""
    ptjb.write(test_u=UNCOMPARED)
    ptjb.run("-k", "moved")
    for file in ptjb.output.glob("benchax.db*"):
        file.unlink()

    session = ptjb.run("-k", "moved", "--ptjb-fail-slower", "10%", code=3)

    assert "because the program of the reference is not in" in session.text
    assert "UNCLEAR: the limit for run judged no measurement (--ptjb-fail-slower)" in session.text
    accepted = ptjb.run("-k", "moved", "--ptjb-fail-slower", "10%", "--ptjb-ignore-unclear")
    assert "UNCLEAR" not in accepted.text


def test_a_first_session_passes_unless_it_was_to_be_compared_with_a_pinned_run(ptjb) -> None:
    ptjb.write(test_u=UNCOMPARED)

    first = ptjb.run("-k", "moved", "--ptjb-fail-slower", "10%")
    pinned = ptjb.run("-k", "moved", "--ptjb-fail-slower", "10%", "--ptjb-pin", "1234567", code=3)

    assert "nothing to compare with (--ptjb-fail-slower): 1 of 1 measurement" in first.text
    assert "UNCLEAR: the limit for run judged no measurement" in pinned.text


def test_a_reference_of_pytest_jax_bench_has_no_program(project) -> None:
    """Its rows name no session."""
    import jax
    import jax.numpy as jnp

    from benchax.case import make_case
    from pytest_jax_bench import JaxBench

    f, x = jax.jit(jnp.sin), jnp.ones(3)
    res, _ = JaxBench(path="new", jit_rounds=3).measure(None, f, x)

    found = fail_slower.check(a_row(session=""), res.asdict(), res.jit, make_case(f, (x,)), {})

    assert found.verdict is None
    assert "because the reference was kept by pytest-jax-bench, without its program" in found.text


def test_an_error_while_comparing_costs_the_comparison_alone() -> None:
    found = fail_slower.check(a_row(), a_row(commit_run=1), None, object(), {})  # pyright: ignore[reportArgumentType]

    assert (found.verdict, found.alarms) == (None, ())
    assert found.notes == (found.text,)


# ---- A run time is judged in its own test: by the stored program of the reference, beside the one of now ------------

EXECUTABLES = 0.04
"""Standard deviation between two executables of one program, as in recordings."""


def simulated(count: int, change: float, noise: float, seed: int, comparisons: int = 400) -> list[str]:
    """Verdicts on pairs whose noise has the heavy tails of a busy machine (Student's t with 2 degrees of freedom)."""
    rng = np.random.default_rng(seed)
    found = list[str]()
    for _ in range(comparisons):
        centre = np.log(change) + rng.normal(0, EXECUTABLES)
        wall = centre + noise * rng.standard_t(2, count)
        processor = centre + 0.3 * noise * rng.standard_t(2, count)
        found.append(side_by_side.decide(wall.tolist(), processor.tolist()).verdict)
    return found


@pytest.mark.parametrize("count", [8, 30, 200])
@pytest.mark.parametrize("noise", [0.02, 0.1, 0.4])
def test_unchanged_code_is_called_changed_in_one_percent_at_most(count: int, noise: float) -> None:
    assert 400 - simulated(count, 1.0, noise, seed=count).count("unclear") <= 4


@pytest.mark.parametrize(("change", "verdict"), [(2.0, "slower"), (0.5, "faster"), (1.4, "slower")])
def test_a_change_of_two_fifths_is_found(change: float, verdict: str) -> None:
    assert simulated(30, change, 0.1, seed=1).count(verdict) >= 380


class Sessions:
    """Benchmarks of one name outside of pytest; each is a session of its own."""

    def __init__(self, **settings: Any) -> None:
        self.records, self.settings = list[dict[str, Any]](), PluginSettings(**settings)

    def run(self, fn: Any, x: Any, **rounds: Any) -> list[str]:
        """The verdict on the run time, and why."""
        bench = JaxBench(path="x", **{"jit_rounds": 20, "jit_warmup": 1} | rounds)
        for name, value in (("keep", self.records.append), ("settings", self.settings)):
            object.__setattr__(bench.context, name, value)
        bench.measure(None, fn, x)
        return self.records[-1]["verdicts"].get("jit", ["", ""])


def steps(count: int, calls: list[int] | None = None):
    @jax.jit
    def run(x):
        if calls is not None:
            calls.append(count)
        return jax.lax.fori_loop(0, 1000 * count, lambda i, y: y * 0.999 + 1e-6, x)

    return run


@pytest.mark.serial
def test_a_function_made_much_faster_is_shown_as_that_without_calling_it_again(
    project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("CALL_LIMIT_S", "BUILD_LIMIT_S"):  # however busy this machine is
        monkeypatch.setattr(side_by_side, limit, 20 * getattr(side_by_side, limit))
    x, sessions, traces = jnp.ones(8), Sessions(), list[int]()
    sessions.run(steps(60), x)

    verdict, why = sessions.run(steps(36, traces), x)

    assert (verdict, why[:13]) == ("faster", "side by side "), why
    counted = len(traces)
    without, other = list[int](), Sessions(no_judge=True)
    assert other.run(steps(36, without), x)[0] == "unclear"
    assert len(without) == counted
    assert sessions.run(steps(60), x) == ["same", "the program is the same"]
    assert "side by side" not in sessions.run(steps(36), x, calls_per_round=1)[1]


def test_the_same_program_is_never_slower_however_busy_the_machine_was(
    project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two cores with 20 other processes, stored times of 8 in 100 unchanged functions differed by the factor."""
    slower = MetricVerdict("slower", "2.5 times the older one, or more")
    monkeypatch.setattr(baseline, "_by_factor", lambda *_: slower)
    monkeypatch.setattr(baseline, "LEAST_CHANGE_MS", 0.0)
    x, sessions = jnp.ones(8), Sessions()
    sessions.run(steps(60), x)

    assert sessions.run(steps(60), x) == ["same", "the program is the same"]
    assert sessions.records[-1]["verdicts"]["compile"] == ["same", "the program is the same"]
    assert sessions.run(steps(36), x) == ["slower", slower.why]
    assert sessions.records[-1]["verdicts"]["compile"] == ["slower", slower.why]
