"""Programs that a launcher has started, one for each rank: by hand on this host, as `benchax run` in two processes."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from slurm_server import SlurmServer, find_skip_reason

HERE = Path(__file__).parent
COMMAND = [sys.executable, "-m", "benchax.cli.main", "run"]


@pytest.fixture
def start(tmp_path: Path) -> Any:
    """Starts both programs with these words; they end with the test."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    running: list[subprocess.Popen[str]] = []

    def start(*words: str, of_second: tuple[str, ...] | None = None) -> list[subprocess.Popen[str]]:
        for rank in (0, 1):
            environ = {
                "JAX_COORDINATOR_ADDRESS": address,
                "JAX_NUM_PROCESSES": "2",
                "JAX_PROCESS_ID": str(rank),
                "JAX_NUM_CPU_DEVICES": "2",
                "PYTHONPATH": str(HERE.parent),
            }
            given = words if rank == 0 or of_second is None else of_second
            file = [f"{HERE.parent / 'ranks_by_hand.py'}:{given[0]}", *given[1:]]
            running.append(
                subprocess.Popen(
                    [*COMMAND, *file],
                    cwd=tmp_path,
                    env=os.environ | environ,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        return running

    yield start
    for process in running:
        process.kill()
        process.communicate()


def ask(name: str, *more: str) -> tuple[str, ...]:
    return (name, "f32[64@data]", "--mesh", "data=4", "--nprocs", "2", "--max-time", "0.2", *more)


@pytest.mark.slow
def test_the_first_program_makes_the_row_and_the_others_say_nothing(start: Any, tmp_path: Path) -> None:
    first, second = start(*ask("sums", "--json"))
    shown, _ = first.communicate()
    silent, _ = second.communicate()

    (row,) = map(json.loads, shown.splitlines())
    assert (first.returncode, second.returncode, silent) == (0, 0, "")
    assert [rank["rank"] for rank in row["ranks"]["ranks"]] == [0, 1]
    assert row["ranks"]["compared_outputs"] == 1
    assert len(row["ranks"]["barrier_skew_s"]) >= 10
    assert (row["environment"]["process_count"], row["environment"]["device_count"]) == (2, 4)
    assert len(list((tmp_path / ".benchmarks").glob("*.db"))) == 1


@pytest.mark.slow
def test_a_program_that_is_killed_is_named_and_nothing_of_it_is_left(start: Any) -> None:
    first, second = start(*ask("hangs", "--json", "--store", "off", "--timeout", "60"))
    _wait_for_trace(first)
    family = [second, *psutil.Process(second.pid).children(recursive=True)]
    second.send_signal(signal.SIGKILL)
    shown, _ = first.communicate()
    second.wait()

    failure = json.loads(shown)["failure"]
    assert failure["kind"] == "node_lost"
    assert failure["message"].startswith("rank 1 of 2 ranks: lost in ")
    gone, alive = psutil.wait_procs([each for each in family if isinstance(each, psutil.Process)], timeout=30)
    assert (first.returncode, alive) == (2, [])
    assert len(gone) == len(family) - 1


def _wait_for_trace(first: subprocess.Popen[str]) -> None:
    """Until its rank, a grandchild, is there: after that both have met."""
    children = psutil.Process(first.pid)
    while first.poll() is None and not children.children(recursive=True):
        pass


@pytest.mark.slow
def test_programs_that_were_given_other_cases_do_not_wait_for_one_another(start: Any) -> None:
    first, second = start(*ask("sums", "--store", "off"), of_second=ask("differs", "--store", "off"))
    shown, _ = first.communicate()
    _, said = second.communicate()

    assert "rank 1 is at case 'differs[mesh=data=4]', and rank 0 at case 'sums[mesh=data=4]'" in " ".join(shown.split())
    assert "expected the same command in each" in said
    assert (first.returncode, second.returncode) == (2, 2)


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmServer]:
    if reason := find_skip_reason():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="benchax-slurm-") as folder, contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(SlurmServer(Path(folder)))
        except RuntimeError as error:
            pytest.skip(f"Slurm does not start here: {error}")
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["srun", "a batch script"])
def test_slurm_starts_both_programs_or_one_that_starts_both_ranks(
    slurm: SlurmServer, launcher: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_bytes((HERE.parent / "ranks_by_hand.py").read_bytes())
    name, *words = ask("sums", "--json", "--store", "off")
    command = [*COMMAND, f"mine.py:{name}", *words]
    if launcher == "srun":
        command = ["srun", "--ntasks=2", "--overcommit", *command]
    else:
        (tmp_path / "job.sh").write_text(f"#!/bin/bash\n{shlex.join(command)} > rows.json\n")
        command = ["sbatch", "--wait", "--ntasks=2", "--overcommit", "--output=log", "job.sh"]

    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=slurm.environ | {"JAX_NUM_CPU_DEVICES": "2"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )

    said = done.stdout if launcher == "srun" else (tmp_path / "rows.json").read_text()
    assert done.returncode == 0, done.stderr
    (row,) = map(json.loads, said.splitlines())
    assert [rank["rank"] for rank in row["ranks"]["ranks"]] == [0, 1]
    assert row["environment"]["device_count"] == 4
