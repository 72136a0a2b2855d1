"""Second programs for the same shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.auditing.rules import compiled_twice as module
from benchax.results.watch import Compile, Reason, Watch
from benchax.watching.watch import watch

ID = "compiled-twice"


def test_a_carry_that_begins_as_a_number_is_found_with_its_argument(ask_about_program: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "LONG_S", 0.0)
    mean = 0.0
    f = jax.jit(lambda mean, x: 0.9 * mean + 0.1 * x.mean())
    with watch() as seen:
        for _ in range(4):
            mean = f(mean, np.ones(8, np.float32))

    found = ask_about_program(ID, seen=seen)

    assert found.one.seen[0].startswith("mean: weak type: f32 now, a Python number before")
    assert "jnp.float32(0.0)" in found.one.advice
    assert found.one.gain.startswith("estimated: ")
    assert ask_about_program("recompile-hot-spot", seen=seen).outcome == "fine"


def test_other_shapes_and_one_program_are_fine(ask_about_program: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "LONG_S", 0.0)
    f = jax.jit(lambda x: x + 1)
    with watch() as seen:
        for n in (3, 4):
            f(jnp.ones(n))
            f(jnp.ones(n))

    assert ask_about_program(ID, seen=seen).outcome == "fine"


def test_a_number_that_becomes_an_array_of_another_dtype_is_found(ask_about_program: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "LONG_S", 0.0)
    count: Any = 0
    f = jax.jit(lambda count: count + jnp.float32(1))
    with watch() as seen:
        for _ in range(3):
            count = f(count)

    assert ask_about_program(ID, seen=seen).one.seen[0].startswith("count: dtype")


def test_two_dtypes_of_arrays_are_two_uses(ask_about_program: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "LONG_S", 0.0)
    f = jax.jit(lambda x: x + 1)
    with watch() as seen:
        for dtype in (jnp.float32, jnp.bfloat16):
            f(jnp.ones(3, dtype))

    assert ask_about_program(ID, seen=seen).outcome == "fine"


def asked_about_file(ask_about_program: Any, folder: Path, total_s: float, wall_s: float) -> Any:
    file = folder / "train.py"
    file.write_text(
        "def start():\n    zero = jnp.full(3, 0.0)\n    return Env(zero, jnp.full(3, 1.0))\n"
        "class Env(NamedTuple):\n    speed: Any\n    gain: Any\ndef step(env):\n    return env\n"
        "env = start()\nfor _ in range(9):\n    env = step(env)\n"
    )
    reasons = tuple(Reason("weak type", f"env.{name}: weak type: f32 now, weakly typed before") for name in ENV)
    one = Compile("step", f"{file}:7", f"{file}:11", False, False, None, None, total_s, "", reasons, "main")
    return ask_about_program(ID, seen=Watch("all", compiles=[one], wall_s=wall_s))


ENV = ("speed", "gain")


def test_of_several_parts_that_one_function_begins_with_the_first_is_told(
    ask_about_program: Any, tmp_path: Path
) -> None:
    assert asked_about_file(ask_about_program, tmp_path, 2.0, 9.0).one.where == (str(tmp_path / "train.py"), 2)


@pytest.mark.parametrize(
    ("total_s", "wall_s", "severity"), [(0.1, 9.0, "info"), (0.1, 1.0, "warning"), (0.6, 60.0, "warning")]
)
def test_a_short_compilation_in_a_long_run_is_an_info(
    ask_about_program: Any, tmp_path: Path, total_s: float, wall_s: float, severity: str
) -> None:
    assert asked_about_file(ask_about_program, tmp_path, total_s, wall_s).one.severity == severity
