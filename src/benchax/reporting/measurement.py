"""Measurements as documents: one with its answer first, or many in a table with their failures and remarks.

Numbers that were not measured are named in one line at the end. The full form (`-v`) gives the reason for each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain, groupby, pairwise
from statistics import median

from benchax.grouping import group_by
from benchax.model import (
    OTHER_PROCESSES,
    Devices,
    DeviceShare,
    Measurement,
    Memory,
    Ranks,
    RankTimes,
    Samples,
    Stages,
    Transfer,
    find_why,
)
from benchax.reporting.document import (
    Axis,
    Bars,
    Block,
    Chart,
    Document,
    Facts,
    Heading,
    Line,
    Mark,
    Note,
    Paragraph,
    Points,
    ReferenceLine,
    Remarks,
    Section,
    Shade,
    Style,
    Symbol,
    Table,
    TableColumn,
    TextRow,
    list_remarks,
    name_places,
    tabulate,
)
from benchax.reporting.tables import (
    CASE,
    ESTIMATE,
    REMARKS,
    SharedRemarks,
    agreement,
    describe_date,
    describe_interval,
    describe_machine,
    estimate,
    mean_and_deviation,
    one_line,
    share_remarks,
    spread,
    truncate,
)
from benchax.stats.summary import Summary
from benchax.units import amount_per_s, count, percent, plural, rate, seconds, seconds_range, size

CACHES = {
    "off": "persistent cache off",
    "hit": "read from the persistent cache",
    "miss": "persistent cache missed",
    "warm": "was compiled before in this process",
}
COLD = {
    "process": "a cold process",
    "operations": "a new function, with JAX's first use of some operations",
    "function": "a new function in a warm process",
}
LONGEST_NAME = 60
"""Columns of a case and its inputs in a single line."""


def document(m: Measurement, is_full: bool = False) -> Document:
    """One measurement: the answer, the details, the remarks, and what was not measured.

    Args:
        is_full: give the reason for each number that was not measured.
    """
    facts = tuple(sections(m))
    details = [Facts(facts)] if facts else []
    # The answer says why the result was not checked.
    absent = _list_absent([m], is_full, named=("numerics",))
    return Document((answer(m), *details, *list_remarks(m.remarks), *absent))


def answer(m: Measurement) -> Heading:
    """The case, its answers, and where it was measured."""
    below = " · ".join(part for part in (describe_machine(m.environment), m.signature) if part)
    return Heading(m.case.label, 1, (below,) if below else (), answers=tuple(answers(m)))


def describe(m: Measurement) -> str:
    """sort f32[1000]: in_graph 14.2 µs (14.0–14.5), wall 20.3 µs (19.8–21.1); or the failure."""
    said = ", ".join(f"{timer} {estimate(m.summary(timer))}" for timer in _headline_timers(m)) or "not timed"
    said = one_line(m.failure.sentence) if m.failure else said
    return f"{truncate(f'{m.case.label} {m.signature}', LONGEST_NAME)}: {said}"


def document_of_stages(s: Stages) -> Document:
    """The stages that were measured. The row has the reasons for the others."""
    return Document((Facts((Section("once", tuple(_stages(s))),)),))


def list_measurements(listed: Sequence[Measurement], is_full: bool = False) -> Document:
    """An overview, then each row's remarks and failures. `is_full`: see `document`."""
    shared = share_grave_remarks(listed)
    blocks: list[Block] = [overview(listed)]
    for m in listed:
        if m.failure:
            said = "\n".join(filter(None, (m.failure.sentence, m.failure.advice)))
            blocks += [Heading(m.case.label), Paragraph(said, "bad")]
        elif own := shared.own[m.case.label]:
            blocks += [Heading(m.case.label), Remarks(own)]
    return Document((*blocks, *list_remarks(shared.common), *_list_absent(listed, is_full)))


def share_grave_remarks(listed: Sequence[Measurement]) -> SharedRemarks:
    """Separates the remarks that most rows have from those of single rows. Leaves out remarks that only inform.

    Rows with the same label count as one case.
    """
    by_case = group_by(listed, lambda m: m.case.label)
    return share_remarks(
        {label: [r for m in same for r in m.remarks if r.severity != "info"] for label, same in by_case.items()}
    )


# ---- many, a line for each --------------------------------------------------------------------------------------


def overview(measurements: Sequence[Measurement]) -> Table:
    """One line per measurement, without empty columns, and without remarks that all of them have."""
    universal = share_grave_remarks(measurements).universal
    names = list(dict.fromkeys(what for m in measurements for what in m.work.amounts))
    timers = list(dict.fromkeys(timer for m in measurements for timer in _headline_timers(m))) or ["time"]
    measured = [m for m in measurements if not m.failure]
    first = max(timers, key=lambda timer: sum(bool(m.find_summary(timer)) for m in measured))
    timers.sort(key=lambda timer: timer != first)
    is_enough = all(m.find_summary(first) for m in measured)  # no row loses its only number
    optional = [*(_PER_S.get(what, f"{what}/s") for what in names), "compile", "memory"]
    columns = (
        CASE,
        *(TableColumn(timer, "numbers", ESTIMATE, is_optional=is_enough and timer != first) for timer in timers),
        *(TableColumn(name, is_optional=True) for name in optional),
        replace(REMARKS, is_optional=True),
    )
    bad = [m.failure or any(remark.severity == "error" for remark in m.remarks) for m in measurements]
    lines = (_overview_line(m, timers, names, universal) for m in measurements)
    return tabulate(columns, lines, ["bad" if each else "" for each in bad]).without_empty_columns(kept=(0,))


_PER_S = {"bytes": "B/s", "flops": "FLOP/s"}


def _overview_line(
    m: Measurement, timers: Sequence[str], names: Sequence[str], universal: Collection[str]
) -> tuple[str, ...]:
    if m.failure:
        blank = [""] * (len(timers) + len(names) + 1)
        return (one_line(m.case.label), m.failure.words, *blank, f"in {m.failure.stage}")
    rates = {rate.what: count(rate.per_s) for rate in m.rates()}
    rise = _find_rise(m)
    codes = [remark.code for remark in m.remarks if remark.severity != "info" and remark.code not in universal]
    return (
        one_line(m.case.label),
        *(estimate(m.find_summary(timer)) for timer in timers),
        *(rates.get(what, "") for what in names),
        seconds(m.stages.compile_s) if m.stages.compile_s is not None else "",
        f"+{size(rise)}" if rise is not None else "",
        ", ".join(codes),
    )


def _find_rise(m: Measurement) -> int | None:
    return m.memory.eager_rise_bytes if m.case.variant == "eager" else m.memory.compiled_rise_bytes


# ---- the answer -------------------------------------------------------------------------------------------------


def answers(m: Measurement) -> Iterator[TextRow]:
    """Yields the answers that most readers want, in a few rows: the time, the first result, memory, and whether the
    result is right."""
    if m.failure:
        yield TextRow("", m.failure.words, f"in {m.failure.stage}: {m.failure.message}", "bad")
        if m.failure.advice:
            yield TextRow("", "", m.failure.advice)
    else:
        yield from _times(m)
        yield from _once(m)
    for row in _numerics(m):
        yield TextRow("", row.label, f"{row.value} {row.detail}".strip(), row.style)


def _once(m: Measurement) -> Iterator[TextRow]:
    s, rise = m.stages, _find_rise(m)
    if s.compile_s is not None:
        of_result = f"first result; {seconds(s.compile_s)} of it to compile"
        is_known = s.first_result_s is not None
        yield TextRow("", seconds(s.first_result_s or s.compile_s), of_result if is_known else "to compile")
    if rise is not None:
        yield TextRow("", f"+{size(rise)}", "memory during a call")
    elif m.memory.predicted_peak_bytes is not None:
        yield TextRow("", size(m.memory.predicted_peak_bytes), "memory as the compiler plans it")


def _times(m: Measurement) -> Iterator[TextRow]:
    summaries = {timer: m.summary(timer) for timer in _headline_timers(m)}
    intervals = list(map(spread, summaries.values()))
    width = max(map(len, intervals), default=0)
    for (timer, s), interval in zip(summaries.items(), intervals, strict=True):
        question = m.series_of(timer)[0].answers
        said = " · ".join(filter(None, (f"{timer}: {question}" if question else timer, agreement(s))))
        style = "title" if timer == next(iter(summaries)) else ""
        yield TextRow("", seconds(s.median_s), f"{interval:{width}}  {said}" if width else said, style)


def _headline_timers(m: Measurement) -> list[str]:
    """The headline, and the timer that answers the other of two questions: inside a program, and a call by itself."""
    names = list(dict.fromkeys(samples.timer for samples in m.samples if samples.elapsed_s))
    others = ("wall",) if names[:1] != ["wall"] else ("in_graph", "loop", "device")
    return names[:1] + [name for name in others if name in names[1:]][:1]


# ---- the details, section by section ----------------------------------------------------------------------------


def sections(m: Measurement) -> list[Section]:
    """Returns the measured values, section by section, without empty sections."""
    answered = _headline_timers(m)
    timers = dict.fromkeys(samples.timer for samples in m.samples if samples.elapsed_s)
    parts = (
        ("once", _stages(m.stages)),
        ("every call", (_timer(m.series_of(timer), m.summary(timer), timer in answered) for timer in timers)),
        ("devices", _devices(m)),
        ("processes", _ranks(m.ranks) if m.ranks else ()),
        ("memory", _memory(m)),
        ("work", (*_rates(m), *_cost(m))),
    )
    return [section for title, rows in parts if (section := Section(title, tuple(rows))).rows]


def _stages(s: Stages) -> Iterable[TextRow]:
    rows = (
        ("trace", s.trace_s, f"in {COLD[s.cold]}" if s.cold else ""),
        ("lower", s.lower_s, ""),
        ("compile", s.compile_s, CACHES[s.cache] if s.cache else ""),
        ("first run", s.first_run_s, ""),
        ("first result", s.first_result_s, "trace, lower, compile and first run"),
        ("dispatch", s.dispatch_s, "until a warm call returns"),
        ("call floor", s.call_floor_s, "an empty call"),
    )
    yield from _transfer("transfer in", s.transfer_in)
    yield from (TextRow(label, seconds(value_s), detail) for label, value_s, detail in rows if value_s is not None)
    yield from _transfer("transfer out", s.transfer_out)


def _transfer(label: str, transfer: Transfer | None) -> Iterable[TextRow]:
    if transfer is None or not transfer.elapsed_s:
        return
    speed = transfer.bandwidth_bytes_per_s
    how = "zero-copy: a view, nothing moved" if transfer.is_zero_copy else f"copied at {rate(speed or 0, 'B')}"
    yield TextRow(label, seconds(transfer.median_s), f"{size(transfer.size_bytes)}, {how}")


def _timer(series: Sequence[Samples], s: Summary, is_answered: bool) -> TextRow:
    samples = series[0]
    texts = (describe_interval(s), "" if is_answered else samples.answers, samples.regime or "")
    taken = f"{s.n} × {samples.iterations} samples" if samples.iterations > 1 else plural(s.n, "sample")
    disturbed = sum(each.disturbed_count or 0 for each in series)
    stop = {"time": ", out of time", "count": ", count reached"}.get(samples.stop or "", "")
    clock = f" of the {samples.clock_tier} clock" if samples.clock_tier else ""
    own_s = seconds((samples.overhead_s or 0.0) / samples.iterations, 2)
    less = "" if samples.overhead_s is None else f", less {own_s} for each reading{clock}"
    detail = f"{taken}{stop}{f', {disturbed} disturbed' if disturbed else ''}{less}"
    return TextRow(samples.timer, seconds(s.median_s), f"{' · '.join(filter(None, texts))}\n{detail}")


def _memory(m: Measurement) -> Iterable[TextRow]:
    mem = m.memory
    if mem.predicted_peak_bytes is not None:
        parts = {
            "arguments": mem.argument_bytes,
            "outputs": mem.output_bytes,
            "temporaries": mem.temp_bytes,
            "reused by donation": mem.alias_bytes or None,
            "constants": mem.constant_bytes or None,
        }
        detail = ", ".join(f"{name} {size(value)}" for name, value in parts.items() if value is not None)
        detail += f", on each of {mem.devices} devices" if mem.devices > 1 else ""
        theirs = f"; JAX's own figure is {size(mem.compiler_peak_bytes)}" if mem.compiler_peak_bytes is not None else ""
        yield TextRow("planned peak", size(mem.predicted_peak_bytes), detail + theirs)
    observed, low, high = f"observed rise ({mem.method})", mem.eager_rise_low_bytes, mem.eager_rise_bytes
    several = "" if high is None else f"to +{size(high)}, {RUNS_AHEAD.format(mem.method)}"
    for label, sign, value, detail in (
        ("captured", "", mem.captured_bytes or None, "arrays closed over by the Python function"),
        ("compiled call", "+", mem.compiled_rise_bytes, observed),
        ("eager call", "+", high if low is None else low, observed if low is None else several),
    ):
        if value is not None:
            yield TextRow(label, f"{sign}{size(value)}", detail)


RUNS_AHEAD = "observed in several calls ({}): how long arrays live depends on how far Python runs ahead of the device"


def _rates(m: Measurement) -> Iterable[TextRow]:
    """The declared work of a call, per second."""
    rates = {rate.what: rate for rate in m.rates()}
    for what, amount in m.work.amounts.items():
        if found := rates.get(what):
            ends = [count(value) for value in (found.low_per_s, found.high_per_s) if value is not None]
            interval = f"95 % {' – '.join(ends)}" if len(ends) == 2 else "without an interval"
            share = _share_of_peak(found.per_s, m) if what == "bytes" else ""
            detail = f"{interval} by the {found.timer} timer{share}; {count(amount)} in a call"
            yield TextRow(what, amount_per_s(found.per_s, what), detail)


def _share_of_peak(per_s: float, m: Measurement) -> str:
    """, 61 % of the 20.1 GB/s that this machine reached; empty if that is not known"""
    peak = m.work.peak_bytes_per_s
    return f", {percent(per_s / peak)} of the {rate(peak, 'B')} that this machine reached" if peak else ""


def _cost(m: Measurement) -> Iterable[TextRow]:
    if m.cost is None:
        return
    timer = next((name for name in ("in_graph", "loop", "wall") if m.find_summary(name)), None)
    median_s = m.summary(timer).median_s if timer else 0.0
    # XLA counts one iteration of a loop, so a rate would be wrong.
    has_rate = median_s > 0 and not m.cost.has_loops
    each = f" on each of {m.devices.count} devices" if m.devices else ""
    for label, amount, unit, source in (
        ("operations", m.cost.flops, "FLOP", "XLA's count"),
        ("transcendentals", m.cost.transcendentals, "", "exp, log, tanh …"),
        ("bytes accessed", m.cost.bytes_accessed, "B", "XLA's estimate"),
    ):
        per_s = amount / median_s if amount and unit and has_rate else 0.0
        speed = f"{rate(per_s, unit)} by the {timer} timer{_share_of_peak(per_s, m) * (unit == 'B')}; " if per_s else ""
        if amount:
            yield TextRow(label, size(amount) if unit == "B" else count(amount, unit), f"{speed}{source}{each}")


def _numerics(m: Measurement) -> Iterable[TextRow]:
    n = m.numerics
    if n is None:
        absent = (a for a in m.not_measured if a.what == "numerics" and not a.is_by_choice)
        yield from (TextRow("unchecked", "", f"because {a.why}", "faint") for a in list(absent)[:1])
    elif not n.agrees:
        yield TextRow("WRONG", "", n.why, "bad")
    else:
        reference = {"eager": "the eager result", "float64": "a float64 reference"}[n.reference]
        word, to = ("identical", "to") if n.max_abs == 0 else ("agrees", "with")
        far = f"; largest difference {n.max_rel:.1e} of the largest value" if n.max_rel else ""
        is_finite = all(remark.code != "nonfinite-result" for remark in m.remarks)
        odd, style = ("", "good") if is_finite else ("; not all values are finite", "warning")
        yield TextRow("checked", word, f"{to} {reference}{far}{odd}", style)


# ---- what was not measured --------------------------------------------------------------------------------------


_NAMES = {
    OTHER_PROCESSES: "other processes",
    "cost": "operations",
    "devices.shares": "devices at work",
    "memory.compiled_rise_bytes": "memory during a call",
    "memory.eager_rise_bytes": "memory during an eager call",
    "memory.plan": "planned peak",
    "numerics": "the check of the result",
    "samples": "run time",
}
_NO_NUMBERS = ("program", "purity")
"""These groups aren't numbers. Only the full form lists them."""


def _list_absent(listed: Sequence[Measurement], is_full: bool, named: Collection[str] = ()) -> Iterator[Block]:
    """One line of names; or the reasons, if `is_full` or the user named the timer that is missing.

    Args:
        named: what the line leaves out.
    """
    names: dict[str, None] = {}
    for m in listed:
        asked = {f"samples.{name.strip()}" for name in m.options.timer.split(",")}
        wanted = [absent for absent in m.not_measured if is_full or absent.what in asked]
        if wanted:
            title = "not measured" if len(listed) == 1 else f"not measured of {one_line(m.case.label)}"
            rows = tuple(TextRow(_name(absent.what), absent.why) for absent in wanted)
            yield Facts((Section(title, rows),), "words")
        others = [absent.what for absent in m.not_measured if absent not in wanted]
        names |= dict.fromkeys(_name(what) for what in others if not what.startswith((*_NO_NUMBERS, *named)))
    if names:
        yield Paragraph(f"not measured: {', '.join(names)} (-v says why)", "faint")


def _name(what: str) -> str:
    """stages.transfer_in as "transfer in"; samples.in_graph as in_graph."""
    group, _, rest = what.partition(".")
    if what in _NAMES or not rest:
        return _NAMES.get(what, what)
    return rest if group == "samples" else rest.removesuffix("_s").replace("_", " ")


SMALL_SKEW_S = 50e-6
"""Ranks begin within a microsecond of one another, or, where one had no core, far later: a median hides which."""
MOST_ROWS = 8
"""The table lists up to this many devices or processes. For more, it shows the range."""


def describe_devices(devices: Devices) -> str:
    """4 fake devices"""
    return plural(devices.count, "fake device" if devices.is_fake else "device")


def _devices(m: Measurement) -> Iterable[TextRow]:
    devices = m.devices
    if devices is None:
        return
    yield TextRow(describe_devices(devices), "", "; ".join(devices.meshes) or "of no mesh that JAX names")
    shares = devices.shares
    if not shares:
        why = find_why(m.not_measured, "devices.shares")
        yield TextRow("at work", "not measured", f"because {why or 'they were not recorded'}", "faint")
    elif len(shares) <= MOST_ROWS:
        for share in sorted(shares, key=lambda each: each.name):
            yield TextRow(share.name, seconds(share.busy_s), f"at work in a call{_communication(share)}")
    else:
        busy_s = [share.busy_s for share in shares]
        yield TextRow(
            "at work", seconds(median(busy_s)), f"{seconds_range(min(busy_s), max(busy_s))} in a call, by device"
        )


def _communication(share: DeviceShare) -> str:
    """Returns a text such as ", 12 % of it in collectives, 3 µs not hidden by other work"."""
    if not share.communication_s:
        is_known = share.communication_s is not None
        return ", none of it in collectives" if is_known else "; what of it is communication is not known"
    exposed = "" if share.exposed_s is None else f", {seconds(share.exposed_s)} not hidden by other work"
    part = percent(share.communication_s / share.busy_s)
    return f", {part} of it in collectives, waiting included ({seconds(share.communication_s)}{exposed})"


def _ranks(ranks: Ranks) -> Iterable[TextRow]:
    hosts = len({rank.host for rank in ranks.ranks})
    where = "one host" if hosts == 1 else plural(hosts, "host")
    yield TextRow(f"{len(ranks.ranks)} ranks", "", f"with {plural(ranks.devices_each, 'device')} each, on {where}")
    if ranks.barrier_skew_s:
        few = percent(sum(skew <= SMALL_SKEW_S for skew in ranks.barrier_skew_s) / len(ranks.barrier_skew_s))
        detail = (
            f"between the first and the last start, {few} of them at most {seconds(SMALL_SKEW_S)}, the largest "
            f"{seconds(max(ranks.barrier_skew_s))}; not part of the times"
        )
        yield TextRow("start skew", seconds(median(ranks.barrier_skew_s)), detail)
        yield _since_start("first to end", median(ranks.least_s), "the fastest rank of each sample")
    listed = sorted(ranks.ranks, key=lambda rank: -rank.was_last)[:MOST_ROWS]
    for rank in sorted(listed, key=lambda rank: rank.rank):
        name, detail = f"rank {rank.rank}", _describe_rank(rank, hosts)
        yield TextRow(name, "", detail) if rank.median_s is None else _since_start(name, rank.median_s, detail)
    if len(listed) < len(ranks.ranks):
        yield TextRow("", "", f"and {len(ranks.ranks) - len(listed)} more, which were last less often")


def _since_start(name: str, median_s: float, detail: str) -> TextRow:
    """A rank that waits for no other rank can end before the last rank begins. The time starts when the last rank
    begins."""
    if median_s > 0:
        return TextRow(name, seconds(median_s), detail)
    return TextRow(name, "not measured", f"because it mostly ended before the last rank had begun; {detail}")


def _describe_rank(rank: RankTimes, hosts: int) -> str:
    last = f"last in {percent(rank.was_last / len(rank.elapsed_s))} of the samples" if rank.elapsed_s else "no samples"
    compiled = f", compiled in {seconds(rank.compile_s)}" if rank.compile_s is not None else ""
    return last + compiled + (f", on {rank.host}" if hosts > 1 else "")


STATISTICS = (TableColumn("timer", "names"), "n", "mean ± std", "min", "25 %", "median", "75 %", "max", "beyond")


def document_of_statistics(m: Measurement) -> Document:
    """Shows the statistics of all processes together, per call and net of the timer's own cost."""
    timers = dict.fromkeys(samples.timer for samples in m.samples)
    if not timers:
        return Document((Paragraph(f"{m.case.label} has no samples"),))
    note = "beyond: readings 1.5 interquartile ranges beyond the quartiles, counted and kept"
    table = tabulate(STATISTICS, (_statistics_line(timer, m.summary(timer)) for timer in timers))
    return Document((Paragraph(m.case.label), table, Paragraph(note)))


def document_of_summary(s: Summary) -> Document:
    """One summary, which doesn't know its timer."""
    rows = (
        TextRow("median", seconds(s.median_s), " · ".join(filter(None, (describe_interval(s), agreement(s))))),
        TextRow("quartiles", f"{seconds(s.q25_s)} to {seconds(s.q75_s)}"),
        TextRow("extremes", f"{_describe_least(s)} to {seconds(s.max_s)}"),
        TextRow("mean ± std", mean_and_deviation(s), "of the readings, preempted ones included"),
        TextRow("readings", str(s.n), f"{s.outliers} of them 1.5 interquartile ranges beyond the quartiles, and kept"),
    )
    return Document((Facts((Section("a call", tuple(row for row in rows if row.value)),)),))


def _describe_least(s: Summary) -> str:
    return "not above 0" if s.min_s is None else seconds(s.min_s)


def _statistics_line(timer: str, s: Summary) -> tuple[str, ...]:
    return (
        timer,
        str(s.n),
        mean_and_deviation(s),
        _describe_least(s),
        *map(seconds, (s.q25_s, s.median_s, s.q75_s, s.max_s)),
        str(s.outliers),
    )


# Thins out readings: if there are very many, a chart shows some of them and says how many.


def thin(values: Sequence[float], most: int) -> list[int]:
    """The places of at most `most` of them, in order: the least and the greatest of each group of neighbours, so that
    no outlier gets lost. All where they are no more than that."""
    if len(values) <= most:
        return list(range(len(values)))
    n = max(1, most // 2)
    groups = [range(len(values) * i // n, len(values) * (i + 1) // n) for i in range(n)]
    return sorted({choose(group, key=values.__getitem__) for group in groups for choose in (min, max)})


MOST_READINGS = 2000
"""The most readings of one timer in one chart."""
MOST_BINS = 40
REACH = 4.0
"""The axis of times extends this many interquartile ranges beyond the quartiles, or to the last reading. Otherwise one
reading of a second would turn the others, of microseconds, into a line."""
LEAST_REACH = 0.02
"""The axis extends at least this share of the median."""
LEAST_STRETCH, MOST_STRETCHES = 10, 20
"""The line of drift connects medians of this many neighbors; medians of fewer would show noise."""


def document_with_charts(m: Measurement, most: int = MOST_READINGS) -> Document:
    """The full form of one measurement, with its charts after the numbers.

    Args:
        most: the maximum number of readings to draw for each timer.
    """
    facts = (block for block in document(m, is_full=True).blocks if isinstance(block, Facts))
    return Document((answer(m), *facts, *charts(m, most), *list_remarks(m.remarks)))


def charts(m: Measurement, most: int = MOST_READINGS) -> Iterator[Chart]:
    for timer in dict.fromkeys(samples.timer for samples in m.samples):
        if (summary := m.find_summary(timer)) is not None:
            yield from _chart_timer(m.series_of(timer), summary, most)
    yield from filter(None, (chart_stages(m.stages), chart_memory(m.memory)))


# ---- readings ---------------------------------------------------------------------------------------------------


def _chart_timer(series: Sequence[Samples], s: Summary, most: int) -> tuple[Chart, Chart]:
    """The readings of all processes in the order in which they were taken, and their distribution on the same axis."""
    times_s = list(chain(*(samples.per_call_s for samples in series)))
    edges = [0, *accumulate(len(samples.elapsed_s) for samples in series)]
    ends = _ends(times_s, s)
    per_call = Axis("per call", "seconds", ends=ends)
    level: list[Mark] = [ReferenceLine("y", s.median_s, style="title")]
    if s.low_s is not None and s.high_s is not None:
        level.insert(0, Shade("y", s.low_s, s.high_s))
    name = series[0].timer
    marks = (*level, *_processes(edges), *_points(times_s, series, most), *_drift(times_s, edges))
    order = Chart(
        Axis("readings in the order taken", "count"), per_call, marks,
        f"{name}: {plural(len(times_s), 'reading')}", has_legend=True, note=_describe_marks(times_s, s, ends, most),
    )  # fmt: skip
    spread = Chart(Axis("readings", "count"), per_call, (*level, _histogram(times_s, ends)), f"{name}: distribution")
    return order, spread


def _ends(times_s: Sequence[float], s: Summary) -> tuple[float, float]:
    iqr, known = s.q75_s - s.q25_s, [end for end in (s.low_s, s.high_s) if end is not None]
    low = min([max(min(times_s), s.q25_s - REACH * iqr), *known])
    high = max([min(max(times_s), s.q75_s + REACH * iqr), *known])
    room = max(0.05 * (high - low), LEAST_REACH * abs(s.median_s), 1e-12)
    return low - room, high + room


def _points(times_s: Sequence[float], series: Sequence[Samples], most: int) -> Iterator[Points]:
    shown = thin(times_s, most)
    disturbed = list(chain(*(samples.disturbed or (False,) * len(samples.elapsed_s) for samples in series)))
    kinds: tuple[tuple[str, Style, Symbol], ...] = (
        ("undisturbed", "", "circle"), ("preempted", "warning", "diamond"),
    )  # fmt: skip
    for is_disturbed, (label, style, symbol) in enumerate(kinds):
        if places := tuple(i for i in shown if disturbed[i] == is_disturbed):
            yield Points(places, tuple(times_s[i] for i in places), label=label, style=style, symbol=symbol)


def _processes(edges: Sequence[int]) -> Iterator[ReferenceLine]:
    """`edges`: where the readings of each process begin, and the end of all."""
    for n, start in enumerate(edges[1:-1], 2):
        yield ReferenceLine("x", start - 0.5, "break", f"process {n}" if len(edges) <= 9 else "", "faint")


def _drift(times_s: Sequence[float], edges: Sequence[int]) -> Iterator[Line]:
    """The median of each stretch of neighbours, within a process."""
    for first, end in pairwise(edges):
        n = min(MOST_STRETCHES, (end - first) // LEAST_STRETCH)
        stretches = list(pairwise(first + (end - first) * i // n for i in range(n + 1))) if n >= 3 else []
        middles = tuple((a + b - 1) / 2 for a, b in stretches)
        if stretches:
            yield Line(middles, tuple(median(times_s[a:b]) for a, b in stretches), "medians of neighbours", "info")


def _describe_marks(times_s: Sequence[float], s: Summary, ends: tuple[float, float], most: int) -> str:
    """Describes the marks, and what the chart omits."""
    n = len(times_s)
    beyond = [t for t in times_s if not ends[0] <= t <= ends[1]]
    texts = ["line: median" + ("; shade: its 95 % interval" if s.low_s is not None else "")]
    if beyond:
        span = seconds(beyond[0]) if len(beyond) == 1 else seconds_range(min(beyond), max(beyond))
        texts.append(f"{plural(len(beyond), 'reading')} beyond the axis: {span}")
    if n > most:
        shown = f"{len(thin(times_s, most))} of {plural(n, 'reading')} are drawn"
        texts.append(f"{shown}: the least and the greatest of each group of neighbours")
    return "; ".join(texts)


def _histogram(times_s: Sequence[float], ends: tuple[float, float]) -> Bars:
    """Counts readings in bins of equal width (Freedman & Diaconis 1981) along the axis. Omits readings beyond it."""
    inside = sorted(t for t in times_s if ends[0] <= t <= ends[1])
    iqr = inside[(3 * len(inside)) // 4 - (len(inside) % 4 == 0)] - inside[len(inside) // 4]
    width = 2 * iqr / len(inside) ** (1 / 3)
    bins = min(MOST_BINS, max(5, math.ceil((ends[1] - ends[0]) / width))) if width > 0 else 5
    step = (ends[1] - ends[0]) / bins
    counts = Counter(min(bins - 1, int((t - ends[0]) / step)) for t in inside)
    places = tuple(ends[0] + (i + 0.5) * step for i in range(bins))
    return Bars(places, (0.0,) * bins, tuple(float(counts[i]) for i in range(bins)), "x", step * 0.96, "readings")


# ---- what is there once -----------------------------------------------------------------------------------------


def chart_stages(s: Stages) -> Chart | None:
    """A waterfall: each stage begins where the one before it ended. None if nothing was measured."""
    listed = [
        ("transfer in", s.transfer_in_s), ("trace", s.trace_s), ("lower", s.lower_s), ("compile", s.compile_s),
        ("first run", s.first_run_s), ("transfer out", s.transfer_out_s),
    ]  # fmt: skip
    known = [(row, time_s) for row, (_, time_s) in enumerate(listed) if time_s is not None]
    if not known:
        return None
    ends = list(accumulate(time_s for _, time_s in known))
    lows = tuple(end - time_s for end, (_, time_s) in zip(ends, known, strict=True))
    bars = Bars(
        tuple(float(row) for row, _ in known), lows, tuple(ends), "x", texts=tuple(seconds(t) for _, t in known)
    )
    absent = [Note(0, row, "not measured", "faint") for row, (_, time_s) in enumerate(listed) if time_s is None]
    return Chart(
        Axis("one after the other", "seconds", ends=(0.0, 1.02 * ends[-1] or 1.0)),
        name_places([name for name, _ in listed]), (bars, *absent), "once",
    )  # fmt: skip


def chart_memory(mem: Memory) -> Chart | None:
    """Memory that XLA planned, by kind, and the observed rise. None if neither is known."""
    planned = [
        ("arguments", mem.argument_bytes), ("outputs", mem.output_bytes), ("temporaries", mem.temp_bytes),
        ("constants", mem.constant_bytes), ("reused by donation", mem.alias_bytes),
        ("planned peak", mem.predicted_peak_bytes),
    ]  # fmt: skip
    observed = [("compiled call", mem.compiled_rise_bytes), ("eager call", mem.eager_rise_bytes)]
    rows = [
        (label, name, float(value))
        for label, listed in (("planned", planned), ("observed rise", observed))
        for name, value in listed
        if value is not None
    ]
    styles: dict[str, Style] = {"planned": "", "observed rise": "info"}
    marks: list[Mark] = []
    for label, group in groupby(enumerate(rows), lambda one: one[1][0]):
        places, ends = zip(*((float(place), value) for place, (*_, value) in group), strict=True)
        marks.append(Bars(places, (0.0,) * len(places), ends, "x", label=label, style=styles[label]))
    axis = Axis("", "bytes", ends=(0.0, 1.05 * max((value for *_, value in rows), default=0.0) or 1.0))
    names = name_places([name for _, name, _ in rows])
    return Chart(axis, names, tuple(marks), "memory", has_legend=len(marks) > 1) if marks else None


MOST_DETAILS = 1000
MOST_NUMBERS = 36_000
"""Readings on a page. Each chart has its share of them, and notes if it does not show all."""
LEAST_NUMBERS = 40
CHARTS = 3
"""Timers of a case, mostly."""
FULL = "benchax show ID --json"


def documents_of_run(rows: Sequence[Measurement]) -> tuple[Document, ...]:
    """The overview first; its cases lead to their parts. If there are very many cases, those that failed or are wrong
    come before those with a warning, and some have no parts."""
    urgent = sorted(range(len(rows)), key=lambda i: _rank(rows[i]))[:MOST_DETAILS]
    chosen = [rows[i] for i in sorted(urgent)]
    most = max(LEAST_NUMBERS, min(MOST_READINGS, MOST_NUMBERS // max(1, CHARTS * len(chosen))))
    return (_overview(rows, len(chosen)), *(document_with_charts(m, most) for m in chosen))


def _rank(m: Measurement) -> int:
    """Returns 0 for a case that failed or is wrong, then 1 for a case with a warning."""
    severities = {remark.severity for remark in m.remarks}
    return 0 if m.failure or "error" in severities else 1 if "warning" in severities else 2


def _overview(rows: Sequence[Measurement], detailed: int) -> Document:
    if not rows:
        return Document((Heading("No measurements", 1), Paragraph("There is nothing in this run.")))
    runs = list(dict.fromkeys(m.run_id for m in rows))
    commits = list(dict.fromkeys(m.environment.commit[:12] for m in rows if m.environment.commit))
    failed = sum(m.failure is not None for m in rows)
    title = f"Run {runs[0][:12]}" if len(runs) == 1 else plural(len(runs), "run")
    below = (
        f"{plural(len(rows), 'case')}" + (f", {failed} failed" if failed else ""),
        f"{describe_date(min(m.started_at for m in rows))} UTC"
        + (f" · commit {', '.join(commits)}" if commits else ""),
        *dict.fromkeys(describe_machine(m.environment) for m in rows),
    )
    blocks: list[Block] = [Heading(title, 1, below), overview(rows), *list_remarks(share_grave_remarks(rows).common)]
    if detailed < len(rows):
        what = f"Details of {detailed} of {plural(len(rows), 'case')} follow: first those that failed or have remarks."
        blocks.append(Paragraph(f"{what} `{FULL}` has all of each.", "warning"))
    return Document(tuple(blocks))
