"""Why compiling takes long, from the programs of real traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import benchax
from benchax.profiling.compile_costs import program_size
from benchax.profiling.compiled_modules import CompiledModule, programs
from benchax.profiling.events import read
from benchax.profiling.operations import KEEP

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


def module_of(fun: Any, folder: Path) -> CompiledModule:
    """As a trace carries it."""
    kept = benchax.profile(jax.jit(fun), jnp.ones((N, N)), dir=folder, runs=1)
    known = programs(read(Path(kept.files["xplane"]).read_bytes(), KEEP)).values()
    return next(module for module in known if module.name == f"jit_{fun.__name__}")


def line_of_block() -> str:
    return f"{__file__}:{block.__code__.co_firstlineno + 1}"


def test_a_loop_in_python_is_many_instructions_from_one_place(tmp_path: Path) -> None:
    found = program_size([module_of(unrolled, tmp_path)])

    assert found is not None
    assert (found.line, found.stacks) == (line_of_block(), 1)
    assert found.loop == f"{__file__}:{unrolled.__code__.co_firstlineno + 1}"
    assert 60 <= found.repeated <= found.instructions


def test_calls_that_are_inlined_come_from_several_places(tmp_path: Path) -> None:
    found = program_size([module_of(inlined, tmp_path)])

    assert found is not None
    assert (found.line, found.stacks) == (line_of_block(), 3)


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


@pytest.mark.parametrize("name", ["f", "g"])
def test_a_program_that_names_no_lines_has_a_size_alone(name: str) -> None:
    found = program_size([CompiledModule(name, {}, {})])

    assert found is not None
    assert (found.instructions, found.line, found.repeated) == (0, "", 0)


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
