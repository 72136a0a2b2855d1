"""The lines that have to do with what a call is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchax.auditing.syntax import callers_of, declared_at, jitted_around, jitted_at, made_at


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
