"""The same data put on the device again and again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.auditing.host_calls import HostCalls
from benchax.results.watch import Watch

ID = "repeated-device-put"
KNOWN = {"by": "asarray", "what": "f32[64]", "repeats": 8, "count": 9, "copies_on_host": 0, "elapsed_s": 0.1}


def asked(ask_about_program: Any, noted: HostCalls) -> Any:
    noted.close()
    return ask_about_program(ID, host=noted.asdict())


@pytest.mark.parametrize("put", [lambda x: jax.device_put(x), lambda x: jnp.asarray(x), lambda x: jnp.array(x)])
def test_an_array_that_is_put_there_in_each_step_is_found(ask_about_program: Any, noted: HostCalls, put: Any) -> None:
    table = np.ones((64, 512), np.float32)
    for _ in range(8):
        put(table)

    finding = asked(ask_about_program, noted).one

    assert finding.title.endswith("puts the same f32[64,512] on the device 8 times")
    assert finding.seen[0].startswith("7 of 8 times")
    assert Path(finding.where[0]).name == Path(__file__).name
    assert (finding.severity, finding.gain.startswith("estimated: ")) == ("warning", True)


def test_one_of_several_arguments_is_found(ask_about_program: Any, noted: HostCalls) -> None:
    mask = np.ones((64, 512), np.float32)
    for i in range(8):
        jax.device_put((np.full((64, 512), i, np.float32), mask))

    assert len(asked(ask_about_program, noted).findings) == 1


@pytest.mark.parametrize("rows", [16, 4096], ids=["of few elements", "of many"])
def test_the_same_contents_in_an_array_that_is_made_anew_are_found(
    ask_about_program: Any, noted: HostCalls, rows: int
) -> None:
    table = np.arange(rows * 32, dtype=np.float64).reshape(rows, 32)
    for _ in range(9):
        jax.device_put({"x": table.astype(np.float32)})

    finding = asked(ask_about_program, noted).one

    assert finding.title.startswith(f"device_put puts the same f32[{rows},32] on the device ")
    assert "in an array that was made anew" in finding.seen[0]


def test_several_arrays_of_one_line_are_one_finding(ask_about_program: Any, noted: HostCalls) -> None:
    x, y = np.ones((64, 512), np.float32), np.zeros((64, 512), np.float32)
    for _ in range(8):
        _ = jnp.array(x), jnp.array(y)

    finding = asked(ask_about_program, noted).one

    assert finding.title == "array puts the same f32[64,512] and 1 more on the device 8 times"


@pytest.mark.parametrize(
    ("size_bytes", "elapsed_s", "severity", "told"),
    [
        (1000, 0.03, "info", "30.0 ms of 10.0 s (0.30 %)"),
        (1000, 0.3, "warning", "300 ms of 10.0 s (3.0 %)"),
        (1 << 20, 0.03, "warning", "30.0 ms of 10.0 s (0.30 %)"),
    ],
    ids=["little of both", "much time", "many bytes"],
)
def test_small_arrays_that_take_less_than_a_hundredth_of_the_run_are_an_info(
    ask_about_program: Any, size_bytes: int, elapsed_s: float, severity: str, told: str
) -> None:
    put = {**KNOWN, "where": "train.py:2", "size_bytes": size_bytes, "elapsed_s": elapsed_s}

    finding = ask_about_program(ID, host={"puts": [put]}, seen=Watch("all", wall_s=10.0)).one

    assert finding.severity == severity
    assert finding.seen[-1] == f"the host spent {told} in these, in the whole run"


def test_new_arrays_that_differ_in_what_no_sample_sees_are_fine(ask_about_program: Any, noted: HostCalls) -> None:
    for i in range(1, 12):
        mask = np.zeros((512, 512), np.float32)
        mask[0, i] = 1.0
        jnp.asarray(mask)

    assert asked(ask_about_program, noted).outcome == "fine"


def test_new_batches_and_arrays_that_are_overwritten_are_fine(ask_about_program: Any, noted: HostCalls) -> None:
    batches = [np.full((64, 64), i, np.float32) for i in range(4)]
    buffer = np.zeros((64, 64), np.float32)
    for epoch in range(4):
        for batch in batches:
            jax.device_put(batch)
            buffer += epoch + 1
            jnp.asarray(buffer)

    assert asked(ask_about_program, noted).outcome == "fine"


def test_what_is_traced_is_not_put(ask_about_program: Any, noted: HostCalls) -> None:
    table = np.ones((64, 64), np.float32)
    for _ in range(8):
        jax.jit(lambda x: x + jnp.asarray(table))(jnp.ones(64))

    assert asked(ask_about_program, noted).outcome == "fine"


def test_what_was_not_noted_is_not_called_fine(ask_about_program: Any) -> None:
    assert ask_about_program(ID).outcome == "not checked"


SENDS = "def send(d):\n    x = jnp.asarray(d.x)\n    return x, jnp.asarray(d.y)\n"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (f"{SENDS}for _ in range(9):\n    step(send(d))\n", [5]),
        (f"{SENDS}for _ in range(9):\n    step(send(d))\nfor _ in range(9):\n    step(send(d))\n", [2, 3]),
        (f"{SENDS.replace('d.y', 'd.z')}send(d)\n", [2, 3]),
    ],
    ids=["in one loop", "in two loops", "outside of loops"],
)
def test_a_function_that_puts_several_arrays_there_is_told_where_it_is_called(
    ask_about_program: Any, tmp_path: Path, text: str, lines: list[int]
) -> None:
    train = tmp_path / "train.py"
    train.write_text(text)
    puts = [{**KNOWN, "where": f"{train}:{n}", "size_bytes": 1 << 20} for n in (2, 3)]

    found = ask_about_program(ID, host={"puts": puts}).findings

    assert [finding.where for finding in found] == [(str(train), line) for line in lines]
