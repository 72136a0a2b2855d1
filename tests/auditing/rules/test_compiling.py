"""Rules about compiling."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from evidence_by_hand import ScriptedEvidence

import benchax
from benchax.auditing.audit import ask
from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.recorder.log import Caller, Event
from benchax.auditing.rules.compiling import cache_off, growing_shapes, jit_in_loop, recompile_hot_spot
from benchax.case import make_case
from benchax.model import Measurement, Stages
from benchax.results.audit import Checked, Finding
from benchax.results.watch import CachedProgram, CacheUse, Compile, Fate, Reason, Watch

# ---- recompile-hot-spot ----------------------------------------------------------------------------------------------


def test_a_function_that_compiles_in_each_call_with_the_same_shapes() -> None:
    sizes = iter(range(3, 99))

    @jax.jit
    def inner(x: Any) -> Any:
        return x * 2

    def grows(x: Any) -> Any:
        return inner(np.ones(next(sizes), np.float32)).sum() + x

    (finding,), _ = ask(recompile_hot_spot, Evidence(make_case(grows, (np.float32(1),))))

    assert finding.title == "inner was compiled again 2 times"


# ---- jit-in-loop -----------------------------------------------------------------------------------------------------

X = np.ones(3, np.float32)


def asked(fn: Callable[..., Any]) -> tuple[list[Finding], Checked]:
    return ask(jit_in_loop, Evidence(make_case(fn, (X,))))


def line_of(fn: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(fn)
    return first + next(i for i, line in enumerate(lines) if text in line)


def add(x: Any, n: Any) -> Any:
    return x + n


def lambdas(x: Any) -> Any:
    for n in range(5):
        step = jax.jit(lambda y, n=n: y + n)
        x = step(x)
    return x


def partials(x: Any) -> Any:
    while x[0] < 5:
        x = jax.jit(functools.partial(add, n=2))(x)
    return x


def inner(x: Any) -> Any:
    def double(y: Any) -> Any:
        return y * 2

    return jax.jit(double)(x)


def made_around_a_loop(x: Any) -> Any:
    def double(y: Any) -> Any:
        return y * 2

    step = jax.jit(double)
    for _ in range(2):
        x = step(x)
    return x


def decorated_around_a_loop(x: Any) -> Any:
    @jax.jit
    def step(y: Any) -> Any:
        return y * 2

    for _ in range(2):
        x = step(x)
    return x


def one_function(x: Any) -> Any:
    for n in range(5):
        x = jax.jit(add)(x, jnp.float32(n))
    return x


def rarely(x: Any) -> Any:
    if x[0] > 1000:
        for n in range(5):
            x = jax.jit(lambda y, n=n: y + n)(x)
    return x


def test_a_lambda_in_a_loop_is_found_at_its_line() -> None:
    (finding,), _ = asked(lambdas)

    assert finding.where == (__file__, line_of(lambdas, "jax.jit"))
    assert finding.title == "<lambda> is made and jitted repeatedly, and compiles each time"
    assert finding.seen[0].startswith("14 recompiles took")


def test_a_partial_in_a_while_loop_is_found() -> None:
    (finding,), _ = asked(partials)

    assert finding.where == (__file__, line_of(partials, "jax.jit"))
    assert finding.severity == "warning"


def test_an_inner_function_jitted_in_each_call_is_found() -> None:
    (finding,), _ = asked(inner)

    assert finding.where == (__file__, line_of(inner, "jax.jit"))
    assert "double of" in finding.seen[1]


def test_one_that_a_loop_inside_calls_is_found_where_it_is_made() -> None:
    (by_call,), _ = asked(made_around_a_loop)
    (by_decorator,), _ = asked(decorated_around_a_loop)

    assert by_call.where == (__file__, line_of(made_around_a_loop, "jax.jit"))
    assert by_decorator.where == (__file__, line_of(decorated_around_a_loop, "@jax.jit"))
    assert ("called here", __file__, line_of(decorated_around_a_loop, "step(x)")) in by_decorator.related


def test_jit_of_one_function_in_a_loop_is_fine() -> None:
    """JAX finds what it compiled by the function object."""
    findings, answer = asked(one_function)

    assert (findings, answer.outcome) == ([], "fine")


def test_what_did_not_run_is_read_from_the_source() -> None:
    (finding,), _ = asked(rarely)

    assert finding.severity == "info"
    assert finding.where == (__file__, line_of(rarely, "jax.jit"))
    assert finding.seen[1] == "seen in the source, not in the calls"


def test_a_loop_inside_of_a_jitted_function_is_part_of_one_program() -> None:
    assert asked(jax.jit(lambdas))[0] == []


@pytest.mark.parametrize(("specs", "n"), [(["f32[3]"] * 3, 2), (["f32[3]", "f32[4]", "f32[5]"], 0)])
def test_a_new_function_for_other_arguments_would_be_compiled_anyway(specs: list[str], n: int) -> None:
    first, new = Reason("first call", "first call"), Reason("new function", "new function object")
    compiles = [
        Compile(
            "step", "train.py:3", "train.py:7", False, False, 0.1, 0.1, 1.0, f"x: {spec}", (new if i else first,), ""
        )
        for i, spec in enumerate(specs)
    ]

    findings, _ = ask(jit_in_loop, ProgramEvidence(Watch(compiles=compiles, wall_s=9.0)))

    assert [finding.seen[0].split()[0] for finding in findings] == [str(n)] * bool(n)


# ---- growing-shapes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shapes", "uses", "caller", "is_found"),
    [
        pytest.param([f"f32[{n}]" for n in range(1, 7)], 6, "user", True, id="sizes of a mask, each once"),
        pytest.param(
            [f"f32[{n}]" for n in range(1, 7)], 600, "user", False, id="sizes of parameters, each in every step"
        ),
        pytest.param(
            ["f32[1]", "f32[2]", "f32[3]", "f32[1,2]", "f32[1,3]", "f32[2,2]"], 6, "user", False, id="several ranks"
        ),
        pytest.param([f"f32[{n}]" for n in range(1, 7)], 6, "package", False, id="sizes of a package"),
    ],
)
def test_sizes_that_are_used_again_and_again_do_not_grow(
    shapes: list[str], uses: int, caller: Caller, is_found: bool
) -> None:
    compiles = [
        Compile("mul", None, "train.py:7", True, False, 0.01, 0.01, 0.1, f"x: {shape}", (), "main") for shape in shapes
    ]
    evidence = ProgramEvidence(Watch(compiles=compiles, wall_s=2.0))
    for _ in range(uses):
        evidence.log.add(Event("operation", "mul", "train.py:7", caller=caller))

    findings, _ = ask(growing_shapes, evidence)

    assert bool(findings) == is_found


# ---- cache-off -------------------------------------------------------------------------------------------------------


def program(cache: CacheUse | None) -> tuple[list[Finding], Checked]:
    return ask(cache_off, ProgramEvidence(Watch(), cache=cache))


def compiled(fate: Fate, *elapsed_s: float) -> list[CachedProgram]:
    return [CachedProgram(f"jit(f{i})", fate, s) for i, s in enumerate(elapsed_s)]


@lru_cache(maxsize=1)
def measured_once() -> Measurement:
    return benchax.bench(lambda x: x + 1, jnp.ones(3), timer="wall", max_time_s=0.02, memory=False, store="off")


def function(**stages: Any) -> tuple[list[Finding], Checked]:
    """Of one that took a given time to compile."""
    live = Evidence(make_case(lambda x: x + 1, (jnp.ones(3),)))
    if not stages:
        return ask(cache_off, live)
    return ask(cache_off, ScriptedEvidence(live, measurement=replace(measured_once(), stages=Stages(**stages))))


def test_a_program_without_a_cache_hears_how_long_it_compiled() -> None:
    (finding,), _ = program(CacheUse(compiled("not kept", 0.5, 5.0), is_enabled=False, why_off="no folder is set"))

    assert finding.title == "the persistent cache is off (no folder is set)"
    assert finding.seen[1] == "jit(f1): 5.00 s"
    assert finding.gain == "estimated: 5.50 s of compiling in each start after the first, minus reading the cache"
    assert "JAX_COMPILATION_CACHE_DIR" in finding.advice
    assert "MIN_COMPILE_TIME" not in finding.advice


def test_a_cache_that_would_keep_little_of_it_needs_its_setting_too() -> None:
    lost = compiled("not kept", 0.5, 5.0)
    (finding,), _ = program(CacheUse(lost, is_enabled=False, why_off="no folder is set", min_compile_time_s=1.0))

    assert "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0" in finding.advice


def test_programs_below_the_threshold_are_named_with_the_setting() -> None:
    quick = compiled("too quick", *(0.8 for _ in range(8)))
    (finding,), _ = program(CacheUse(quick, directory="/c", is_enabled=True, min_compile_time_s=1.0))

    assert finding.title == "the persistent cache does not keep what is quick to compile: 8 programs"
    assert "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0" in finding.advice
    assert "1.00 s" in finding.advice


@pytest.mark.parametrize("fate", ["hit", "written"])
def test_a_cache_that_keeps_everything_is_fine(fate: Fate) -> None:
    assert program(CacheUse(compiled(fate, 6.0), is_enabled=True, min_compile_time_s=1.0))[1].outcome == "fine"


def test_a_cache_that_is_off_is_not_called_fine_where_it_is_not_needed() -> None:
    _, of_program = program(CacheUse(compiled("not kept", 1.0, 1.0), is_enabled=False, why_off="no folder is set"))
    _, of_function = function(compile_s=4.9, cache="off")

    assert (of_program.outcome, of_function.outcome) == ("not applicable", "not applicable")
    assert (of_program.why or "").startswith("the persistent cache is off, and 2.00 s of compiling")


def test_a_program_whose_cache_was_not_watched_is_not_called_fine() -> None:
    assert program(None)[1].outcome == "not checked"


def test_a_function_that_compiles_long_without_a_cache() -> None:
    (finding,), _ = function(compile_s=6.0, cache="off")

    assert finding.seen == ("compiling takes 6.00 s in every process (measured once)",)
    assert "MIN_COMPILE_TIME" not in finding.advice


@pytest.fixture
def a_minute_least() -> Iterator[None]:
    """What takes less than a minute to compile is not kept."""
    setting = "jax_persistent_cache_min_compile_time_secs"
    before = jax.config.values[setting]
    jax.config.update(setting, 60.0)
    yield
    jax.config.update(setting, before)


@pytest.mark.usefixtures("a_minute_least")
def test_a_function_that_the_cache_would_not_keep() -> None:
    (off,), _ = function(compile_s=6.0, cache="off")
    (on,), _ = function(compile_s=6.0, cache="miss")

    assert "MIN_COMPILE_TIME" in off.advice
    assert "JAX_COMPILATION_CACHE_DIR" in off.advice
    assert on.title == "the persistent cache keeps only programs that take 60.0 s to compile"


def test_a_function_that_compiles_at_once_or_comes_from_the_cache() -> None:
    assert function()[1].outcome == "not applicable"
    assert function(compile_s=6.0, cache="miss")[1].outcome == "fine"
    assert function(compile_s=6.0, cache="hit")[1].outcome == "not applicable"


def test_the_threshold_is_that_of_jax() -> None:
    assert jax.config.values["jax_persistent_cache_min_compile_time_secs"] == 1.0
