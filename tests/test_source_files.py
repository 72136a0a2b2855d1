"""Whose a file is, wherever a line of it was found."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import sysconfig
import traceback
from pathlib import Path

import jax
import jaxlib
import numpy as np
import pytest
from flax import linen as nn

import benchax
from benchax.source_files import format_error, is_generated, is_library, is_runner, is_typed, keep_own_frames, owner_of

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
        ("/opt/venv/lib/python3.13/site-packages/equinox/_jit.py", "package"),
        ("/home/me/train.py", "user"),
        ("<stdin>", "user"),
        ("<string>", "python"),
        ("<frozen os>", "python"),
    ],
)
def test_a_file_belongs_to_whose_folder_it_lies_in(file: str, owner: str) -> None:
    assert owner_of(file) == owner
    assert is_library(file) == (owner != "user")


@pytest.mark.parametrize(
    ("file", "typed"),
    [
        ("<stdin>", True),
        ("<ipython-input-3-0a1b>", True),
        ("<python-input-0>", True),
        ("<doctest f[0]>", True),
        ("<string>", False),
        ("<frozen os>", False),
        ("<lambdifygenerated-1>", False),
    ],
)
def test_what_was_typed_is_the_users_and_what_a_program_made_is_not(file: str, typed: bool) -> None:
    assert is_typed(file) == typed
    assert is_generated(file) == is_library(file) == (not typed)


@pytest.mark.parametrize(("starts", "owner"), [("", "user"), ("import execnet; ", "python")])
def test_a_text_after_python_c_is_the_users_unless_it_starts_a_worker(starts: str, owner: str) -> None:
    script = f"{starts}from benchax.source_files import owner_of; print(owner_of('<string>'))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == owner


def raised_by_flax() -> BaseException:
    """In a line of this file, called through JAX and Flax, below frames of Python and of benchax."""

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            return nn.Dense(3)(x) @ jax.numpy.ones(7)

    class Holder:
        @functools.cached_property
        def made(self) -> object:
            return benchax.inspect(Net().init, jax.random.key(0), jax.numpy.ones((2, 4)))

    with pytest.raises(Exception, match="contracting dimensions") as found:
        _ = Holder().made
    return found.value


def test_what_is_left_of_a_traceback_is_the_users_own_and_that_of_packages() -> None:
    error = raised_by_flax()

    files = [frame.filename for frame in traceback.extract_tb(keep_own_frames(error.__traceback__))]

    assert files[0] == files[-1] == __file__
    assert {owner_of(file) for file in files} <= {"user", "package"}


def test_an_error_is_written_without_the_machinery_and_with_what_caused_it(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ValueError("the whole")
    error.__cause__ = raised_by_flax()

    text = format_error(error)

    assert "nn.Dense(3)(x) @ jax.numpy.ones(7)" in text
    assert "The above exception was the direct cause" in text
    assert "_src" not in text
    assert str(Path(benchax.__file__).parent) not in text
    monkeypatch.setenv("JAX_TRACEBACK_FILTERING", "off")
    assert str(Path(benchax.__file__).parent) in format_error(error)


def test_where_no_line_is_the_users_the_innermost_stays() -> None:
    try:
        functools.reduce(os.path.join, [1, 2])  # pyright: ignore[reportArgumentType]
    except TypeError as error:
        text = format_error(error.with_traceback(error.__traceback__.tb_next))  # pyright: ignore[reportOptionalMemberAccess]

    assert text.count('  File "') == 1
    assert keep_own_frames(None) is None


@pytest.mark.parametrize(
    ("file", "starts_programs"),
    [
        (f"{sysconfig.get_path('purelib')}/typer/main.py", True),
        (f"{sysconfig.get_path('purelib')}/_pytest/python.py", True),
        (f"{sysconfig.get_path('scripts')}/benchax", True),
        (f"{sysconfig.get_path('purelib')}/flax/linen/module.py", False),
        ("/home/me/project/train.py", False),
    ],
)
def test_what_starts_programs_and_tests_is_told_from_what_they_call(file: str, starts_programs: bool) -> None:
    assert is_runner(file) is starts_programs
