"""Processes of another version: where they look for modules; and environments with another JAX, made once."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import venv
from contextlib import closing
from pathlib import Path

import pytest

from benchax import environment
from benchax.checkouts import launch
from benchax.checkouts.launch import MARK, Launch, Selection, check_version, ensure_environment
from benchax.checkouts.partners import Partner, prepare_case
from benchax.errors import BenchaxError, NotAvailable, UsageError
from benchax.measuring.jax_settings import with_settings
from benchax.model import Version

OLD = "0.9.2"
# As uv 0.9 and pip 23 say it.
NOT_THERE_UV = (
    "error: No solution found when resolving dependencies\n  cause: Because there is no version of jax==9.9.9 and you "
    "require jax==9.9.9, we can conclude that your requirements are unsatisfiable."
)
NOT_THERE_PIP = (
    "ERROR: Could not find a version that satisfies the requirement jax==9.9.9 (from versions: 0.9.1, 0.9.2)\n"
    "ERROR: No matching distribution found for jax==9.9.9"
)
NO_NETWORK_PIP = (
    "WARNING: Retrying after connection broken by 'NewConnectionError(... Failed to establish a new connection')'\n"
    "ERROR: Could not find a version that satisfies the requirement jax==9.9.9 (from versions: none)\n"
    "ERROR: No matching distribution found for jax==9.9.9"
)
NO_NETWORK_UV = "error: Failed to fetch: `jax`\n  Caused by: dns error: failed to lookup address information"
FULL_DISK = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"


def fake_uv(folder: Path, monkeypatch: pytest.MonkeyPatch, install: str) -> Path:
    """A program called uv, first on the PATH: `uv venv` makes a folder that holds a python, anything else does
    `install`. Returns the file in which it keeps what it was asked."""
    bin = folder / "uv-bin"
    bin.mkdir()
    log = folder / "asked"
    (bin / "uv").write_text(
        f'#!/bin/sh\necho "$*" >> "{log}"\n'
        'if [ "$1" = venv ]; then\n  for p; do :; done\n  mkdir -p "$p/bin"\n'
        f'  ln -s "{sys.executable}" "$p/bin/python"\n  exit\nfi\n'
        f"{install}\n"
    )
    (bin / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", str(bin), prepend=":")
    return log


def made(log: Path) -> int:
    return sum(line.startswith("venv ") for line in log.read_text().splitlines())


@pytest.mark.parametrize("version", ["", "latest", "--index-url=x", "0.9.2 jaxlib", "0.9.2;", "v0.9.2", "../x"])
def test_what_is_no_version_that_benchax_runs_with_is_refused(version: str) -> None:
    with pytest.raises(UsageError, match="isn't a version of JAX"):
        check_version(version)
    with pytest.raises(UsageError, match=r"0\.4\.30\nexpected 0\.6 or newer"):
        check_version("0.4.30")


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        (NOT_THERE_UV, UsageError, "there is no jax 9.9.9"),
        (NOT_THERE_PIP, UsageError, "Choices: 0.9.1, 0.9.2"),
        (NO_NETWORK_PIP, NotAvailable, "without a network"),
        (NO_NETWORK_UV, NotAvailable, "dns error"),
        (FULL_DISK, NotAvailable, "No space left on device"),
    ],
)
def test_what_goes_wrong_is_said_and_leaves_nothing(
    said: str, error: type[BenchaxError], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_uv(tmp_path, monkeypatch, f"cat >&2 <<'END'\n{said}\nEND\nexit 1")

    with pytest.raises(error) as caught:
        ensure_environment("9.9.9", folder=tmp_path / "made")

    assert words in str(caught.value)
    assert [path for path in (tmp_path / "made").iterdir() if path.is_dir()] == []


@pytest.mark.parametrize("missing", [MARK, "bin/python"])
def test_an_environment_is_made_once_and_a_half_made_one_anew(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = fake_uv(tmp_path, monkeypatch, "exit 0")
    first, again = (ensure_environment(OLD, folder=tmp_path / "made") for _ in range(2))
    assert (first, made(log), f"jax=={OLD}" in log.read_text()) == (again, 1, True)
    place = first.parents[1]
    (place / missing).unlink()
    (place / "rest").touch()

    ensure_environment(OLD, folder=tmp_path / "made")

    assert not (place / "rest").exists()
    assert made(log) == 2


def test_two_at_once_make_one_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = fake_uv(tmp_path, monkeypatch, f"until [ -e {tmp_path}/go ]; do sleep 0.01; done")
    making = [
        threading.Thread(target=ensure_environment, args=(OLD,), kwargs={"folder": tmp_path / "made"}) for _ in range(2)
    ]

    for each in making:
        each.start()
    (tmp_path / "go").touch()
    for each in making:
        each.join(20)

    assert made(log) == 1
    mine = launch._name(OLD)
    monkeypatch.setattr(sys, "base_prefix", "/elsewhere")
    assert launch._name(OLD) != mine, "another Python has another environment"


@pytest.mark.slow
def test_a_real_environment_has_its_own_jax_and_our_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made by venv and pip, about 10 s; a process there takes its turns with JAX 0.9.2 and this benchax."""
    only = tmp_path / "only"
    only.mkdir()
    (only / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
    monkeypatch.setenv("PATH", str(only))  # no uv
    try:
        python = ensure_environment(OLD, folder=tmp_path / "made")
    except NotAvailable as error:
        pytest.skip(error.problem)
    (tmp_path / "bench_mine.py").write_text(
        "import benchax, hypothesis\n@benchax.benchmark(args=('f32[8]',))\ndef mine(x): return x\n"
    )

    launch, chosen = Launch(Version("old", jax=OLD), str(python), tmp_path), Selection(("bench_mine.py",))
    with closing(Partner(launch, chosen)) as one:
        listing = one.listing()
        warm = one.ask(prepare_case, (one.source, 0))

    assert (listing.environment.jax, [case.name for case in listing.cases]) == (OLD, ["mine"])
    assert warm.iterations > 0
    assert subprocess.run([python, "-c", "import benchax"], capture_output=True, check=False).returncode == 1


def test_another_jax_in_the_way_is_no_comparison(tmp_path: Path) -> None:
    other = Launch(Version("jax 0.9.1", jax="0.9.1"), folder=tmp_path)

    with closing(Partner(other, Selection(("jax.numpy:sin", "f32[8]")))) as one:
        listing = one.listing()

    assert listing.broken[0].message.startswith("jax 0.9.1 was requested, and jax ")


# ---- processes --------------------------------------------------------------------------------------------------


WHERE = """
import os
import benchax, iniconfig, mine

is_mine = os.path.dirname(iniconfig.__file__) == os.path.dirname(mine.__file__)
found = [is_mine, os.environ.get("PYTHONPATH"), os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"]]

@benchax.benchmark(args=("f32[8]",), name=" ".join(map(str, found)))
def f(x):
    return x
"""


@pytest.mark.parametrize(("is_other", "found"), [(False, "True /somewhere false"), (True, "False None false")])
def test_this_python_looks_for_modules_as_here_and_another_one_first_among_its_own(
    is_other: bool, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages of this program do not reach another Python by PYTHONPATH. Settings that were made in code hold there,
    and two processes share an accelerator."""
    other = tmp_path / "other"
    venv.create(other)
    (packages,) = other.glob("lib/*/site-packages")
    for module in (tmp_path / "mine.py", tmp_path / "iniconfig.py", packages / "iniconfig.py"):
        module.write_text("")
    python = str(other / "bin" / "python") if is_other else ""
    (tmp_path / "bench_where.py").write_text(WHERE)
    there = Launch(Version("x"), python, tmp_path, paths=(str(tmp_path), *sys.path))
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setattr(environment, "has_jax_plugins", lambda: True)

    precise = with_settings({"jax_default_matmul_precision": "float32"})
    with precise, closing(Partner(there, Selection(("bench_where.py",)))) as one:
        listing = one.listing()

    assert [case.name for case in listing.cases] == [found]
    assert listing.environment.config["jax_default_matmul_precision"] == "float32"
