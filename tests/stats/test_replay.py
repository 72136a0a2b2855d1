"""The verdicts on recorded times of unchanged and of slowed programs: how often each word is wrong.

Two recordings of six kernels (8 µs to 30 ms) on a shared machine of 2 cores at load 2 to 6 (tests/data/streams.npz):
`rec` has 21 processes in which four variants ran side by side, `in` has 11 in which one of them was a stored program.
A trial draws processes, looks as a session does, and stops at the first clear word; "slower" and "faster" then have to
be confirmed by processes that it has not met.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from benchax.pairing.session import CONFIRMING, Effort
from benchax.stats.ratios import ratio_of
from benchax.stats.verdicts import verdict

KERNELS = ("k2", "k20", "k200", "k2m", "kal", "k20m")
REC = {"A/A": 1, "+5 %": 2, "+10 %": 3}
IN = {"A/A": 1, "+5 %": 2, "+10 %": 3}
TRIALS = 200
Judge = Callable[[list[list[list[float]]], np.random.Generator], str]


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


def confirmed(processes: list[list[list[float]]], dice: np.random.Generator) -> str:
    """What a session says that meets these processes."""
    order = list(dice.permutation(len(processes)))
    first = word(processes, order, Effort(), dice)
    if first in ("same", "unclear"):
        return first
    return first if word(processes, order, CONFIRMING, dice) == first else "unclear"


def unconfirmed(processes: list[list[list[float]]], dice: np.random.Generator) -> str:
    return word(processes, list(dice.permutation(len(processes))), Effort(), dice)


def word(processes: list[list[list[float]]], order: list[int], effort: Effort, dice: np.random.Generator) -> str:
    """By the next processes in `order`, which loses them."""
    blocks: list[list[float]] = []
    for taken in range(1, effort.looks[-1] + 1):
        if not order:
            break
        process = processes[order.pop()]
        begin = dice.integers(0, len(process) - effort.blocks + 1)
        blocks += process[begin : begin + effort.blocks]
        if taken in effort.looks and (said := verdict(ratio_of(blocks, effort.alpha))) != "unclear":
            return said
    return "unclear"


def shares(judge: Judge, recording: Iterator[list[list[list[float]]]]) -> dict[str, float]:
    dice = np.random.default_rng(11)
    words = Counter(judge(p, dice) for p in recording for _ in range(TRIALS))
    return {word: words[word] / words.total() for word in ("slower", "faster", "same", "unclear")}


RECORDINGS = pytest.mark.parametrize(("blocks", "variants"), [(rec_blocks, REC), (in_blocks, IN)], ids=["rec", "in"])


@RECORDINGS
def test_unchanged_programs_are_called_slower_in_less_than_one_percent(streams, blocks, variants) -> None:
    first = shares(unconfirmed, (blocks(streams, k, variants["A/A"]) for k in KERNELS))
    both = shares(confirmed, (blocks(streams, k, variants["A/A"]) for k in KERNELS))

    assert max(first["slower"], first["faster"]) <= 0.01
    assert max(both["slower"], both["faster"]) <= 0.001


@RECORDINGS
def test_ten_percent_more_work_is_called_slower(streams, blocks, variants) -> None:
    first = shares(unconfirmed, (blocks(streams, k, variants["+10 %"]) for k in KERNELS))
    both = shares(confirmed, (blocks(streams, k, variants["+10 %"]) for k in KERNELS))

    assert first["slower"] >= 0.99
    assert both["slower"] >= 0.99
    assert not first["faster"]


@RECORDINGS
def test_five_percent_more_work_is_called_slower_or_unclear(streams, blocks, variants) -> None:
    """Some of the effects that were planted as 5 % are smaller, and "same" means less than 5 %."""
    first = shares(unconfirmed, (blocks(streams, k, variants["+5 %"]) for k in KERNELS))
    both = shares(confirmed, (blocks(streams, k, variants["+5 %"]) for k in KERNELS))

    assert first["slower"] >= 0.9
    assert both["slower"] >= 0.75
    assert both["same"] <= 0.03
    assert not first["faster"]
