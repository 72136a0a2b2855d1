"""When the processor time decides what the wall time leaves open: by hand-made blocks, without JAX."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from comparisons_by_hand import HOST

from benchax.comparing.judging import confirm, judge_times
from benchax.model import Block, CaseId, Comparison, Environment, Version

CPU = replace(HOST, backend="cpu", cores=2)
CALL_S = 5e-3


def blocks(
    wall: float,
    cpu: float,
    *,
    seed: int = 0,
    noise: float = 0.4,
    call_s: float = CALL_S,
    busy: tuple[float, float] = (1.0, 1.0),
) -> list[Block]:
    """Two processes of three blocks; the candidate takes `wall` times as long and `cpu` times the processor time.

    The wall time of each sample is about `noise` longer by chance, its processor time by 1 %. `busy` cores at work.
    """
    dice = np.random.default_rng(seed)
    found: list[Block] = []
    for b in range(6):
        waits = np.exp(np.abs(noise * dice.standard_normal((2, 25))))
        cpus = np.exp(0.01 * dice.standard_normal((2, 25)))
        base_cpu = call_s * busy[0] * cpus[0]
        new_cpu = call_s * busy[0] * cpu * cpus[1]
        base, new = call_s * waits[0], call_s * wall * waits[1] * busy[0] / busy[1]
        found.append(Block(b // 3, *(tuple(map(float, each)) for each in (base, new, base_cpu, new_cpu))))
    return found


def judge(found: list[Block], environment: Environment | None = CPU, resolution: float = 0.05) -> Comparison:
    context = Comparison(
        CaseId("f"), "run", Version("old"), Version("new"), "unclear", environment=environment, resolution=resolution
    )
    return judge_times(context, "run", found)


@pytest.mark.parametrize(("ratio", "verdict", "seed"), [(1.0, "same", 4), (1.1, "slower", 4), (0.9, "faster", 2)])
def test_what_the_wall_time_leaves_open_is_decided_by_the_processor_time(ratio: float, verdict: str, seed: int) -> None:
    data = blocks(ratio, ratio, seed=seed)

    alone, heard = judge([Block(b.process, b.baseline_s, b.candidate_s) for b in data]), judge(data)

    assert (alone.verdict, alone.cpu_ratio) == ("unclear", None)
    assert (heard.verdict, heard.is_by_cpu_time) == (verdict, True)
    assert heard.cpu_ratio == pytest.approx(ratio, rel=0.01)
    assert "by CPU time, " in heard.why
    assert (heard.ratio, heard.low, heard.high) == (alone.ratio, alone.low, alone.high)
    # A change that is not confirmed is decided by nothing.
    assert not confirm(heard, alone).is_by_cpu_time


def test_a_wall_time_that_is_clear_is_not_put_to_the_witness() -> None:
    found = judge(blocks(1.2, 1.0, noise=0.01))

    assert (found.verdict, found.is_by_cpu_time, found.cpu_ratio) == ("slower", False, None)


@pytest.mark.parametrize(
    ("data", "ratio"),
    [
        # A fifth of the cores less for the same processor time; what the wall loses by it is hidden by noise.
        (blocks(1.0, 1.0, seed=30, noise=1.5, busy=(1.25, 1.0)), 1.0),
        # Waiting for something that is no processor is in the wall time alone.
        (blocks(1.08, 1.0, seed=4), 1.1),
    ],
    ids=["lost parallelism", "waiting"],
)
def test_where_the_walls_estimate_says_something_else_nothing_is_decided(data: list[Block], ratio: float) -> None:
    found = judge(data)

    assert found.ratio == pytest.approx(ratio, rel=0.05)
    assert (found.verdict, found.is_by_cpu_time) == ("unclear", False)
    assert found.why.endswith("does not decide")


@pytest.mark.parametrize(
    ("environment", "call_s", "busy"),
    [
        (replace(CPU, backend="gpu"), CALL_S, (1.0, 1.0)),
        (None, CALL_S, (1.0, 1.0)),
        (CPU, 2e-4, (1.0, 1.0)),  # short, on one of two cores
    ],
)
def test_the_witness_is_asked_on_the_cpu_of_long_calls_or_of_busy_cores(environment, call_s, busy) -> None:
    found = judge(blocks(1.0, 1.0, seed=4, call_s=call_s, busy=busy), environment)
    short = judge(blocks(1.0, 1.0, seed=4, call_s=2e-4, busy=(2.0, 2.0)))

    assert (found.verdict, found.cpu_ratio) == ("unclear", None)
    assert (short.verdict, short.is_by_cpu_time) == ("same", True)


@pytest.mark.parametrize("lean", [0.0, 0.01])
def test_unchanged_code_is_hardly_ever_called_changed_by_it(lean: float) -> None:
    """Before anything is confirmed; also where a process's own processor times lean by 1 % to either side."""
    dice = np.random.default_rng(5)
    words: Counter[str] = Counter()
    for seed in range(200):
        data: list[Block] = []
        for p in range(2):
            factor = float(np.exp(lean * dice.standard_normal()))
            data += [replace(b, process=p) for b in blocks(1.0, factor, seed=2 * seed + p)[:3]]
        words[judge(data).verdict] += 1

    assert words["slower"] + words["faster"] <= 2
    assert words["same"] >= 80
