"""Where a step's time goes: five loops that measure themselves, and what benchax finds; and what sampling costs.

    python benchmarks/steps.py [--steps 40] [--runs 3] [--pairs 40] [--only transfer | --cost-only]

The loops are those of `step_loops.py`: the share of a step that each measured by hand, and the share that `benchax
profile` found from outside, each the median of some runs, and the differences of all. The cost is that of sampling the
stack alone: what processor time the sampler's own thread had, and a loop of Python and one of the device, recorded with
and without a sampler, in turns in one process; a third time without shows what the machine does by itself.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from report import header, note, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchax.results.profile import StepSplit

LOOPS = Path(__file__).with_name("step_loops.py")
KINDS = ("input", "python", "device", "transfer", "compile")
NEAR, MOST_COST = 0.05, 1.01


def split(kind: str, steps: int) -> tuple[float, StepSplit]:
    """(the share by hand, what was found)."""
    from benchax.hooks.command import run
    from benchax.profiling.program_recorder import HOOK
    from benchax.profiling.trace import profile_of

    with tempfile.TemporaryDirectory() as folder:
        truth = Path(folder, "truth.json")
        settings = {"folder": str(Path(folder, "profile")), "samples_stack": True, "least_steps": 10}
        ended = run([sys.executable, str(LOOPS), kind, str(steps), str(truth)], HOOK, settings)
        found = profile_of(Path(ended.reports[0].result["xplane"]).read_bytes()).split
        measured = json.loads(truth.read_text())
    assert found is not None
    return measured["planted_s"] / measured["whole_s"], found


def compare(kind: str, steps: int, runs: int) -> list[str]:
    measured = [split(kind, steps) for _ in range(runs)]
    by_hand = [share for share, _ in measured]
    shares = [sum(part.share for part in found.parts if part.kind == kind) for _, found in measured]
    differences = sorted(found - true for found, true in zip(shares, by_hand, strict=True))
    first = measured[0][1].parts[0]
    line = first.lines[0].source.rpartition("/")[2] if first.lines else ""
    is_first = all(found.parts[0].kind == kind for _, found in measured)
    verdict = "kept" if is_first and abs(statistics.median(differences)) <= NEAR else "NOT KEPT"
    return [
        kind,
        f"{statistics.median(by_hand):.3f}",
        f"{statistics.median(shares):.3f}",
        " ".join(f"{one:+.3f}" for one in differences),
        line,
        str(statistics.median(found.samples for _, found in measured)),
        verdict,
    ]


def cost(pairs: int) -> None:
    """Blocks of a loop with and without a sampler, in turns in one process that records.

    The sampler's thread says itself what processor time it has had: that is its own cost, whoever else is at work. What
    it costs the loop besides (Python's lock is given away, caches are cold) is in the ratios of blocks.
    """
    import jax
    import jax.numpy as jnp

    small, large = jnp.full((64, 64), 0.01), jnp.full((512, 512), 0.001)
    step = jax.jit(lambda x: jnp.tanh(x @ x))

    def python() -> None:
        step(small).block_until_ready()
        nested(DEPTH, lambda: sum(i * i for i in range(60_000)))

    def device() -> None:
        nested(DEPTH, lambda: step(large).block_until_ready())

    rows: list[list[str]] = []
    for name, body in (("Python", python), ("device", device)):
        note(f"cost beside {name}")
        calls = _calls_of(body)
        rows += _compare_blocks(name, lambda body=body, calls=calls: [body() for _ in range(calls)], pairs)
    print(f"what a sampler costs: {pairs} blocks of {BLOCK_S} s each, with and without it in turns, {DEPTH} calls deep")
    table(["loop", "", "median", "95 %", ""], rows)


BLOCK_S, DEPTH = 0.5, 12


def nested(depth: int, what: Callable[[], object]) -> object:
    """A stack as of real programs: a sample walks through all of it."""
    return what() if depth == 0 else nested(depth - 1, what)


def _calls_of(body: Callable[[], object]) -> int:
    body()
    began = time.perf_counter()
    for _ in range(10):
        body()
    return max(1, int(BLOCK_S / ((time.perf_counter() - began) / 10)))


def _compare_blocks(name: str, block: Callable[[], object], pairs: int) -> list[list[str]]:
    from benchax.profiling.profile import session
    from benchax.profiling.samplers import StackSampler

    own: list[float] = []
    walls: dict[str, list[float]] = {"sampled": [], "control": []}
    processor: dict[str, list[float]] = {"sampled": [], "control": []}
    samples = 0
    for number in range(pairs):
        taken: dict[str, tuple[float, float]] = {}
        # What drifts meets the first and the last of the three alike.
        order = ["sampled", "without", "control"]
        with session():  # one for all blocks would hold a minute of events in memory
            for kind in order if number % 2 else reversed(order):
                sampler = StackSampler().start() if kind == "sampled" else None
                wall, used = time.perf_counter(), time.process_time()
                block()
                taken[kind] = time.perf_counter() - wall, time.process_time() - used
                if sampler is not None:
                    sampler.stop()
                    own.append(sampler.used_s / sampler.lasted_s)
                    samples += sampler.taken
        for kind in walls:
            walls[kind].append(taken[kind][0] / taken["without"][0])
            processor[kind].append(taken[kind][1] / taken["without"][1])
    return [
        _describe(name, f"its thread's processor time, {samples} samples", own, MOST_COST - 1),
        _describe("", "time, with : without", walls["sampled"], MOST_COST),
        _describe("", "time, without : without", walls["control"], None),
        _describe("", "processor time, with : without", processor["sampled"], MOST_COST),
        _describe("", "processor time, without : without", processor["control"], None),
    ]


def _describe(loop: str, what: str, values: list[float], most: float | None) -> list[str]:
    """The median with its interval by order statistics."""
    from benchax.stats.intervals import median_interval

    middle, interval = statistics.median(values), median_interval(values)
    low, high = interval or (min(values), max(values))
    verdict = "" if most is None else "kept" if high <= most else "NOT KEPT" if low > most else "unclear"
    return [loop, what, f"{middle:.4f}", f"{low:.4f} to {high:.4f}", verdict]


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--steps", type=int, default=40)
    given.add_argument("--runs", type=int, default=3, help="of each loop")
    given.add_argument("--only", choices=KINDS, help="this loop alone, and not what sampling costs")
    given.add_argument("--pairs", type=int, default=40)
    given.add_argument("--cost-only", action="store_true", help="not the loops")
    options = given.parse_args()
    header("Where a step's time goes")
    if options.cost_only:
        cost(options.pairs)
        return
    rows: list[list[str]] = []
    for kind in (options.only,) if options.only else KINDS:
        note(kind)
        rows.append(compare(kind, options.steps, options.runs))
    print(f"the part that each loop is named for, medians of {options.runs} runs; within {NEAR:.0%} of a step")
    table(["loop", "by hand", "found", "differs", "line", "samples", ""], rows)
    if not options.only:
        print()
        cost(options.pairs)


if __name__ == "__main__":
    main()
