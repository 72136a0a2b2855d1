"""What functions cost to compile, from the marks in a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from xspace_by_hand import LOOP, US, Event, compiled
from xspace_by_hand import read as read_steps

import benchax
from benchax.profiling.events import programs, read
from benchax.profiling.host_thread import COMPILED, encode
from benchax.profiling.operations import KEEP
from benchax.profiling.trace import place_of, program_size
from benchax.program import hlo


def mark(kind: str, at_us: int, took_us: int, name: str = "step", before: int = 0) -> Event:
    return Event(f"{COMPILED}{kind} {name} {encode((LOOP,))}", at_us * US, 0, {"elapsed_us": took_us, "before": before})


def test_a_function_is_what_it_took_to_trace_lower_and_compile_and_the_line_that_called_it() -> None:
    marks = [mark("trace", 100, 50), mark("lower", 200, 80), compiled(1000, 700, LOOP), compiled(2000, 300, LOOP)]

    (found,) = read_steps(marks, []).compile_costs

    assert (found.name, found.source, found.programs) == ("jit_step", "/home/me/train.py:12", 2)
    assert (found.trace_s, found.lower_s, found.compile_s) == pytest.approx((50e-6, 80e-6, 1000e-6))
    (before,) = read_steps([compiled(0, 700, LOOP, before=1)], []).compile_costs
    assert (before.compile_s, before.passes) == (pytest.approx(700e-6), ())


def test_the_longest_passes_of_a_compilation_are_those_that_ran_meanwhile() -> None:
    calls = [Event("PjRtCpuClient::Compile", 300 * US, 600 * US), Event("fusion (jit_step)", 400 * US, 250 * US)]
    other = [Event("PjRtCpuClient::Compile", 2300 * US, 600 * US), Event("cse", 2400 * US, 100 * US)]
    marks = [compiled(1000, 700, LOOP), compiled(3000, 700, LOOP, name="jit(init)")]

    costs = read_steps([*marks, compiled(4000, 10, LOOP, name="jit(small)")], [*calls, *other]).compile_costs
    found = {one.name: dict(one.passes) for one in costs}

    assert [one.name for one in costs][-1] == "jit_small", "in the order of what they cost"

    assert found["jit_step"]["fusion"] == pytest.approx(250e-6)
    assert found["jit_init"]["cse"] == pytest.approx(100e-6)
    assert found["jit_step"]["PjRtCpuClient::Compile"] == pytest.approx(350e-6)
    assert "cse" not in found["jit_step"]


# ---- program size ---------------------------------------------------------------------------------------------------


N = 16


def block(x: Any) -> Any:
    return jnp.sin(x @ x)


def unrolled(x: Any) -> Any:
    for _ in range(30):
        x = block(x)
    return x


def inlined(x: Any) -> Any:
    x = block(x)
    x = block(x)
    return block(x)


def module_of(fun: Any, folder: Path) -> hlo.Module:
    """As a trace carries it."""
    kept = benchax.profile(jax.jit(fun), jnp.ones((N, N)), dir=folder, runs=1)
    known = programs(read(Path(kept.files["xplane"]).read_bytes(), KEEP)).values()
    return next(module for module in known if module.name == f"jit_{fun.__name__}")


def line_of_block() -> str:
    return f"{__file__}:{block.__code__.co_firstlineno + 1}"


def test_a_loop_in_python_is_many_instructions_from_one_place_and_inlined_calls_are_several(tmp_path: Path) -> None:
    found = program_size([module_of(unrolled, tmp_path)])

    assert found is not None
    assert (found.line, found.stacks) == (line_of_block(), 1)
    assert found.loop == f"{__file__}:{unrolled.__code__.co_firstlineno + 1}"
    assert 60 <= found.repeated <= found.instructions
    several = program_size([module_of(inlined, tmp_path)])
    assert several is not None
    assert (several.line, several.stacks) == (line_of_block(), 3)
    unnamed = program_size([hlo.parse("")])
    assert unnamed is not None
    assert (unnamed.instructions, unnamed.line, unnamed.repeated) == (0, "", 0)


def test_constants_are_counted_in_bytes(tmp_path: Path) -> None:
    held = jnp.arange(N * N * 4.0).reshape(N, -1)

    def constant(x: Any) -> Any:
        return x @ held

    found = program_size([module_of(constant, tmp_path)])

    assert found is not None
    assert held.nbytes <= found.constant_bytes <= held.nbytes + 64


@pytest.mark.slow
def test_of_several_programs_the_largest_counts_and_of_none_nothing(tmp_path: Path) -> None:
    small, large = module_of(inlined, tmp_path / "a"), module_of(unrolled, tmp_path / "b")

    assert program_size([small, large, small]) == program_size([large])
    assert program_size([]) is None


def updated(params: Any) -> Any:
    return jax.tree.map(lambda one: jnp.sin(one) @ one, params)


@pytest.mark.slow
def test_one_call_that_makes_many_instructions_is_no_loop_of_the_users(tmp_path: Path) -> None:
    """Neither is the loop in which the compiled function is called."""
    for step in (jax.jit(updated),):
        kept = benchax.profile(step, [jnp.ones((k, k)) for k in range(4, 34)], dir=tmp_path, runs=1)

    known = programs(read(Path(kept.files["xplane"]).read_bytes(), KEEP)).values()
    found = program_size([next(module for module in known if module.name == "jit_updated")])
    assert found is not None
    assert (found.repeated >= 30, found.stacks, found.loop) == (True, 1, "")


# ---- python loops ---------------------------------------------------------------------------------------------------


TEXT = """\
def f(x):
    for i in range(
        len(x)
    ):
        x = g(x)
        def inner(y):
            return y
    else:
        x = h(x)
    while True:
        x = k(x)
    return x
def g(x): return [x + i for i in range(3)]
z = 1
"""


@pytest.mark.parametrize(
    ("line", "place"),
    [
        (3, ("f", None)),  # what is iterated over is computed once
        (5, ("f", 2)),
        (7, ("inner", None)),  # it runs when it is called
        (9, ("f", None)),
        (11, ("f", 10)),
        (12, ("f", None)),
        (13, ("g", 13)),
        (14, ("", None)),
        (99, ("", None)),
    ],
)
def test_a_line_stands_in_a_function_and_a_loop_of_it(line: int, place: tuple[str, int | None], tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    file.write_text(TEXT)

    assert place_of(f"{file}:{line}") == place


@pytest.mark.parametrize("content", [None, "def f(:\n", "\0"])
def test_of_a_file_that_cannot_be_read_nothing_is_said(content: str | None, tmp_path: Path) -> None:
    file = tmp_path / "m.py"
    if content is not None:
        file.write_text(content)

    assert place_of(f"{file}:1") is None
