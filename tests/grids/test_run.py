"""A run of a grid: plan, order, rows, limits, comparison, interruption; the cells run in this process."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from grid_fakes import HerePool, grid_here, run_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchax.errors import StoreError, UsageError
from benchax.grids.cell import CellRequest
from benchax.grids.grid import COMPILE_LEAST_S, allowance, defaults, of_the_total, validate_spec
from benchax.grids.plan import named_functions, points, trial_seed
from benchax.grids.result import STATUSES
from benchax.model import Absent, CaseId, Failure
from benchax.progress import ProgressEvent
from benchax.store.baselines import set_baseline
from benchax.store.database import open_store
from benchax.store.load import load


def double(x):
    return x * 2


def add(x):
    return x + x


def negative(x):
    return -x


def short(x):
    return x[1:]


def boom(x):
    raise ValueError("no")


def test_every_cell_has_a_status_a_time_and_a_row(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCHAX_STORE", "elsewhere")
    pool = HerePool()

    g = grid_here([double, boom, short], ["f32[4]", "f32[8]"], pool, store=None, trials=2)

    assert g.status.tolist() == [["ok", "ok"], ["error", "error"], ["wrong_shape", "wrong_shape"]]
    assert g.timings.mask.tolist() == [[[False] * 2] * 2, [[True] * 2] * 2, [[True] * 2] * 2]
    assert (g.timings[0] > 0).all()
    assert [row.case for row in load("elsewhere")] == [m.case for m in g.measurements]
    assert [row.samples for row in load("elsewhere")] == [m.samples for m in g.measurements]
    # The first cell of each function examines it.
    assert [(each.function, each.examines) for each in pool.requests[::3]] == [("double", True), ("double", False)]
    cell = g.cell("double", "f32[4]")
    absent = ["memory.compiled_rise_bytes", "numerics", "stages.dispatch_s", "stages.trace_s", "cost"]
    assert [cell.measurement.why_absent(what) is not None for what in absent] == [True, True, True, False, False]
    options = cell.measurement.options
    assert (options.seed, options.timer, options.verify, options.isolate) == (0, "wall", "off", True)
    assert cell.samples is not None
    assert cell.samples.trials is not None
    assert [len(trial) for trial in cell.trials_s] == list(cell.samples.trials)
    assert sum(cell.samples.trials) == len(cell.samples.elapsed_s)
    assert cell.elapsed_s == tuple(float(np.median(trial)) for trial in cell.trials_s)


def test_each_row_is_stored_before_the_next_cell_begins(project: Path) -> None:
    seen = []

    class Watching(HerePool):
        def call(self, task, argument, *given, **more):
            if isinstance(argument, CellRequest):
                seen.append(len(load("s")) if (project / "s").exists() else 0)
            return super().call(task, argument, *given, **more)

    run_of([double, add], [1.0, 2.0], Watching(), store="s")

    assert seen == [0, 1, 2, 3]


def test_outputs_are_compared_with_those_of_the_first_function_or_of_the_named_one() -> None:
    """Types of one kind may differ in width, and the coarser one decides."""

    def coarse(x):
        return (x * 2).astype(jnp.bfloat16)

    pool = HerePool()
    g = grid_here([double, add, coarse, negative], ["f32[64]"], trials=2)
    named = grid_here([coarse, add, negative], ["f32[4]", "f32[8]"], pool, compare="negative")
    without = grid_here([boom, coarse, double], ["f32[4]"], compare="coarse")

    assert g.agreement.tolist() == [[[None, None]], [[True, True]], [[True, True]], [[False, False]]]
    far = g.cell("negative", "f32[64]").agreement
    assert not isinstance(far, Absent)
    assert (g.reference, far[0].max_rel) == ("double", pytest.approx(1.5, abs=0.5))
    codes = [r.code for r in g.cell("negative", "f32[64]").measurement.remarks]
    assert (codes[0], codes[-1]) == ("output-shape", "outputs-differ")
    assert pool.cells == ["negative", "coarse", "add"] * 2
    assert named.agreement[1].tolist() == [[False], [False]]
    assert [cell.function for cell in named.cells][:3] == ["coarse", "add", "negative"]
    assert without.agreement.tolist() == [[[None]], [[None]], [[True]]]
    # Without the reference it says why, and outputs beyond the limit are not kept.
    absent = grid_here([boom, double], ["f32[4]"]).cell("double", "f32[4]").agreement
    assert isinstance(absent, Absent)
    assert "there are no outputs of boom to compare with" in absent.why
    limited = grid_here([double, add], ["f32[1000]"], output_limit_bytes="6kB")
    assert [isinstance(cell.outputs, Absent) for cell in limited.cells] == [False, True]
    assert "1.95 KiB" in limited.cells[1].outputs.why
    assert limited.is_ok


def test_a_shape_is_that_of_the_first_function_that_worked_or_what_the_check_says() -> None:
    g = grid_here([boom, short, double, short], ["f32[4]"])
    checked = grid_here([double, short], ["f32[4]"], check=lambda y, x: y.shape[0] == x.shape[0])

    assert g.status[:, 0].tolist() == ["error", "ok", "wrong_shape", "ok"]
    assert checked.status[:, 0].tolist() == ["ok", "wrong_shape"]


def test_a_killed_cell_keeps_what_it_told() -> None:
    pool = HerePool(
        {"double": Failure("timeout", "run", "run took longer than 30.0 s; the process was killed")}, after=10
    )

    (cell,) = grid_here([double], ["f32[4]"], pool, trials=3).cells

    assert cell.status == "timeout"
    assert cell.message == "timeout in run: run took longer than 30.0 s; the process was killed"
    assert cell.stages.compile_s is not None
    assert len(cell.elapsed_s) == 1  # of the trial that was finished
    assert cell.summary is None
    assert isinstance(cell.outputs, Absent)


@pytest.mark.parametrize(
    ("failure", "status", "message"),
    [
        (
            Failure("timeout", "compile", "compile took too long"),
            "timeout",
            "timeout in compile: compile took too long",
        ),
        (Failure("crashed", "run", "killed by SIGSEGV in run"), "crashed", "crashed: SIGSEGV in run"),
        (Failure("crashed", "trace", "ended with exit code 3"), "crashed", "crashed: exit code 3 in trace"),
        (Failure("out_of_memory", "run", "RESOURCE_EXHAUSTED"), "out_of_memory", "out of memory in run: RESOURCE"),
        (Failure("error", "start", "cannot be pickled"), "error", "error: cannot be pickled"),
        (Failure("wrong_output", "run", "a str"), "error", "error: a str"),
    ],
)
def test_every_way_to_fail_is_a_status_and_a_message(failure: Failure, status: str, message: str) -> None:
    g = grid_here([double, add], ["f32[4]"], HerePool({"double": failure}))

    cell = g.cells[0]
    assert (cell.status, g.cells[1].status) == (status, "ok")
    assert cell.message.startswith(message)
    assert cell.status in STATUSES


def clock(step_s: float) -> Callable[[], float]:
    """Goes on by `step_s` whenever it is looked at."""
    return map(float, itertools.count(0, step_s)).__next__


def test_the_total_is_shared_and_who_gets_no_turn_is_told_so(project: Path) -> None:
    pool = HerePool({"49": Failure("timeout", "run", "")})

    g = grid_here({str(i): double for i in range(50)}, ["f32[4]"], pool, clock(1), total_timeout_s=60, store="s")

    assert set(g.status[:, 0]) == {"ok", "not_run"}
    assert g.cells[-1].message == "not run: the 60.0 s for the whole grid were spent before it could run"
    assert all(0 < (limits.total_s or 0) <= 30 for limits in pool.limits)
    assert len(load("s")) == len(pool.cells) < 50  # cells without a turn are in the result only
    # A share that is over is named as the reason.
    (cell,) = grid_here({"49": double}, ["f32[4]"], pool, clock(40), total_timeout_s=60, timeout_s=1000).cells
    assert "its share of the 60.0 s for the whole grid" in cell.message


def test_after_an_interruption_every_cell_is_accounted_for() -> None:
    run = run_of([double, boom, add], ["f32[4]"], HerePool({"boom": KeyboardInterrupt()}), then=False)

    with pytest.raises(KeyboardInterrupt):
        run.go()

    assert {function: cell.status for (function, _), cell in run.cells.items()} == {
        "double": "ok", "boom": "interrupted", "add": "not_run",
    }  # fmt: skip


def test_rows_that_cannot_be_stored_do_not_end_the_grid() -> None:
    class Full:
        where = "full"

        def held_open(self):
            return nullcontext()

        def append_all(self, rows):
            raise StoreError("the disk is full")

    run = run_of([double, add], ["f32[4]"], then=False)
    run.store = Full()

    run.go()

    assert [cell.status for cell in run.cells.values()] == ["ok", "ok"]
    assert [str(error) for _, error in run.unstored] == ["the disk is full"] * 2


def test_progress_tells_the_cell_the_step_and_the_time_left() -> None:
    steps: list[ProgressEvent] = []
    run = run_of([double, add], ["f32[4]"], then=False)
    run.report = steps.append

    run.go()

    assert list(dict.fromkeys(s.item for s in steps)) == ["double[data=f32[4]]", "add[data=f32[4]]"]
    assert steps[0].doing == "trace"
    assert {s.doing for s in steps} >= {"trace", "compile, run", "run"}
    assert steps[0].left_s is None
    assert (steps[-1].done, steps[-1].total) == (1, 2)
    assert steps[-1].left_s is not None


# ---- going on with an earlier run -------------------------------------------------------------------------------


def interrupted(**given) -> str:
    run = run_of([boom, double, add, negative], ["f32[4]"], HerePool({"add": KeyboardInterrupt()}), then=False, **given)
    with pytest.raises(KeyboardInterrupt):
        run.go()
    return run.run_id


def test_resume_measures_only_what_is_missing(project: Path) -> None:
    """A failed cell is finished too, and shapes of an earlier run still count."""
    run_id = interrupted(store="s")
    pool = HerePool()

    g = grid_here([boom, double, add, short], ["f32[4]"], pool, store="s", resume=True, compare="double")

    assert pool.cells == ["add", "short"]
    assert g.run_id == run_id
    assert g.status[:, 0].tolist() == ["error", "ok", "ok", "wrong_shape"]
    assert g.cell("short", "f32[4]").message == "wrong shape: [3] where double gave [4]"
    assert {row.run_id for row in load("s")} == {run_id}
    outputs = g.outputs["double"]["f32[4]"]
    assert isinstance(outputs, Absent)
    assert "earlier run" in outputs.why
    assert isinstance(g.cell("add", "f32[4]").agreement, Absent)
    # It begins anew where every run is finished.
    assert grid_here([boom, double], ["f32[4]"], store="s", resume=True).run_id != run_id


@pytest.mark.parametrize("name", ["last~1", "v1", ""])
def test_a_run_can_be_named_as_everywhere_or_by_the_first_digits_of_its_id(project: Path, name: str) -> None:
    run_id = interrupted(store="s")
    set_baseline(open_store("s"), "v1", run_id)
    grid_here([double], ["f32[4]"], store="s")
    pool = HerePool()

    grid_here([double, add, negative], ["f32[4]"], pool, store="s", resume=name or run_id[:8])

    assert pool.cells == ["add", "negative"]


@pytest.mark.parametrize(("change", "what"), [({"seed": 1}, "seed 0"), ({"trials": 2}, "trials 1")])
def test_rows_measured_in_another_way_are_refused(change: dict, what: str, project: Path) -> None:
    interrupted(store="s")

    with pytest.raises(UsageError, match=f"was measured with {what}, and this grid has"):
        grid_here([double, add, negative], ["f32[4]"], store="s", resume=True, **change)


def test_a_run_that_is_not_there_is_a_usage_error_that_lists_those_that_are(project: Path) -> None:
    run_id = interrupted(store="s")

    with pytest.raises(UsageError) as error:
        grid_here([double, add], ["f32[4]"], store="s", resume="nothing")
    with pytest.raises(UsageError, match="without a store"):
        grid_here([double], ["f32[4]"], resume=True)

    assert run_id in error.value.expected


@pytest.mark.slow
@settings(max_examples=10)
@given(st.lists(st.sampled_from([double, add, boom, short]), min_size=1, max_size=4), st.integers(1, 2))
def test_whatever_the_functions_do_every_cell_has_a_row(functions, trials: int) -> None:
    g = grid_here(functions, [1.0, "f32[3]"], trials=trials)

    assert len(g.cells) == len(g.measurements) == 2 * len(functions)
    assert set(g.status.ravel()) <= set(STATUSES)
    assert (np.ma.getmaskarray(g.timings).all(axis=2) == (g.status != "ok")).all()


# ---- limits ----------------------------------------------------------------------------------------------------------


SECONDS = st.floats(1e-3, 1e6)


@pytest.mark.parametrize(
    ("name", "default", "project", "environ", "called"),
    [
        ("timer", "wall", "loop", "pipelined", "wall"),
        ("timeout_s", 30.0, 7.0, 5.0, 30.0),
        ("memory", False, True, True, False),
        ("memory_limit_bytes", None, 2**31, 2**32, 2**33),
        ("seed", 0, 1, 2, 0),
    ],
)
def test_an_option_of_cells_comes_from_its_strongest_source(
    name: str, default: Any, project: Any, environ: Any, called: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_cells(**keywords: Any) -> Any:
        return getattr(validate_spec([jnp.sin], ["f32[8]"], defaults() | keywords).options, name)

    monkeypatch.chdir(tmp_path)
    found = [of_cells()]
    (tmp_path / "pyproject.toml").write_text(f"[tool.benchax]\n{name} = {json.dumps(project)}\n")
    found.append(of_cells())
    monkeypatch.setenv(f"BENCHAX_{name.upper()}", str(environ))
    found.append(of_cells())
    found.append(of_cells(**{name: called}))

    assert found == [default, project, environ, called]


def test_a_row_of_a_cell_has_one_process_whatever_is_set(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PROCESSES", "3"), ("NPROCS", "2"), ("COLD_PROCESS", "yes"), ("STAGES", "build")):
        monkeypatch.setenv(f"BENCHAX_{name}", value)

    options = validate_spec([jnp.sin], ["f32[8]"], defaults()).options

    assert (options.processes, options.nprocs, options.cold_process, options.stages) == (1, None, False, "samples")


def test_a_grid_without_a_limit_has_none_whatever_is_set(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCHAX_TIMEOUT_S", "5")

    spec = validate_spec([jnp.sin], ["f32[8]"], defaults() | {"timeout_s": None})

    assert (spec.options.timeout_s, spec.compile_s) == (None, None)


@pytest.mark.parametrize(
    ("given", "compile_s"),
    [((1, None), COMPILE_LEAST_S), ((90, None), 90), ((90, 5), 5), ((None, None), None)],
)
def test_compiling_has_a_minute_at_least_and_never_less_than_a_call(given: tuple, compile_s: float | None) -> None:
    pool, (call_s, limit_s) = HerePool(), given

    grid_here([double], ["f32[4]"], pool, timeout_s=call_s, compile_timeout_s=limit_s)

    (found,) = pool.limits
    assert {found.stage_s(stage) for stage in ("trace", "run", "check")} == {call_s}
    assert {found.stage_s(stage) for stage in ("lower", "compile", "inputs", "start")} == {compile_s}


@example(60.0, 270, [])
@example(7.0, 1, [1.0] * 9)
@example(10.0, 100, [1.0] * 5)
@given(SECONDS, st.integers(1, 10_000), st.lists(SECONDS, max_size=20))
def test_an_allowance_is_an_equal_share_at_least_and_half_of_what_the_others_leave(
    remaining: float, left: int, finished: list[float]
) -> None:
    found = allowance(remaining, left, finished)

    others = float(np.median(finished)) * (left - 1) if finished else 0.0
    assert found == pytest.approx(max(remaining / left, (remaining - others) / 2))
    assert remaining / left * (1 - 1e-12) <= found <= remaining


def test_a_share_that_is_over_is_told_with_the_line_that_was_running() -> None:
    stopped = Failure("timeout", "trace", "the job took longer than 220 ms; the process was killed (at f.py:3)")

    failure = of_the_total(stopped, 60.0, 0.22)

    assert failure.message == "stopped after 220 ms, its share of the 60.0 s for the whole grid (at f.py:3)"
    assert (failure.kind, failure.stage) == ("timeout", "trace")


# ---- what becomes a grid -------------------------------------------------------------------------------------------


def f(x: object) -> object:
    return x


def labels(data: object, make: object = None) -> list[object]:
    return list(points(data, make))  # type: ignore[arg-type]


def test_functions_of_a_list_have_their_own_names_and_twins_are_told_apart() -> None:
    other = functools.partial(f)

    assert list(named_functions([f, other, lambda x: x, lambda x: x])) == ["f", "f#2", "<lambda>", "<lambda>#2"]
    assert list(named_functions({"a": f, "b": f})) == ["a", "b"]


@pytest.mark.parametrize("given", [f, [], {}, "f", 3, [3], {1: f}, {"": f}, None])
def test_what_are_no_functions_is_refused(given: object) -> None:
    with pytest.raises(UsageError):
        named_functions(given)


@pytest.mark.parametrize("given", ["f32[8]", 3, [], {}, None, jnp.ones((3, 4)), ["f33[8]"]])
def test_what_are_no_data_is_refused(given: object) -> None:
    """An array is not cut in rows, and a slip in a spec is told before anything runs."""
    with pytest.raises(UsageError, match="f33" if isinstance(given, list) and given else "data"):
        points(given, None)


def test_data_of_a_list_are_called_by_value_spec_or_shape_and_twins_are_told_apart() -> None:
    x = jnp.ones((2, 3))

    assert labels([4, 0.5, "f32[8]", f]) == [4, 0.5, "f32[8]", "f"]
    assert labels([x, x, (x, np.ones(2))]) == ["f32[2,3]", "f32[2,3]#2", "(f32[2,3], f64[2])"]
    assert labels([{"w": x}, 1, 1.0, True]) == ["{w: f32[2,3]}", 1, "1.0#2", "True#2"]
    sizes = labels(np.array([4, 8]), make=lambda key, n: n)
    assert (sizes, {type(label) for label in sizes}) == ([4, 8], {int})


BAD = (("trials", 0), ("trials", 2.5), ("trials", True), ("seed", -1), ("make", 3), ("axis", ""), ("axis", "i"))


@pytest.mark.parametrize(("name", "value"), [*BAD, ("name", "")])
def test_settings_that_cannot_work_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=name):
        validate_spec([f], [1], defaults() | {name: value})


def test_a_cell_is_stored_under_function_label_and_grid_beside_those_of_its_data_point() -> None:
    found = validate_spec({"a": f, "b": f}, [1, 2], defaults() | {"name": "g", "axis": "n"})

    assert found.cells == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert found.case_id(("a", 4)) == CaseId("a", (("n", 4), ("grid", "g")))


def test_seeds_depend_on_seed_label_and_trial_and_on_nothing_else() -> None:
    seeds = {trial_seed(seed, label, trial) for seed in (0, 1) for label in (4, "4", 8) for trial in range(3)}

    assert len(seeds) == 18
    assert trial_seed(0, 4, 0) == trial_seed(0, 4, 0) < 2**31
