"""The verdicts on recorded times of unchanged and of slowed programs: how often each word is wrong.

Two recordings of six kernels (8 µs to 30 ms) on a shared machine of 2 cores at load 2 to 6 (tests/data/streams.npz):
`rec` has 21 processes in which four variants ran side by side, `in` has 11 in which one of them was a stored program.
A trial draws processes, looks as a session does, and stops at the first clear word; "slower" and "faster" then have to
be confirmed by processes that it has not met.

A third (tests/data/pairs.npz) has wall and processor times of unchanged code alone, in 24 processes as sessions begin
them now, at load 2 to 8. Which side is the candidate is drawn for each process, so that none is slower by truth; more
work is planted by multiplying, of both times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchax.comparing.judging import judge_times
from benchax.comparing.sequential import CONFIRMING, Effort, confirming, effort_for
from benchax.environment import capture
from benchax.model import Block, CaseId, Comparison, Version
from benchax.stats.verdicts import ratio_of, verdict

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


# ---- pairs of wall and processor times ---------------------------------------------------------------------------

ENVIRONMENT = replace(capture(with_jax=False), backend="cpu", cores=2)
"""Of the recording."""


@pytest.fixture(scope="module")
def pairs() -> dict[str, np.ndarray]:
    """By kernel, in seconds per sample: [process, wall or processor, block, round, side], NaN where there is none."""
    with np.load(Path(__file__).parents[1] / "data" / "pairs.npz") as file:
        return {name: file[name].astype(float) / 1e5 for name in KERNELS}


def processes(recording: np.ndarray, effort: Effort, factor: float, dice: np.random.Generator) -> Iterator[list[Block]]:
    """The blocks of one process after the other; the candidate takes `factor` times as long."""
    for p, drawn in enumerate(dice.integers(0, len(recording), effort.looks[-1])):
        known = recording[drawn][:, :, ~np.isnan(recording[drawn][0, 0, :, 0])]
        fewer = known[:, :, : 25 if p < effort.looks[0] else None]  # the first processes of a session take fewer rounds
        one, other = dice.permutation(2)
        yield [
            Block(
                p,
                *(
                    tuple(map(float, each))
                    for each in (w[:, one], factor * w[:, other], c[:, one], factor * c[:, other])
                ),
            )
            for w, c in zip(*fewer[:, : effort.blocks], strict=True)
        ]


def by_session(
    recording: np.ndarray, effort: Effort, factor: float, dice: np.random.Generator, *, hears: bool
) -> Comparison:
    """As a session judges it: looks, and a second measurement of a change. `hears`: the processor time, too."""
    first = by_looks(recording, effort, factor, dice, hears)
    if first.verdict in ("same", "unclear"):
        return first
    again = by_looks(recording, confirming(effort), factor, dice, hears)
    return first if again.verdict == first.verdict else replace(first, verdict="unclear", is_by_cpu_time=False)


def by_looks(
    recording: np.ndarray, effort: Effort, factor: float, dice: np.random.Generator, hears: bool
) -> Comparison:
    matter = Comparison(CaseId("f"), "run", Version("a"), Version("b"), "unclear",
        environment=ENVIRONMENT if hears else None, resolution=effort.resolution,
    )  # fmt: skip
    blocks: list[Block] = []
    for taken, more in enumerate(processes(recording, effort, factor, dice), 1):
        blocks += more
        if taken in effort.looks and (found := judge_times(matter, "run", blocks, effort.alpha)).verdict != "unclear":
            return found
    return found


def verdict_shares(
    pairs: dict[str, np.ndarray], resolution: float, factor: float, *, hears: bool = True, trials: int = 30
) -> Counter[str]:
    """In shares of one; "by CPU time" are those that it decided."""
    dice, effort = np.random.default_rng(7), effort_for(resolution)
    found = [by_session(pairs[kernel], effort, factor, dice, hears=hears) for kernel in KERNELS for _ in range(trials)]
    words = Counter(c.verdict for c in found) + Counter("by CPU time" for c in found if c.is_by_cpu_time)
    return Counter({word: count / len(found) for word, count in words.items()})


def test_at_a_resolution_of_one_percent_unchanged_code_is_hardly_ever_called_changed(pairs) -> None:
    found = verdict_shares(pairs, 0.01, 1.0)

    assert found["slower"] + found["faster"] <= 0.01
    assert found["same"] >= 0.5


def test_at_a_resolution_of_one_percent_two_percent_more_work_is_found(pairs) -> None:
    found = verdict_shares(pairs, 0.01, 1.02)

    assert found["slower"] >= 0.95
    assert not found["faster"]
    assert found["same"] <= 0.01


def test_at_the_usual_resolution_two_percent_more_work_is_not_told_from_none(pairs) -> None:
    """What `blind_spot` says."""
    assert verdict_shares(pairs, 0.05, 1.015)["same"] >= 0.7


@pytest.mark.parametrize("factor", [1.0, 1.05])
def test_the_processor_time_decides_what_a_busy_machine_leaves_open(pairs, factor: float) -> None:
    alone = verdict_shares(pairs, 0.05, factor, hears=False)
    heard = verdict_shares(pairs, 0.05, factor)
    right, wrong = ("same", ("slower", "faster")) if factor == 1 else ("slower", ("same", "faster"))

    assert alone["unclear"] >= 0.08
    assert heard["unclear"] <= alone["unclear"] / 2
    assert heard["by CPU time"] >= 0.1
    assert heard[right] >= 0.95
    assert sum(heard[word] for word in wrong) <= 0.015
