"""`benchax` run in the process of the test: what the fixture of tests/cli/conftest.py gives."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import typer

from benchax import codec
from benchax.cli.main import app, main
from benchax.model import Measurement


@dataclass(frozen=True)
class Done:
    code: object
    out: str
    err: str

    @property
    def rows(self) -> list[Measurement]:
        """What `--json` wrote."""
        return [codec.decode(line) for line in self.out.splitlines()]


Benchax = Callable[..., Done]


@cache
def commands() -> Any:
    """What typer makes of the commands before each run: 40 ms, which is most of a test of what is refused."""
    return typer.main.get_command(app)


def command(*words: str) -> list[str]:
    """For a process of its own."""
    return [sys.executable, "-m", "benchax.cli.main", *words]


def read_terminal(ours: int) -> bytes:
    """All that the other side of a terminal sends until it is closed."""
    sent = b""
    with contextlib.suppress(OSError):  # how Linux says that the other side is closed
        while chunk := os.read(ours, 65536):
            sent += chunk
    os.close(ours)
    return sent


def runner(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Benchax:
    """Runs the command line; its output has no width of its own."""
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest-xdist sets it
    monkeypatch.setattr("benchax.cli.main.app", commands())

    def run(*words: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["benchax", *words])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return Done(end.value.code, captured.out, captured.err)

    return run
