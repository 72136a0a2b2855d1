"""Finds the owner of a source file: the user, an installed package, Python, JAX, or benchax.

Reports name a line of the user's own code. It is found in a traceback, on a stack, in a jaxpr, or in the output of a
crash.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import Literal

from benchax.printable import LONGEST_TRACEBACK, cap

Owner = Literal["user", "package", "python", "jax", "benchax"]
_PACKAGES = {"site-packages", "dist-packages"}


def owner_of(file: str) -> Owner:
    """Decides by the folder of the file. Code without a file that no user typed is Python's, such as what dataclasses
    make of a class.
    """
    # Not cached: it depends on how far the program has started.
    return "python" if is_generated(file) else _owner_by_folder(file)


@cache
def _owner_by_folder(file: str) -> Owner:
    """Packages also lie outside of the environment: in the one below it, in a folder of PYTHONPATH, or of a `.pth`
    file.
    """
    for owner, folders in _folders().items():
        if file.startswith(folders) or (owner == "package" and _PACKAGES.intersection(Path(file).parts)):
            return owner
    return "user"


def outward(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those that called it. `traceback.walk_stack` finds the line of each, too, which takes longer."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def is_in_package(frame: FrameType | None) -> bool:
    """Is the nearest line that is neither JAX's nor Python's in an installed package?"""
    owners = (owner_of(one.f_code.co_filename) for one in outward(frame))
    return next((owner for owner in owners if owner in ("user", "package")), "") == "package"


_PROMPTS = re.compile("<(ipython-input|python-input|stdin|doctest)")
"""The names that Python, IPython and doctest give to typed code, which has no file."""


def is_typed(file: str) -> bool:
    """Was this code typed at a prompt, after `python -c`, or into a cell of a notebook in a terminal? Then it is the
    user's."""
    return _PROMPTS.match(file) is not None or (file == "<string>" and _is_command())


def _is_command() -> bool:
    """Is this program the text after `python -c`? Workers of benchax and pytest-xdist (execnet) start with such a text,
    too, and it is not the user's.
    """
    return sys.argv[:1] == ["-c"] and not sys.modules.keys() & {"benchax.workers.worker", "execnet"}


def is_generated(file: str) -> bool:
    """Does this code have no file, although no user typed it? A program made it: <frozen os>, <string>."""
    return file.startswith("<") and not is_typed(file)


def is_library(file: str) -> bool:
    """Is this file none of the user's own?"""
    # Compiled extensions (Cython) name their sources by relative paths.
    has_place = Path(file).is_absolute() or is_typed(file)
    return not has_place or owner_of(file) != "user"


NOT_YOURS = "(none of yours)"
"""In tables by line: what no line of the user's is behind."""


def without_folders(source: str | None) -> str:
    """The file and line of a path that may be of another system; empty for None."""
    return (source or "").replace("\\", "/").rpartition("/")[2]


def below_here(path: Path) -> Path:
    """The path as seen from the working directory, if it is below that."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


_INSTALLED = re.compile(r"\S*[/\\](?:site|dist)-packages[/\\]")


def below_packages(text: str) -> str:
    """Shortens files of installed packages to optax/_src/base.py: their folder says nothing, and fills a line."""
    return _INSTALLED.sub("", text)


_RUNNERS = {"typer", "click", "pytest", "_pytest", "pluggy", "runpy.py"}


@cache
def is_runner(file: str) -> bool:
    """Does this file only start programs or tests? It is below every function that has no caller of the user's."""
    return bool(_RUNNERS.intersection(Path(file).parts)) or file.startswith(f"{sysconfig.get_path('scripts')}{os.sep}")


def is_machinery(file: str) -> bool:
    """Is this file JAX's, ours, or of Python itself, so that a reader of a traceback rarely wants to see it?"""
    is_hidden = file.startswith("<frozen") or not is_generated(file)
    return is_hidden and owner_of(file) in ("benchax", "jax", "python")


def keep_own_frames(found: TracebackType | None) -> TracebackType | None:
    """Returns a traceback without the machinery, unless JAX_TRACEBACK_FILTERING=off; None if nothing else is in it."""
    frames: list[TracebackType] = []
    while found is not None:
        frames.append(found)
        found = found.tb_next
    kept: TracebackType | None = None
    for frame in reversed(frames):
        if _shows_all() or not is_machinery(frame.tb_frame.f_code.co_filename):
            kept = TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept


def format_error(error: BaseException) -> str:
    """As Python prints it, and what caused it, without the machinery: what is left begins in the user's own code."""
    found = traceback.TracebackException.from_exception(error)
    reached: list[traceback.TracebackException | None] = [found]
    while not _shows_all() and reached:
        if (one := reached.pop()) is None:
            continue
        _cap_message(one)
        own = [frame for frame in one.stack if not is_machinery(frame.filename)]
        # An error inside a library, in a stack without the user's code: then this is the best line.
        one.stack = traceback.StackSummary.from_list(own or one.stack[-1:])
        reached += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())]
    return "".join(found.format())


def _cap_message(one: traceback.TracebackException) -> None:
    """A message of 50 MB takes Python 10 s to lay out, in a worker whose time is limited."""
    text = getattr(one, "_str", None)  # private (Python 3.11 to 3.14); without it, it takes its time
    if isinstance(text, str):
        one._str = cap(text, LONGEST_TRACEBACK // 2)  # pyright: ignore[reportAttributeAccessIssue]


def _shows_all() -> bool:
    return os.environ.get("JAX_TRACEBACK_FILTERING") == "off"


@cache
def _folders() -> dict[Owner, tuple[str, ...]]:
    """Inner ones first: the library of Python usually holds the folder of installed packages, and that holds JAX."""
    found: dict[Owner, list[str | None]] = {
        "benchax": [str(Path(__file__).parent)],
        "jax": [_folder_of("jax"), _folder_of("jaxlib")],
        # This includes commands of packages: .venv/bin/benchax is at the bottom of each stack.
        "package": [*map(sysconfig.get_path, ("purelib", "platlib", "scripts"))],
        "python": [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")],
    }
    return {owner: tuple(f"{folder}{os.sep}" for folder in folders if folder) for owner, folders in found.items()}


def _folder_of(package: str) -> str | None:
    """Without importing it."""
    spec = importlib.util.find_spec(package)
    return None if spec is None or spec.origin is None else str(Path(spec.origin).parent)
