from __future__ import annotations

import ast
import functools

import jax

from benchax.auditing.syntax import code_of, source_of


def plain(x):
    return x + 1


@functools.partial(jax.jit, static_argnames="n")
def decorated(x, n=2):
    return x * n


@functools.wraps(plain)
def wrapped(x):
    return plain(x)


class Model:
    def __call__(self, x):
        return x + 2

    def method(self, x):
        return x + 3


doubled, tripled = lambda x: 2 * x, 3


def test_the_lines_of_a_function_are_those_of_its_file() -> None:
    found = source_of(plain)

    assert found is not None
    assert found.text == "def plain(x):\n    return x + 1"
    assert found.lines[found.def_line - 1] == "def plain(x):"
    assert found.file == __file__


def test_a_decorator_belongs_to_the_text_but_not_to_the_def_line() -> None:
    found = source_of(decorated)

    assert found is not None
    assert found.lines[found.first_line - 1].startswith("@functools.partial")
    assert found.lines[found.def_line - 1] == "def decorated(x, n=2):"


def test_a_lambda_amid_a_line_is_found() -> None:
    found = source_of(doubled)

    assert found is not None
    assert isinstance(found.tree, ast.Lambda)
    assert ast.unparse(found.tree.body) == "2 * x"


def test_the_users_own_function_is_found_under_what_is_around_it() -> None:
    own = plain.__code__

    assert code_of(jax.jit(functools.partial(plain))) is own
    assert code_of(functools.partial(jax.jit(plain))) is own
    assert code_of(wrapped) is own
    assert code_of(Model()) is Model.__call__.__code__
    assert code_of(Model().method) is Model.method.__code__


def test_where_there_is_no_source_there_is_none() -> None:
    made: dict = {}
    exec("def f(x):\n    return x", made)

    assert source_of(len) is None
    assert source_of(made["f"]) is None
