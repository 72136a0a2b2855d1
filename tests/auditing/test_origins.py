"""Which line makes what is passed in a call, as the text of its file tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchax.auditing.origins import made_by

CALL = "# call"
MADE = "# made"


def ask(folder: Path, text: str, path: str, question: object = made_by) -> tuple[int | None, int | None]:
    """(the line that is found, the line that is marked)"""
    file = folder / "train.py"
    file.write_text(text)
    lines = text.splitlines()
    marked = {mark: n for n, line in enumerate(lines, 1) for mark in (CALL, MADE) if mark in line}
    found = question((str(file), marked[CALL]), "step", path)  # type: ignore[operator]
    return (None if found is None else found[1]), marked.get(MADE)


STEP = "@jax.jit\ndef step(state, batch):\n    return state\n"
FOUND = {
    "a name": f"{STEP}batch = load()  # made\nstep(0, batch)  # call\n",
    "a part of a tuple": f"{STEP}data, batch = (\n    1,\n    load(),  # made\n)\nstep(0, batch=batch)  # call\n",
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
        f"{STEP}a = [\n    load()  # made\n]\nfor i, (x, y) in enumerate(zip(other, a)):\n    step(x, y)  # call\n"
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
    "a default": f"{STEP}def run(\n    x=np.ones(3),  # made\n):\n    step(0, x)  # call\nrun()\n",
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
def test_the_one_line_that_makes_an_argument_is_found(tmp_path: Path, text: str) -> None:
    found, marked = ask(tmp_path, text, "batch")

    assert found == marked is not None


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
    "in a display": (f"{STEP}def init():\n    return {{\n        'b': np.ones(3),  # made\n    }}\n", "state['b'][0]"),
}


@pytest.mark.parametrize(("text", "path"), PARTS.values(), ids=PARTS)
def test_the_line_that_makes_a_part_of_an_argument_is_found(tmp_path: Path, text: str, path: str) -> None:
    found, marked = ask(tmp_path, f"{text}state = init()\nfor b in data:\n    state = step(state, b)  # call\n", path)

    assert found == marked is not None


@pytest.mark.parametrize(
    "text",
    [
        f"{STEP}x = 1\nif y:\n    x = 2\nstep(0, x)  # call\n",
        f"{STEP}def run(x):\n    step(0, x)  # call\nrun(1)\nrun(2)\n",
        f"{STEP}def load():\n    if y:\n        return 1\n    return 2\nstep(0, load())  # call\n",
        f"{STEP}class All:\n    def __iter__(self):\n        return f()\nfor x in All():\n    step(0, x)  # call",
        f"{STEP}x = 1; step(0, x); step(0, 2)  # call\n",
        f"{STEP}step(0, 3.0)  # call\n",
        f"{STEP}step(0)  # call\n",
        "x = 1\nunknown(0, x)  # call\n",
    ],
)
def test_where_the_text_tells_no_more_than_the_call_nothing_is_said(tmp_path: Path, text: str) -> None:
    assert ask(tmp_path, text, "batch")[0] is None


def test_a_function_that_returns_its_own_result_ends_the_way(tmp_path: Path) -> None:
    assert ask(tmp_path, f"{STEP}def load():\n    return load()\nstep(0, load())  # call\n", "batch")[0] == 5


@pytest.mark.parametrize("path", ["", "1x", "batch[", "batch[]"])
def test_what_is_no_path_of_an_argument_is_not_found(tmp_path: Path, path: str) -> None:
    assert ask(tmp_path, f"{STEP}x = 1\nstep(0, x)  # call\n", path)[0] is None
    assert made_by(None, "step", "batch") is None
    assert made_by((str(tmp_path / "absent.py"), 1), "step", "batch") is None


def test_a_number_that_is_an_option_is_told_where_it_is_read(tmp_path: Path) -> None:
    text = f"{STEP}def grow(first=1e-4):\n    x, dt = seed(), first  # made\n    step(x, dt)  # call\ngrow()\n"

    assert ask(tmp_path, text, "batch")[0] == 5


def test_arguments_that_partial_has_given_are_counted(tmp_path: Path) -> None:
    text = f"{STEP}run = functools.partial(step, 0)\nx = np.ones(3)  # made\nstep(x)  # call\n"

    assert ask(tmp_path, text, "batch") == (5, 5)


KEPT = (
    f"{STEP}class Data:\n    def __init__(self, table, n):\n        self.table = table  # kept\n"
    "data = Data(np.ones(3), 4)\nstep(0, data.table)\n"
)
