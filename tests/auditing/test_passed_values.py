"""Where a value comes from that makes JAX compile again."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchax.auditing.passed_values import changed_path, made_at


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
