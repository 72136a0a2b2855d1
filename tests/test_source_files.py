"""Whose a file is, wherever a line of it was found."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import jax
import jaxlib
import numpy as np
import pytest

import benchax
from benchax.source_files import is_library, owner_of

PACKAGES = sysconfig.get_path("purelib")


@pytest.mark.parametrize(
    ("file", "owner"),
    [
        (jax.numpy.__file__, "jax"),
        (jaxlib.__file__, "jax"),
        (np.__file__, "package"),
        (f"{PACKAGES}/jaxtyping/__init__.py", "package"),
        (f"{sysconfig.get_path('scripts')}/benchax", "package"),
        (os.__file__, "python"),
        (benchax.__file__, "benchax"),
        (__file__, "user"),
        ("/home/me/train.py", "user"),
        ("<stdin>", "user"),
    ],
)
def test_a_file_belongs_to_whose_folder_it_lies_in(file: str, owner: str) -> None:
    assert owner_of(file) == owner
    assert is_library(file) == (owner != "user" or not Path(file).is_absolute())
