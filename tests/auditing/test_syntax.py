"""The user's files, read as Python."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchax.auditing import syntax
from benchax.errors import NotMeasured

NESTED = """\
for i in range(3):
    x = [
        f(j)
        for j in x
    ]
    while x:
        y = 1
z = 2
"""


@given(file=st.text(min_size=1).filter(lambda t: "\0" not in t), line=st.integers(1, 10**9))
def test_a_place_is_read_whatever_the_file_is_called(file: str, line: int) -> None:
    assert syntax.where_of(f"{file}:{line}") == (str(Path(file).absolute()), line)


@given(st.none() | st.text())
@example("train.py:²")  # a digit that is no number
def test_any_other_text_is_no_place(text: str | None) -> None:
    found = syntax.where_of(text)

    assert found is None or (text or "").endswith(f":{found[1]}") or (text or "").rpartition(":")[2].isdigit()


@pytest.mark.parametrize(("line", "kind"), [(1, "for loop"), (3, "comprehension"), (7, "while loop"), (8, None)])
def test_the_innermost_loop_around_a_line(line: int, kind: str | None) -> None:
    loop = syntax.innermost_loop(ast.parse(NESTED), line)

    assert (syntax.kind_of(loop) if loop else None) == kind


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("jax.jit(lambda x: x)", 1),
        ("jit(functools.partial(f, 1))", 1),
        ("def g(x): pass\njax.jit(g)", 1),
        ("g = partial(f, 1)\njax.jit(g)", 1),
        ("jax.jit(f)", 0),
        ("jax.jit(f, static_argnames='n')", 0),
        ("lambda x: x", 0),
    ],
)
def test_which_jits_are_of_functions_that_are_made_anew(text: str, found: int) -> None:
    assert len(list(syntax.jits_of_new_functions(ast.parse(text)))) == found


def test_what_was_typed_keeps_its_name() -> None:
    assert syntax.where_of("<ipython-input-3-0a1b>:7") == ("<ipython-input-3-0a1b>", 7)


def test_a_file_that_is_not_there_gives_nothing_instead_of_an_empty_program() -> None:
    assert syntax.tree_of("<stdin>") is None


def typed(text: str, file: str) -> Any:
    space: dict[str, Any] = {}
    exec(compile(text, file, "exec"), space)
    return space["f"]


def test_what_cannot_be_read_is_not_taken_for_what_is_not_there() -> None:
    with pytest.raises(NotMeasured, match="it was typed at a prompt of Python"):
        syntax.check_readable(typed("def f(x): return x", "<stdin>"))
    with pytest.raises(NotMeasured, match="it was made by a program, or has been edited"):
        syntax.check_readable(typed("def f(x): return x", "<string>"))

    syntax.check_readable(test_what_was_typed_keeps_its_name)
    syntax.check_readable(jnp.sin)
    syntax.check_readable(abs)


def test_what_is_no_python_gives_nothing(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def (")

    assert syntax.tree_of(str(tmp_path / "broken.py")) is None


@pytest.mark.parametrize(
    ("body", "carried"),
    [
        ("h = f(h, x)", {"h"}),
        ("out.append(h); h = a + b * h", {"h"}),
        ("y = g(h); h = f(y)", {"h"}),
        ("a, (h, c) = f(h)", {"h"}),
        ("h = f(x); h = g(h)", set()),
        ("x = f(x); y = g(x)", set()),
        ("total = total + f(x)", set()),
        ("total += f(x)", set()),
        ("out = out.at[0].set(x)", set()),
        ("h = h.at[0].set(h[1])", {"h"}),
        ("out.append(f(x))", set()),
    ],
)
def test_what_an_iteration_hands_to_the_next(body: str, carried: set[str]) -> None:
    lines = "\n    ".join(body.split("; "))
    (loop,) = ast.parse(f"for x in xs:\n    {lines}\n").body

    assert isinstance(loop, ast.For)
    assert syntax.carried_names(loop) == carried
