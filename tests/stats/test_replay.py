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
from benchax.comparing.sequential import Effort, confirming, effort_for
from benchax.environment import capture
from benchax.model import Block, CaseId, Comparison, Environment, Version

KERNELS = ("k2", "k20", "k200", "k2m", "kal", "k20m")
VARIANTS = {"A/A": 1, "+5 %": 2, "+10 %": 3}
Groups = Iterator[list[Block]]
Draw = Callable[[Effort], Groups]
"""Gives the blocks of one process after the other, for a stage."""


def load(name: str) -> dict[str, np.ndarray]:
    with np.load(Path(__file__).parents[1] / "data" / name) as file:
        return {key: file[key].astype(float) for key in file.files if file[key].dtype.kind in "fiu"}


def by_session(draw: Draw, effort: Effort, environment: Environment | None = None) -> tuple[Comparison, Comparison]:
    """What a session says at first, and after a second measurement of a change."""
    first = by_looks(draw(effort), effort, environment)
    if first.verdict in ("same", "unclear"):
        return first, first
    again = by_looks(draw(confirming(effort)), confirming(effort), environment)
    return first, first if again.verdict == first.verdict else replace(first, verdict="unclear", is_by_cpu_time=False)


def by_looks(groups: Groups, effort: Effort, environment: Environment | None) -> Comparison:
    matter = Comparison(
        CaseId("f"), "run", Version("a"), Version("b"), "unclear", environment=environment, resolution=effort.resolution
    )
    blocks, found = list[Block](), matter
    for taken, more in enumerate(groups, 1):
        blocks += more
        if taken in effort.looks:
            found = judge_times(matter, "run", blocks, effort.alpha)
            if found.verdict != "unclear":
                break
    return found


# ---- streams of unchanged and of slowed programs ----------------------------------------------------------------


@pytest.fixture(scope="module")
def streams() -> dict[str, np.ndarray]:
    return load("streams.npz")


def rec_blocks(streams: dict[str, np.ndarray], kernel: str, variant: int) -> list[list[np.ndarray]]:
    """[process][block of 25 rounds][how many times as long the variant takes]"""
    times = streams[f"rec_{kernel}_wall"]
    ratios, size = times[:, variant] / times[:, 0], 25 if kernel != "k20m" else 8
    return [[row[b : b + size] for b in range(0, len(row) - size + 1, size)] for row in ratios]


def in_blocks(streams: dict[str, np.ndarray], kernel: str, variant: int) -> list[list[np.ndarray]]:
    times = streams[f"in_{kernel}"]
    return [list(process) for process in times[:, :, variant] / times[:, :, 0]]


def draw_once(processes: list[list[np.ndarray]], dice: np.random.Generator) -> Draw:
    """Each process is met once, in random order: also the second stage meets others."""
    order = list(dice.permutation(len(processes)))

    def draw(effort: Effort) -> Groups:
        for n in range(min(len(order), effort.looks[-1])):
            process = processes[order.pop()]
            begin = dice.integers(0, len(process) - effort.blocks + 1)
            chosen = process[begin : begin + effort.blocks]
            yield [Block(n, (1.0,) * len(ratios), tuple(ratios.tolist())) for ratios in chosen]

    return draw


@pytest.mark.parametrize("blocks", [rec_blocks, in_blocks], ids=["rec", "in"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_unchanged_programs_are_hardly_ever_called_slower_and_slowed_ones_are(streams, blocks, variant: str) -> None:
    """Some of the effects that were planted as 5 % are smaller, and "same" means less than 5 %."""
    dice = np.random.default_rng(11)
    recorded = [blocks(streams, kernel, VARIANTS[variant]) for kernel in KERNELS]
    sessions = [by_session(draw_once(each, dice), Effort()) for each in recorded for _ in range(200)]
    first, both = (Counter(c.verdict for c in found) for found in zip(*sessions, strict=True))
    n = len(sessions)

    if variant == "A/A":
        assert max(first["slower"], first["faster"]) <= 0.01 * n
        assert max(both["slower"], both["faster"]) <= 0.001 * n
    elif variant == "+5 %":
        assert first["slower"] >= 0.9 * n
        assert both["slower"] >= 0.75 * n
        assert both["same"] <= 0.03 * n
        assert not first["faster"]
    else:
        assert min(first["slower"], both["slower"]) >= 0.99 * n
        assert not first["faster"]


# ---- pairs of wall and processor times ---------------------------------------------------------------------------

ENVIRONMENT = replace(capture(with_jax=False), backend="cpu", cores=2)
"""Of the recording."""


@pytest.fixture(scope="module")
def pairs() -> dict[str, np.ndarray]:
    """By kernel, in seconds per sample: [process, wall or processor, block, round, side], NaN where there is none."""
    return {name: times / 1e5 for name, times in load("pairs.npz").items()}


def draw_any(recording: np.ndarray, factor: float, dice: np.random.Generator) -> Draw:
    """Processes in any order and any number of times; the candidate takes `factor` times as long."""

    def draw(effort: Effort) -> Groups:
        for p, drawn in enumerate(dice.integers(0, len(recording), effort.looks[-1])):
            known = recording[drawn][:, :, ~np.isnan(recording[drawn][0, 0, :, 0])]
            # The first processes of a session take fewer rounds.
            fewer = known[:, : effort.blocks, : 25 if p < effort.looks[0] else None]
            one, other = dice.permutation(2)
            sides = [
                (w[:, one], factor * w[:, other], c[:, one], factor * c[:, other]) for w, c in zip(*fewer, strict=True)
            ]
            yield [Block(p, *(tuple(each.tolist()) for each in side)) for side in sides]

    return draw


def verdict_shares(
    pairs: dict[str, np.ndarray], resolution: float, factor: float, *, hears: bool = True
) -> Counter[str]:
    """In shares of one; "by CPU time" are those that it decided. `hears`: the processor time, too."""
    dice, effort, environment = np.random.default_rng(7), effort_for(resolution), ENVIRONMENT if hears else None
    draws = [draw_any(pairs[kernel], factor, dice) for kernel in KERNELS for _ in range(30)]
    found = [by_session(draw, effort, environment)[1] for draw in draws]
    words = Counter(c.verdict for c in found) + Counter("by CPU time" for c in found if c.is_by_cpu_time)
    return Counter({word: count / len(found) for word, count in words.items()})


def test_at_a_resolution_of_one_percent_unchanged_code_is_not_called_changed_and_two_percent_more_is_found(
    pairs,
) -> None:
    unchanged, more = verdict_shares(pairs, 0.01, 1.0), verdict_shares(pairs, 0.01, 1.02)

    assert unchanged["slower"] + unchanged["faster"] <= 0.01
    assert unchanged["same"] >= 0.5
    assert more["slower"] >= 0.95
    assert not more["faster"]
    assert more["same"] <= 0.01


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
