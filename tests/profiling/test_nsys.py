"""Nsight Systems: the command line, and running it; nsys itself is a stand-in that records what it was told."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import jax
import pytest

from benchax.errors import NotAvailable
from benchax.profiling import nsys

STAND_IN = """
import json, os, subprocess, sys
words = sys.argv[1:]
at = words.index("program-begins") + 1
json.dump({{"options": words[:at - 1], "flags": os.environ.get("XLA_FLAGS")}}, open({log!r}, "w"))
sys.exit(subprocess.call(words[at:]))
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nsys on the PATH that runs the program behind the word program-begins; the file that it writes."""
    script, log = tmp_path / "bin" / "nsys", tmp_path / "told.json"
    script.parent.mkdir()
    # A path with a space has no place behind #!.
    (script.parent / "nsys.py").write_text(STAND_IN.format(log=str(log)))
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(script))}.py "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    return log


def test_a_region_is_told_by_the_program_and_does_not_kill_it(tmp_path: Path) -> None:
    words = nsys.plan(["python", "a.py"], tmp_path / "r.nsys-rep", by_region=True, environment={}).command

    assert words[:2] == ("nsys", "profile")
    assert words[-2:] == ("python", "a.py")
    text = " ".join(words)
    assert "--capture-range cudaProfilerApi --capture-range-end stop " in text
    assert "--cuda-graph-trace node" in text
    assert f"--output {tmp_path / 'r'} " in text


def test_a_part_by_time_leaves_the_program_alive() -> None:
    words = nsys.plan(["p"], Path("r.nsys-rep"), start_after_s=10.0, duration_s=2.5, environment={}).command

    text = " ".join(words)
    assert "--delay 10 --duration 2.5 --kill none" in text
    assert "--capture-range" not in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, "--xla_gpu_enable_command_buffer="),
        ({"XLA_FLAGS": "--xla_dump_to=d"}, "--xla_dump_to=d --xla_gpu_enable_command_buffer="),
        ({"XLA_FLAGS": "--xla_gpu_enable_command_buffer=FUSION"}, None),
    ],
)
def test_kernels_are_seen_one_by_one_unless_the_user_has_said_how(before: dict[str, str], after: str | None) -> None:
    settings = nsys.plan(["p"], Path("r.nsys-rep"), environment=before).environment

    assert settings.get("XLA_FLAGS") == after


def test_the_shown_command_is_one_that_a_shell_understands() -> None:
    plan = nsys.plan(["python", "my train.py", "$HOME"], Path("out dir/r.nsys-rep"), environment={})

    words = shlex.split(str(plan))

    assert words[0] == "XLA_FLAGS=--xla_gpu_enable_command_buffer="
    assert words[-3:] == ["python", "my train.py", "$HOME"]
    assert words[words.index("--output") + 1] == "out dir/r"


def test_nsys_runs_the_program_and_its_exit_code_comes_back(log: Path, tmp_path: Path) -> None:
    program = ["program-begins", sys.executable, "-c", "raise SystemExit(7)"]
    plan = nsys.plan(program, tmp_path / "new" / "r.nsys-rep", by_region=True, environment={})

    assert nsys.run(plan) == 7

    told = json.loads(log.read_text())
    assert told["options"][0] == "profile"
    assert "--capture-range" in told["options"]
    assert told["flags"] == "--xla_gpu_enable_command_buffer="
    assert (tmp_path / "new").is_dir()


def test_without_nsys_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(NotAvailable, match="there is no nsys on the PATH"):
        nsys.run(nsys.plan(["p"], tmp_path / "r.nsys-rep"))


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="there is a GPU here")
def test_without_a_gpu_a_region_says_that_nsys_could_not_be_told() -> None:
    """With a CUDA runtime on the machine or without one."""
    with pytest.raises(NotAvailable, match="to begin"), nsys.region("step"):
        pytest.fail("the region was entered")


def test_a_region_starts_and_stops_the_profiler_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []

    class Runtime:
        def __getattr__(self, name: str):
            return lambda: called.append(name) or 0

    monkeypatch.setattr(nsys, "_cuda_runtime", Runtime)

    with pytest.raises(ZeroDivisionError), nsys.region("step"):
        called.append(str(1 / len(called[1:])))

    assert called == ["cudaProfilerStart", "cudaProfilerStop"]
