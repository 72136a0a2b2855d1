"""`benchax profile -- python train.py` of programs that are not simple: what was seen is told, what was not, and why,
and the exit code is the program's own."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command_line import runner

pytestmark = pytest.mark.slow  # each runs a program from beginning to end

BEGIN = """
import os, sys, time
import jax, jax.numpy as jnp, numpy as np
step = jax.jit(lambda x: jnp.tanh(x @ x))
x = jnp.ones((64, 64))

def busy(length_s):
    began = time.perf_counter()
    while time.perf_counter() - began < length_s:
        pass
"""
LOADER = """
import multiprocessing, sys
import numpy as np

def produce(queue):
    for _ in range(30):
        queue.put(np.ones((64, 64), np.float32))
    queue.put(None)

def main():
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue(2)
    import jax, jax.numpy as jnp
    step = jax.jit(lambda x: jnp.tanh(x @ x))
    step(np.ones((64, 64), np.float32)).block_until_ready()
    worker = context.Process(target=produce, args=(queue,))
    worker.start()
    while (batch := queue.get()) is not None:
        step(batch).block_until_ready()
    worker.join()
    sys.exit(3)

if __name__ == "__main__":
    main()
"""
RANK = """
import sys
import jax
port, count, rank = map(int, sys.argv[1:])
jax.distributed.initialize(f"localhost:{port}", num_processes=count, process_id=rank)
import jax.numpy as jnp
step, x = jax.jit(lambda x: jnp.tanh(x @ x)), jnp.ones((64, 64))
for _ in range(30):
    x = step(x).block_until_ready()
jax.distributed.shutdown()
sys.exit(4)
"""
RANKS = """
import subprocess, sys
started = [subprocess.Popen([sys.executable, "rank.py", sys.argv[1], "2", str(rank)]) for rank in range(2)]
sys.exit(max(one.wait() for one in started))
"""


@dataclass
class Profiled:
    code: int
    said: str
    """With single spaces."""
    documents: list[dict[str, Any]]

    @property
    def steps(self) -> list[int]:
        """How many steady steps each process showed."""
        return [0 if d["split"] is None else len(d["split"]["lengths_s"]) for d in self.documents]


Profile = Callable[..., Profiled]


@pytest.fixture
def profile(project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Profile:
    """Profiles a program of this text. What the program prints is in `said` too."""
    benchax = runner(monkeypatch, capfd)

    def profile(text: str, *words: str, options: tuple[str, ...] = ()) -> Profiled:
        (project / "train.py").write_text(text, encoding="utf-8")
        done = benchax("profile", "-o", "p", "--json", *options, "--", sys.executable, "train.py", *words)
        file = project / "p" / "profile.json"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return Profiled(done.code, " ".join(done.err.split()), [json.loads(line) for line in lines])

    return profile


def remarks(found: Profiled) -> str:
    return " ".join(remark["message"] for document in found.documents for remark in document["remarks"])


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return str(found.getsockname()[1])


@pytest.mark.parametrize(("method", "forks"), [("fork", True), ("spawn", False)])
def test_loading_in_other_processes_is_waiting_for_input(method: str, forks: bool, profile: Profile) -> None:
    found = profile(LOADER, method)

    assert found.code == 3
    assert [count >= 20 for count in found.steps] == [True]
    assert ("the program made 1 fork of itself" in remarks(found)) is forks


def test_each_distributed_process_has_a_profile(profile: Profile, project: Path) -> None:
    (project / "rank.py").write_text(RANK, encoding="utf-8")

    found = profile(RANKS, free_port())

    assert found.code == 4
    assert [count >= 20 for count in found.steps] == [True, True]
    assert len({document["title"] for document in found.documents}) == 2


def test_steps_of_microseconds_are_counted_one_by_one(profile: Profile) -> None:
    found = profile(BEGIN + "x = jnp.ones(4)\nfor _ in range(3000): x = step(x[:, None] * x)[0]\nsys.exit(5)")

    assert found.code == 5
    assert found.steps[0] > 2000


@pytest.mark.serial  # what a neighbor takes is not Python
def test_of_steps_that_are_longer_than_a_recording_it_is_said_where_they_spend_their_time(profile: Profile) -> None:
    """As of a step of minutes; limits are shortened, so that the test takes seconds."""
    short = (
        "import benchax.profiling.program_recorder as recorder\nrecorder.LONGEST_S, recorder.PATIENCE_S = 0.3, 30.0\n"
    )

    loop = "for _ in range(3):\n    busy(0.8)\n    x = step(x).block_until_ready()\nsys.exit(8)"
    found = profile(short + BEGIN + loop, options=("--duration", "100ms"))

    (document,) = found.documents
    # A call that outlasts the recording would look the same, unless a sample shows Python between two rounds.
    parts = [part for part in document["split"]["parts"] if part["kind"] in ("python", "unknown")]
    assert found.code == 8
    assert document["split"]["mark"] == "none"
    assert sum(part["share"] for part in parts) > 0.8
    assert {part["lines"][0]["function"] for part in parts} == {"busy"}
    assert document["ops"], "a recording in which something ran is better than one in which nothing did"
    assert "the best of" in remarks(found)


@pytest.mark.parametrize(
    ("end", "code", "says"),
    [("raise ValueError('NaN in step 10')", 1, "ValueError: NaN in step 10"), ("sys.exit('diverged')", 1, "diverged")],
)
def test_a_program_that_fails_in_its_tenth_step_shows_those_before(
    end: str, code: int, says: str, profile: Profile
) -> None:
    found = profile(BEGIN + f"for i in range(99):\n    x = step(x).block_until_ready()\n    if i == 9: {end}")

    assert (found.code, found.steps) == (code, [8])
    assert says in found.said


def test_two_programs_and_an_evaluation_now_and_then_are_one_step(profile: Profile) -> None:
    """Three steps of a discriminator for one of a generator: a step is a round, also where one evaluates behind it."""
    loop = """
def discriminate(x): return jnp.tanh(x @ x)
def generate(x): return jnp.sin(x @ x)
def evaluate(x): return (x @ x).sum()
discriminate, generate, evaluate = map(jax.jit, (discriminate, generate, evaluate))
for i in range(40):
    for _ in range(3):
        x = discriminate(x).block_until_ready()
    x = generate(x).block_until_ready()
    if i % 10 == 9: float(evaluate(x))
sys.exit(10)
"""

    found = profile(BEGIN + loop)

    (document,) = found.documents
    calls = {one["name"]: one["per_step"] for one in document["split"]["programs"]}
    assert found.code == 10
    assert found.steps[0] in (37, 38)  # 40 but the first, those behind it that compile, and the last
    assert (calls["jit_discriminate"], calls["jit_generate"]) == (3, 1)
    assert "jit_evaluate (3 in 39 steps)" in found.said


def test_a_loop_in_a_thread_is_found_with_its_line(profile: Profile) -> None:
    loop = """
import threading
def train():
    global x
    for _ in range(30):
        time.sleep(0.01)
        x = step(x).block_until_ready()
one = threading.Thread(target=train)
one.start()
one.join()
sys.exit(11)
"""

    found = profile(BEGIN + loop)

    part = found.documents[0]["split"]["parts"][0]
    assert (found.code, [count >= 20 for count in found.steps]) == (11, [True])
    assert (part["kind"], part["lines"][0]["function"]) == ("waiting", "train")


def test_a_first_step_that_never_ends_is_shown_as_far_as_it_was_recorded(profile: Profile) -> None:
    """In compiled code, so that nothing of Python's can end it."""
    stuck = """
endless = jax.jit(lambda x: jax.lax.while_loop(lambda x: x[0] < 2, lambda x: jnp.sort(-x), x))
endless(jnp.linspace(-1, 1, 1 << 18)).block_until_ready()
"""

    found = profile(BEGIN + stuck, options=("--timeout", "8s", "--duration", "300ms"))

    splits = [document["split"] for document in found.documents]
    assert found.code in (137, 143)
    assert "when its time was up" in found.said
    assert {split["mark"] for split in splits} == {"none"}
    assert max(split["lengths_s"][0] for split in splits) > 0.1
    # On a busy machine compiling may have taken longer than what was recorded of the step.
    assert "device" in {split["parts"][0]["kind"] for split in splits}
