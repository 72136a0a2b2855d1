"""Where a value comes from that makes JAX compile again."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchax.auditing.passed_values import changed_path, made_at, started_at, started_paths


@pytest.mark.parametrize(
    ("texts", "path"),
    [
        (["state.tx.init: <f> → <g>", "state.tx.update: <f> → <g>", "and 2 more differences"], "state.tx"),
        (["model.scale: 1.0 → 2.0", "model.scale: 2.0 → 3.0"], "model.scale"),
        (["model.scale: 1.0 → 2.0", "x: is not given any more"], ""),
        (["a.scale: 1.0 → 2.0", "b.scale: 1.0 → 2.0"], ""),
        (["params: tree structure: * → {}"], ""),
        ([], ""),
    ],
)
def test_what_changes_is_told_by_its_path(texts: list[str], path: str) -> None:
    assert changed_path(texts) == path


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("state = state.replace(lr=0.1 / i)", 3),
        ("state.lr = 0.1 / i", 3),
        ("state = eqx.tree_at(lambda s: s.lr, state, 0.1 / i)", 3),
        ("state = next(states)", None),
        ("state.lr = 0.1; other = dict(lr=1)", 3),
        ("state.lr = 0.1\n    state.lr = 0.2", None),
    ],
)
def test_the_line_in_the_loop_that_gives_it_its_value(tmp_path: Path, line: str, found: int | None) -> None:
    train = tmp_path / "train.py"
    train.write_text(f"state = State(lr=0.1)\nfor i in range(9):\n    {line}\n    state = step(state)\n")
    last = len(train.read_text().splitlines())

    assert made_at((str(train), last), "state.lr") == (None if found is None else (str(train), found))


def test_a_line_outside_of_the_loop_is_found_where_it_sets_and_not_where_it_makes(tmp_path: Path) -> None:
    train = tmp_path / "train.py"
    cool = "def cool(model):\n    return eqx.tree_at(lambda m: m.heat, model, 1.0)\n"
    train.write_text(f"{cool}model = Model(heat=2.0)\nfor i in range(9):\n    step(cool(model))\n")

    assert made_at((str(train), 5), "model.heat") == (str(train), 2)


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        ("total = jnp.asarray(1.0)\ntotal = step(total)\n", "total", 1),
        ("carry = Carry(total=0.0)\ncarry = step(carry)\n", "carry.total", 1),
        ("a, total = make()\ntotal = step(total)\n", "total", None),
        ("total = 1.0\nif x:\n    total = 2.0\ntotal = step(total)\n", "total", None),
    ],
)
def test_where_a_value_begins_is_the_one_line_beside_the_call_that_sets_it(
    tmp_path: Path, text: str, path: str, line: int | None
) -> None:
    train = tmp_path / "train.py"
    train.write_text(text)

    called = str(train), len(text.splitlines())

    assert started_at(called, path) == (None if line is None else (str(train), line))


def test_what_began_otherwise_is_told_by_its_paths() -> None:
    assert started_paths(["state.loss: weak type: f32 now", "and 2 more differences"]) == ["state.loss"]
    assert started_paths(["a: weak type: f32 now", "b: weak type: f32 now"]) == ["a", "b"]
    assert started_paths(["x: shape f32[2] → f32[3]"]) == []


def test_what_the_called_function_itself_sets_is_no_beginning(tmp_path: Path) -> None:
    train = tmp_path / "train.py"
    train.write_text("def step(s):\n    return s.replace(loss=s.loss)\ns = State(loss=0.0)\ns = step(s)\n")

    assert started_at((str(train), 4), "s.loss", (str(train), 1)) == (str(train), 3)
