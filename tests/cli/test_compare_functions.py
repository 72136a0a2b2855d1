"""`benchax compare` of functions: which words are functions, how they are called, and real rankings, wrong results
among them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import warm_python

from benchax.cli.compare import labels, split_words

MODEL = """
import jax, jax.numpy as jnp

def work(x, turns):
    return jax.lax.fori_loop(0, turns, lambda i, y: jnp.sin(y), x)

def quick(x):
    return work(x, 20)

def slow(x):
    return work(x, 20) + 1e-9 * work(x, 80)

def wrong(x):
    print("traced")
    return work(x, 10)

def broken(x):
    raise ValueError("it is broken")

def called(x, mode, *, seed, baseline):
    assert (mode, seed, baseline) == ("a:b", 3, "this")
    return 2 * x
"""


def compare(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "model.py").write_text(MODEL, encoding="utf-8")
    (folder / "other.py").write_text(MODEL, encoding="utf-8")
    command = [sys.executable, "-c", "from benchax.cli.main import main; main()", "compare", *words]
    environ = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    return warm_python.run(command, cwd=folder, env=environ)


# ---- real rankings ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.serial
def test_the_fastest_right_one_wins_and_a_failure_ends_with_2(tmp_path: Path) -> None:
    functions = [f"model.py:{name}" for name in ("slow", "wrong", "quick", "broken")]

    done = compare(tmp_path, *functions, "f32[4096]", "--json")

    found = json.loads(done.stdout)
    assert done.returncode == 2
    assert found["labels"] == ["slow", "wrong", "quick", "broken"]
    assert [(r["place"], r["label"]) for r in found["ranking"]] == [(1, "quick"), (2, "slow")]
    assert found["unranked"]["wrong"].startswith("its result differs from that of slow: leaf [0] at [")
    assert found["unranked"]["broken"].startswith("failed: error in build: ValueError: it is broken")
    assert "process 1: 1 of 1 undecided" in done.stderr
    assert "traced" in done.stderr


@pytest.mark.slow
def test_functions_of_one_name_take_any_inputs_and_are_drawn(tmp_path: Path) -> None:
    """Also inputs that have the names of our own options."""
    inputs = ("f32[8]", "'a:b'", "seed=3", "baseline=this")
    options = ("--baseline", "other.py:called", "--max-time", "0.01", "--no-jit", "--plot", "ratios.png")

    done = compare(tmp_path, "model.py:called", "other.py:called", *inputs, *options)

    assert done.returncode == 0, done.stderr
    assert "against other.py:called" in done.stdout
    assert "equal" in done.stdout
    assert "compile" not in done.stdout
    assert (tmp_path / "ratios.png").read_bytes().startswith(b"\x89PNG")


# ---- words ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "inputs",
    [["f32[8]", "3"], ["mode=a:b"], ["'a:b'"], ["{'a': 1}"], ["[slice(1)]", "key"], []],
    ids=" ".join,
)
def test_functions_are_the_words_with_a_colon_that_are_no_values(inputs: Sequence[str]) -> None:
    assert split_words(["a.py:f", "jax.numpy:sort", *inputs]) == (["a.py:f", "jax.numpy:sort"], inputs)


def test_a_function_goes_by_its_name_and_by_the_whole_word_where_two_have_it() -> None:
    assert labels(["a.py:f", "jax:nn.relu", "b.py:f"]) == {
        "a.py:f": "a.py:f",
        "nn.relu": "jax:nn.relu",
        "b.py:f": "b.py:f",
    }
