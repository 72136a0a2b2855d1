"""Ranks of one program on two real nodes of Ray: one row, a lost rank is named, and none is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from process_ends import wait_until_gone
from simulated_agents import simulate_node

from benchax.clusters import ray_agents
from benchax.clusters.agents import CallEnded, Node, NodeJoined, NodeLost
from benchax.clusters.cases import measure_cases, nprocs_of
from benchax.clusters.ray_agents import RayGang, Slot, Team, assign_slots
from benchax.discovery import collect
from benchax.errors import UsageError
from benchax.model import Failure
from benchax.options import DEFAULTS, resolve
from benchax.progress import quiet
from benchax.store.load import load

if TYPE_CHECKING:
    from conftest import TwoNodes

on_ray = [
    pytest.mark.slow,
    pytest.mark.serial,
    pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning"),
]

BENCHAX = str(Path(sys.executable).with_name("benchax"))
FILE = """
import os, time
import benchax, equinox, jax, jax.numpy as jnp, psutil

def mark(name):
    with open(os.path.join(WHERE, name), "a") as marks:
        marks.write(f"{os.getpid()} {os.getppid()} {psutil.Process().parent().ppid()} {os.getcwd()}\\n")

def there(name):
    return os.path.exists(os.path.join(WHERE, name))

class Scale(equinox.Module):
    by: jax.Array
    def __call__(self, x):
        mark("scaled")
        return jnp.sum(x * self.by)

def raises(x):
    if jax.process_index() == 1:
        raise ValueError("no such thing")
    return jnp.sum(x)

def waits(x):
    mark("waits")
    while not there("go on"):
        time.sleep(0.01)
    return jnp.sum(x)

def kills_agent(x):
    if jax.process_index() == 1 and not there("killed"):
        mark("killed")
        psutil.Process().parent().parent().kill()
    return jnp.sum(x)

raises, kills_agent = (benchax.benchmark(f, args=("f32[64@data]",)) for f in (raises, kills_agent))
scaled = benchax.benchmark(Scale(jnp.float32(2.0)), name="scaled", args=("f32[64@data]",))
"""


@pytest.fixture
def files(project: Path) -> Path:
    (project / "mine.py").write_text(FILE.replace("WHERE", repr(str(project))))
    return project


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [BENCHAX, "run", "--mesh", "data=4", "--nprocs", "2", "--store", "s"]
    return subprocess.Popen(
        [*command, "--max-time", "0.2", *words],
        cwd=folder,
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(program: subprocess.Popen[str]) -> tuple[int, str]:
    shown, said = program.communicate(timeout=200)
    return program.returncode, shown + said


def marks(folder: Path, name: str) -> list[list[str]]:
    file = folder / name
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def wait_for_marks(folder: Path, name: str, count: int, program: subprocess.Popen[str]) -> set[int]:
    """The ranks, the processes that keep them and their agents."""
    until = time.monotonic() + 100
    while len(marks(folder, name)) < count:
        assert program.poll() is None, finish(program)
        assert time.monotonic() < until
        time.sleep(0.05)
    return {int(pid) for line in marks(folder, name) for pid in line[:3]}


def place(cpus: float, gpus: float = 0) -> dict[str, Any]:
    return {"Resources": {"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus}}


@pytest.mark.parametrize(
    ("places", "count", "slots"),
    [
        ([place(4)], 2, [Slot(0, 4, 0)]),  # its agent starts both, which have one clock then
        ([place(4), place(8)], 2, [Slot(0, 8, 0), Slot(1, 4, 0)]),
        ([place(4), place(4), place(4)], 2, [Slot(0, 4, 0), Slot(1, 4, 0)]),
        ([place(4), place(4)], 3, [Slot(0, 2, 0), Slot(0, 2, 0), Slot(1, 4, 0)]),
        ([place(1), place(1)], 4, [Slot(0, 0.5, 0), Slot(0, 0.5, 0), Slot(1, 0.5, 0), Slot(1, 0.5, 0)]),
        ([place(16, 2)], 2, [Slot(0, 8, 1), Slot(0, 8, 1)]),
        ([place(64), place(16, 8)], 1, [Slot(0, 16, 8)]),
    ],
)
def test_ranks_are_dealt_out_over_hosts_neighbours_beside_one_another(
    places: list[dict[str, Any]], count: int, slots: list[Slot]
) -> None:
    assert assign_slots(places, count) == slots


def test_what_cannot_be_ranks_of_a_run_is_refused_before_a_node_is_asked(files: Path) -> None:
    (case,), _ = collect(["mine.py:waits", "f32[64]"], "", [])
    loop = resolve({"nprocs": 2, "timer": "loop"})
    two, four = (replace(DEFAULTS, nprocs=n) for n in (2, 4))
    assert nprocs_of([DEFAULTS]) is None
    assert nprocs_of([two, two]) == 2

    with pytest.raises(UsageError) as too_many:
        assign_slots([place(8, 2), place(8, 2)], 6)
    with pytest.raises(UsageError, match="the timer 'loop' is given with nprocs=2"):
        next(measure_cases(None, [case], [loop], "", quiet))  # type: ignore[arg-type]
    with pytest.raises(UsageError) as several:
        nprocs_of([DEFAULTS, two, four])

    assert str(too_many.value) == (
        "3 ranks of nprocs=6 come to a node with 2 GPUs\nexpected at most as many ranks as GPUs\n\n"
        "hint: --nprocs 4 has one on each"
    )
    assert str(several.value) == (
        "cases of nprocs 2, 4, none are given with --on\nexpected one number for all of them\n\n"
        "hint: a run for each number"
    )


class Actor:
    """Of a rank. Its only call ends at once."""

    def __init__(self, end: Callable[[Future[Any]], None]) -> None:
        self.future: Future[Any] = Future()
        end(self.future)
        self.make_call = SimpleNamespace(remote=lambda *_: SimpleNamespace(future=lambda: self.future))


@pytest.mark.parametrize("has_hosts", [True, False])
def test_a_gang_that_is_lost_has_a_successor_or_ends_its_call(
    has_hosts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = simulate_node(1), simulate_node(2)
    actors = [Actor(lambda future: None), Actor(lambda future: future.set_exception(OSError("node died")))]
    killed: list[Any] = []

    def form(gang: RayGang) -> Node:
        if not has_hosts:
            raise UsageError("2 nodes were not there", "2 nodes")
        return second

    monkeypatch.setattr(ray_agents, "require", lambda *_, **__: None)
    monkeypatch.setattr(RayGang, "_form", form)
    exceptions = SimpleNamespace(RayTaskError=KeyError, RayActorError=IndexError)
    gang = RayGang(SimpleNamespace(exceptions=exceptions, kill=lambda actor, **_: killed.append(actor)), tmp_path, 2)
    gang.teams[first.id] = Team(first.id, actors, ["a", "b"], node=first)
    gang.submit(first, 7, SimpleNamespace(seal=lambda: None))  # type: ignore[arg-type]

    events = gang.collect(lambda item, message: None)

    why = "rank 1 of 2 ranks: lost on b: node died"
    lost = NodeLost(first, why)
    ended = CallEnded(7, first, Failure("node_lost", "start", why))
    assert events == ([lost, NodeJoined(second)] if has_hosts else [ended, lost])
    assert killed == actors
    assert first.id not in gang.teams


class TestOnTwoNodes:
    pytestmark = on_ray

    def test_each_case_has_a_row_of_all_ranks_here_and_a_failure_has_the_name_of_its_rank(
        self, two_nodes: TwoNodes, files: Path
    ) -> None:
        """The last case also kills an agent, once: another gang measures it."""
        code, text = finish(start(files, "mine.py", "--on", two_nodes.address))

        rows = {row.case.name: row for row in load(files / "s")}
        assert (code, len(rows)) == (2, 3), text
        assert "(2 ranks on 2 nodes)" in text
        failure = rows.pop("raises").failure
        assert failure.message.startswith("rank 1 of 2 ranks: ValueError: no such thing")
        for row in rows.values():
            assert row.failure is None
            assert [rank.rank for rank in row.ranks.ranks] == [0, 1]
            assert row.ranks.compared_outputs == 1
            assert (row.environment.process_count, row.environment.device_count) == (2, 4)
        assert all("working_dir_files" in line[3] for line in marks(files, "scaled"))
        assert len(marks(files, "killed")) == 1
        wait_until_gone({int(pid) for line in marks(files, "scaled") for pid in line[:3]})

    def test_ctrl_c_leaves_no_rank_and_frees_the_nodes_and_a_rank_whose_node_dies_is_named(
        self, two_nodes: TwoNodes, files: Path
    ) -> None:
        """No other node is free then."""
        waits = ("mine.py:waits", "f32[64@data]", "--on", two_nodes.address, "--json")
        first = start(files, *waits)
        pids = wait_for_marks(files, "waits", 2, first)
        os.killpg(first.pid, signal.SIGINT)
        code, text = finish(first)
        assert code == 130
        assert "interrupted: 0 of 1 case finished" in text
        wait_until_gone(pids)

        second = start(files, *waits)
        pids = wait_for_marks(files, "waits", 4, second)
        try:
            two_nodes.kill_second()
            code, text = finish(second)
        finally:
            two_nodes.replace_second()

        failure = json.loads(text.splitlines()[0])["failure"]
        assert code == 2
        assert failure["kind"] == "node_lost"
        assert failure["message"].startswith(("rank 0 of 2 ranks: lost ", "rank 1 of 2 ranks: lost "))
        wait_until_gone(pids)
