"""The verdicts on recorded times of unchanged and of slowed programs: how often each word is wrong.

Two recordings of six kernels (8 µs to 30 ms) on a shared machine of 2 cores at load 2 to 6 (tests/data/streams.npz):
`rec` has 21 processes in which four variants ran side by side, `in` has 11 in which one of them was a stored program.
A trial draws processes, looks as a session does, and stops at the first clear word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchax.pairing.session import LOOKS
from benchax.stats.ratios import ratio_of
from benchax.stats.verdicts import ALPHA, verdict

KERNELS = ("k2", "k20", "k200", "k2m", "kal", "k20m")
REC = {"A/A": 1, "+5 %": 2, "+10 %": 3}
IN = {"A/A": 1, "+5 %": 2, "+10 %": 3}
TRIALS = 200


@pytest.fixture(scope="module")
def streams() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).parents[1] / "data" / "streams.npz") as file:
        return {name: file[name] for name in file.files}


def rec_blocks(streams: dict[str, np.ndarray], kernel: str, variant: int) -> list[list[list[float]]]:
    """[process][block of 25 rounds][logarithm of variant over baseline]"""
    times = streams[f"rec_{kernel}_wall"].astype(float)
    logs = np.log(times[:, variant] / times[:, 0])
    size = 25 if kernel != "k20m" else 8
    return [[row[b : b + size].tolist() for b in range(0, len(row) - size + 1, size)] for row in logs]


def in_blocks(streams: dict[str, np.ndarray], kernel: str, variant: int) -> list[list[list[float]]]:
    times = streams[f"in_{kernel}"].astype(float)
    return np.log(times[:, :, variant] / times[:, :, 0]).tolist()


def trial(processes: list[list[list[float]]], dice: np.random.Generator, per_process: int) -> str:
    """What a session says that meets these processes."""
    order = dice.permutation(len(processes))[: LOOKS[-1]]
    blocks: list[list[float]] = []
    word = "unclear"
    for taken, p in enumerate(order, 1):
        first = dice.integers(0, max(1, len(processes[p]) - per_process + 1))
        blocks += processes[p][first : first + per_process]
        if taken in LOOKS and (word := verdict(ratio_of(blocks, ALPHA))) != "unclear":
            break
    return word


def words(recording: Iterator[list[list[list[float]]]], per_process: int) -> Counter[str]:
    dice = np.random.default_rng(11)
    return Counter(trial(p, dice, per_process) for p in recording for _ in range(TRIALS))


@pytest.mark.parametrize(("recording", "variants"), [("rec", REC), ("in", IN)])
def test_unchanged_programs_are_called_slower_in_less_than_one_percent(streams, recording: str, variants) -> None:
    blocks = rec_blocks if recording == "rec" else in_blocks

    found = words((blocks(streams, k, variants["A/A"]) for k in KERNELS), 3)

    assert found["slower"] / found.total() <= 0.01
    assert found["faster"] / found.total() <= 0.01


@pytest.mark.parametrize(("recording", "variants"), [("rec", REC), ("in", IN)])
def test_ten_percent_more_work_is_called_slower(streams, recording: str, variants) -> None:
    blocks = rec_blocks if recording == "rec" else in_blocks

    found = words((blocks(streams, k, variants["+10 %"]) for k in KERNELS), 3)

    assert found["slower"] / found.total() >= 0.99
    assert not found["faster"]


@pytest.mark.parametrize(("recording", "variants"), [("rec", REC), ("in", IN)])
def test_five_percent_more_work_is_called_slower_or_unclear(streams, recording: str, variants) -> None:
    blocks = rec_blocks if recording == "rec" else in_blocks

    found = words((blocks(streams, k, variants["+5 %"]) for k in KERNELS), 3)

    assert found["slower"] / found.total() >= 0.8
    assert not found["faster"]
