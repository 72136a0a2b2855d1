"""Measurements as documents: one with its answer first, or many in a table with their failures and remarks.

Numbers that were not measured are named in one line at the end. The full form (`-v`) gives the reason for each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from benchax.model import OTHER_PROCESSES, Failure, Measurement, Rate, Remark, Samples, Stages, Transfer
from benchax.reporting.document import (
    Block,
    Document,
    Facts,
    Heading,
    Paragraph,
    Remarks,
    Section,
    Style,
    Table,
    TableColumn,
    TextRow,
    list_remarks,
    tabulate,
)
from benchax.reporting.parallel import sections_of_parallel
from benchax.reporting.shared_remarks import SharedRemarks, share_remarks
from benchax.reporting.tables import (
    CASE,
    ESTIMATE,
    REMARKS,
    agreement,
    describe_interval,
    describe_machine,
    estimate,
    one_line,
    spread,
    truncate,
)
from benchax.stats.summary import Summary
from benchax.units import amount_per_s, count, percent, rate, seconds, size

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
    if m.failure:
        said = one_line(f"{_kind(m.failure)} in {m.failure.stage}: {m.failure.message}")
    else:
        said = ", ".join(f"{timer} {estimate(m.summary(timer))}" for timer in _headline_timers(m)) or "not timed"
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
            blocks += [Heading(m.case.label), Paragraph(_describe_failure(m.failure), "bad")]
        elif own := shared.own[m.case.label]:
            blocks += [Heading(m.case.label), Remarks(own)]
    return Document((*blocks, *list_remarks(shared.common), *_list_absent(listed, is_full)))


def share_grave_remarks(listed: Sequence[Measurement]) -> SharedRemarks:
    """Separates the remarks that most rows have from those of single rows. Leaves out remarks that only inform.

    Rows with the same label count as one case.
    """
    grave: dict[str, list[Remark]] = {m.case.label: [] for m in listed}
    for m in listed:
        grave[m.case.label] += [remark for remark in m.remarks if remark.severity != "info"]
    return share_remarks(grave)


def _describe_failure(failure: Failure) -> str:
    advice = f"\n{failure.advice}" if failure.advice else ""
    return f"{_kind(failure)} in {failure.stage}: {failure.message}{advice}"


def _kind(failure: Failure) -> str:
    return failure.kind.replace("_", " ")


# ---- many, a line for each --------------------------------------------------------------------------------------


def overview(measurements: Sequence[Measurement]) -> Table:
    """One line per measurement, without empty columns, and without remarks that all of them have."""
    listed = list(measurements)
    universal = share_grave_remarks(listed).universal
    names = list(dict.fromkeys(what for m in listed for what in m.work.amounts))
    timers = list(dict.fromkeys(timer for m in listed for timer in _headline_timers(m))) or ["time"]
    times = (TableColumn(timer, "numbers", ESTIMATE) for timer in timers)
    columns = (CASE, *times, *(_PER_S.get(what, f"{what}/s") for what in names), "compile", "memory", REMARKS)
    styles: list[Style] = ["bad" if m.failure or _is_wrong(m) else "" for m in listed]
    lines = (_overview_line(m, timers, names, universal) for m in listed)
    return tabulate(columns, lines, styles).without_empty_columns(kept=(0,))


_PER_S = {"bytes": "B/s", "flops": "FLOP/s"}


def _is_wrong(m: Measurement) -> bool:
    return any(remark.severity == "error" for remark in m.remarks)


def _overview_line(
    m: Measurement, timers: Sequence[str], names: Sequence[str], universal: Collection[str]
) -> tuple[str, ...]:
    if m.failure:
        blank = [""] * (len(timers) + len(names) + 1)
        return (one_line(m.case.label), _kind(m.failure), *blank, f"in {m.failure.stage}")
    rates = {rate.what: count(rate.per_s) for rate in m.rates()}
    is_eager = m.case.variant == "eager"
    rise = m.memory.eager_rise_bytes if is_eager else m.memory.compiled_rise_bytes
    codes = [remark.code for remark in m.remarks if remark.severity != "info" and remark.code not in universal]
    return (
        one_line(m.case.label),
        *(estimate(m.find_summary(timer)) for timer in timers),
        *(rates.get(what, "") for what in names),
        seconds(m.stages.compile_s) if m.stages.compile_s is not None else "",
        f"+{size(rise)}" if rise is not None else "",
        ", ".join(codes),
    )


# ---- the answer -------------------------------------------------------------------------------------------------


def answers(m: Measurement) -> Iterator[TextRow]:
    """Yields the answers that most readers want, in a few rows: the time, the first result, memory, and whether the
    result is right."""
    if m.failure:
        yield TextRow("", _kind(m.failure), f"in {m.failure.stage}: {m.failure.message}", "bad")
        if m.failure.advice:
            yield TextRow("", "", m.failure.advice)
    else:
        yield from _times(m)
        yield from _once(m.stages)
        yield from _memory_of_a_call(m)
    for row in _numerics(m):
        yield TextRow("", row.label, f"{row.value} {row.detail}".strip(), row.style)


def _once(s: Stages) -> Iterator[TextRow]:
    if s.first_result_s is not None and s.compile_s is not None:
        yield TextRow("", seconds(s.first_result_s), f"first result; {seconds(s.compile_s)} of it to compile")
    elif s.compile_s is not None:
        yield TextRow("", seconds(s.compile_s), "to compile")


def _memory_of_a_call(m: Measurement) -> Iterator[TextRow]:
    mem = m.memory
    rise = mem.eager_rise_bytes if m.case.variant == "eager" else mem.compiled_rise_bytes
    if rise is not None:
        yield TextRow("", f"+{size(rise)}", "memory during a call")
    elif mem.predicted_peak_bytes is not None:
        yield TextRow("", size(mem.predicted_peak_bytes), "memory as the compiler plans it")


def _times(m: Measurement) -> Iterator[TextRow]:
    summaries = {timer: m.summary(timer) for timer in _headline_timers(m)}
    intervals = {timer: spread(s.median_s, s.low_s, s.high_s) for timer, s in summaries.items()}
    width = max(map(len, intervals.values()), default=0)
    for place, (timer, s) in enumerate(summaries.items()):
        question = m.series_of(timer)[0].answers
        meaning = f"{timer}: {question}" if question else timer
        said = " · ".join(part for part in (meaning, agreement(s)) if part)
        detail = f"{intervals[timer]:{width}}  {said}" if width else said
        yield TextRow("", seconds(s.median_s), detail, "" if place else "title")


def _headline_timers(m: Measurement) -> list[str]:
    """The headline, and the timer that answers the other of two questions: inside a program, and a call by itself."""
    names = list(dict.fromkeys(samples.timer for samples in m.samples if samples.elapsed_s))
    others = ("wall",) if names[:1] != ["wall"] else ("in_graph", "loop", "device")
    return names[:1] + [name for name in others if name in names[1:]][:1]


# ---- the details, section by section ----------------------------------------------------------------------------


def sections(m: Measurement) -> list[Section]:
    """Returns the measured values, section by section, without empty sections."""
    parts = [
        Section("once", tuple(_stages(m.stages))),
        Section("every call", tuple(_samples(m))),
        *sections_of_parallel(m),
        Section("memory", tuple(_memory(m))),
        Section("work", (*_rates(m), *_cost(m))),
    ]
    return [part for part in parts if part.rows]


def _stages(s: Stages) -> Iterable[TextRow]:
    cold = f"in {COLD[s.cold]}" if s.cold else ""
    cache = CACHES[s.cache] if s.cache else ""
    yield from _transfer("transfer in", s.transfer_in)
    yield from _time("trace", s.trace_s, cold)
    yield from _time("lower", s.lower_s)
    yield from _time("compile", s.compile_s, cache)
    yield from _time("first run", s.first_run_s)
    yield from _time("first result", s.first_result_s, "trace, lower, compile and first run")
    yield from _time("dispatch", s.dispatch_s, "until a warm call returns")
    yield from _time("call floor", s.call_floor_s, "a call that does next to nothing")
    yield from _transfer("transfer out", s.transfer_out)


def _time(label: str, value_s: float | None, detail: str = "") -> Iterable[TextRow]:
    if value_s is not None:
        yield TextRow(label, seconds(value_s), detail)


def _transfer(label: str, transfer: Transfer | None) -> Iterable[TextRow]:
    if transfer is None or not transfer.elapsed_s:
        return
    speed = transfer.bandwidth_bytes_per_s
    how = "zero-copy: a view, nothing moved" if transfer.is_zero_copy else f"copied at {rate(speed or 0, 'B')}"
    yield TextRow(label, seconds(transfer.median_s), f"{size(transfer.size_bytes)}, {how}")


def _samples(m: Measurement) -> Iterable[TextRow]:
    answered = _headline_timers(m)
    for timer in dict.fromkeys(samples.timer for samples in m.samples if samples.elapsed_s):
        yield _timer(m.series_of(timer), m.summary(timer), timer in answered)


def _timer(series: Sequence[Samples], s: Summary, is_answered: bool) -> TextRow:
    samples = series[0]
    texts = (describe_interval(s), "" if is_answered else samples.answers, samples.regime or "")
    taken = f"{s.n} × {samples.iterations}" if samples.iterations > 1 else f"{s.n}"
    disturbed = sum(each.disturbed_count or 0 for each in series)
    stop = {"precise": "", "time": ", out of time", "count": ", count reached", None: ""}[samples.stop]
    detail = f"{taken} samples{stop}{f', {disturbed} disturbed' if disturbed else ''}{_overhead(samples)}"
    return TextRow(samples.timer, seconds(s.median_s), f"{' · '.join(filter(None, texts))}\n{detail}")


def _overhead(samples: Samples) -> str:
    if samples.overhead_s is None:
        return ""
    less = seconds(samples.overhead_s / samples.iterations, 2)
    clock = f" of the {samples.clock_tier} clock" if samples.clock_tier else ""
    return f", less {less} for each reading{clock}"


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
    if mem.captured_bytes:
        yield TextRow("captured", size(mem.captured_bytes), "arrays closed over by the Python function")
    for label, value in (("compiled call", mem.compiled_rise_bytes), ("eager call", mem.eager_rise_bytes)):
        if value is not None and label == "eager call" and mem.eager_rise_low_bytes is not None:
            text = f"observed in several calls ({mem.method}): arrays live by how far Python runs ahead of the device"
            yield TextRow(label, f"+{size(mem.eager_rise_low_bytes)}", f"to +{size(value)}, {text}")
        elif value is not None:
            yield TextRow(label, f"+{size(value)}", f"observed above what was there before ({mem.method})")


def _rates(m: Measurement) -> Iterable[TextRow]:
    """The declared work of a call, per second."""
    rates = {rate.what: rate for rate in m.rates()}
    for what, amount in m.work.amounts.items():
        if what in rates:
            yield TextRow(what, amount_per_s(rates[what].per_s, what), _detail_of(rates[what], amount, m))


def _detail_of(rate: Rate, amount: float, m: Measurement) -> str:
    interval = "without an interval"
    if rate.low_per_s is not None and rate.high_per_s is not None:
        ends = [count(value) for value in (rate.low_per_s, rate.high_per_s)]
        interval = f"95 % {' – '.join(ends)}"
    share = f", {_share_of_peak(rate.per_s, m)}" if rate.what == "bytes" and m.work.peak_bytes_per_s else ""
    return f"{interval} by the {rate.timer} timer{share}; {count(amount)} in a call"


def _share_of_peak(per_s: float, m: Measurement) -> str:
    """61 % of the 20.1 GB/s that this machine reached"""
    peak = m.work.peak_bytes_per_s or 0.0
    return f"{percent(per_s / peak)} of the {rate(peak, 'B')} that this machine reached"


def _cost(m: Measurement) -> Iterable[TextRow]:
    if m.cost is None:
        return
    timer = next((name for name in ("in_graph", "loop", "wall") if m.find_summary(name)), None)
    per_call = m.summary(timer) if timer else None
    if m.cost.flops:
        # XLA counts one iteration of a loop, so a rate would be wrong.
        known = per_call and per_call.median_s > 0 and not m.cost.has_loops
        speed = f"{rate(m.cost.flops / per_call.median_s, 'FLOP')} " if known and per_call else ""
        by = f"by the {timer} timer"
        each = f" on each of {m.devices.count} devices" if m.devices else ""
        detail = f"{speed}{by}" if speed else "XLA's count"
        yield TextRow("operations", count(m.cost.flops, "FLOP"), detail + each)
    if m.cost.transcendentals:
        yield TextRow("transcendentals", count(m.cost.transcendentals), "exp, log, tanh …")
    if m.cost.bytes_accessed:
        speed = "XLA's estimate"
        if per_call and per_call.median_s > 0 and not m.cost.has_loops:
            per_s = m.cost.bytes_accessed / per_call.median_s
            share = f", {_share_of_peak(per_s, m)}" if m.work.peak_bytes_per_s else ""
            speed = f"{rate(per_s, 'B')} by the {timer} timer{share}; XLA's estimate"
        speed += f" on each of {m.devices.count} devices" if m.devices else ""
        yield TextRow("bytes accessed", size(m.cost.bytes_accessed), speed)


def _numerics(m: Measurement) -> Iterable[TextRow]:
    n = m.numerics
    if n is None:
        absent = next((a for a in m.not_measured if a.what == "numerics" and not a.is_by_choice), None)
        if absent is not None:
            yield TextRow("unchecked", "", f"because {absent.why}", "faint")
        return
    reference = {"eager": "the eager result", "float64": "a float64 reference"}[n.reference]
    if not n.agrees:
        yield TextRow("WRONG", "", n.why, "bad")
    else:
        word, to = ("identical", "to") if n.max_abs == 0 else ("agrees", "with")
        details = [f"{to} {reference}"]
        details += [f"largest difference {n.max_rel:.1e} of the largest value"] if n.max_rel else []
        is_finite = all(remark.code != "nonfinite-result" for remark in m.remarks)
        details += [] if is_finite else ["not all values are finite"]
        yield TextRow("checked", word, "; ".join(details), "good" if is_finite else "warning")


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
        wanted = [absent for absent in m.not_measured if is_full or absent.what in _asked(m)]
        if wanted:
            title = "not measured" if len(listed) == 1 else f"not measured of {one_line(m.case.label)}"
            rows = tuple(TextRow(_name(absent.what), absent.why) for absent in wanted)
            yield Facts((Section(title, rows),), "words")
        others = [absent.what for absent in m.not_measured if absent not in wanted]
        names |= dict.fromkeys(_name(what) for what in others if not what.startswith((*_NO_NUMBERS, *named)))
    if names:
        yield Paragraph(f"not measured: {', '.join(names)} (-v says why)", "faint")


def _asked(m: Measurement) -> set[str]:
    """The timers that the user named."""
    return {f"samples.{name.strip()}" for name in m.options.timer.split(",")}


def _name(what: str) -> str:
    """stages.transfer_in as "transfer in"; samples.in_graph as in_graph."""
    group, _, rest = what.partition(".")
    if what in _NAMES or not rest:
        return _NAMES.get(what, what)
    return rest if group == "samples" else rest.removesuffix("_s").replace("_", " ")
