"""The pytest plugin: what it costs where it is not used, and how long a session takes beside pytest-jax-bench.

Start-up: `pytest --collect-only` and a session with one empty test, with and without the plugin, in turns; the
difference of the medians, and of the least times, which a busy machine disturbs less. The same for the peer.

Sessions: the same test files with the same rounds, ours and the peer's in turns, each in a folder of its own. By
default a suite that is made here, of small functions, where what surrounds the rounds counts; --tests takes other
files, such as those of the peer's source distribution. Wall time, and CPU time of the process with its children.

    python benchmarks/ptjb.py --python .venv-peers/bin/python [--tests FOLDER] [--repeats 9] [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import peers
from report import header, load, note, table

EMPTY = "def test_empty():\n    pass\n"

HEAD = """
import jax
import jax.numpy as jnp
import pytest

def norm(x):
    return jnp.tanh(x @ x) / jnp.sqrt(1 + jnp.sum(x * x))

def softmax(x):
    e = jnp.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
"""

SUITE = f"""{HEAD}
def loop(x):
    return jax.lax.fori_loop(0, 100, lambda i, x: jnp.sin(x) + 1e-3, x)

@pytest.mark.parametrize("n", [8, 16, 32, 64, 128, 256])
@pytest.mark.parametrize("f", [norm, softmax], ids=["norm", "softmax"])
def test_both(jax_bench, f, n):
    x = jnp.ones((n, n), dtype=jnp.float32)
    jb = jax_bench(jit_rounds=20, jit_warmup=1, eager_rounds=10, eager_warmup=1)
    jb.measure(fn=f, fn_jit=jax.jit(f), x=x)

@pytest.mark.parametrize("n", [8, 16, 32, 64, 128, 256])
def test_jit(jax_bench, n):
    jb = jax_bench(jit_rounds=20, jit_warmup=1)
    jb.measure(fn_jit=jax.jit(loop), x=jnp.ones((n, n), dtype=jnp.float32))
"""


@dataclass(frozen=True)
class Took:
    wall_s: float
    cpu_s: float
    said: str
    """The last line."""


def run(command: Sequence[str], folder: Path, permitted: Sequence[int] = (0,)) -> Took:
    """Raises RuntimeError with what it said where it ends with another code than those that are permitted."""
    # Images for containers forbid byte code. Then our modules, which are edited in place, would be compiled in each
    # session, and those of the peers, which pip compiled when it installed them, not.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, start = _children_s(), perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    said = done.stdout.strip().rpartition("\n")[2]
    took = Took(perf_counter() - start, _children_s() - before, said)
    if done.returncode not in permitted:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return took


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def start_up(python: str, off: str, repeats: int, folder: Path) -> list[list[str]]:
    """Rows of the table: what a session costs with the plugin and with the option that leaves it out."""
    (folder / "test_empty.py").write_text(EMPTY, encoding="utf-8")
    rows = []
    for what in ("--collect-only", ""):
        common = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *([what] if what else [])]
        took = {name: list[Took]() for name in ("with", "without")}
        run([*common], folder)  # leaves byte code behind
        for _ in range(repeats):
            for name, extra in (("with", []), ("without", ["-p", f"no:{off}"])):
                took[name].append(run([*common, *extra], folder))
        least, middle, cpu = (
            {name: choose([getattr(t, field) for t in many]) * 1e3 for name, many in took.items()}
            for choose, field in ((min, "wall_s"), (median, "wall_s"), (min, "cpu_s"))
        )
        rows.append(
            [
                what or "one empty test",
                *(f"{d['without']:.0f} + {d['with'] - d['without']:.1f}" for d in (least, middle, cpu)),
            ]
        )
    return rows


def sessions(pythons: dict[str, str], tests: Path | None, rounds: int, folder: Path) -> dict[str, list[Took]]:
    """Each tool's sessions on files of their own, in turns."""
    took: dict[str, list[Took]] = {name: [] for name in pythons}
    for i in range(rounds):
        for name, python in pythons.items():
            note(f"session {i + 1}/{rounds} of {name}   {load()}")
            place = folder / f"{name}-{i}"
            if tests:
                shutil.copytree(tests, place / "tests")
            else:
                place.mkdir(parents=True)
                (place / "test_suite.py").write_text(SUITE, encoding="utf-8")
            # 1: tests have failed, as one of the peer's own does where graphviz is missing.
            took[name].append(run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider"], place, (0, 1)))
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_option(parser)
    parser.add_argument("--ours", default=sys.executable, help="interpreter that has benchax (default: this one)")
    parser.add_argument("--tests", type=Path, help="folder of test files (default: a suite made here)")
    parser.add_argument("--repeats", type=int, default=9, help="of the start-up (default: 9)")
    parser.add_argument("--rounds", type=int, default=3, help="sessions of each tool (default: 3)")
    given = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    found = peers.versions(given.python)
    has_peer = found["pytest-jax-bench"] is not None
    header("The pytest plugin", ["pytest"], peers.described(found))

    with tempfile.TemporaryDirectory() as scratch:
        columns = ["ms without + plugin", "least wall", "median wall", "least CPU"]
        folder = Path(scratch) / "empty"
        folder.mkdir()
        print("Start-up")
        table(["ours", *columns[1:]], start_up(given.ours, "ptjb", given.repeats, folder))
        if has_peer:
            table(["peer", *columns[1:]], start_up(given.python, "pytest_jax_bench", given.repeats, folder))
        pythons = {"ours": given.ours, **({"peer": given.python} if has_peer else {})}
        took = sessions(pythons, given.tests, given.rounds, Path(scratch))
        print(f"Sessions of {given.tests or 'the suite made here'}, {given.rounds} of each, in turns   {load()}")
        table(
            ["", "least wall s", "median wall s", "least CPU s", "pytest said"],
            [
                [
                    name,
                    f"{min(t.wall_s for t in many):.1f}",
                    f"{median(t.wall_s for t in many):.1f}",
                    f"{min(t.cpu_s for t in many):.1f}",
                    many[-1].said,
                ]
                for name, many in took.items()
            ],
        )
        if has_peer:
            ratios = [ours.wall_s / peer.wall_s for ours, peer in zip(took["ours"], took["peer"], strict=True)]
            cpu = [ours.cpu_s / peer.cpu_s for ours, peer in zip(took["ours"], took["peer"], strict=True)]
            print(f"ours over peer, pair by pair: wall {_listed(ratios)}   CPU {_listed(cpu)}")


def _listed(ratios: Sequence[float]) -> str:
    return f"{median(ratios):.2f} ({', '.join(f'{ratio:.2f}' for ratio in ratios)})"


if __name__ == "__main__":
    main()
