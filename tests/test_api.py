"""`bench` and `run`: what may be given, what comes back, what is stored, and what an error says."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import benchax
from benchax.api import RunOutcome, run
from benchax.case import Case, make_case
from benchax.errors import UsageError
from benchax.model import Measurement

# Real measurements, as short as they can be.
QUICK: dict[str, Any] = {"max_time_s": 0.02, "min_time_s": 0.01, "store": "off"}
SHORT: dict[str, Any] = QUICK | {"timer": "wall", "memory": False, "verify": "off"}


def double(x: Any, times: int = 1) -> Any:
    return 2 * times * x


def product(x: Any, y: Any) -> Any:
    return x @ y


def broken(x: Any) -> Any:
    raise ValueError("it is broken")


def first_of_a(tree: Any) -> Any:
    return tree["a"][0]


def compiled() -> Any:
    return jax.jit(double).lower(jnp.ones(8)).compile()


def short(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Measurement:
    return benchax.bench(fn, *args, **SHORT | kwargs)


class Model:
    def __init__(self) -> None:
        self.weight = jnp.ones((8, 8))

    def apply(self, x: Any) -> Any:
        return self.weight @ x


@pytest.fixture(scope="module")
def row() -> Measurement:
    """One full measurement, for all who only look at it."""
    return benchax.bench(product, "f32[64,64]", "f32[64,64]", tag="t", **QUICK)


# ---- what comes back --------------------------------------------------------------------------------------------


def test_it_returns_one_measurement_of_the_case(row: Measurement) -> None:
    assert isinstance(row, benchax.Measurement)
    assert (row.case.label, row.signature, row.status) == ("product #t", "f32[64,64], f32[64,64]", "ok")


def test_every_number_is_there_or_its_absence_explained(row: Measurement) -> None:
    wanted = {
        f"stages.{name}": getattr(row.stages, name) for name in ("trace_s", "lower_s", "compile_s", "first_run_s")
    }
    wanted |= {f"samples.{timer}": row.samples_of(timer) for timer in ("in_graph", "wall", "pipelined")}
    wanted |= {"memory.compiled_rise_bytes": row.memory.compiled_rise_bytes, "cost": row.cost, "numerics": row.numerics}

    unexplained = [what for what, value in wanted.items() if value is None and row.why_absent(what) is None]

    assert unexplained == []


def test_printed_it_has_a_line_for_every_stage(row: Measurement) -> None:
    text = str(row)

    labels = ["transfer in", "trace", "lower", "compile", "first run", "dispatch", "transfer out", "wall", "pipelined"]
    labels += ["planned peak", "operations"]
    assert [label for label in labels if f"\n  {label} " not in text] == []
    assert text.startswith("product ")
    assert "checked  " in text
    absent = " ".join(text.partition("not measured: ")[2].split())
    for label, what in (
        ("memory during a call", "compiled_rise_bytes"),
        ("memory during an eager call", "eager_rise_bytes"),
    ):
        assert (label in absent) == (row.why_absent(f"memory.{what}") is not None)


def test_at_a_prompt_it_is_one_short_line(row: Measurement) -> None:
    line = repr(row)

    assert line.startswith("<Measurement product ")
    assert "in_graph" in line
    assert len(line) <= 160
    assert len(line.splitlines()) == 1


def test_in_a_notebook_it_is_html(row: Measurement) -> None:
    html = row._repr_html_()

    assert html is not None
    assert html.startswith("<div class='benchax'")
    assert ">wall<" in html


def test_as_a_dict_it_is_plain_data(row: Measurement) -> None:
    data = row.asdict()

    assert data["case"]["name"] == "product"
    assert data["stages"]["compile_s"] == row.stages.compile_s
    assert json.loads(json.dumps(data))["samples"][0]["timer"] == "in_graph"


def test_a_failing_function_is_a_row() -> None:
    failed = short(broken, "f32[8]")

    assert failed.failure is not None
    assert failed.failure.message.startswith(f"ValueError: it is broken (at {__file__}:")


def test_a_name_from_a_stranger_cannot_become_html() -> None:
    name = "<script>alert(1)</script>"

    html = short(broken, "f32[8]", name=name)._repr_html_()

    assert html is not None
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


# ---- what may be given ------------------------------------------------------------------------------------------


# Made when their turn comes, since arrays start JAX's backend: what is given, the name and the signature of the row.
GIVEN: dict[str, tuple[Callable[[], Measurement], str, str]] = {
    "spec": (lambda: short(double, "f32[8]"), "double", "f32[8]"),
    "array": (lambda: short(double, jnp.ones(8)), "double", "f32[8]"),
    "numpy": (lambda: short(double, np.ones(8, np.float32)), "double", "f32[8]"),
    "struct": (lambda: short(double, jax.ShapeDtypeStruct((8, 2), jnp.bfloat16)), "double", "bf16[8,2]"),
    "scalar": (lambda: short(double, 3.5), "double", "3.5"),
    "keyword": (lambda: short(double, x="f32[8]"), "double", "x=f32[8]"),
    "pytree": (lambda: short(first_of_a, {"a": ["f32[8]", "f32[]"]}), "first_of_a", "{a: [f32[8], f32[]]}"),
    "key": (lambda: short(jax.random.normal, "key", (8,), static=1), "normal", "key, (8,)"),
    "static by name": (lambda: short(double, "f32[8]", times=3, static=["times"]), "double", "f32[8], times=3"),
    "static by position": (lambda: short(double, "f32[8]", 3, static=[1]), "double", "f32[8], 3"),
    "donated": (lambda: short(double, "f32[8]", donate=[0]), "double", "f32[8]"),
    "eager": (lambda: short(double, "f32[8]", jit=False), "double", "f32[8]"),
    "jitted": (lambda: short(jax.jit(double), "f32[8]"), "double", "f32[8]"),
    "compiled": (lambda: short(compiled(), jnp.ones(8)), "Compiled", "f32[8]"),
    "partial": (lambda: short(functools.partial(double, times=3), "f32[8]"), "double", "f32[8]"),
    "method": (lambda: short(Model().apply, "f32[8,8]"), "apply", "f32[8,8]"),
    "named": (lambda: short(jnp.sort, "f32[8]", name="mine"), "mine", "f32[8]"),
}


@pytest.mark.parametrize("kind", GIVEN)
def test_functions_and_inputs_of_all_kinds_are_measured(kind: str) -> None:
    measure, name, signature = GIVEN[kind]

    m = measure()

    assert m.failure is None
    assert (m.case.name, m.signature) == (name, signature)
    assert m.summary("wall") is not None


def test_the_reason_for_each_missing_stage_fits_what_was_given() -> None:
    built = short(compiled(), jnp.ones(8))
    eager = short(double, "f32[8]", jit=False)

    assert built.why_absent("stages.trace_s") == "it was given as a Compiled, which is built already"
    assert eager.why_absent("stages.trace_s") == "it is measured eagerly, operation by operation"
    assert eager.case.variant == "eager"


def test_a_cold_process_measures_what_is_defined_here() -> None:
    m = short(lambda x: x + 1, "f32[8]", cold_process=True)

    assert (m.failure, m.stages.cold) == (None, "process")


def test_what_cannot_travel_to_a_cold_process_is_a_row() -> None:
    m = short(lambda x: x, threading.Lock(), name="locked", cold_process=True)

    assert m.failure is not None
    assert "case 'locked' cannot be sent to a worker process: TypeError: cannot pickle" in m.failure.message


def test_eager_and_jitted_together_tell_when_compiling_pays() -> None:
    eager = short(product, "f32[8,8]", "f32[8,8]", jit=False)
    jitted = short(product, "f32[8,8]", "f32[8,8]")

    result = benchax.break_even(eager, jitted)

    assert result.build_s == jitted.stages.build_s
    assert "ompiling (" in str(result)  # what it says of rows taken one after the other depends on the machine


# ---- what is refused, before anything runs ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"timer": "cupti"}, "unknown timer 'cupti'\nexpected one of: auto, device, in_graph, loop, pipelined, wall"),
        (
            {"timer": "wall,lop"},
            "unknown timer 'lop'\nexpected 'loop'? Permitted is one of: auto, device, in_graph, loop, pipelined, wall",
        ),
        ({"max_time_s": "fast"}, "option 'max_time_s' in the call cannot be 'fast'\nexpected a time above 0, such as"),
        ({"max_samples": 0}, "option 'max_samples' in the call cannot be 0\nexpected"),
        ({"verify": "bitwise"}, "option 'verify' in the call cannot be 'bitwise'\nexpected"),
        ({"static": [1.5]}, "static=[1.5] holds 1.5\nexpected positions and names of arguments"),
        ({"name": 3}, "option 'name' in the call cannot be 3\nexpected a text or None"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_runs(kwargs: dict[str, Any], message: str) -> None:
    calls = []

    with pytest.raises(UsageError) as error:
        benchax.bench(calls.append, "f32[8]", **SHORT | kwargs)

    assert str(error.value).startswith(message)
    assert calls == []


def test_a_result_in_place_of_a_function_is_refused() -> None:
    with pytest.raises(UsageError) as error:
        benchax.bench(3.5, "f32[8]")  # type: ignore[arg-type]

    assert str(error.value) == (
        "cannot measure 3.5, a float\n"
        "expected a function: plain, jitted, compiled, or a wrapper that holds a jit\n\n"
        "hint: pass the function and its arguments apart: bench(f, x), not bench(f(x))"
    )


@pytest.mark.parametrize(
    ("keyword", "text"),
    [
        (
            {"max_time": 3},
            (
                "max_time=3 is no option of bench, and no argument of the function by that name\n"
                "expected max_time_s=\n\n"
                "hint: for the function: functools.partial(f, max_time=...)"
            ),
        ),
        (
            {"max_warmup_s": "1s"},
            (
                "max_warmup_s='1s' is no option of bench\n"
                "expected 'max_time_s'? Permitted is one of: cold_process, donate, fn, isolate, jit, max_samples, "
                "max_time_s, memory, memory_limit_bytes, mesh, min_time_s, mode, name, options, processes, "
                "progress, relative_width, seed, stages, static, store, tag, timeout_s, timer, verify, work\n\n"
                "hint: set max_warmup_s in [tool.benchax]; for the function: functools.partial(f, max_warmup_s=...)"
            ),
        ),
    ],
    ids=["misspelt", "elsewhere"],
)
def test_a_keyword_that_is_nearly_an_option_is_not_passed_to_the_function(keyword: dict[str, Any], text: str) -> None:
    calls: list[Any] = []

    def spy(x: Any, **options: Any) -> Any:
        calls.append(options)
        return x

    with pytest.raises(UsageError) as error:
        benchax.bench(spy, "f32[8]", **keyword)

    assert (str(error.value), calls) == (text, [])


def test_an_argument_of_the_function_may_be_called_nearly_as_an_option() -> None:
    m = benchax.bench(lambda x, time: x * time, "f32[8]", time=2.0, **QUICK)

    assert m.failure is None


def test_what_jit_calls_static_and_donated_is_understood() -> None:
    def power(x: Any, n: int, axis: int) -> Any:
        assert isinstance(n, int)
        return (x**n).sum(axis)

    m = benchax.bench(
        power, "f32[8,8]", 3, axis=1, static_argnums=1, static_argnames=["axis"], donate_argnums=(0,), **QUICK
    )

    assert m.failure is None
    assert "3, axis=1" in m.signature


def test_a_function_that_takes_an_argument_of_that_name_is_given_it() -> None:
    m = benchax.bench(lambda x, static_argnums: x * static_argnums, "f32[8]", static_argnums=2.0, **QUICK)

    assert m.failure is None


def test_a_keyword_of_both_is_refused() -> None:
    def noisy(x: Any, seed: int = 0) -> Any:
        return x + seed

    with pytest.raises(UsageError) as error:
        benchax.bench(noisy, "f32[8]", seed=3)

    assert str(error.value) == (
        "seed=3 is both an option of bench and an argument of the function\n"
        "expected an unambiguous call\n\n"
        "hint: for the function: functools.partial(f, seed=...); for benchax: set the option in [tool.benchax]"
    )


def test_a_keyword_of_both_reaches_the_function_through_a_partial() -> None:
    def noisy(x: Any, seed: int = 0) -> Any:
        return x + seed

    m = short(functools.partial(noisy, seed=3), "f32[8]")

    assert m.failure is None


# ---- what is stored ---------------------------------------------------------------------------------------------


def test_the_row_is_stored_as_it_was_returned(project: Path) -> None:
    m = short(double, "f32[8]", store=project / "rows")

    assert list(benchax.load(project / "rows")) == [m]


def test_the_default_is_a_folder_here(project: Path) -> None:
    m = short(double, "f32[8]", store=None)

    assert list(benchax.load()) == [m]
    assert [path.name for path in project.iterdir()] == [".benchmarks"]


def test_nothing_is_left_where_storing_is_off(project: Path) -> None:
    short(double, "f32[8]")

    assert list(project.iterdir()) == []


def test_a_row_that_cannot_be_stored_is_returned_with_a_warning(project: Path) -> None:
    (project / "taken").write_text("a file")

    with pytest.warns(UserWarning, match="measured but not stored") as warned:
        m = short(double, "f32[8]", store="taken")

    assert m.summary() is not None
    (warning,) = warned
    assert str(warning.message).startswith(
        "the row was measured but not stored: cannot write taken/benchax.db: taken is a file"
    )
    assert warning.filename == __file__


def test_settings_of_the_project_and_the_environment_reach_the_row(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "pyproject.toml").write_text("[tool.benchax]\nmax_samples = 7\nseed = 1\n")
    monkeypatch.setenv("BENCHAX_SEED", "2")

    options = short(double, "f32[8]").options

    assert (options.max_samples, options.seed, options.max_time_s) == (7, 2, 0.02)


# ---- many cases -------------------------------------------------------------------------------------------------


def cases(*fns: Callable[..., Any]) -> list[Case]:
    return [make_case(fn, ("f32[8]",)) for fn in fns]


def test_a_row_is_stored_before_the_next_case_begins(project: Path) -> None:
    outcome = RunOutcome()
    rows = run(cases(double, jnp.sin), call=SHORT | {"store": "rows"}, outcome=outcome)

    first = next(rows)

    assert list(benchax.load("rows")) == [first]
    assert outcome.row_ids == {0: 1}


def test_a_failing_case_does_not_end_the_run() -> None:
    rows = list(run(cases(double, broken, jnp.sin), call=SHORT))

    assert [(m.case.name, m.status) for m in rows] == [("double", "ok"), ("broken", "failed"), ("sin", "ok")]


def test_rows_of_one_run_share_its_id_and_no_other() -> None:
    first = list(run(cases(broken, broken), call=SHORT))
    second = list(run(cases(broken), call=SHORT))

    assert len({m.run_id for m in first}) == 1
    assert first[0].run_id != second[0].run_id


def test_rows_that_cannot_be_stored_are_given_out_and_listed(project: Path) -> None:
    (project / "taken").write_text("a file")
    outcome = RunOutcome()

    rows = list(run(cases(broken, broken), call=SHORT | {"store": "taken"}, outcome=outcome))

    assert [unstored.row for unstored in outcome.unstored] == rows
    assert (len(rows), outcome.row_ids) == (2, {})


def test_a_wrong_option_of_the_last_case_is_refused_before_the_first_runs() -> None:
    calls: list[Any] = []
    listed = [
        make_case(calls.append, ("f32[8]",)),
        Case(double, lambda: (("f32[8]",), {}), make_case(double).id, options={"timer": "cupti"}),
    ]

    with pytest.raises(UsageError, match="unknown timer 'cupti'"):
        next(run(listed, call=QUICK))

    assert calls == []


def test_options_of_a_case_hold_for_that_case_unless_the_command_line_says_otherwise() -> None:
    listed = [Case(broken, lambda: (("f32[8]",), {}), make_case(broken).id, options={"max_samples": n}) for n in (5, 6)]

    rows = [*run(listed, command_line=SHORT), *run(listed, command_line=SHORT | {"max_samples": 7})]

    assert [m.options.max_samples for m in rows] == [5, 6, 7, 7]


def test_progress_is_told_each_stage_of_the_case() -> None:
    told: list[benchax.ProgressEvent] = []

    benchax.bench(double, "f32[8]", name="it", progress=told.append, **QUICK)

    assert {(event.item, event.total) for event in told} == {("it", 1)}
    assert list(dict.fromkeys(event.doing for event in told))[:4] == ["inputs", "trace", "lower", "compile"]
    assert [event.done for event in told] == sorted(event.done for event in told)
