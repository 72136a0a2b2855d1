"""Functions that are compiled again and again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import benchax
from benchax.auditing.audit import ask
from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.live_evidence import LiveEvidence
from benchax.auditing.rules.recompile_hot_spot import recompile_hot_spot
from benchax.case import make_case
from benchax.results.audit import Checked, Finding
from benchax.results.watch import Compile, Reason, Watch


def asked(program: Callable[[], Any]) -> tuple[list[Finding], Checked]:
    """Of a program that does just this."""
    with benchax.watch() as seen:
        program()
    return ask(recompile_hot_spot, ProgramEvidence("python train.py", seen))


def fresh() -> Callable[..., Any]:
    def step(x: Any, n: int = 0) -> Any:
        return x + n

    return jax.jit(step, static_argnames="n")


def test_growing_shapes_are_told_with_each_reason_and_the_line_of_the_function() -> None:
    step = fresh()

    (finding,), _ = asked(lambda: [step(np.ones(n, np.float32)) for n in (3, 4, 5, 6)])

    assert finding.title == "step was compiled again 3 times"
    assert finding.seen[0].startswith("3 recompiles took ")
    assert [text.split(": ", 1)[1].split(" (")[0] for text in finding.seen[1:]] == [
        "x: shape f32[3] → f32[4]",
        "x: shape f32[4] → f32[5]",
        "x: shape f32[5] → f32[6]",
    ]
    assert finding.where is not None
    assert Path(finding.where[0]) == Path(__file__)
    assert finding.advice.startswith("Pad what varies")
    assert finding.gain is not None
    assert finding.gain.startswith("estimated: ")


def test_one_line_that_calls_it_with_many_shapes_is_named_and_of_several_the_function() -> None:
    one, other = fresh(), fresh()

    def from_one_line() -> None:
        for n in (3, 4, 5, 6):
            one(np.ones(n, np.float32))

    def from_several() -> None:
        other(np.ones(3, np.float32))
        other(np.ones(5, np.float32))
        other(np.ones(4, np.float32))
        other(np.ones(6, np.float32))

    (by_caller,), _ = asked(from_one_line)
    (by_function,), _ = asked(from_several)

    assert by_caller.where == (__file__, from_one_line.__code__.co_firstlineno + 2)
    assert by_function.where == (__file__, fresh.__code__.co_firstlineno + 1)


def test_one_shape_is_fine() -> None:
    step = fresh()

    findings, answer = asked(lambda: [step(np.ones(3, np.float32)) for _ in range(5)])

    assert (findings, answer.outcome) == ([], "fine")


def test_a_second_shape_is_fine() -> None:
    step = fresh()

    assert asked(lambda: [step(np.ones(n, np.float32)) for n in (3, 4)])[0] == []


def test_static_values_are_left_to_static_churn() -> None:
    step = fresh()

    assert asked(lambda: [step(np.ones(3, np.float32), n=n) for n in range(5)])[0] == []


def test_one_recompile_counts_where_it_takes_a_large_share() -> None:
    slow = Compile(
        "step", None, None, False, False, 0.5, 0.5, 1.0, "", (Reason("dtype", "x: dtype f32 → i32"),), "Main"
    )

    def shares(wall_s: float) -> list[Finding]:
        return ask(recompile_hot_spot, ProgramEvidence("", Watch("all", [slow], wall_s=wall_s)))[0]

    assert [f.seen[0] for f in shares(10.0)] == ["1 recompile took 2.00 s of 10.0 s (20 %), by JAX's own clock"]
    assert [f.severity for f in shares(10.0)] == ["info"]
    assert shares(100.0) == []


def test_a_function_that_compiles_in_each_call_with_the_same_shapes() -> None:
    sizes = iter(range(3, 99))

    @jax.jit
    def inner(x: Any) -> Any:
        return x * 2

    def grows(x: Any) -> Any:
        return inner(np.ones(next(sizes), np.float32)).sum() + x

    (finding,), _ = ask(recompile_hot_spot, LiveEvidence(make_case(grows, (np.float32(1),))))

    assert finding.title == "inner was compiled again 2 times"


STATE = """for epoch in range(9):
    state = state.replace(tx=make_tx(0.1 / epoch))
    for batch in batches:
        state = train_step(state, batch)
"""


def test_a_field_of_a_state_that_is_another_one_each_time_is_told_where_it_is_made(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STATE, encoding="utf-8")
    reasons = tuple(Reason("structure", f"state.tx.{part}: <function a> → <function b>") for part in ("init", "update"))
    called = f"{tmp_path / 'train.py'}:4"
    one = Compile("train_step", None, called, False, False, 0.5, 0.5, 1.0, "", reasons, "Main")

    (finding,), _ = ask(recompile_hot_spot, ProgramEvidence("", Watch("all", [one] * 4, wall_s=100.0)))

    assert finding.title == "train_step was compiled again 4 times: state.tx is another one each time"
    assert finding.where == (str(tmp_path / "train.py"), 2)
    assert "optax.inject_hyperparams" in finding.advice


def test_a_tree_of_another_shape_is_no_field() -> None:
    reasons = (Reason("structure", "params: tree structure: ['b'] is new"),)
    one = Compile("step", None, "train.py:4", False, False, 0.5, 0.5, 1.0, "", reasons, "Main")

    (finding,), _ = ask(recompile_hot_spot, ProgramEvidence("", Watch("all", [one] * 4, wall_s=100.0)))

    assert finding.title == "step was compiled again 4 times"
    assert finding.advice.startswith("Pass the same tree")


def test_of_several_arrays_that_one_function_makes_the_first_is_named(tmp_path: Path) -> None:
    train = tmp_path / "train.py"
    train.write_text(
        "def fit(hp, x, mask): ...\ndef padded(xs):\n    x = np.zeros((len(xs), 3))\n    mask = np.zeros(len(xs))\n"
        "    return x, mask\nfor xs in data:\n    fit(0, *padded(xs))\n"
    )
    compiles = [
        Compile("fit", f"{train}:1", f"{train}:7", False, False, 0.1, 0.1, 0.1, "", reasons, "main")
        for n in (9, 7, 8)
        for reasons in [
            (
                *((Reason("weak type", "hp: weak type: f32 now, weakly typed before"),) if n == 9 else ()),
                Reason("shape", f"x: shape f32[{n},3] → f32[{n + 2},3]"),
                Reason("shape", f"mask: shape f32[{n}] → f32[{n + 2}]"),
            )
        ]
    ]

    (finding,), _ = ask(recompile_hot_spot, ProgramEvidence("", Watch("all", compiles=compiles)))

    assert finding.where == (str(train), 3)


def test_the_line_that_gives_an_argument_another_size_is_named(tmp_path: Path) -> None:
    train = tmp_path / "train.py"
    train.write_text(
        "def step(x): ...\ndef load():\n    for rows in data:\n        width = max(map(len, rows))\n"
        "        yield np.zeros((8, width))\nfor x in load():\n    step(x)\n"
    )
    sizes = [(9, 7), (7, 8), (8, 5)]
    compiles = [
        Compile("step", f"{train}:1", f"{train}:7", False, False, 0.1, 0.1, 0.1, "", (reason,), "main")
        for old, new in sizes
        for reason in [Reason("shape", f"x: shape f32[8,{old}] → f32[8,{new}]")]
    ]

    (finding,), _ = ask(recompile_hot_spot, ProgramEvidence("", Watch("all", compiles=compiles)))

    assert finding.where == (str(train), 4)


def test_what_takes_next_to_nothing_of_a_run_is_an_info() -> None:
    step = fresh()
    with benchax.watch() as seen:
        for n in (3, 4, 5, 6):
            step(np.ones(n, np.float32))

    def severity(wall_s: float) -> str:
        seen.wall_s = wall_s
        ((finding,), _) = ask(recompile_hot_spot, ProgramEvidence("python train.py", seen))
        return finding.severity

    lost_s = sum(c.total_s for c in seen.recompiles)
    assert (severity(10 * lost_s), severity(1000 * lost_s)) == ("warning", "info")
