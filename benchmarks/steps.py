"""Where a step's time goes: five loops that measure themselves, and what benchax finds; and what sampling costs.

    python benchmarks/steps.py [--steps 40] [--runs 3] [--pairs 40] [--only transfer | --cost-only]

The loops are those of `step_loops.py`: the share of a step that each measured by hand, and the share that `benchax
profile` found from outside, each the median of some runs, and the differences of all. The cost is that of sampling the
stack alone: the same loop of Python and short programs, recorded with and without a sampler, in turns, and a third time
without, which shows what the machine does by itself.
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
    from benchax.results.steps import StepSplit

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
    import jax
    import jax.numpy as jnp

    from benchax.profiling.session import session
    from benchax.profiling.stack_sampler import StackSampler

    step = jax.jit(lambda x: jnp.tanh(x @ x))
    x = jnp.full((64, 64), 0.01)

    def loop() -> float:
        # Processor time of all threads: on a machine with other work the time that passes says nothing.
        began = time.process_time()
        for _ in range(200):
            step(x).block_until_ready()
            sum(i * i for i in range(60_000))
        return time.process_time() - began

    loop()
    ratios: dict[str, list[float]] = {"sampled": [], "not sampled again": []}
    with session():
        for number in range(pairs):
            times: dict[str, float] = {}
            # In turns, so that what drifts meets the first and the last of the three alike.
            order = ["sampled", "not sampled", "not sampled again"]
            for name in order if number % 2 else reversed(order):
                sampler = StackSampler().start() if name == "sampled" else None
                times[name] = loop()
                if sampler is not None:
                    sampler.stop()
            for name, listed in ratios.items():
                listed.append(times[name] / times["not sampled"])
    print(f"processor time of a loop beside that of one without a sampler, {pairs} pairs in turns")
    rows = [_describe(name, listed) for name, listed in ratios.items()]
    table(["loop", "ratio", "95 %", ""], rows)


def _describe(name: str, ratios: list[float]) -> list[str]:
    """The median with its interval by order statistics."""
    from benchax.stats.intervals import median_interval

    middle, interval = statistics.median(ratios), median_interval(ratios)
    low, high = interval or (min(ratios), max(ratios))
    verdict = "kept" if middle <= MOST_COST else "unclear" if low <= MOST_COST else "NOT KEPT"
    return [name, f"{middle:.4f}", f"{low:.4f} to {high:.4f}", verdict if name == "sampled" else ""]


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
