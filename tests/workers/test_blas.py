"""The libraries whose threads are set: found wherever they lie."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchax.workers import blas

MAPS = """\
7f00-7f01 r-xp 00000000 08:01 131 /a folder/with blanks/numpy.libs/libscipy_openblas64_-32a4.so
7f01-7f02 r--p 00001000 08:01 131 /a folder/with blanks/numpy.libs/libscipy_openblas64_-32a4.so
7f02-7f03 r-xp 00000000 08:01 132 /usr/lib/libopenblas.so.0
7f03-7f04 rw-p 00000000 00:00 0 [heap]
7f04-7f05 r-xp 00000000 08:01 133 /openblas.d/libm.so.6
"""


def test_libraries_are_found_in_folders_with_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda self, **_: MAPS)

    assert blas._find_libraries() == [
        "/a folder/with blanks/numpy.libs/libscipy_openblas64_-32a4.so",
        "/usr/lib/libopenblas.so.0",
    ]


def test_a_library_that_is_gone_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda self, **_: MAPS)

    blas.set_threads(1)

    assert blas.thread_counts() == {}


def test_the_library_of_numpy_has_a_count() -> None:
    np.linalg.inv(np.eye(2))
    if not blas._find_libraries():
        pytest.skip("NumPy has no OpenBLAS here")

    assert all(count >= 1 for count in blas.thread_counts().values())
