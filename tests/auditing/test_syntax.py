"""The user's files, read as Python: functions, loops, and the lines that have to do with a value."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchax.auditing import syntax
from benchax.auditing.syntax import callers_of, code_of, declared_at, jitted_around, jitted_at, made_at, source_of
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
    assert syntax.where_of(f"<ipython-input-3-0a1b>:{line}") == ("<ipython-input-3-0a1b>", line)


@given(st.none() | st.text())
@example("train.py:²")  # a digit that is no number
def test_any_other_text_is_no_place(text: str | None) -> None:
    found = syntax.where_of(text)

    assert found is None or (text or "").endswith(f":{found[1]}") or (text or "").rpartition(":")[2].isdigit()


@pytest.mark.parametrize(("line", "kind"), [(1, "for loop"), (3, "comprehension"), (7, "while loop"), (8, None)])
def test_the_innermost_loop_around_a_line(line: int, kind: str | None) -> None:
    loop = next(iter(syntax.loops_around(ast.parse(NESTED), line)), None)

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


def typed(text: str, file: str) -> Any:
    space: dict[str, Any] = {}
    exec(compile(text, file, "exec"), space)
    return space["f"]


def test_what_cannot_be_read_is_not_taken_for_what_is_not_there() -> None:
    with pytest.raises(NotMeasured, match="it was typed at a prompt of Python"):
        syntax.check_readable(typed("def f(x): return x", "<stdin>"))
    with pytest.raises(NotMeasured, match="it was made by a program, or has been edited"):
        syntax.check_readable(typed("def f(x): return x", "<string>"))

    syntax.check_readable(typed)
    syntax.check_readable(jnp.sin)
    syntax.check_readable(abs)


def test_what_is_no_python_or_not_there_gives_nothing_instead_of_an_empty_program(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def (")

    assert syntax.tree_of(str(tmp_path / "broken.py")) is None
    assert syntax.tree_of("<stdin>") is None


# ---- the source of a function ----------------------------------------------------------------------------------------


def plain(x):
    return x + 1


@functools.partial(jax.jit, static_argnames="n")
def decorated(x, n=2):
    return x * n


class Model:
    def __call__(self, x):
        return x + 2

    def method(self, x):
        return x + 3


doubled, tripled = lambda x: 2 * x, 3


@pytest.mark.parametrize(
    ("fn", "first", "tree"),
    [
        (plain, "def plain(x):", "def plain(x):\n    return x + 1"),
        (decorated, "def decorated(x, n=2):", None),
        (doubled, "doubled, tripled = lambda x: 2 * x, 3", "lambda x: 2 * x"),
    ],
)
def test_a_function_is_found_in_its_file_decorators_included(fn: Any, first: str, tree: str | None) -> None:
    found = source_of(fn)

    assert found is not None
    assert Path(found.file).read_text().splitlines()[found.tree.lineno - 1] == first
    assert tree is None or ast.unparse(found.tree) == tree


def test_the_users_own_function_is_found_under_what_is_around_it() -> None:
    for around in (
        jax.jit(functools.partial(plain)),
        functools.partial(jax.jit(plain)),
        functools.wraps(plain)(lambda x: x),
    ):
        assert code_of(around) is plain.__code__
    assert code_of(Model()) is Model.__call__.__code__
    assert code_of(Model().method) is Model.method.__code__
    assert source_of(len) is source_of(typed("def f(x): return x", "<string>")) is None


# ---- lines that have to do with what a call is given -----------------------------------------------------------------


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "train.py"
    file.write_text(text)
    return str(file)


STEP = "@jax.jit\ndef step(state, batch):\n    return state\n"
FOUND = {
    "a name": f"{STEP}batch = load()  # made\nstep(0, batch)  # call\n",
    "a part of a tuple": f"{STEP}data, batch = 1, load()  # made\nstep(0, batch=batch)  # call\n",
    "what began before the loop": f"{STEP}b = np.ones(3)  # made\nfor i in r:\n    b = step(b, b)  # call\n",
    "a function's result": f"{STEP}def load():\n    return np.ones(3)  # made\nstep(0, load())  # call\n",
    "a generator's": (
        f"{STEP}def load(n):\n    for i in range(n):\n        x = np.ones(i)  # made\n        yield i, x\n"
        "for i, x in load(3):\n    step(i, x)  # call\n"
    ),
    "starred": f"{STEP}def load():\n    return 0, np.ones(3)  # made\nargs = load()\nstep(*args)  # call\n",
    "in a comprehension": (
        f"{STEP}def batches():\n    return [np.ones(n) for n in sizes]  # made\n"
        "losses = [step(0, b) for b in batches()]  # call\n"
    ),
    "by zip and enumerate": (
        f"{STEP}a = [load()]  # made\nfor i, (x, y) in enumerate(zip(other, a)):\n    step(x, y)  # call\n"
    ),
    "in the loop around it, not behind": (
        f"{STEP}for r in rows:\n    b = load(r)  # made\n    step(0, b)  # call\nb = load(test)\n"
    ),
    "a parameter": f"{STEP}def run(x):\n    step(0, x)  # call\ndef main():\n    x = load()  # made\n    run(x)\n",
    "as far as one way leads": (
        f"{STEP}class Table:\n    def __init__(self, x):\n        self.train = self.pack(x)\n"
        "        self.rest = self.pack(-x)\n    def pack(self, x):\n        return [x]  # made\n"
        "data = Table(3)\nstep(0, data.train)  # call\n"
    ),
    "what an object yields": (
        f"{STEP}class Registry:\n    def __iter__(self):\n        for n in sizes:\n            x = np.ones(n)  # made\n"
        "            yield n, x\nfor n, x in Registry():\n    step(n, x)  # call\n"
    ),
    "an attribute": (
        f"{STEP}class Session:\n    def __init__(self, batch):\n        self.batch = np.asarray(batch)  # made\n"
        "    def feed(self):\n        step(0, self.batch)  # call\n"
    ),
    "a field that a constructor is given": (
        f"{STEP}@dataclass\nclass Session:\n    batch: Any\n    def feed(self):\n        step(0, self.batch)  # call\n"
        "Session(batch=np.ones(3))  # made\n"
    ),
    "a field's default": (
        f"{STEP}@dataclass\nclass Session:\n    batch: Any = np.ones(3)  # made\n    def feed(self):\n"
        "        step(0, self.batch)  # call\n"
    ),
    "a jitted method by another name": (
        "class Session:\n    def __init__(self):\n        self.run = jax.jit(self.step)\n"
        "    def step(self, state, batch):\n        return state\nb = load()  # made\nSession().run(0, b)  # call\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", FOUND.values(), ids=FOUND)
def test_the_line_that_makes_an_argument_is_among_those_named(tmp_path: Path, text: str) -> None:
    assert is_marked_line_named(tmp_path, text, "batch")


PARTS = {
    "by replace": (f"{STEP}def init():\n    return make().replace(rate=0.1)  # made\n", "state.rate"),
    "by keyword": (f"{STEP}def init():\n    return State(\n        1,\n        ema=0.7,  # made\n    )\n", "state.ema"),
    "by position": (
        (
            f"{STEP}class State(Tuple):\n    n: int\n    ema: int\n"
            "def init():\n    x = 0.0  # made\n    return State(1, x)\n"
        ),
        "state.ema",
    ),
    "by key": (
        f"{STEP}def init():\n    return dict(\n        w=1,\n        b=np.ones(3),  # made\n    )\n",
        "state['b']",
    ),
    "in a display": (f"{STEP}def init():\n    return {{'b': np.ones(3)}}  # made\n", "state['b'][0]"),
}


@pytest.mark.parametrize(("text", "path"), PARTS.values(), ids=PARTS)
def test_the_line_that_makes_a_part_of_an_argument_is_among_those_named(tmp_path: Path, text: str, path: str) -> None:
    assert is_marked_line_named(
        tmp_path, f"{text}state = init()\nfor b in data:\n    state = step(state, b)  # call\n", path
    )


def is_marked_line_named(tmp_path: Path, text: str, path: str) -> bool:
    file, lines = written(tmp_path, text), text.splitlines()
    called, made = (next(i for i, line in enumerate(lines, 1) if mark in line) for mark in ("# call", "# made"))
    return ("made here", (file, made)) in made_at((file, called), "step", path)


def test_names_of_other_functions_are_other_values(tmp_path: Path) -> None:
    file = written(tmp_path, f"{STEP}def other():\n    for b in load():\n        f(b)\ndef run(b):\n    step(0, b)\n")

    assert made_at((file, 8), "step", "batch") == []


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


def test_a_key_is_no_argument_of_another_call(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text('plot(x=3)\nbatch = {"x": load()}\nstep(batch)\n')

    assert made_at((str(file), 3), "step", "batch['x']") == [("made here", (str(file), 2))]
