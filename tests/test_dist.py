"""What users install: the archives of `make dist`, installed into a bare environment and run there.

The environment is made by venv and has what the wheel asks for and nothing else. Without a compiler means: PATH holds
the environment's own folder only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
DIST = Path(os.environ.get("BENCHAX_TEST_DIST", ROOT / "dist")).resolve()
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
EXPECTED_IN_ARCHIVES = {"benchax/clock/handlers.c", "benchax/py.typed", "pytest_jax_bench/plugin.py"}

pytestmark = pytest.mark.dist


class Bare(NamedTuple):
    """An environment and what is on its PATH."""

    folder: Path
    has_compiler: bool

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        path = [str(self.folder / "bin"), *([os.environ["PATH"]] if self.has_compiler else [])]
        unset = {"PYTHONPATH", "CC", "VIRTUAL_ENV"}
        environment = {name: value for name, value in os.environ.items() if name not in unset}
        environment |= {"PATH": os.pathsep.join(path), "COLUMNS": "120"}
        if command[0] != "pip":
            # A clock that benchax has compiled here before would be found.
            environment["XDG_CACHE_HOME"] = str(self.folder / "cache")
        program = str(self.folder / "bin" / command[0])
        return subprocess.run(
            [program, *command[1:]],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            timeout=600,
        )

    def prebuilt_clocks(self) -> list[str]:
        return [file.name for file in self.folder.glob("lib/python*/site-packages/benchax/clock/native*")]


def archive(suffix: str) -> Path:
    (found,) = DIST.glob(f"benchax-{VERSION}*{suffix}")
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment in which the wheel was installed with all that it asks for, without a compiler."""
    folder = tmp_path_factory.mktemp("dist") / "env"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    install(Bare(folder, has_compiler=False), ".whl")
    return folder


def install(bare: Bare, suffix: str, *options: str) -> Bare:
    """`options` of pip, beside those that keep it quiet."""
    quiet = ("--quiet", "--disable-pip-version-check")
    done = bare.run("pip", "install", *quiet, *options, str(archive(suffix)))
    assert done.returncode == 0, done.stderr
    return bare


def reinstall(folder: Path, suffix: str, *, has_compiler: bool) -> Bare:
    """What benchax needs stays; benchax itself is built and installed anew."""
    return install(Bare(folder, has_compiler), suffix, "--force-reinstall", "--no-deps", "--no-cache-dir")


@pytest.mark.parametrize("suffix", [".tar.gz", ".whl"])
def test_an_archive_holds_the_source_of_the_clock_and_no_tests(suffix: str) -> None:
    if suffix == ".whl":
        with zipfile.ZipFile(archive(suffix)) as wheel:
            names = set(wheel.namelist())
    else:
        with tarfile.open(archive(suffix)) as sdist:
            names = {name.partition("/")[2].removeprefix("src/") for name in sdist.getnames()}

    assert names >= EXPECTED_IN_ARCHIVES
    assert [name for name in names if name.startswith("tests/")] == []


@pytest.mark.parametrize(
    ("suffix", "has_compiler", "brings_the_clock"),
    [
        pytest.param(".whl", False, True, id="wheel, no compiler"),
        pytest.param(".tar.gz", True, True, id="sdist, compiler"),
        pytest.param(".tar.gz", False, False, id="sdist, no compiler"),
    ],
)
def test_an_archive_installs_and_measures(
    folder: Path, suffix: str, has_compiler: bool, brings_the_clock: bool
) -> None:
    bare = reinstall(folder, suffix, has_compiler=has_compiler)

    version = bare.run("benchax", "--version")
    measured = bare.run("benchax", "run", "jax.numpy:sin", "f32[8]", "--store", "off")

    assert (version.returncode, version.stdout.strip()) == (0, VERSION), version.stderr
    assert measured.returncode == 0, measured.stderr
    assert "every call" in measured.stdout
    assert bool(bare.prebuilt_clocks()) is brings_the_clock


def test_without_a_compiler_the_clock_is_the_one_in_python(folder: Path) -> None:
    """Which is said where its readings are shown."""
    bare = reinstall(folder, ".tar.gz", has_compiler=False)
    (bare.folder / "work.py").write_text("def work(x):\n    for _ in range(20):\n        x = x @ x\n    return x\n")

    measured = bare.run("benchax", "run", "work.py:work", "f32[200,200]", "--timer", "in_graph", "--store", "off")

    assert measured.returncode == 0, measured.stderr
    assert "reading of the python clock" in " ".join(measured.stdout.split())
