"""Whose is a source file: the user's, an installed package's, Python's, JAX's, or ours?

What a user is told of is a line of their own, found in a traceback, on a stack, in a jaxpr, or in what a crash left.
"""

from __future__ import annotations

import importlib.util
import os
import sysconfig
from functools import cache
from pathlib import Path
from typing import Literal

Owner = Literal["user", "package", "python", "jax", "benchax"]


@cache
def owner_of(file: str) -> Owner:
    """By the folder that it lies in."""
    for owner, folders in _folders().items():
        if file.startswith(folders):
            return owner
    return "user"


def is_library(file: str) -> bool:
    """Is this file none of the user's own?"""
    # Compiled extensions (Cython) name their sources by relative paths.
    return not Path(file).is_absolute() or owner_of(file) != "user"


@cache
def _folders() -> dict[Owner, tuple[str, ...]]:
    """Inner ones first: the library of Python usually holds the folder of installed packages, and that holds JAX."""
    found: dict[Owner, list[str | None]] = {
        "benchax": [str(Path(__file__).parent)],
        "jax": [_folder_of("jax"), _folder_of("jaxlib")],
        # Commands of packages, too: .venv/bin/benchax is at the bottom of each stack.
        "package": [*map(sysconfig.get_path, ("purelib", "platlib", "scripts"))],
        "python": [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")],
    }
    return {owner: tuple(f"{folder}{os.sep}" for folder in folders if folder) for owner, folders in found.items()}


def _folder_of(package: str) -> str | None:
    """Without importing it."""
    spec = importlib.util.find_spec(package)
    return None if spec is None or spec.origin is None else str(Path(spec.origin).parent)
