"""Grids and runs on two real nodes of Ray: as at home, and whatever is killed, nothing is lost or measured twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
import psutil
import pytest
from process_ends import wait_until_gone

import benchax
from benchax.clusters.ray_agents import open_session
from benchax.errors import UsageError
from benchax.progress import ProgressEvent
from benchax.store.load import load

if TYPE_CHECKING:
    from conftest import TwoNodes

# serial: one process, and so one cluster for all of them. Ray's own Cluster forks where JAX has threads already.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.serial,
    pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning"),
]

BENCHAX = str(Path(sys.executable).with_name("benchax"))


LAST = 8


def make_functions(folder: str = "") -> list[Callable[[Any], Any]]:
    """Made in a function, so that they travel by value: the nodes do not have this file.

    Args:
        folder: there the first one leaves a file when it has killed the agent above its worker. It does that once, with
            the last data, when the second node is dead, and on the first node: a worker of the second one can live
            longer than its node. Default: it kills nothing.
    """

    def kills_agent(x: Any) -> Any:
        killed, second_died = f"{folder}/killed", f"{folder}/second-died"
        if folder and x.shape[0] == LAST and not os.path.exists(killed):  # noqa: PTH110
            while not os.path.exists(second_died):  # noqa: PTH110
                time.sleep(0.01)
            agent: Any = psutil.Process().parents()[1]
            if agent.parent().name() == "raylet":
                open(killed, "w").close()  # noqa: PTH123
                agent.kill()
        return x**2 + jnp.sin(x)

    def raises(x: Any) -> Any:
        raise ValueError("no")

    def too_short(x: Any) -> Any:
        return x[1:]

    return [kills_agent, raises, too_short]


def make_data() -> dict[str, Any]:
    lock = threading.Lock()
    return {f"n{n}": f"f32[{n}]" for n in range(4, LAST + 1)} | {"not sent": lambda key: lock and jnp.ones(4)}


@pytest.fixture(scope="module")
def connected(two_nodes: TwoNodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    """With one connection of this process for all tests here: each has agents of its own."""
    with open_session(two_nodes.address, tmp_path_factory.mktemp("sent")):
        yield two_nodes


def test_nodes_find_what_home_finds_although_an_agent_and_a_node_die(connected: TwoNodes, project: Path) -> None:
    """No cell is lost, and none is measured twice."""
    here = benchax.grid(make_functions(), make_data(), store=False, progress=False)
    begun: set[str] = set()

    def kill_second() -> None:
        connected.kill_second()
        (project / "second-died").touch()

    def listen(event: ProgressEvent) -> None:
        if event.doing == "trace" and event.item not in begun:
            begun.add(event.item)
            if len(begun) == 4:
                threading.Thread(target=kill_second).start()

    functions = make_functions(str(project))
    try:
        g = benchax.grid(functions, make_data(), on=connected.address, store="s", progress=listen)
    finally:
        connected.replace_second()

    assert len(g.cells) == 18
    assert g.status.tolist() == here.status.tolist()
    assert [cell.message for cell in g.cells] == [cell.message for cell in here.cells]
    assert "cannot pickle '_thread.lock' object" in g.cells[-1].message
    for ours, theirs in zip(here.cells, g.cells, strict=True):
        if ours.status == "ok":
            np.testing.assert_array_equal(ours.outputs[0], theirs.outputs[0])  # type: ignore[index]
    rows = load("s")
    assert len(rows) == len({row.case for row in rows}) == 18
    assert all(row.environment.jax and row.environment.host for row in rows)
    lost = [share for share in g.nodes if share.lost]
    assert len(lost) == 2
    assert max(share.done for share in lost) < 18
    assert any(share.node.id.endswith("-2") for share in g.nodes)  # the killed agent has a successor
    assert sum(share.done for share in g.nodes) == 18
    text = " ".join(str(g).split())
    assert "node cells speed noise machine jax" in text
    assert "lost: " in text


GRID_FILE = """
import os, pathlib
import jax.numpy as jnp
from beside import mark

def f1(x):
    mark(__file__)
    return jnp.sin(x)

def f2(x):
    mark(__file__)
    return jnp.cos(x)

functions = [f1, f2]
data = [f"f32[{n}]" for n in range(4, 13)]
compare = False
"""
BESIDE = """
import os, pathlib
import jax

def mark(file):
    with open(os.path.join(WHERE, "marks"), "a") as marks:
        marks.write(f"{os.getpid()} {os.getppid()} {__file__}\\n")
"""


@pytest.fixture
def files(project: Path) -> Path:
    folder = project / "mine"
    folder.mkdir()
    (folder / "beside.py").write_text(f"WHERE = {str(project)!r}\n{BESIDE}")
    (folder / "many.py").write_text(GRID_FILE)
    return project


def marks(folder: Path) -> list[list[str]]:
    file = folder / "marks"
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def start_grid(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [BENCHAX, "grid", "mine/many.py", "--store", "s", *arguments]
    # A group of its own, as of a job in a shell: Ctrl-C is for all of it.
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def wait_for_marks(folder: Path, count: int, program: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 100
    while len(marks(folder)) < count:
        assert program.poll() is None, program.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.05)


def measured_by(folder: Path) -> set[int]:
    """The workers, and the processes that keep them."""
    return {int(pid) for line in marks(folder) for pid in line[:2]}


def test_after_ctrl_c_and_after_the_drivers_death_a_grid_goes_on_and_no_process_is_left(
    two_nodes: TwoNodes, files: Path
) -> None:
    first = start_grid(files, "--on", two_nodes.address)
    wait_for_marks(files, 4, first)
    os.killpg(first.pid, signal.SIGINT)
    text, _ = first.communicate(timeout=60)
    assert first.returncode == 130, text
    assert "go on with: --resume" in text
    wait_until_gone(measured_by(files))
    after_ctrl_c = len(load("s"))
    assert after_ctrl_c > 0

    second = start_grid(files, "--on", two_nodes.address, "--resume", "last")
    wait_for_marks(files, len(marks(files)) + 4, second)
    os.kill(second.pid, signal.SIGKILL)
    second.communicate(timeout=60)
    wait_until_gone(measured_by(files))
    after_death = len(load("s"))
    assert after_ctrl_c < after_death < 18

    third = start_grid(files, "--resume", "last")  # here: what was measured there counts
    text, _ = third.communicate(timeout=100)

    assert third.returncode == 0, text
    assert "18 ok" in text
    rows = load("s")
    assert len(rows) == len({row.case for row in rows}) == 18
    assert len({row.run_id for row in rows}) == 1
    # The files of the user's went there.
    assert {"working_dir_files" in line[2] for line in marks(files)} == {True, False}


def test_a_node_that_lacks_a_package_is_named_with_it_before_the_first_cell(two_nodes: TwoNodes, files: Path) -> None:
    (files / "mine" / "benchax.py").write_text("import no_such_package")  # there, it is found instead of benchax

    program = start_grid(files, "--on", two_nodes.address)
    text, _ = program.communicate(timeout=100)

    assert program.returncode == 2, text
    assert "cannot measure this: ModuleNotFoundError: No module named 'no_such_package'" in " ".join(text.split())
    assert not marks(files)


def test_ray_is_started_on_loopback_and_nothing_of_it_is_left(files: Path) -> None:
    program = start_grid(files, "--on", "ray")
    wait_for_marks(files, 4, program)
    tree = psutil.Process(program.pid).children(recursive=True)
    addresses = {c.laddr.ip for p in tree for c in p.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    assert addresses <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}
    assert any("raylet" in p.name() for p in tree)

    text, _ = program.communicate(timeout=100)

    assert program.returncode == 0, text
    assert "18 ok" in text
    assert "· 1 node" in text
    wait_until_gone({p.pid for p in tree} | measured_by(files))


BENCHMARKS = """
import benchax, jax.numpy as jnp

@benchax.benchmark(n=[8, 16], args=lambda n: (f"f32[{n}]",))
def sine(x):
    return jnp.sin(x)
"""


def test_cases_of_a_run_are_spread_over_nodes_with_all_their_processes(two_nodes: TwoNodes, project: Path) -> None:
    (project / "bench_sine.py").write_text(BENCHMARKS)
    words = ["--on", two_nodes.address, "--store", "s", "--processes", "2", "--max-time", "0.1"]

    done = subprocess.run(
        [BENCHAX, "run", "bench_sine.py", *words], cwd=project, capture_output=True, text=True, timeout=150, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    rows = load("s")
    assert len(rows) == 2
    assert {row.status for row in rows} == {"ok"}
    assert all(len({samples.process for samples in row.samples}) == 2 for row in rows)
    assert all(row.options.store.endswith("s") for row in rows)


def test_what_a_node_cannot_import_or_cannot_be_sent_is_an_error_before_the_first_cell(
    connected: TwoNodes, project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, lock = tmp_path_factory.mktemp("elsewhere"), threading.Lock()
    (elsewhere / "only_here.py").write_text("def f(x):\n    return x\n")
    monkeypatch.syspath_prepend(elsewhere)
    import only_here  # pyright: ignore[reportMissingImports]

    with pytest.raises(UsageError) as error:
        benchax.grid([only_here.f], ["f32[4]"], on=connected.address, store="s", progress=False)
    with pytest.raises(UsageError, match=r"cannot pickle '_thread\.lock' object"):
        benchax.grid([lambda x: lock and x], ["f32[4]"], on=connected.address, store="s", progress=False)

    assert "cannot measure this: ModuleNotFoundError: No module named 'only_here'" in error.value.problem
    assert "can import everything" in error.value.expected
    assert not (project / "s").exists()
