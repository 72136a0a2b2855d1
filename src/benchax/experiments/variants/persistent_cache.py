"""A start with an empty persistent compilation cache, and one with the cache that it left, in pairs of new processes.

The time covers building (trace, lower, compile) of the one function, in a process in which JAX has compiled nothing
yet. Each pair has its own folder, which is removed afterwards. JAX's thresholds are lowered so that everything is kept.
The row also states whether the usual threshold would have kept this program.

The first of a pair is always the cold one, by its nature. So machine effects on the pair as a whole divide out, and a
trend within the pair does not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

from benchax.case import Case
from benchax.comparing.judging import confirm, judge_times
from benchax.errors import NotAvailable, UsageError
from benchax.experiments.lab import Lab
from benchax.experiments.variant import Measure
from benchax.experiments.variant_rows import failed_row, saved_s, speedup
from benchax.measuring.prepare import prepare
from benchax.measuring.program import program_of
from benchax.model import Absent, Block, Comparison, Failure, Version
from benchax.results.experiment import VariantRow
from benchax.stats.verdicts import ALPHA, CONFIRMING_ALPHA
from benchax.units import seconds, seconds_range, size
from benchax.watching.compiles import watch_cache
from benchax.workers.task import Say, task

USUAL_PAIRS = 6
LEAST_PAIRS = 4
USUAL_THRESHOLD_S = 1.0
"""The default of `jax_persistent_cache_min_compile_time_secs` in JAX."""


class Unfinished(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True)
class PersistentCache:
    name: str = "cache"
    title: str = "a start with a filled persistent compilation cache, beside one with an empty cache"
    needs: str = ""
    only_by_name: bool = True

    def plan(self, case: Case, given: Any = None, seed: int = 0) -> Measure:
        if program_of(case).kind not in ("plain", "jit"):
            raise NotAvailable("only a jitted function is compiled as a whole, and kept in the cache")
        pairs = _parse_count(given)
        return lambda lab: (_row(self, case, pairs, lab),)


def _parse_count(text: Any) -> int:
    if text is None:
        return USUAL_PAIRS
    word = str(text).strip()
    if not (word.isascii() and word.isdecimal() and LEAST_PAIRS <= int(word) <= 1000):
        raise UsageError(f"cache={text!r}", f"a number of pairs of processes from {LEAST_PAIRS} to 1000")
    return int(word)


def _row(variant: PersistentCache, case: Case, pairs: int, lab: Lab) -> VariantRow:
    try:
        first = _pairs(case, pairs, lab)
        # Called a change only twice, by new processes: once is the luck of a few pairs.
        is_change = _judge_starts(case, first).verdict in ("faster", "slower")
        again = _pairs(case, pairs, lab) if is_change else []
    except Unfinished as ended:
        return failed_row(variant.name, variant.title, ended.failure)
    comparison = _judge_starts(case, first)
    if again:
        comparison = confirm(comparison, _judge_starts(case, again, CONFIRMING_ALPHA))
    return VariantRow(
        variant.name,
        variant.title,
        reason="compared are times to build",
        compile_s=median(pair[1]["build_s"] for pair in first),
        facts=_facts([*first, *again], comparison),
        sentence=_sentence(comparison, first),
        absent=(Absent("comparison", "a call runs the same program: compared are times to build"),),
    )


Pair = tuple[dict[str, float], dict[str, float]]
"""The times of the cold and the warm process."""


def _pairs(case: Case, count: int, lab: Lab) -> list[Pair]:
    found: list[Pair] = []
    for i in range(count):
        with tempfile.TemporaryDirectory(prefix="benchax-cache-") as folder:
            both: list[dict[str, float]] = []
            for state in ("empty", "filled"):
                lab.tell(f"pair {i + 1} of {count}: {state} cache")
                # A process each: JAX decides once in a process whether there is a cache, and keeps what it compiled in
                # memory.
                both.append(_start_process(case, folder, lab))
            found.append((both[0], both[1]))
    return found


def _start_process(case: Case, folder: str, lab: Lab) -> dict[str, float]:
    """Returns the times of a new process with its cache in that folder. Raises `Unfinished`."""
    argument, name = (case, lab.options.seed, folder), f"the start of {case.id.label!r}"
    told = lab.call_alone(start, argument, name=name, tells_stages=False)
    if isinstance(told, Failure):
        raise Unfinished(told)
    return told


def _judge_starts(case: Case, pairs: Sequence[Pair], alpha: float = ALPHA) -> Comparison:
    blocks = [Block(i, (cold["build_s"],), (warm["build_s"],)) for i, (cold, warm) in enumerate(pairs)]
    versions = Version("empty cache"), Version("filled cache")
    context = Comparison(case.id, "compile", *versions, "unclear", method="process pairs")
    return judge_times(context, "compile", blocks, alpha)


def _facts(pairs: Sequence[Pair], c: Comparison) -> tuple[tuple[str, str], ...]:
    cold, warm = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    told = cold[0]
    kept = f"{told['entries']} entries, {size(told['entry_bytes'])}" if told["entries"] else "nothing was kept"
    xla_s = median(each["compile_s"] for each in cold)
    would = "would keep" if xla_s >= USUAL_THRESHOLD_S else "would not keep"
    threshold = seconds(USUAL_THRESHOLD_S)
    return (
        ("to build, empty cache", _spread([each["build_s"] for each in cold])),
        ("to build, filled cache", _spread([each["build_s"] for each in warm])),
        ("the verdict", f"{c.verdict}{', confirmed' if c.confirmed else ''}{f': {c.why}' if c.why else ''}"),
        ("empty cache", f"{_describe_count(cold, 'hits')} hits, {_describe_count(cold, 'misses')} misses"),
        ("filled cache", f"{_describe_count(warm, 'hits')} hits, {_describe_count(warm, 'misses')} misses"),
        ("on disk", kept),
        (
            "threshold",
            f"lowered to 0 here; JAX's usual one, {threshold}, {would} what takes {seconds(xla_s)} to compile",
        ),
    )


def _spread(values: Sequence[float]) -> str:
    return f"{seconds(median(values))} ({seconds_range(min(values), max(values))} in {len(values)} processes)"


def _describe_count(told: Sequence[Mapping[str, Any]], what: str) -> str:
    """2; or 1 to 2, where processes differ."""
    low, high = min(each[what] for each in told), max(each[what] for each in told)
    return str(low) if low == high else f"{low} to {high}"


def _sentence(c: Comparison, pairs: Sequence[Pair]) -> str:
    if not any(warm["hits"] for _, warm in pairs):
        return "nothing was read from the cache: JAX did not keep this program"
    if c.verdict not in ("faster", "slower") or c.baseline_value is None or not c.ratio:
        return f"a start with a filled cache: {c.verdict}{f', {c.why}' if c.why else ''}"
    word = "saves" if c.verdict == "faster" else "costs"
    return f"a start with a filled cache {word} {seconds(abs(saved_s(c, c.ratio)))} of building ({speedup(c)})"


# ---- in the worker ----------------------------------------------------------------------------------------------


@task
def start(argument: tuple[Case, int, str], say: Say) -> dict[str, float]:
    """Builds the case once. The inputs come first: making them compiles small programs, which are not of the case."""
    case, seed, folder = argument
    say("inputs")
    prepared = prepare(case, seed)
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # JAX decides at the first compilation of a process whether there is a cache (jax 0.6 to 0.10.2).
    compilation_cache.reset_cache()
    say("build")
    with watch_cache() as watched:
        seconds_of = prepared.built.seconds
    # JAX names its entries so; XLA's own caches beside them are not counted.
    files = [file.stat().st_size for file in Path(folder).glob("*-cache")]
    return {
        "build_s": sum(seconds_of.values()),
        "compile_s": seconds_of["compile"],
        "hits": len(watched.of("hit")),
        "misses": len(watched.programs) - len(watched.of("hit")),
        "entries": len(files),
        "entry_bytes": sum(files),
    }


MEMBERS = (PersistentCache(),)
