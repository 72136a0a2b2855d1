"""In a real terminal, of three widths: nothing is broken inside a word, a path or a number, and reports fit.

tmux is the terminal: what it shows is what a person sees and copies.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from measurement_strategies import measured

from benchax.model import Failure, Remark
from benchax.reporting.terminal import longest_word
from benchax.store.database import open_store

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs a terminal: tmux is not installed")

WIDTHS = [80, 100, 120]
PATH = "/home/somebody/models/crashes/plugins/profile/vm.xplane.pb:12"
OPERATION = "jit(step)/transpose(jvp(main))/broadcast_in_dim"
NUMBERS = ["1.23 ms", "0.990 – 1.01", "512 MiB"]
SENTENCE = f"what {PATH} says of {OPERATION} is that it takes {' or '.join(NUMBERS)} and a few other things, and more"
Show = Callable[..., list[str]]


@pytest.fixture
def show(project: Path) -> Iterator[Show]:
    """Runs benchax in a terminal of that width; what stands there, wrapped lines joined as they are copied."""
    servers: list[str] = []

    def tmux(*words: str) -> str:
        done = subprocess.run(["tmux", "-L", servers[-1], *words], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(width: int, *commands: str) -> list[str]:
        servers.append(f"benchax-{uuid.uuid4().hex}")  # one that is about to end takes no new session
        python = shlex.join([sys.executable, "-m", "benchax.cli.main"])
        benchax = "\n".join(line if line.startswith("echo") else f"{python} {line}" for line in commands)
        done = f"{uuid.uuid4().hex}"
        script = project / "script.sh"
        script.write_text(f"cd {shlex.quote(str(project))}\n{benchax}\necho {done}\nsleep 600\n")
        env = [f"-e{name}={os.environ[name]}" for name in ("JAX_PLATFORMS", "PYTHONPATH") if name in os.environ]
        tmux("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", "400", *env, f"sh {script}")
        deadline = time.monotonic() + 120
        while done not in (shown := tmux("capture-pane", "-p", "-J", "-S", "-")):
            assert time.monotonic() < deadline, shown
            time.sleep(0.05)
        tmux("kill-server")
        return shown.split(done)[0].splitlines()

    yield run
    for server in servers:
        subprocess.run(["tmux", "-L", server, "kill-server"], check=False, capture_output=True)


def check(lines: list[str], width: int) -> None:
    text = "\n".join(lines)
    for word in (PATH, OPERATION, *NUMBERS):
        assert word in text, f"{word} is broken in\n{text}"
    too_wide = [line for line in lines if len(line.rstrip()) > width and longest_word([line]) + 20 < width]
    assert too_wide == []


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_and_remarks_break_between_words(width: int, show: Show, project: Path) -> None:
    failure = Failure("crashed", "first run", SENTENCE, SENTENCE)
    for i in range(3):
        m = measured(f"bench_models/crashes/bench_fft.py::fft{i}", n=1024, run=f"run {i}")
        m = replace(m, signature=SENTENCE, remarks=(Remark("note", "warning", SENTENCE),))
        open_store(project / ".benchmarks").append(replace(m, failure=failure if i == 2 else None))

    lines = show(width, "show 1", "echo next", "show 3", "echo next", "list")

    first, third, listed = "\n".join(lines).split("\nnext\n")
    check(first.splitlines(), width)
    check(third.splitlines(), width)
    rows = [line for line in listed.splitlines() if "bench_models/crash" in line]  # a long name is cut in its middle
    assert [f"fft{i}[n=1024]" in row for i, row in enumerate(rows)] == [True] * 3


@pytest.mark.slow
@pytest.mark.parametrize("width", [WIDTHS[0], WIDTHS[-1]])
def test_the_report_of_a_program_is_as_wide_as_the_terminal(width: int, show: Show, project: Path) -> None:
    (project / "program.py").write_text(
        "import jax, jax.numpy as jnp\nf = jax.jit(lambda x: jnp.sin(x) * 2)\n"
        "for n in (3, 4, 5): f(jnp.ones(n)).block_until_ready()\n"
    )

    lines = show(width, f"watch -- {shlex.quote(sys.executable)} program.py")

    assert re.search(r"ended with 0 after \S+ \w+", " ".join(lines))
    assert [line for line in lines if len(line.rstrip()) > width and longest_word([line]) + 20 < width] == []
    assert max(len(line.rstrip()) for line in lines if "program.py" not in line) <= width
