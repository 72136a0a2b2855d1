"""Do intervals hold? How many of them hold the median of 30 later processes, of one process and between processes.

Six short functions are measured by programs that know nothing of one another: some with one process, as many with what
`benchax run` takes by default. Then 30 further programs measure the same functions. An interval holds if the median of
the medians of these 30 lies in it. Shared between programs are compiled code, which saves time, and as in use what is
known of this machine's pace; what that was is printed.

In brackets: exact 95 % intervals, as if all intervals were independent; those of one program share the moment, so they
are a little too narrow. `width` is the middle of the widths, high over low less one. Seconds are those of a program
over its functions, and what it takes to start the further processes, once, is counted too. Programs come first and the
further ones minutes later, as in use: what the machine drifts by in between is printed, and no interval knows of it.

The goal: at least 90 % of the intervals between processes hold, quiet and beside a busy neighbour.
docs/explanations/trust.md says
how far it is.

    python benchmarks/coverage.py [--quick] [--neighbour]      8 programs of each kind, 30 later; 5 minutes
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
from kernels import TURNS, data, kernel
from report import busy_neighbour, header, load, note, table

from benchax import api
from benchax.case import Case, make_case
from benchax.model import Measurement

TIMERS = ("in_graph", "wall")
GOAL = 0.90
ONE, DEFAULT = "one process", "default"
KINDS = {ONE: 1, DEFAULT: "auto"}
Taken = dict[str, dict[str, Any]]
"""Function → timer → {"median", "low", "high", "processes"}, and "seconds"."""


def cases() -> list[Case]:
    found = [
        make_case(kernel(name, TURNS[name]["A/A"]), data(name), name=name)
        for name in ("k2", "k20", "k200", "k2m", "kal")
    ]
    matmul: Callable[..., Any] = jnp.matmul
    return [*found, make_case(matmul, ("f32[256,256]", "f32[256,256]"), name="matmul-256")]


# ---- one program ------------------------------------------------------------------------------------------------


def take(processes: str) -> Taken:
    """What one `benchax run` would say; `later`: one process, quickly."""
    asked: dict[str, Any] = {"store": "off", "timer": ",".join(TIMERS), "processes": processes}
    if processes == "later":
        quick = {"verify": "off", "memory": False, "stages": "samples", "max_time_s": 0.1, "min_time_s": 0.02}
        asked |= {"processes": 1, **quick}
    found: Taken = {}
    for case in cases():
        begun = perf_counter()
        (row,) = api.run([case], call=asked)
        rest = {"seconds": perf_counter() - begun, "pace_scatter": row.noise.pace_scatter}
        found[case.id.name] = told(row) | rest
    return found


def told(row: Measurement) -> dict[str, Any]:
    if row.failure:
        raise SystemExit(f"{row.case.label} failed: {row.failure.message}")
    known = {timer: row.find_summary(timer) for timer in TIMERS}
    return {
        timer: {
            "median": s.median_s,
            "low": s.low_s,
            "high": s.high_s,
            "processes": s.processes,
            "medians": [each.summary.median_s for each in row.series_of(timer)],
        }
        for timer, s in known.items()
        if s
    }


def in_a_program(processes: str, folder: str) -> Taken:
    """`take` in a new one."""
    command = [sys.executable, __file__, "--take", processes, "--programs", folder]
    done = subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


# ---- all programs -----------------------------------------------------------------------------------------------


def collect(programs: int, later: int) -> dict[str, list[Taken]]:
    found: dict[str, list[Taken]] = {ONE: [], DEFAULT: [], "later": []}
    with tempfile.TemporaryDirectory(prefix="benchax-coverage-") as folder:
        for i in range(programs):
            note(f"program {i + 1} of {programs} of each kind")
            for kind, processes in KINDS.items():
                found[kind].append(in_a_program(str(processes), folder))
        for i in range(later):
            note(f"later process {i + 1} of {later}")
            found["later"].append(in_a_program("later", folder))
    return found


def report(found: dict[str, list[Taken]]) -> None:
    rows: list[tuple[str, ...]] = []
    for timer in TIMERS:
        for kind in KINDS:
            held, widths, missing = judge(found, kind, timer)
            share = f"{100 * sum(held) / len(held):.0f} %" if held else "–"
            low, high = exact(sum(held), len(held)) if held else (0.0, 1.0)
            interval = f"[{100 * low:.0f}, {100 * high:.0f}]"
            width = f"{100 * median(widths):.1f} %" if widths else "–"
            rows.append((timer, kind, share, interval, f"{sum(held)} of {len(held)}", width, str(missing)))
    columns = ("timer", "interval of", "held", "", "", "width", "no interval")
    table(columns, rows)
    each = list(found["later"][0])
    known = [found[DEFAULT][i][name]["pace_scatter"] for i in (0, -1) for name in (each[0], each[-1])]
    said = ["not known" if value is None else f"{100 * value:.1f} %" for value in (known[0], known[-1])]
    print(f"pace from moment to moment: {said[0]} in the first program, {said[1]} in the last one\n")
    names = [
        (f"{timer}, {kind}", *(_held(found, kind, timer, name) for name in each)) for timer in TIMERS for kind in KINDS
    ]
    table(("held, by function", *each), names)
    spread = [(f"{timer}, later processes", *(_spread(found, timer, name) for name in each)) for timer in TIMERS]
    table(("10 to 90 % of medians, µs", *each), spread)
    moved = [(f"{timer}, later over earlier", *(_moved(found, timer, name) for name in each)) for timer in TIMERS]
    table(("the machine's own drift", *each), moved)
    costs = [(kind, *(f"{median(t[name]['seconds'] for t in found[kind]):.2f}" for name in each)) for kind in KINDS]
    totals = [f"{median(sum(t[name]['seconds'] for name in each) for t in found[kind]):.1f}" for kind in KINDS]
    table(("seconds a case", *each, "all"), [(*row, total) for row, total in zip(costs, totals, strict=True)])
    print(f"goal: at least {100 * GOAL:.0f} % of the intervals by default are held")


def judge(
    found: dict[str, list[Taken]], kind: str, timer: str, only: str | None = None
) -> tuple[list[bool], list[float], int]:
    """(held?, width of each interval, how many had none)."""
    held: list[bool] = []
    widths: list[float] = []
    missing = 0
    for name in found["later"][0]:
        truth = [each[name][timer]["median"] for each in found["later"] if timer in each[name]]
        if only not in (None, name) or not truth:
            continue
        for program in found[kind]:
            s = program[name].get(timer)
            if s is None or s["low"] is None:
                missing += 1
                continue
            held.append(s["low"] <= median(truth) <= s["high"])
            widths.append(s["high"] / s["low"] - 1)
    return held, widths, missing


def _held(found: dict[str, list[Taken]], kind: str, timer: str, name: str) -> str:
    held, _, _ = judge(found, kind, timer, name)
    return f"{sum(held)} of {len(held)}" if held else "–"


def _spread(found: dict[str, list[Taken]], timer: str, name: str) -> str:
    values = sorted(1e6 * t[name][timer]["median"] for t in found["later"] if timer in t[name])
    if not values:
        return "–"
    ends = values[len(values) // 10], values[-1 - len(values) // 10]
    return f"{ends[0]:.3g} – {ends[1]:.3g}"


def _moved(found: dict[str, list[Taken]], timer: str, name: str) -> str:
    """The median of the later processes over that of the programs before them: no interval knows of it."""
    earlier, later = (
        [t[name][timer]["median"] for t in found[kind] if t[name].get(timer)] for kind in (DEFAULT, "later")
    )
    return f"{median(later) / median(earlier):.3f}" if earlier and later else "–"


def exact(held: int, n: int) -> tuple[float, float]:
    """Clopper and Pearson's interval."""
    from scipy.stats import beta

    low = beta.ppf(0.025, held, n - held + 1) if held else 0.0
    high = beta.ppf(0.975, held + 1, n - held) if held < n else 1.0
    return float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2 programs of each kind and 8 later ones")
    parser.add_argument(
        "--neighbour", action="store_true", help="beside a process that computes in bursts on each core"
    )
    parser.add_argument("--programs-of-each", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--raw", type=Path, help="write all that was taken to this file, as JSON")
    parser.add_argument("--take", help=argparse.SUPPRESS)
    parser.add_argument("--programs", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.take:
        jax.config.update("jax_compilation_cache_dir", given.programs)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        print(json.dumps(take(given.take)))
        return
    header("coverage: which intervals hold what later processes take" + ", beside a busy neighbour" * given.neighbour)
    programs, later = (2, 8) if given.quick else (given.programs_of_each or 8, 30)
    with busy_neighbour() if given.neighbour else nullcontext():
        found = collect(programs, later)
    if given.raw:
        given.raw.write_text(json.dumps(found))
    report(found)
    print(load())


if __name__ == "__main__":
    main()
