"""Do the timers time the function? Each of `public_functions.py` by in_graph, loop, device and wall, beside a chain.

The chain (`chains.py`) is made by hand and knows nothing of the timers. For each timer and function one word:

    agrees      the interval of timer less chain, read in turns (`in_turns.py`), reaches within 5 % of the chain; for
                wall: within 5 % of a call and its cost (`floor`: the same inputs, and outputs of the same shapes that
                one number fills)
    refused     "not measured, because ...": counted by reason
    explained   it disagrees, and a remark of the row that speaks of this timer says why (`EXPLAINS`)
    SILENT      it disagrees without a word, and does so again, in the same direction, when both are read in three new
                processes: where programs and arrays lie in memory, another place there, makes up to a quarter
    no chain    the function could not be chained, or takes less than 3 µs; the interval is wider than 25 % of the chain
                either way; or the chain takes longer than calls of the function do (a part cannot take longer than the
                whole: then the chain copies). Nothing is claimed

    python benchmarks/census.py [--only TEXT] [--library NAME] [--limit N] [--seconds S] [--json FILE [--resume]]

It runs on one core, and calls return when they are done: the work is the same, and no reading waits for a second core
to wake up (sin of 65,536 numbers: the chain's readings scatter by 5 % in place of 30 %). All of them take about 30
minutes. With --json each row is appended to the file as it is made.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import jax
from chains import NoChain, build_chain
from in_turns import subject_of, take_turns
from public_functions import NotInstalled, PublicFunction, choose
from report import header, load, note, table

import benchax

TIMERS = ("in_graph", "loop", "device", "wall")
TOLERANCE = 0.05
TIE_DOUBT = 0.25
"""Share of the ties' cost: next to real work they may cost less or more than alone."""
TRIP_DOUBT_S = 0.2e-6
"""So much more than the truth a chain says of a trip (`chains.py`: 1.11 µs of 1 µs)."""
LEAST_S = 3e-6
"""Of a function: of shorter ones what a trip costs is too large a part."""
WIDEST = 0.25
"""Half the interval over the chain: beyond, the machine was too busy to tell."""
AGAIN = 3
"""New processes that read what disagrees. Of 336 functions by four timers chance alone puts some to one side twice."""
EXPLAINS: dict[str, tuple[str, ...]] = {
    "in_graph": ("folded", "no-inputs", "more-than-a-call", "timers-apart"),
    "loop": ("folded", "no-inputs", "more-than-a-call", "timers-apart"),
    "device": ("page-faults", "more-than-a-call", "one-at-a-time", "timers-apart"),
    "wall": ("dispatch-bound", "page-faults", "not-steady", "resident-far-below-wall", "uneven-calls"),
}
"""Codes of the remarks that explain a disagreement, by timer. Not among them: "busy", which says that something is
wrong and not with which timer."""
PACKAGES = ("flax", "equinox", "optax", "diffrax", "blackjax", "numpyro")
Row = dict[str, Any]


def measure(row: PublicFunction, seconds: float) -> Row:
    """All figures of one function, as JSON holds them; "error" where there are none."""
    begun, found = perf_counter(), {"name": row.label, "timers": {}, "refused": {}, "remarks": {}}
    try:
        fn, args, kwargs = row.make()
        # An argument that is called like an option of `bench` does not occur in the tables.
        measured = benchax.bench(
            fn, *args, **kwargs, timer=",".join(TIMERS), memory=False, verify="off", store="off",
            max_time_s=seconds / 10, min_time_s=seconds / 20,
        )  # fmt: skip
    except NotInstalled as error:
        return found | {"error": str(error)}
    except Exception as error:
        return found | {"error": f"{type(error).__name__}: {_short(str(error))}"}
    if measured.failure:
        found["error"] = f"{measured.failure.stage}: {_short(measured.failure.message)}"
    for timer in TIMERS:
        if summary := measured.find_summary(timer):
            found["timers"][timer] = asdict(summary)
        else:
            found["refused"][timer] = measured.why_absent(f"samples.{timer}") or found.get("error") or "NO REASON"
    found["remarks"] = {remark.code: remark.message for remark in measured.remarks}
    found |= _in_turns(row, list(found["timers"]), seconds)
    found["again"] = []
    while "above" in found and len(found["again"]) < AGAIN and any(judge(found, t) == "SILENT" for t in TIMERS):
        found["again"].append(_read_in_new_process(row.label, list(found["timers"]), seconds).get("above", {}))
    return found | {"took_s": perf_counter() - begun}


def _in_turns(row: PublicFunction, names: list[str], seconds: float) -> Row:
    """How far each timer is from the chain; from arguments of its own each, for the function may change them."""
    try:
        fn, args, kwargs = (row.pure or row.make)()
        chain = build_chain(fn, args, kwargs)
        turns = take_turns(subject_of(*row.make()), chain, names, seconds)
    except NoChain as error:
        return {"no_chain": str(error)}
    except Exception as error:
        return {"no_chain": f"{type(error).__name__}: {_short(str(error))}"}
    above = {timer: turns.distance(timer) for timer in turns.timers_s}
    if "wall" in above:
        above["wall_less_floor"] = turns.distance("wall", turns.floor_s)
    whole = {"trips": turns.trips, "tie_s": turns.tie_s, "floor_s": median(turns.floor_s)}
    return {"chain_s": median(turns.chain_s), "above": above} | whole


def _read_in_new_process(name: str, timers: list[str], seconds: float) -> Row:
    command = [sys.executable, __file__, "--seconds", str(seconds), "--read", name, *timers]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}


def judge(row: Row, timer: str) -> str:
    """One of: agrees, refused, explained, SILENT, no chain."""
    if timer in row["refused"]:
        return "SILENT" if row["refused"][timer] == "NO REASON" else "refused"
    if timer not in row.get("above", {}) or not is_yardstick(row):
        return "no chain"
    low, middle, high = row["above"][timer]
    shown = max(1, 1 + middle) if timer == "wall" else 1  # of what is shown: a call takes several times the chain
    allowed = TOLERANCE * shown + (TIE_DOUBT * row["tie_s"] + TRIP_DOUBT_S) / row["chain_s"]
    if (high - low) / 2 > WIDEST or allowed > WIDEST * shown:
        return "no chain"
    sides = {_side(above, timer, allowed) for above in (row["above"], *row["again"]) if timer in above}
    if sides not in ({-1}, {1}):
        return "agrees"
    return "explained" if any(code in row["remarks"] for code in EXPLAINS[timer]) else "SILENT"


def _side(above: dict[str, tuple[float, float, float]], timer: str, allowed: float) -> int:
    """0: the timer is within `allowed` of the chain; -1: below; 1: above. A call may take its floor longer."""
    low = above["wall_less_floor" if timer == "wall" else timer][0]
    return 1 if low > allowed else -1 if above[timer][2] < -allowed else 0


def is_yardstick(row: Row) -> bool:
    """Does the chain take long enough, and no longer than the calls beside it?"""
    wall = row["above"].get("wall")
    return row["chain_s"] >= LEAST_S and (wall is None or wall[2] > -TOLERANCE)


# What is printed.


def line(row: Row) -> list[str]:
    if not row["timers"] and "error" in row:
        return [row["name"], "not measured, because " + _short(row["error"])]
    cells = []
    for timer in TIMERS:
        found = row.get("above", {}).get(timer)
        text = "-" if timer not in row["timers"] else _us(row["timers"][timer]["median_s"])
        if found:
            text = " ".join(f"{100 * share:+.0f}" for share in (found[0], found[2])) + " %"
        cells.append(text + {"SILENT": "!", "explained": "e", "no chain": "?"}.get(judge(row, timer), ""))
    return [row["name"], *cells, *(_us(row[name]) if name in row else "-" for name in ("chain_s", "floor_s"))]


def details(row: Row) -> list[str]:
    """Refusals, what is silent, and how the chain differs."""
    lines = [f"    {timer} refused: {_short(why)}" for timer, why in row["refused"].items()]
    if "no_chain" in row:
        lines.append(f"    no chain: {row['no_chain']}")
    if any(judge(row, timer) in ("SILENT", "explained") for timer in TIMERS):
        lines += [f"    remark {code}: {_short(message)}" for code, message in row["remarks"].items()]
    return lines


def summarize(rows: list[Row]) -> int:
    """Prints the tables; returns the number of silent disagreements."""
    words = ("agrees", "refused", "explained", "SILENT", "no chain")
    rows = list({row["name"]: row for row in rows}.values())
    told = {timer: Counter(judge(row, timer) for row in rows) for timer in TIMERS}
    print(f"{len(rows)} functions, {sum('error' in row for row in rows)} of them not measured")
    table(["", *words], [[timer, *[str(told[timer][word]) for word in words]] for timer in TIMERS])
    reasons = Counter((t, _kind(why)) for row in rows for t, why in row["refused"].items())
    print("refused, by reason")
    table(["", "functions", "reason"], [[t, str(count), why] for (t, why), count in reasons.most_common()])
    silent = [(row, timer) for row in rows for timer in TIMERS if judge(row, timer) == "SILENT"]
    print(f"{len(silent)} silent disagreements")
    table(["", "timer", "chain µs", "least ratio", "ratio", "most"], [_silent(row, timer) for row, timer in silent])
    return len(silent)


def _silent(row: Row, timer: str) -> list[str]:
    if timer not in row["timers"]:
        return [row["name"], timer, "absent without a reason", "", "", ""]
    return [row["name"], timer, _us(row["chain_s"]), *(f"{1 + share:.2f}" for share in row["above"][timer])]


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.4g}"


def _short(text: str, most: int = 110) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _kind(why: str) -> str:
    """Reasons that differ in their figures alone are one."""
    return _short(re.sub(r"\d[\d.,]*( (ns|µs|ms|s|%|B|KiB|MiB))?", "N", why), 90)


def read_rows(path: Path) -> list[Row]:
    """What an earlier run has left; a line that was cut off is left out."""
    rows = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(text))
        except json.JSONDecodeError:
            note(f"a line of {path} is no JSON: {text[:60]!r}")
    return rows


def use_one_core() -> None:
    """The last one that is permitted; before JAX counts them."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="functions whose name contains this")
    parser.add_argument("--library", default="", help="functions of this library")
    parser.add_argument("--limit", type=int, help="so many, evenly spread")
    parser.add_argument("--seconds", type=float, default=2.0, help="of readings for each function (default: 2)")
    parser.add_argument("--json", type=Path, help="append each row to this file")
    parser.add_argument("--resume", action="store_true", help="skip what the file of --json has already")
    parser.add_argument("--read", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.resume and not arguments.json:
        parser.error("--resume continues a file: name it with --json FILE")
    use_one_core()
    if arguments.read:
        name, *timers = arguments.read
        (function,) = (f for f in choose("", "", None) if f.label == name)
        print(json.dumps(_in_turns(function, timers, arguments.seconds)))
        return
    header("census: timers beside a chain made by hand", PACKAGES)
    rows = read_rows(arguments.json) if arguments.resume else []
    done = {row["name"] for row in rows}
    chosen = [f for f in choose(arguments.only, arguments.library, arguments.limit) if f.label not in done]
    print("timer above chain, 95 % interval; ! silent, e explained, ? no chain; chain and floor in µs")
    for i, function in enumerate(chosen):
        row = measure(function, arguments.seconds)
        rows.append(row)
        if arguments.json:
            with arguments.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        name, *cells = line(row)
        print(f"{name:42}", *[f"{cell:>17}" for cell in cells[:4]], *cells[4:], flush=True)
        print(*details(row), sep="\n", end="\n" if details(row) else "", flush=True)
        if i % 20 == 19:
            jax.clear_caches()  # hundreds of compiled chains would stay in memory
            note(f"{i + 1} of {len(chosen)}, {load()}")
    print()
    sys.exit(1 if summarize(rows) else 0)


if __name__ == "__main__":
    main()
