"""`bench` and `run`: what may be given, what comes back, what is stored, and what an error says."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refusal

import benchax
from benchax.api import RunOutcome, run
from benchax.case import Case, make_case
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


# ---- what comes back --------------------------------------------------------------------------------------------


def test_it_returns_one_measurement_of_the_case() -> None:
    row = benchax.bench(product, "f32[64,64]", "f32[64,64]", tag="t", **QUICK)

    assert isinstance(row, benchax.Measurement)
    assert (row.case.label, row.signature, row.status) == ("product #t", "f32[64,64], f32[64,64]", "ok")
    data = row.asdict()
    assert (data["case"]["name"], data["stages"]["compile_s"]) == ("product", row.stages.compile_s)
    assert json.loads(json.dumps(data))["samples"][0]["timer"] == "in_graph"


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


# ---- what is refused, before anything runs ----------------------------------------------------------------------


BAD: tuple[dict[str, Any], ...] = (
    {"timer": "cupti"}, {"timer": "wall,lop"}, {"max_time_s": "fast"}, {"max_samples": 0}, {"verify": "bitwise"},
    {"static": [1.5]}, {"name": 3}, {"max_time": 3}, {"max_warmup_s": "1s"},
    {"work": {}}, {"work": {"rows": 0}},
)  # fmt: skip


def test_a_wrong_option_or_nearly_one_is_refused_before_anything_runs(snapshot: Any) -> None:
    calls: list[Any] = []

    def spy(x: Any, **options: Any) -> Any:
        calls.append(options)
        return x

    found = {repr(kwargs): refusal(benchax.bench, spy, "f32[8]", **SHORT | kwargs) for kwargs in BAD}
    found["of both"] = refusal(benchax.bench, lambda x, seed=0: x + seed, "f32[8]", seed=3)
    found["no function"] = refusal(benchax.bench, 3.5, "f32[8]")

    assert found == snapshot
    assert calls == []


def test_an_argument_of_the_function_may_be_called_as_in_jit_or_nearly_as_an_option() -> None:
    def power(x: Any, n: int, axis: int, static_argnums: float, time: float, seed: int = 0) -> Any:
        return (x**n).sum(axis) * static_argnums * time + seed

    given = {"axis": 1, "static_argnums": 2.0, "time": 2.0, "static_argnames": ["n", "axis"], "donate_argnums": (0,)}
    m = short(functools.partial(power, seed=3), "f32[8,8]", n=3, **given)

    assert m.failure is None
    assert m.signature == "f32[8,8], n=3, axis=1, static_argnums=2.0, time=2.0"


# ---- what is stored ---------------------------------------------------------------------------------------------


def test_the_row_is_stored_as_it_was_returned_here_by_default(project: Path) -> None:
    off = short(double, "f32[8]")
    assert list(project.iterdir()) == []

    there, here = short(double, "f32[8]", store=project / "rows"), short(double, "f32[8]", store=None)

    assert off.summary() is not None
    assert (list(benchax.load(project / "rows")), list(benchax.load())) == ([there], [here])
    assert sorted(path.name for path in project.iterdir()) == [".benchmarks", "rows"]


def test_a_row_that_cannot_be_stored_is_returned_with_a_warning(project: Path) -> None:
    (project / "taken").write_text("a file")

    with pytest.warns(UserWarning, match="measured but not stored") as warned:
        m = short(double, "f32[8]", store="taken")

    assert m.summary() is not None
    (warning,) = warned
    assert str(warning.message).startswith("the row was measured but not stored: cannot write taken/benchax.db: ")
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


def test_a_failing_case_does_not_end_the_run_whose_rows_share_an_id() -> None:
    rows = list(run(cases(double, broken, jnp.sin), call=SHORT))
    (other,) = run(cases(broken), call=SHORT)

    assert [(m.case.name, m.status) for m in rows] == [("double", "ok"), ("broken", "failed"), ("sin", "ok")]
    assert (len({m.run_id for m in rows}), other.run_id == rows[0].run_id) == (1, False)


def test_a_wrong_option_of_the_last_case_is_refused_before_the_first_runs() -> None:
    calls: list[Any] = []
    wrong = Case(double, lambda: (("f32[8]",), {}), make_case(double).id, options={"timer": "cupti"})

    said = refusal(next, run([make_case(calls.append, ("f32[8]",)), wrong], call=QUICK))

    assert said.startswith("unknown timer 'cupti'")
    assert calls == []


def test_options_of_a_case_hold_for_that_case_unless_the_command_line_says_otherwise() -> None:
    listed = [Case(broken, lambda: (("f32[8]",), {}), make_case(broken).id, options={"max_samples": n}) for n in (5, 6)]

    rows = [*run(listed, command_line=SHORT), *run(listed, command_line=SHORT | {"max_samples": 7})]

    assert [m.options.max_samples for m in rows] == [5, 6, 7, 7]


def test_progress_names_the_stages_of_the_case_in_the_order_of_work() -> None:
    told: list[benchax.ProgressEvent] = []

    benchax.bench(double, "f32[8]", name="it", progress=told.append, **QUICK)

    assert {(event.item, event.total) for event in told} == {("it", 1)}
    assert list(dict.fromkeys(event.doing for event in told)) == [
        "inputs", "trace", "lower", "compile", "artifacts", "first run", "verify", "transfer", "warm-up", "dispatch",
        "in_graph", "wall", "pipelined", "loop", "memory",
    ]  # fmt: skip
    assert [event.done for event in told] == sorted(event.done for event in told)
