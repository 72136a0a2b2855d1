"""Runs the console scripts in this process, in a folder with two stores of fixed rows and some files of functions."""

from __future__ import annotations

import contextlib
import io
import json
import platform
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

FILES = {
    "f.py": """\
import jax, jax.numpy as jnp
def double(x): return 2 * x
def triple(x): return 3 * x
def noise(key): return jax.random.normal(key) + jax.random.normal(key)
""",
    "broken.py": "def f(x):\n    return (x\n",
    "no_json.json": "{",
    "empty.py": "",
}


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    def __str__(self) -> str:
        parts = [f"exit {self.code}", *(self.out and [self.out]), *(self.err and [f"-- stderr --\n{self.err}"])]
        return steady("\n".join(part.rstrip("\n") for part in parts))


def run(words: str) -> Done:
    """`run("benchax list")`; the texts that it prints, 80 columns wide."""
    prepare()
    program, *rest = shlex.split(words)
    main = _load(program)
    before, out, err, code = sys.argv, io.StringIO(), io.StringIO(), 0
    sys.argv = [program, *rest]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv = before
    return Done(code, out.getvalue(), err.getvalue())


def steady(text: str) -> str:
    """Without the folders, the host, the processor, and the times of this run."""
    text = text.replace(f"on {platform.node()} ·", "on HOST ·")
    text = re.sub(f"(cpu · )[^·\n]+( · jax {re.escape(version('jax'))})", r"\1PROCESSOR\2", text)
    text = re.sub(r"\b(\d+ rules?) in [\d.]+ m?s", r"\1 in TIME", text)
    text = text.replace(str(Path.cwd()), "FOLDER").replace(str(Path(__file__).parents[2]), "REPOSITORY")
    return re.sub(r"(/[\w.+-]+)+/(site-packages|lib/python3\.\d+)/", r"\2/", text)


def keys(document: Any, path: str = "") -> set[str]:
    """Paths of the keys of a JSON document; [] stands for any element."""
    if isinstance(document, list | tuple):
        return {key for element in document for key in keys(element, f"{path}[]")}
    if not isinstance(document, dict):
        return {path}
    return {key for name, value in document.items() for key in keys(value, f"{path}.{name}")} or {path}


def keys_of_lines(text: str) -> str:
    return "\n".join(sorted({key for line in text.splitlines() for key in keys(json.loads(line))}))


@cache
def prepare() -> None:
    """Fills the working directory: the store that sites are tested with, rows of every kind in `full`, and files."""
    from measurement_strategies import ROWS, SLOWER
    from site_stores import make_store

    from benchax.store import comparisons
    from benchax.store.database import open_store

    make_store(Path(".benchmarks"))
    full = open_store("full")
    full.append_all(list(ROWS))
    comparisons.append(full, [SLOWER])
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")


@cache
def _load(program: str) -> Callable[[], None]:
    (script,) = entry_points(group="console_scripts", name=program)
    return script.load()
