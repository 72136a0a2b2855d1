"""`benchax experiment`: what is tried, what is written where, exit codes. Times are taken by a stand-in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Benchax
from comparisons_by_hand import compared

from benchax.experiments import lab
from benchax.experiments.variants import VARIANTS

FILE = """
import jax.numpy as jnp

def plus(x, n=1):
    print("traced")
    return x + n

def broken(x):
    return x.reshape(3)
"""


@pytest.fixture(autouse=True)
def files(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with functions; comparisons that take no time."""

    def instant(pairs, *_):
        return {pair.name: compared(1, 0.5) for pair in pairs}

    monkeypatch.setattr(lab.WorkerLab, "time_pairs", lambda self, pairs, looks: instant(pairs))
    (project / "code.py").write_text(FILE)
    return project


def test_a_table_is_printed_and_nothing_else(benchax: Benchax) -> None:
    done = benchax("experiment", "code.py:plus", "f32[8]", "--variants", "donate,bf16")

    assert done.code == 0
    assert "saves" in done.out
    assert "2.00× (1.98 – 2.02)" in done.out
    assert "traced" not in done.out
    assert "check of donate" in done.err


def test_json_is_one_document(benchax: Benchax, files: Path) -> None:
    done = benchax("experiment", "code.py:plus", "f32[8]", "--variants", "donate", "--json", "--output", "it.json")

    document = json.loads(done.out)
    assert [row["name"] for row in document["rows"]] == ["donate"]
    assert document["rows"][0]["comparison"]["verdict"] == "faster"
    assert json.loads((files / "it.json").read_text()) == document


def test_a_variant_is_told_what_was_set(benchax: Benchax) -> None:
    done = benchax("experiment", "code.py:plus", "f32[8]", "--variants", "donate", "--given", "donate=0", "--json")

    assert ["donated", "x; outputs reuse 32 B of them"] in json.loads(done.out)["rows"][0]["facts"]


def test_the_variants_are_listed(benchax: Benchax) -> None:
    done = benchax("experiment", "--list")

    assert [line.split()[0] for line in done.out.splitlines()] == list(VARIANTS)


def test_a_function_that_fails_is_an_error(benchax: Benchax) -> None:
    done = benchax("experiment", "code.py:broken", "f32[8]", "--variants", "donate,f16")

    assert done.code == 2
    assert "reshape" in done.out
