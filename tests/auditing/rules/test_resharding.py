"""Arrays that are moved in each step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchax.auditing.call_notes import _wanted_shardings
from benchax.watching.frames import JaxCall

ID = "resharding"


def put(**changed: Any) -> dict[str, Any]:
    return {
        "where": "train.py:9", "by": "device_put", "what": "f32[64,64]", "count": 30, "repeats": 0, "moves": 30,
        "size_bytes": 1 << 20, "elapsed_s": 0.25, "moved_from": "P('m',) over {'m': 4}",
        "moved_to": "P() over {'m': 4}", **changed,
    }  # fmt: skip


def test_an_array_that_is_placed_anew_in_each_step_is_found(ask_about_program: Any) -> None:
    finding = ask_about_program(ID, host={"puts": [put()]}, lines=[]).one

    assert finding.title == "device_put places f32[64,64] anew in each step"
    assert finding.seen[:2] == (
        "30 times, 1.00 MiB together",
        "from P('m',) over {'m': 4} to P() over {'m': 4}",
    )
    assert finding.severity == "warning"
    assert (finding.where[1], finding.gain) == (9, "estimated: at least 250 ms of this run")


def test_what_comes_from_one_device_may_be_new_in_each_step(ask_about_program: Any) -> None:
    finding = ask_about_program(ID, host={"puts": [put(moved_from="CpuDevice(id=0)")]}, lines=[]).one

    assert finding.severity == "info"


def test_arguments_that_lie_otherwise_than_they_are_wanted_are_found(ask_about_program: Any) -> None:
    line = {"function": "step", "where": "train.py:4", "moved": [["params['w']", "P()", "P('m',)", 12]]}

    finding = ask_about_program(ID, host={"puts": []}, lines=[line]).one

    assert finding.title == "step gets arguments that do not lie as it wants them"
    assert finding.seen == ("it is called at train.py:4", "params['w']: from P() to P('m',), 12 times")
    assert finding.where[1] == 4


def test_the_line_that_places_such_an_argument_is_named(ask_about_program: Any, tmp_path: Path) -> None:
    train = tmp_path / "train.py"
    train.write_text("def step(w, x): ...\nx = jnp.asarray(data)\nfor _ in range(9):\n    w = step(w, x)\n")
    line = {"function": "step", "where": f"{train}:4", "moved": [["x", "cpu:0", "P('m',)", 12]]}

    assert ask_about_program(ID, host={"puts": []}, lines=[line]).one.where == (str(train), 2)


def test_what_is_placed_once_is_fine(ask_about_program: Any) -> None:
    assert ask_about_program(ID, host={"puts": [put(moves=1)]}, lines=[]).outcome == "fine"


def test_where_it_was_not_noted_nothing_is_called_fine(ask_about_program: Any) -> None:
    assert ask_about_program(ID).outcome == "not checked"


def test_a_sharding_for_an_argument_is_for_all_of_its_leaves() -> None:
    """As `in_shardings=(rows, everywhere)` of a state of two arrays and a batch."""
    settings = {"in_shardings_leaves": ("rows", "everywhere")}
    call = JaxCall(print, (({"w": 1.0, "m": 2.0}), 3.0), {}, settings, "train.py:4", is_nested=False, is_ignored=False)

    assert _wanted_shardings(call) == ["rows", "rows", "everywhere"]


def inner_move(**changed: Any) -> dict[str, Any]:
    return {
        "function": "step", "name": "batch['x']", "where": "train.py:52", "count": 30, "what": "f32[4096,256]",
        "size_bytes": 4 << 20, "from": "P(None, 'd') over {'d': 4}", "to": "P('d',) over {'d': 4}",
        "defined": "train.py:50", "is_carried": False, **changed,
    }  # fmt: skip


def test_a_layout_that_a_function_gives_its_argument_is_found_with_the_line_that_places_it(
    ask_about_program: Any,
) -> None:
    placed = put(moves=0, where="train.py:67", what="f32[4096,256]", lies="P(None, 'd') over {'d': 4}")
    other = put(moves=0, where="train.py:70", what="f32[4096,256]", lies="P() over {'d': 4}")

    finding = ask_about_program(ID, host={"puts": [placed, other]}, lines=[], inner_layouts=[inner_move()]).one

    assert (finding.severity, finding.where[1]) == ("warning", 52)
    assert finding.title == "step moves batch['x'] to another layout in each call"
    assert finding.seen[0] == "f32[4096,256], 4.00 MiB, from P(None, 'd') over {'d': 4} to P('d',) over {'d': 4}"
    assert finding.seen[2:] == ("device_put places f32[4096,256] so at train.py:67",)


@pytest.mark.parametrize(("is_carried", "line"), [(True, 2), (False, 4)])
def test_what_comes_back_in_the_layout_that_it_is_moved_from_is_told_where_it_is_declared(
    ask_about_program: Any, tmp_path: Path, is_carried: bool, line: int
) -> None:
    train = tmp_path / "train.py"
    train.write_text("import jax\n@jax.jit(out_shardings=kept)\ndef step(words, x):\n    return moved(words, x)\n")
    move = inner_move(where=f"{train}:4", defined=f"{train}:2", is_carried=is_carried)

    finding = ask_about_program(ID, host={"puts": []}, lines=[], inner_layouts=[move]).one

    assert finding.where == (str(train), line)
    assert (f"it is wanted otherwise at {train}:4" in finding.seen[-1]) == is_carried


def test_a_small_argument_and_one_that_came_so_once_are_fine(ask_about_program: Any) -> None:
    moves = [inner_move(size_bytes=4096), inner_move(count=1)]

    assert ask_about_program(ID, host={"puts": []}, lines=[], inner_layouts=moves).outcome == "fine"
