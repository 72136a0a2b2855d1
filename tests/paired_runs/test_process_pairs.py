"""Versions that cannot share a process: pairs of real processes that take turns on one core."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from process_ends import wait_until_gone

from benchax.checkouts.launch import Launch, Selection
from benchax.comparing.sequential import Effort
from benchax.errors import UsageError
from benchax.model import Comparison, Version
from benchax.paired_runs.process_pairs import NOT_PINNED, ONE_CORE, compare_launches
from benchax.progress import ProgressEvent

pytestmark = pytest.mark.slow

# Two pairs leave one degree of freedom: at 1 % its quantile is 64, and one disturbed pair would hide a change by 4.
TWO_PAIRS = Effort((2,), alpha=0.2)
CASES = """
import os, pathlib, sys, time
import benchax, jax, jax.numpy as jnp
import work

print('{"ns": 1}', flush=True)
pathlib.Path("cores").open("a").write(f"{os.getppid()} {sorted(os.sched_getaffinity(0))}\\n")


@benchax.benchmark(args=("f32[1000]",))
def depends(x):
    print("traced", sys.stdin.read())
    return jax.lax.fori_loop(0, work.STEPS, lambda i, x: jnp.sin(x), x)


@benchax.benchmark(args=("f32[8]",))
def differs(x):
    return x + work.STEPS


@benchax.benchmark(args=("f32[8]",))
def breaks(x):
    return work.broken(x)


@benchax.benchmark(args=("f32[8]",))
def crashes(x):
    return work.crash(x)


@benchax.benchmark(args=("f32[8]",), options={"timeout_s": 1.0})
def hangs(x):
    work.wait()
    return x


if work.HAS_MORE:
    @benchax.benchmark(args=("f32[8]",))
    def new(x):
        return x
"""
BASELINE = """
STEPS, HAS_MORE = 50, False
def broken(x): return x
def crash(x): return x
def wait(): pass
"""
CANDIDATE = """
import os, time
STEPS, HAS_MORE = 200, True
def broken(x): raise ValueError("not in this version")
def crash(x): os._exit(7)
def wait(): time.sleep(1000)
"""


def sides(folder: Path, **versions: str) -> tuple[Launch, Launch]:
    """Two versions of a module `work`, beside which the same cases run."""
    for name, text in versions.items():
        (folder / name).mkdir()
        (folder / name / "work.py").write_text(text)
    baseline, candidate = (Launch(Version(n), folder=folder, paths=(str(folder / n), *sys.path)) for n in versions)
    return baseline, candidate


def children() -> set[psutil.Process]:
    """Without those of earlier tests, such as the process that keeps workers ready."""
    found = psutil.Process().children(recursive=True)
    return {each for each in found if each.status() != psutil.STATUS_ZOMBIE} - EARLIER


EARLIER: set[psutil.Process] = set()


@pytest.fixture(scope="module", autouse=True)
def earlier() -> None:
    EARLIER.update(psutil.Process().children(recursive=True))


EVENTS: list[ProgressEvent] = []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pairs")


@pytest.fixture(scope="module")
def pairs(folder: Path) -> list[Comparison]:
    """Two pairs of processes for all the cases above, and two more for what changed."""
    (folder / "bench_cases.py").write_text(CASES)
    launches = sides(folder, old=BASELINE, new=CANDIDATE)
    return compare_launches(launches, Selection(("bench_cases.py",)), None, EVENTS.append, TWO_PAIRS, TWO_PAIRS)


@pytest.fixture
def judged(pairs: list[Comparison]) -> Callable[[str], dict[str, Comparison]]:
    return lambda name: {c.metric: c for c in pairs if c.case.name == name}


@pytest.mark.serial
def test_python_code_that_makes_more_work_is_slower_and_outputs_that_differ_are_told(judged) -> None:
    every = judged("depends")
    found, pinned = every["run"], hasattr(os, "sched_getaffinity")

    assert (found.verdict, found.method, found.processes) == ("slower", "process pairs", 2)
    assert found.confirmed
    assert (found.ratio or 0.0) > 2
    assert found.signature == "f32[1000]"
    assert (ONE_CORE if pinned else NOT_PINNED) in found.remarks
    assert set(every) == {"run", "compile", "peak", "constants", "flops"}
    assert [every["compile"].pairs, every["compile"].processes] == [2, 2]
    differs = judged("differs")["run"]
    assert differs.numerics is not None
    assert not differs.numerics.agrees
    assert "outputs-differ" in [remark.code for remark in differs.remarks]


@pytest.mark.serial
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system pins no process to a core")
@pytest.mark.usefixtures("pairs")
def test_the_two_of_a_pair_share_one_core(folder: Path) -> None:
    """Each has its own keeper, and so has the process that took its place after a crash."""
    lines = dict.fromkeys((folder / "cores").read_text().splitlines())

    keepers, cores = zip(*(line.split(maxsplit=1) for line in lines), strict=True)
    assert len(set(keepers)) == len(keepers)
    assert cores[0::2] == cores[1::2]
    assert all("," not in core for core in cores)


@pytest.mark.serial
@pytest.mark.parametrize(
    ("case", "kind", "stage", "message"),
    [
        ("breaks", "error", "build of new", "not in this version"),
        ("crashes", "crashed", "build of new", "exit code 7"),
        ("hangs", "timeout", "build of new", "build took longer than 1.00 s; the process was killed (at "),
        ("new", "not_run", "import of old", "old has no such case"),
    ],
)
def test_a_case_that_fails_on_one_side_says_so_and_the_others_go_on(judged, case, kind, stage, message) -> None:
    failure = judged(case)["run"].failure

    assert (failure.kind, failure.stage) == (kind, stage)
    assert message in failure.message
    assert judged("differs")["run"].pairs > 0


@pytest.mark.serial
@pytest.mark.usefixtures("pairs")
def test_no_process_is_left() -> None:
    assert len({event.item.partition(":")[0] for event in EVENTS if event.item.startswith("process ")}) == 4
    assert children() == set()


def test_a_file_that_one_version_cannot_import_is_a_row_for_each_case(tmp_path: Path) -> None:
    (tmp_path / "bench_one.py").write_text(
        "import work, benchax\n@benchax.benchmark(args=('f32[8]',))\ndef f(x): return x\n"
    )
    launches = sides(tmp_path, old="", new="raise ImportError('too new')")

    (found,) = compare_launches(launches, Selection(("bench_one.py",)), effort=TWO_PAIRS, second=TWO_PAIRS)

    assert found.failure is not None
    assert found.failure.stage == "import of new"
    assert "too new" in found.failure.message


def test_without_any_case_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no benchmarks in"):
        compare_launches(sides(tmp_path, old="", new=""), Selection((str(tmp_path),)))
    assert children() == set()


# ---- an end that comes too early ----------------------------------------------------------------------------------

PROGRAM = """
from pathlib import Path
from benchax.model import Version
from benchax.checkouts.launch import Launch, Selection
from benchax.paired_runs.process_pairs import compare_launches
sides = Launch(Version("a")), Launch(Version("b"))
compare_launches(sides, Selection(("bench_wait.py",)), report=lambda event: print(event.doing, flush=True))
"""
WAITS = "import benchax, time\n@benchax.benchmark(args=('f32[8]',))\ndef f(x): time.sleep(1000)\n"


@pytest.fixture
def program(project: Path) -> Iterator[subprocess.Popen[str]]:
    """A program in the middle of a comparison."""
    (project / "bench_wait.py").write_text(WAITS)
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if " · build" in line:
                    break
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_a_program_that_is_ended(program: subprocess.Popen[str], how: signal.Signals) -> None:
    partners = {each.pid for each in psutil.Process(program.pid).children(recursive=True)}

    program.send_signal(how)
    program.wait(20)

    assert len(partners) == 4  # each with its keeper
    wait_until_gone(partners)
