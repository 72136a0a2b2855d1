"""`make matrix`: some tests of the wheel of this tree, in a throw-away environment for each Python and each JAX.

    python .ci/matrix.py                                   every pair
    python .ci/matrix.py --python 3.12 --jax 0.6,newest    these pairs
    python .ci/matrix.py --list                            the pairs, and whether their Python is on this machine
    python .ci/matrix.py --jax newest --skip-pinned        only if that JAX is newer than the one of .ci/jax.txt

The last lines list for each pair whether it passed, in which step it failed, or why it did not run.

    0  every pair has passed
    1  a pair has failed
    2  none has failed, but a Python is missing (0 with --permit-missing)
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
NEWEST = "newest"
JAXES = ("0.6", "0.8", "0.10", NEWEST)
TEST_PACKAGES = ("hypothesis", "pandas", "pytest>=8", "pytest-rerunfailures", "pytest-xdist", "syrupy", "xarray")
"""What the subset imports. Not the extra `test`: flax and equinox of today do not install beside each JAX."""
SUBSET = (
    # What rests on the parts of JAX that change between versions: stages, the clock's FFI, jaxprs, events, exports.
    "tests/program",
    "tests/clock",
    "tests/measuring/test_exported.py",
    "tests/measuring/test_program.py",
    "tests/measuring/test_stages.py",
    "tests/measuring/test_timers.py",
    "tests/watching",
    # And the two ways in, end to end.
    "tests/ptjb/test_interface.py",
    "tests/test_api.py",
)


LEFT_OUT = "not slow and not serial"
UNOPTIMIZED = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
"""As in the Makefile: compiling without them takes less time, and no test that is left asks for more."""


class Pair(NamedTuple):
    python: str
    jax: str

    def __str__(self) -> str:
        return f"Python {self.python}, JAX {self.jax}"


class Outcome(NamedTuple):
    pair: Pair
    word: str
    """passed, skipped, failed or missing."""
    text: str


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    pairs = [Pair(python, jax) for python in options.python for jax in options.jax]
    interpreters = {python: find_interpreter(python) for python in options.python}
    if options.list:
        for pair in pairs:
            print(f"{pair}: {interpreters[pair.python] or describe_missing(pair.python)}")
        return 0
    with tempfile.TemporaryDirectory(prefix="benchax-matrix-") as folder:
        sdist = build_sdist(Path(folder)) if any(interpreters.values()) else None
        outcomes = [run_pair(pair, interpreters[pair.python], sdist, options) for pair in pairs]
    print("\nmatrix:")
    for outcome in outcomes:
        print(f"  {outcome.pair}: {outcome.word}, {outcome.text}")
    return exit_code(outcomes, options.permit_missing)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    def split(text: str) -> list[str]:
        return [part.strip() for part in text.split(",") if part.strip()]

    parser = argparse.ArgumentParser(
        prog="make matrix", description="Some tests on several versions of Python and JAX."
    )
    parser.add_argument("--python", type=split, default=PYTHONS, help=f"with commas (default: {','.join(PYTHONS)})")
    parser.add_argument("--jax", type=split, default=JAXES, help=f"with commas (default: {','.join(JAXES)})")
    parser.add_argument(
        "--tests", type=split, default=SUBSET, help="files and folders, with commas (default: a subset)"
    )
    parser.add_argument("--workers", default="2", help="processes of pytest (default: 2)")
    parser.add_argument(
        "--skip-pinned", action="store_true", help="skip a pair whose JAX is no newer than the pinned one"
    )
    parser.add_argument("--permit-missing", action="store_true", help="a Python that is not there is no failure")
    parser.add_argument("--list", action="store_true", help="list the pairs, and run nothing")
    return parser.parse_args(arguments)


def find_interpreter(version: str) -> str | None:
    """The first that runs: python3.12 on PATH, then those of pyenv."""
    found = subprocess.run([ROOT / ".ci" / "find_python", version], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def describe_missing(python: str) -> str:
    return f"not run, because there is no python{python} on this machine that can make virtual environments"


def build_sdist(folder: Path) -> Path:
    """Wheels are then built from the sdist: nothing is left in this tree, and nothing of it gets in by chance."""
    subprocess.run(
        [sys.executable, "-m", "build", "--sdist", "--outdir", folder, ROOT], check=True, stdout=subprocess.DEVNULL
    )
    return next(folder.glob("*.tar.gz"))


def run_pair(pair: Pair, interpreter: str | None, sdist: Path | None, options: argparse.Namespace) -> Outcome:
    if interpreter is None or sdist is None:
        return Outcome(pair, "missing", describe_missing(pair.python))
    print(f"\n==== {pair}", flush=True)
    took = ""
    with tempfile.TemporaryDirectory(prefix="benchax-matrix-") as folder:
        python = str(Path(folder, "bin", "python"))
        jax = "jax" if pair.jax == NEWEST else f"jax=={pair.jax}.*"
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        parallel = ["-n", options.workers, "--dist", "worksteal"] if options.workers != "0" else []
        pytest = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", LEFT_OUT, "--reruns", "2", "-rR"]
        steps = {
            "making the environment": [interpreter, "-m", "venv", folder],
            "installing": [*pip, str(sdist), jax, *TEST_PACKAGES],
            "the tests": [*pytest, *parallel, *options.tests],
        }
        for name, command in steps.items():
            if name == "installing" and options.skip_pinned and find_version(pip, jax) == read_pinned():
                return Outcome(pair, "skipped", f"because JAX {read_pinned()} is the pinned one (.ci/jax.txt)")
            started = time.perf_counter()
            if subprocess.run(command, cwd=ROOT, env=os.environ | UNOPTIMIZED, check=False).returncode != 0:
                return Outcome(pair, "failed", f"in {name}")
            took += f", {name} {time.perf_counter() - started:.0f} s"
        versions = read_versions(python)
    return Outcome(pair, "passed", f"{versions}{took}")


def read_pinned() -> str:
    """The version of JAX in .ci/jax.txt."""
    return re.findall(r"^jax==([\w.]+)", (ROOT / ".ci" / "jax.txt").read_text(encoding="utf-8"), re.MULTILINE)[0]


def find_version(pip: Sequence[str], jax: str) -> str | None:
    """The version that pip would install; None if it finds none, as without a network."""
    command = [*pip, "--dry-run", "--no-deps", "--ignore-installed", "--report", "-", jax]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(answer.stdout)["install"][0]["metadata"]["version"] if answer.returncode == 0 else None


def read_versions(python: str) -> str:
    """What `0.6` and `newest` have meant."""
    code = "import jax, platform; print('python', platform.python_version(), 'jax', jax.__version__)"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def exit_code(outcomes: Sequence[Outcome], permits_missing: bool) -> int:
    words = {outcome.word for outcome in outcomes}
    if "failed" in words:
        return 1
    return 2 if "missing" in words and not permits_missing else 0


if __name__ == "__main__":
    sys.exit(main())
