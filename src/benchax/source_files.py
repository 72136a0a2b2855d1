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
    return next((owner for owner, folder in _folders() if file.startswith(folder)), "user")


def is_library(file: str) -> bool:
    """Is this file none of the user's own?"""
    # Compiled extensions (Cython) name their sources by relative paths.
    return not Path(file).is_absolute() or owner_of(file) != "user"


@cache
def _folders() -> list[tuple[Owner, str]]:
    """Inner ones first: the library of Python usually holds the folder of installed packages, and that holds JAX."""
    packages = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    library = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    folders: list[tuple[Owner, str]] = [("benchax", str(Path(__file__).parent))]
    folders += [("jax", folder) for folder in (_folder_of("jax"), _folder_of("jaxlib")) if folder]
    folders += [("package", folder) for folder in packages]
    folders += [("python", folder) for folder in library]
    return [(owner, f"{folder}{os.sep}") for owner, folder in folders]


def _folder_of(package: str) -> str | None:
    """Without importing it."""
    spec = importlib.util.find_spec(package)
    return None if spec is None or spec.origin is None else str(Path(spec.origin).parent)
