"""`benchax compiled-grid`: functions and inputs by name, one compiled call for each parameter."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import Benchax


@pytest.fixture
def functions(project: Path) -> Path:
    path = project / "waves.py"
    path.write_text(
        "import jax.numpy as jnp\n"
        "def sine(x): return jnp.sin(x)\n"
        "def horner(x): return (x * x / 6 - 1) * -x\n"
        "def broken(x): return x.nothing\n",
        encoding="utf-8",
    )
    return path


@pytest.mark.slow
def test_each_value_of_a_parameter_is_a_call_with_a_time_for_each_function(functions: Path, benchax: Benchax) -> None:
    done = benchax(
        "compiled-grid", "waves.py:sine", "waves.py:horner", "f32[{n}]", "-p", "n=8000,64000", "--repeats", "30"
    )

    assert done.code == 0
    assert re.findall(r"^n=\d+$", done.out, re.MULTILINE) == ["n=8000", "n=64000"]
    assert len(re.findall(r"^(?:sine|horner) +ok +[\d.]+ [nµm]s", done.out, re.MULTILINE)) == 4


def test_beside_it_the_python_loop(functions: Path, benchax: Benchax) -> None:
    words = ("waves.py:sine", "waves.py:horner", "f32[64]")

    done = benchax("compiled-grid", *words, "--python-loop", "--rounds", "2", "--repeats", "10")

    assert done.code == 0
    assert re.search(r"function +data +compiled loop +Python loop", done.out)
    assert "in 2 rounds" in done.out
    assert re.search(r"The comparison took \d+\.\d\d seconds\.", done.out)


def test_a_function_that_does_not_trace_is_an_error_and_the_others_are_measured(
    functions: Path, benchax: Benchax
) -> None:
    done = benchax("compiled-grid", "waves.py:sine", "waves.py:broken", "f32[8]", "--repeats", "10")

    assert done.code == 2
    assert "not measured, because it cannot be traced: AttributeError" in done.out
    assert re.search(r"^sine +ok", done.out, re.MULTILINE)
