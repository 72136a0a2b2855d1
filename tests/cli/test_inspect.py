"""`benchax inspect`: parts, files, JSON, differences, and every way in which it can be asked for the impossible."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Benchax

from benchax import codec
from benchax.machine import peaks as rates
from benchax.results.inspection import Inspection, Peaks

FILE = """
import benchax, jax, jax.numpy as jnp

print("imported")

def double(x): return x + x
def twice(x): return x * 2
def log2_if_rank_2(x): return jnp.log2(x) if x.ndim == 2 else x
def branch(x): return x if x > 0 else -x
def loop(x): return jax.lax.fori_loop(0, 10, lambda i, v: jnp.tanh(v @ v), x)

@benchax.benchmark(args=lambda n: (jnp.ones(n),), n=[4, 8])
def good(x): return x + 1

@benchax.benchmark(args=lambda: (jnp.ones(()),))
def bad(x): return branch(x)
"""


@pytest.fixture(autouse=True)
def mine(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of functions, and a folder of its own for what is kept for the user."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(project / "cache" / name))
    (project / "bench_mine.py").write_text(FILE)
    return project


def test_the_overview_counts_loops_with_their_turns_and_runs_nothing(benchax: Benchax, mine: Path) -> None:
    done = benchax("inspect", "bench_mine.py:loop", "f32[8,8]")

    assert done.code == 0
    assert done.out.startswith("loop(f32[8,8]): 10.3 kFLOP, ")
    # Ten times 2·8³, and the counting of the loop.
    assert "10.3 kFLOP  on one device; bodies of loops × trip counts" in done.out
    assert "bench_mine.py:10" in done.out
    assert "the rates of this machine were never measured" in done.out
    assert done.err == "imported\n"
    assert not (mine / "cache").exists()
    assert not (mine / ".benchmarks").exists()


def test_a_text_alone_is_all_of_stdout(benchax: Benchax) -> None:
    jaxpr = benchax("inspect", "bench_mine.py:double", "f32[8]", "--show", "jaxpr").out
    both = benchax("inspect", "bench_mine.py:double", "f32[8]", "--show", "stablehlo,hlo", "--show", "hlo").out

    assert jaxpr == "{ lambda ; a:f32[8]. let b:f32[8] = add a a in (b,) }\n"
    assert both.count("HloModule") == 1
    assert both.index("stablehlo.add") < both.index("HloModule")


def test_several_cases_are_shown_one_after_the_other_and_one_that_fails_is_told(benchax: Benchax) -> None:
    done = benchax("inspect", "bench_mine.py")

    assert done.code == 2
    assert [line for line in done.out.splitlines() if line.startswith("good")] == [
        "good[n=4](f32[4]): 4 FLOP, 32 B accessed, 36 B planned peak",
        "good[n=8](f32[8]): 8 FLOP, 64 B accessed, 68 B planned peak",
    ]
    assert "error: bad does not trace: TracerBoolConversionError" in done.err
    assert "hint: The value of the argument x is not known while tracing" in done.err


def test_json_holds_all_parts_and_is_read_again(benchax: Benchax) -> None:
    lines = benchax("inspect", "bench_mine.py", "--json", "-k", "good").out.splitlines()

    found = [codec.decode_as(line, Inspection) for line in lines]

    assert [each.name for each in found] == ["good[n=4]", "good[n=8]"]
    assert found[0].jaxpr is not None
    assert found[0].counts is not None
    assert [codec.encode(each) for each in found] == lines


def test_output_takes_what_is_shown_and_a_graph_is_svg(benchax: Benchax, mine: Path) -> None:
    text = benchax("inspect", "bench_mine.py:double", "f32[8]", "--show", "hlo", "--output", "program.txt")
    graph = benchax("inspect", "bench_mine.py:double", "f32[8]", "--show", "graph,jaxpr", "--output", "graph.svg")

    assert (text.code, text.out) == (0, "")
    assert (mine / "program.txt").read_text().startswith("HloModule jit_double")
    assert (mine / "graph.svg").read_text().startswith("<svg")
    assert graph.out.startswith("{ lambda")
    assert "graph drawn to graph.svg" in graph.err


@pytest.mark.serial
def test_time_sets_a_measured_time_beside_the_rates_of_the_machine(
    benchax: Benchax, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rates, "peaks", lambda **_: Peaks(1e9, 2**26, 2e9, 2**18, {"f32": 1e10}))

    done = benchax("inspect", "bench_mine.py:loop", "f32[64,64]", "--time", "--show", "cost")

    assert done.code == 0
    assert "at 2.00 GB/s, the highest rate measured with 256 KiB" in done.out
    assert "at 10.0 GFLOP/s, the highest rate measured by a matmul of f32" in done.out
    assert "share of roofline" in done.out
    assert "not measured" not in done.out


def test_other_inputs_take_another_branch(benchax: Benchax) -> None:
    done = benchax("inspect", "bench_mine.py:log2_if_rank_2", "f32[3]", "--diff", "f32[3,3]")

    assert done.code == 0
    assert done.out.startswith("before  log2_if_rank_2(f32[3])\nafter   log2_if_rank_2(f32[3,3])\n")
    assert re.search(r"^log +0 +1 +new$", done.out, re.MULTILINE)
    assert "+{ lambda ; a:f32[3,3]. let" in done.out


def test_another_function_with_the_same_inputs(benchax: Benchax) -> None:
    same = benchax("inspect", "bench_mine.py:double", "f32[3]", "--diff", "bench_mine.py:double", "--exit-code")
    other = benchax("inspect", "bench_mine.py:double", "f32[3]", "--diff", "bench_mine.py:twice", "--exit-code")
    unasked = benchax("inspect", "bench_mine.py:double", "f32[3]", "--diff", "bench_mine.py:twice")

    assert (same.code, other.code, unasked.code) == (0, 1, 0)
    assert "no difference in what both report" in same.out
    assert re.search(r"^mul +0 +1 +new$", other.out, re.MULTILINE)


def test_a_difference_as_json(benchax: Benchax) -> None:
    done = benchax("inspect", "bench_mine.py:double", "f32[3]", "--diff", "f32[4]", "--json")

    document = json.loads(done.out)
    assert (document["before"], document["after"]) == ("double(f32[3])", "double(f32[4])")
    assert {"name": "arguments", "before": 12, "after": 16, "unit": "bytes"} in document["numbers"]


@pytest.mark.slow
@pytest.mark.parametrize(("file", "target"), [("src/pack.py", "pack:f"), ("pack.py", "pack.py:f")])
def test_another_commit_is_inspected_in_its_own_folder(
    benchax: Benchax, mine: Path, monkeypatch: pytest.MonkeyPatch, file: str, target: str
) -> None:
    (mine / "src").mkdir()
    monkeypatch.syspath_prepend(str(mine / "src"))
    monkeypatch.delitem(sys.modules, "pack", raising=False)
    (mine / file).write_text("def f(x): return x + x\n")
    commit = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]
    for words in (["init", "-q"], ["add", file], commit):
        subprocess.run(["git", *words], cwd=mine, check=True)
    (mine / file).write_text("def f(x): return x * x\n")

    done = benchax("inspect", target, "f32[3]", "--diff", "ref:HEAD")

    assert done.code == 0, done.err
    before, after = done.out.splitlines()[:2]
    assert before.startswith("before  HEAD (")
    assert after == "after   now: f(f32[3])"
    assert "-{ lambda ; a:f32[3]. let b:f32[3] = add a a in (b,) }" in done.out
    assert "+{ lambda ; a:f32[3]. let b:f32[3] = mul a a in (b,) }" in done.out
    assert len(subprocess.check_output(["git", "worktree", "list"], cwd=mine).splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["double"], "missing 1 required positional argument: 'x'"),
        (["branch", "f32[]"], "branch does not trace: TracerBoolConversionError"),
        (["branch", "f32[]", "--diff", "f32[4]"], "branch does not trace"),
        (["double", "f32[3]", "--diff", "ref:HEAD"], "git rev-parse failed"),
    ],
)
def test_what_cannot_be_is_an_error_that_says_so(benchax: Benchax, words: list[str], message: str) -> None:
    done = benchax("inspect", f"bench_mine.py:{words[0]}", *words[1:])

    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert "Traceback" not in done.err
