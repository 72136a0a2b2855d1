"""Variants that hold from the start of a process: flags of XLA, asynchronous dispatch, the persistent cache.

flags: the same program compiled under other flags of XLA. XLA ends a process that has an unknown flag. So a separate
process tries the flags first, and compares the outputs with a run in float64. Then pairs of new processes are timed.
Flags that are set in the environment hold for both sides.

sync: a call that waits for its result before it returns, against one that returns at once (asynchronous dispatch). It
is a setting of XLA:CPU, so pairs of new processes measure it. The time covers a call and the wait for its result. In
addition, a process of each kind that can use all cores records when the call returns. If that is as late as the result,
XLA ran it on the calling thread anyway, as it does with small work.

cache: a start with an empty persistent compilation cache, and one with the cache that it left, in pairs of new
processes. The time covers building (trace, lower, compile) of the one function, in a process in which JAX has compiled
nothing yet. Each pair has its own folder, which is removed afterwards. JAX's thresholds are lowered so that everything
is kept. The row also states whether the usual threshold would have kept this program. The first of a pair is always the
cold one, by its nature. So machine effects on the pair as a whole divide out, and a trend within the pair does not.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchax.case import Case
from benchax.comparing.judging import confirm, judge_times
from benchax.errors import NotAvailable, UsageError
from benchax.experiments.lab import ChangedCase, Condition, Observation, WorkerLab
from benchax.experiments.variant import (
    Asked,
    Measure,
    add_comparison,
    saved_s,
    seen_row,
    speedup,
    wrong_row,
    wrongness,
)
from benchax.measuring.jax_settings import share_programs
from benchax.measuring.prepare import prepare
from benchax.measuring.program import program_of
from benchax.model import Absent, Block, Comparison, Failure, Measurement, Version
from benchax.results.experiment import Facts, VariantRow
from benchax.stats.verdicts import ALPHA, CONFIRMING_ALPHA
from benchax.units import seconds, seconds_range, size
from benchax.watching.compiles import watch_cache
from benchax.workers.task import Failed, Say

# ---- flags of XLA ---------------------------------------------------------------------------------------------------

XLA_FLAGS = "XLA_FLAGS"


def measure_flags(asked: Asked) -> Measure:
    name, case, flags = asked.variant.name, asked.case, _parse_flags(asked)

    def measure(lab: WorkerLab) -> tuple[VariantRow]:
        # Only read them: XLA read the flags of this process when its backend started.
        usual = os.environ.get(XLA_FLAGS, "")
        as_it_is = Condition("as it is", environ={XLA_FLAGS: usual})
        changed = Condition(flags, environ={XLA_FLAGS: f"{usual} {flags}".strip()})
        lab.tell(f"trying {flags}")
        # This comes first: an unknown flag ends the process within two seconds, before anything else costs time.
        after = _look(case, changed, lab)
        before = _look(case, as_it_is, lab)
        row = seen_row(name, flags, after)
        if why := wrongness(None, after, before):
            return (wrong_row(row, why),)
        run = lab.time_processes(case, (as_it_is, changed))
        row = add_comparison(row, run, seen_row("baseline", "as it is", before))
        is_same = bool(before.digest) and before.digest == after.digest
        same = "the same after optimisation; the flags can still change the machine code"
        return (replace(row, facts=(("flags", flags), ("program", same if is_same else "another one"))),)

    return measure


def _look(case: Case, condition: Condition, lab: WorkerLab) -> Observation:
    found = lab.study({condition.label: ChangedCase(case)}, condition)
    if condition.label in found.failures:
        raise Failed(_of_xla(found.failures[condition.label]))
    return found.seen[condition.label]


def _parse_flags(asked: Asked) -> str:
    text = str(asked.given)
    words = text.split()
    if not words or not all(word.startswith("--") for word in words) or "\0" in text:
        hint = "several are separated by spaces, in quotes for the shell"
        raise UsageError(f"flags={text!r}", "flags of XLA, such as --xla_cpu_enable_fast_math=true", hint)
    return text.strip()


def _of_xla(failure: Failure) -> Failure:
    """With XLA's own words where it ended the process."""
    said = [line.partition("] ")[2] for line in failure.traceback.splitlines() if " in XLA_FLAGS" in line]
    if not said:
        return failure
    return Failure("crashed", "start", f"XLA ended the process: {said[-1]}", failure.advice, failure.traceback)


# ---- asynchronous dispatch ------------------------------------------------------------------------------------------

SETTING = "jax_cpu_enable_async_dispatch"
TIMED = ("timed", "a call and the wait for its result; a caller can't begin other work before it ends")
ASYNC, SYNC = Condition("asynchronous", {SETTING: True}), Condition("synchronous", {SETTING: False})


def measure_sync(asked: Asked) -> Measure:
    name, title, case = asked.variant.name, asked.variant.title, asked.case

    def measure(lab: WorkerLab) -> tuple[VariantRow]:
        # Measure only two moments: when the call returns, and when its result is ready.
        options = replace(lab.options, memory=False, verify="off", timer="wall")
        lab.tell("dispatch in separate processes")
        found = {condition.label: lab.measure_alone(case, condition, options) for condition in (ASYNC, SYNC)}
        for one in found.values():
            if one.failure is not None:
                raise Failed(one.failure)
        backend = found[ASYNC.label].environment.backend
        if backend != "cpu":
            raise NotAvailable(f"{SETTING} is a setting of the CPU backend, and this is {backend}")
        run = lab.time_processes(case, (ASYNC, SYNC))
        facts = (TIMED, *(fact for label, one in found.items() for fact in _returns(label, one)))
        row = VariantRow(name, title, facts=facts)
        return (add_comparison(row, run, VariantRow("baseline", "asynchronous dispatch")),)

    return measure


def _returns(label: str, m: Measurement) -> Facts:
    dispatch_s, summary = m.stages.dispatch_s, m.find_summary("wall")
    if dispatch_s is None or summary is None:
        return ()
    return (
        (label, f"the call returns after {seconds(dispatch_s)}, the result is there after {seconds(summary.median_s)}"),
    )


# ---- the persistent compilation cache -------------------------------------------------------------------------------

USUAL_PAIRS, LEAST_PAIRS, MOST_PAIRS = 6, 4, 1000
"""Pairs of processes. Six readings are the fewest with two that enclose the median with 95 %."""
USUAL_THRESHOLD_S = 1.0
"""The default of `jax_persistent_cache_min_compile_time_secs` in JAX."""


@dataclass(frozen=True)
class Start:
    """The start of a process, as it went."""

    build_s: float
    compile_s: float
    hits: int
    misses: int
    entries: int
    entry_bytes: int


Pair = tuple[Start, Start]
"""The cold and the warm process."""


def measure_cache(asked: Asked) -> Measure:
    name, title, case = asked.variant.name, asked.variant.title, asked.case
    if program_of(case).kind not in ("plain", "jit"):
        raise NotAvailable("only a jitted function is compiled as a whole, and kept in the cache")
    expected = f"a number of pairs of processes from {LEAST_PAIRS} to {MOST_PAIRS}"
    pairs = asked.number(USUAL_PAIRS, expected, LEAST_PAIRS, MOST_PAIRS)

    def measure(lab: WorkerLab) -> tuple[VariantRow]:
        first, again = _pairs(case, pairs, lab), list[Pair]()
        comparison = _judge_starts(case, first)
        # A change needs two rounds of new processes: one can be the luck of a few pairs.
        if comparison.verdict in ("faster", "slower"):
            again = _pairs(case, pairs, lab)
            comparison = confirm(comparison, _judge_starts(case, again, CONFIRMING_ALPHA))
        row = VariantRow(
            name,
            title,
            reason="build times are compared",
            compile_s=median(warm.build_s for _, warm in first),
            facts=_facts([*first, *again], comparison),
            sentence=_sentence(comparison, first),
            absent=(Absent("comparison", "a call runs the same program, so build times are compared"),),
        )
        return (row,)

    return measure


def _pairs(case: Case, count: int, lab: WorkerLab) -> list[Pair]:
    found: list[Pair] = []
    for i in range(count):
        with tempfile.TemporaryDirectory(prefix="benchax-cache-") as folder:
            starts: list[Start] = []
            # Use a separate process for each: JAX decides once per process whether there is a cache, and keeps compiled
            # programs in memory.
            for kind in ("empty", "filled"):
                lab.tell(f"pair {i + 1} of {count}: {kind} cache")
                argument, name = (case, lab.options.seed, folder), f"the start of {case.id.label!r}"
                starts.append(lab.call_alone(start, argument, name=name, tells_stages=False))
        found.append((starts[0], starts[1]))
    return found


def _judge_starts(case: Case, pairs: Sequence[Pair], alpha: float = ALPHA) -> Comparison:
    blocks = [Block(i, (cold.build_s,), (warm.build_s,)) for i, (cold, warm) in enumerate(pairs)]
    versions = Version("empty cache"), Version("filled cache")
    context = Comparison(case.id, "compile", *versions, "unclear", method="process pairs")
    return judge_times(context, "compile", blocks, alpha)


def _facts(pairs: Sequence[Pair], c: Comparison) -> Facts:
    kinds = {"empty cache": [cold for cold, _ in pairs], "filled cache": [warm for _, warm in pairs]}
    cold = kinds["empty cache"]
    kept = f"{cold[0].entries} entries, {size(cold[0].entry_bytes)}" if cold[0].entries else "nothing was kept"
    xla_s = median(each.compile_s for each in cold)
    would = "would keep" if xla_s >= USUAL_THRESHOLD_S else "would not keep"
    threshold = seconds(USUAL_THRESHOLD_S)
    return (
        *((f"to build, {kind}", _spread([each.build_s for each in starts])) for kind, starts in kinds.items()),
        ("the verdict", f"{c.verdict}{', confirmed' if c.confirmed else ''}{f': {c.why}' if c.why else ''}"),
        *(
            (kind, f"{_span([s.hits for s in starts])} hits, {_span([s.misses for s in starts])} misses")
            for kind, starts in kinds.items()
        ),
        ("on disk", kept),
        (
            "threshold",
            f"lowered to 0 here; JAX's usual one, {threshold}, {would} what takes {seconds(xla_s)} to compile",
        ),
    )


def _spread(values: Sequence[float]) -> str:
    return f"{seconds(median(values))} ({seconds_range(min(values), max(values))} in {len(values)} processes)"


def _span(counts: Sequence[int]) -> str:
    """2; or 1 to 2, where processes differ."""
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _sentence(c: Comparison, pairs: Sequence[Pair]) -> str:
    if not any(warm.hits for _, warm in pairs):
        return "nothing was read from the cache: JAX did not keep this program"
    if c.verdict not in ("faster", "slower") or c.baseline_value is None or not c.ratio:
        return f"a start with a filled cache: {c.verdict}{f', {c.why}' if c.why else ''}"
    word = "saves" if c.verdict == "faster" else "costs"
    saved = seconds(abs(saved_s(c, c.ratio)))
    return f"a start with a filled cache {word} {saved} of building ({speedup(c)})"


def start(argument: tuple[Case, int, str], say: Say) -> Start:
    """In the worker: builds the case once. The inputs come first: making them compiles small programs, which are not of
    the case."""
    case, seed, folder = argument
    say("inputs")
    prepared = prepare(case, seed)
    say("build")
    with share_programs(folder), watch_cache() as watched:
        seconds_of = prepared.built.seconds
    # JAX names its entries like this; XLA's own caches in the same folder do not count.
    files = [file.stat().st_size for file in Path(folder).glob("*-cache")]
    hits = len(watched.of("hit"))
    misses = len(watched.programs) - hits
    return Start(sum(seconds_of.values()), seconds_of["compile"], hits, misses, len(files), sum(files))
