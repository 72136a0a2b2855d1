"""How often benchax was wrong, in tables and sentences: the planted changes, the verdicts, and the claims that
follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from benchax.comparing.error_rates import UNCHANGED, ErrorRates, Tally, planted_name
from benchax.reporting.document import Document, Table, TableColumn, list_lines, tabulate
from benchax.reporting.tables import CASE, name_device
from benchax.stats.verdicts import Ratio, Verdict
from benchax.units import number, percent, plural, seconds

WORDS: tuple[Verdict, ...] = ("slower", "faster", "same", "unclear")


def document(found: ErrorRates) -> Document:
    tables = (verdict_grid(found), effect_grid(found))
    return Document((*list_lines(about(found), "faint"), *tables, *list_lines(sentences(found))))


def to_plain_data(found: ErrorRates) -> dict[str, Any]:
    """For JSON: counts and shares with 95 % intervals, effects as ratios, times in seconds. None: not measured."""
    return {
        "changes": [_tally_data(tally) for tally in found.tallies()],
        "effects": [
            {"kernel": kernel, "planted": planted, **_effect_data(found.effect(kernel, planted))}
            for kernel in found.kernels
            for planted in found.planted
        ],
        "elapsed_s": found.elapsed_s,
        "per_verdict_s": found.per_verdict_s,
        "noise": asdict(found.noise),
    }


def _tally_data(tally: Tally) -> dict[str, Any]:
    counts = {word: tally.verdicts[word] for word in WORDS}
    intervals = {word: tally.interval(word) for word in WORDS}
    return {"planted": tally.planted, "judged": tally.judged, "failed": tally.failed, **counts, "intervals": intervals}


def _effect_data(ratio: Ratio | None) -> dict[str, float | None]:
    return {end: getattr(ratio, end, None) for end in ("ratio", "low", "high")}


def about(found: ErrorRates) -> Iterator[str]:
    """The machine, and what else it did."""
    env = next((t.comparison.environment for t in found.trials if t.comparison.environment), None)
    if env is not None:
        cores, jax = f"{env.cores} cores" * bool(env.cores), f"jax {env.jax}" * bool(env.jax)
        yield " · ".join(filter(None, (env.host, env.backend, name_device(env), cores, jax)))
    noise = found.noise
    others, stolen = (
        "not measured" if share is None else percent(share) for share in (noise.others_share, noise.steal_share)
    )
    load = "not measured" if noise.load_1m is None else f"{noise.load_1m:.2f}"
    yield f"load {load}, benchax included · CPU time of others {others} · taken by the hypervisor {stolen}"


def verdict_grid(found: ErrorRates) -> Table:
    """Shares with their exact 95 % intervals."""
    lines = [
        (planted_name(tally.planted), str(tally.judged), *(_share(tally, word) for word in WORDS))
        for tally in found.tallies()
    ]
    return tabulate((CASE, "judged", *(TableColumn(word, least_width=8) for word in WORDS)), lines)


def _share(tally: Tally, word: Verdict) -> str:
    """3: 7.5 % (1.6 – 20)"""
    if not tally.judged:
        return ""
    low, high = (number(100 * end, 2) for end in tally.interval(word))
    return f"{tally.verdicts[word]}: {number(100 * tally.verdicts[word] / tally.judged, 2)} % ({low} – {high})"


def effect_grid(found: ErrorRates) -> Table:
    """Shows the real effects: the work outside the loop makes a planted change smaller."""
    times = {kernel: found.baseline_s(kernel) for kernel in found.kernels}
    lines = [
        (
            kernel,
            "" if time_s is None else seconds(time_s),
            *(_effect(found, kernel, planted) for planted in found.planted),
        )
        for kernel, time_s in times.items()
    ]
    columns = (TableColumn(f"really, of {planted_name(planted)}", least_width=8) for planted in found.planted)
    return tabulate((CASE, "median", *columns), lines)


def _effect(found: ErrorRates, kernel: str, planted: float) -> str:
    """+4.8 % (+4.7 to +5.0 %), by all that was timed."""
    ratio = found.effect(kernel, planted)
    if ratio is None:
        return ""
    middle, low, high = (None if r is None else f"{100 * (r - 1):+.1f}" for r in (ratio.ratio, ratio.low, ratio.high))
    return f"{middle} %" if low is None else f"{middle} % ({low} to {high})"


def sentences(found: ErrorRates) -> Iterator[str]:
    """Yields the conclusions, one thought per sentence."""
    for tally in found.tallies():
        if tally.judged:
            yield _false_alarms(tally) if tally.planted == UNCHANGED else _caught(tally)
        if tally.failed:
            failed = plural(tally.failed, "comparison")
            yield f"{failed} of {planted_name(tally.planted)} could not be run: not counted."
    if found.per_verdict_s is not None:
        yield f"A verdict took {seconds(found.per_verdict_s, 2)}. The limits hold if comparisons err independently."


def _false_alarms(tally: Tally) -> str:
    """States the most important rate: users ignore a tool that raises many false alarms."""
    slower, faster = (
        {0: "never", 1: "once", 2: "twice"}.get(n, f"{n} times")
        for n in (tally.verdicts["slower"], tally.verdicts["faster"])
    )
    return (
        f"In {plural(tally.judged, 'comparison')} of unchanged code benchax reported slower {slower} and "
        f"faster {faster}. On this machine, as it was now, it reports slower for at most "
        f"{percent(tally.at_most('slower'))} of unchanged code (at 95 % confidence)."
    )


def _caught(tally: Tally) -> str:
    slower = tally.verdicts["slower"]
    # The lower end of 90 % on two sides is the limit of 95 % on one side.
    low, _ = tally.interval("slower", 0.90)
    return (
        f"It called {slower} of {plural(tally.judged, 'comparison')} with {planted_name(tally.planted)} planted "
        f"slower: it finds at least {percent(low)} of such changes (at 95 % confidence)."
    )
