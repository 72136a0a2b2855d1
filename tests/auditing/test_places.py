"""The lines that have to do with what a call is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchax.auditing.places import callers_of, declared_at, jitted_around, jitted_at, made_at


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "train.py"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize(
    ("text", "path", "lines"),
    [
        ("def step(x, n): ...\nn = 3\nx = 0.0\nfor i in range(9):\n    x = step(x, n)\n", "x", [3]),
        ("def step(x, n): ...\nn = 3\nx = 0.0\nfor i in range(9):\n    x = step(x, n)\n", "n", [2]),
        ("def step(s): ...\ns = make(rate=0.1)\nfor i in range(9):\n    s = step(s)\n    s = s.replace(rate=i)\n",
         "s.rate", [2, 5]),
        ("def make():\n    size = 4\n    return zeros(size)\nx = make()\nstep(x)\n", "x", [2, 3, 4]),
    ],
)  # fmt: skip
def test_lines_that_make_an_argument(tmp_path: Path, text: str, path: str, lines: list[int]) -> None:
    file = written(tmp_path, text)
    called = next(i for i, line in enumerate(text.splitlines(), 1) if "step(" in line and "def " not in line)

    found = made_at((file, called), "step", path)

    assert {("made here", (file, line)) for line in lines} <= set(found)


def test_nothing_is_named_without_a_file(tmp_path: Path) -> None:
    assert made_at(None, "step", "x") == []
    assert made_at((str(tmp_path / "none.py"), 3), "step", "x") == []
    assert jitted_around(None, None, "f") == callers_of(None) == declared_at(None, "f", "static_arg") == []


def test_decorators_and_calls_of_jit_are_named(tmp_path: Path) -> None:
    text = (
        "@partial(jax.jit, static_argnames='n')\ndef f(x, n): ...\ndef g(x): ...\nfast = jax.jit(g, donate_argnums=0)\n"
    )
    file = written(tmp_path, text)

    assert declared_at((file, 1), "f", "static_arg") == [("static_arg is set here", (file, 1))]
    assert jitted_at((file, 3), "g") == [("jitted here", (file, 4))]


def test_what_makes_and_jits_a_function_in_a_loop_is_named(tmp_path: Path) -> None:
    text = "def make(i):\n    return jax.jit(lambda x: x + i)\nfor i in range(9):\n    f = make(i)\n    f(1)\n"
    file = written(tmp_path, text)

    found = jitted_around((file, 5), (file, 2), "<lambda>")

    assert found == [("jitted here", (file, 2)), ("made by this call", (file, 4))]
