"""Measurements as documents: one with all its sections, or many side by side with their failures and remarks.

A number that is not there is "not measured, because …".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from benchax.model import OTHER_PROCESSES, Absent, Failure, Measurement, Rate, Remark, Samples, Stages, Transfer
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
    describe_machine,
    estimate,
    instability,
    is_unstable,
    one_line,
)
from benchax.stats.intervals import LEAST_PROCESSES
from benchax.stats.summary import Summary
from benchax.units import amount_per_s, count, percent, rate, seconds, seconds_range, size

CACHES = {
    "off": "persistent cache off",
    "hit": "read from the persistent cache",
    "miss": "persistent cache missed",
    "warm": "was compiled before in this process",
}
COLD = {
    "process": "a cold process",
    "operations": "a new function: JAX's first use of some of its operations is in it",
    "function": "a new function in a warm process",
}
_TIMERS = ("in_graph", "loop", "wall")


def document(m: Measurement, is_full: bool = False) -> Document:
    """One measurement. `is_full`: see `sections`."""
    where = describe_machine(m.environment)
    below = (where, m.signature) if m.signature else (where,)
    facts = tuple(sections(m, is_full))
    return Document((Heading(m.case.label, 1, below), *([Facts(facts)] if facts else []), *list_remarks(m.remarks)))


def document_of_stages(s: Stages) -> Document:
    """What was measured of it; what was not, the row says."""
    return Document((Facts((Section("once", tuple(_stages(s, ()))),)),))


def list_measurements(listed: Sequence[Measurement]) -> Document:
    """An overview, then what each row's remarks and failures say."""
    shared = share_grave_remarks(listed)
    blocks: list[Block] = [overview(listed)]
    for m in listed:
        if m.failure:
            blocks += [Heading(m.case.label), Paragraph(_describe_failure(m.failure), "bad")]
        elif own := shared.own[m.case.label]:
            blocks += [Heading(m.case.label), Remarks(own)]
    return Document((*blocks, *list_remarks(shared.common)))


def share_grave_remarks(listed: Sequence[Measurement]) -> SharedRemarks:
    """Takes what most rows have to remark out of what each has; remarks that only inform are in neither.

    By label, which names a case in each table; two rows of one case count as one.
    """
    grave: dict[str, list[Remark]] = {m.case.label: [] for m in listed}
    for m in listed:
        grave[m.case.label] += [remark for remark in m.remarks if remark.severity != "info"]
    return share_remarks(grave)


def _describe_failure(failure: Failure) -> str:
    advice = f"\n{failure.advice}" if failure.advice else ""
    return f"{failure.kind.replace('_', ' ')} in {failure.stage}: {failure.message}{advice}"


# ---- many, a line for each --------------------------------------------------------------------------------------


def overview(measurements: Sequence[Measurement]) -> Table:
    """One line per measurement; a column that none of them fills is left out, and so are remarks that all have."""
    listed = list(measurements)
    universal = share_grave_remarks(listed).universal
    names = list(dict.fromkeys(what for m in listed for what in m.work.amounts))
    timers = (TableColumn(timer, "numbers", ESTIMATE) for timer in _TIMERS)
    columns = (CASE, *timers, *(_PER_S.get(what, f"{what}/s") for what in names), "compile", "memory", REMARKS)
    styles: list[Style] = ["bad" if m.failure or _is_wrong(m) else "" for m in listed]
    lines = (_overview_line(m, names, universal) for m in listed)
    return tabulate(columns, lines, styles).without_empty_columns(kept=(0,))


_PER_S = {"bytes": "B/s", "flops": "FLOP/s"}


def _is_wrong(m: Measurement) -> bool:
    return any(remark.severity == "error" for remark in m.remarks)


def _overview_line(m: Measurement, names: Sequence[str], universal: Collection[str]) -> tuple[str, ...]:
    if m.failure:
        kind = m.failure.kind.replace("_", " ")
        return (one_line(m.case.label), "", "", kind, *("" for _ in names), "", "", f"in {m.failure.stage}")
    rates = {rate.what: _rate_in_table(rate) for rate in m.rates()}
    is_eager = m.case.variant == "eager"
    rise = m.memory.eager_rise_bytes if is_eager else m.memory.compiled_rise_bytes
    codes = [remark.code for remark in m.remarks if remark.severity != "info" and remark.code not in universal]
    return (
        one_line(m.case.label),
        *(estimate(m.summary(timer)) for timer in _TIMERS),
        *(rates.get(what, "") for what in names),
        seconds(m.stages.compile_s) if m.stages.compile_s is not None else "",
        f"+{size(rise)}" if rise is not None else "",
        ", ".join(codes),
    )


def _rate_in_table(rate: Rate) -> str:
    """1.31 M, as sure as the time beside it; 1.1 M – 4.2 M where that is unstable."""
    low, high = rate.low_per_s, rate.high_per_s
    if low is not None and high is not None and is_unstable(low, high):
        return f"{count(low)} – {count(high)}"
    return count(rate.per_s)


# ---- one, section by section ------------------------------------------------------------------------------------


def sections(m: Measurement, is_full: bool = False) -> list[Section]:
    """One measurement, section by section; empty ones are left out.

    Args:
        is_full: also what is not there by choice: because it was not asked for, or something beside it answers the same
            question.
    """
    if not is_full:
        m = replace(m, not_measured=tuple(absent for absent in m.not_measured if not absent.is_by_choice))
    parts = [
        Section("failed", tuple(_failure(m))),
        Section("once", tuple(_stages(m.stages, m.not_measured))),
        Section("every call", tuple(_samples(m))),
        *sections_of_parallel(m),
        Section("memory", tuple(_memory(m))),
        Section("work", (*_rates(m), *_cost(m))),
        Section("result", tuple(_numerics(m))),
    ]
    return [part for part in parts if part.rows]


def _failure(m: Measurement) -> Iterable[TextRow]:
    if m.failure:
        yield TextRow(m.failure.kind.replace("_", " "), f"in {m.failure.stage}", m.failure.message, "bad")
        if m.failure.advice:
            yield TextRow("", "", m.failure.advice)


def _stages(s: Stages, absent: Sequence[Absent]) -> Iterable[TextRow]:
    yield from _transfer(absent, "transfer in", "stages.transfer_in", s.transfer_in)
    cold = f"in {COLD[s.cold]}" if s.cold else ""
    yield from _time(absent, "trace", "stages.trace_s", s.trace_s, cold)
    yield from _time(absent, "lower", "stages.lower_s", s.lower_s)
    yield from _time(absent, "compile", "stages.compile_s", s.compile_s, CACHES[s.cache] if s.cache else "")
    yield from _time(absent, "first run", "stages.first_run_s", s.first_run_s)
    if s.first_result_s is not None:
        yield TextRow("first result", seconds(s.first_result_s), "trace, lower, compile and first run")
    yield from _time(absent, "dispatch", "stages.dispatch_s", s.dispatch_s, "until a warm call returns")
    if s.call_floor_s is not None:
        yield TextRow("call floor", seconds(s.call_floor_s), "a call that does next to nothing")
    yield from _transfer(absent, "transfer out", "stages.transfer_out", s.transfer_out)


def _time(
    absent: Sequence[Absent], label: str, what: str, value_s: float | None, detail: str = ""
) -> Iterable[TextRow]:
    if value_s is not None:
        yield TextRow(label, seconds(value_s), detail)
    else:
        yield from _absent(absent, label, what)


def _transfer(absent: Sequence[Absent], label: str, what: str, transfer: Transfer | None) -> Iterable[TextRow]:
    if transfer is None or not transfer.elapsed_s:
        yield from _absent(absent, label, what)
        return
    speed = transfer.bandwidth_bytes_per_s
    how = "zero-copy: a view, nothing moved" if transfer.is_zero_copy else f"copied at {rate(speed or 0, 'B')}"
    yield TextRow(label, seconds(transfer.median_s), f"{size(transfer.size_bytes)}, {how}")


_LABELS = {OTHER_PROCESSES: "in others"}


def _samples(m: Measurement) -> Iterable[TextRow]:
    for timer in dict.fromkeys(samples.timer for samples in m.samples):
        if summary := m.summary(timer):
            yield _timer(m.series_of(timer), summary)
    absent = [a for a in m.not_measured if a.what.startswith("samples.")]
    # What is missing for one reason has one line; two names fit into the column of names.
    for why in dict.fromkeys(a.why for a in absent):
        names = [_LABELS.get(a.what, a.what.removeprefix("samples.")) for a in absent if a.why == why]
        label = ", ".join(names) if len(names) < 3 else f"{len(names)} timers"
        which = f"{', '.join(names)}: " if len(names) > 2 else ""
        yield not_measured(label, Absent("samples", which + why))


def _timer(series: Sequence[Samples], s: Summary) -> TextRow:
    samples = series[0]
    interval = _interval(s)
    regime = f", {samples.regime}" if samples.regime else ""
    taken = f"{s.n} × {samples.iterations}" if samples.iterations > 1 else f"{s.n}"
    count = sum(each.disturbed_count or 0 for each in series)
    disturbed = f", {count} disturbed" if count else ""
    stop = {"precise": "", "time": ", out of time", "count": ", count reached", None: ""}[samples.stop]
    answers = f" · {samples.answers}" if samples.answers else ""
    detail = f"{interval}{answers}{regime}\n{taken} samples{stop}{disturbed}{_overhead(samples)}"
    return TextRow(samples.timer, seconds(s.median_s), detail)


def _interval(s: Summary) -> str:
    """95 % 57.2 – 59.3 µs in this process: what the interval speaks for is said beside it."""
    where = "in this process" if s.processes == 1 else f"between {s.processes} processes"
    if s.low_s is None or s.high_s is None:
        if s.processes > 1:
            return f"no interval {where}: {LEAST_PROCESSES} are needed"
        return f"no interval: {s.n} samples hold too little independent information"
    unstable = f"unstable ({instability(s)}): " if is_unstable(s.low_s, s.high_s) else ""
    return f"{unstable}95 % {seconds_range(s.low_s, s.high_s)} {where}"


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
    else:
        yield from _absent(m.not_measured, "planned peak", "memory.plan")
    if mem.captured_bytes:
        yield TextRow("captured", size(mem.captured_bytes), "arrays closed over by the Python function")
    for label, what, value in (
        ("compiled call", "memory.compiled_rise_bytes", mem.compiled_rise_bytes),
        ("eager call", "memory.eager_rise_bytes", mem.eager_rise_bytes),
    ):
        if value is not None and label == "eager call" and mem.eager_rise_low_bytes is not None:
            text = f"observed in several calls ({mem.method}): arrays live by how far Python runs ahead of the device"
            yield TextRow(label, f"+{size(mem.eager_rise_low_bytes)}", f"to +{size(value)}, {text}")
        elif value is not None:
            yield TextRow(label, f"+{size(value)}", f"observed above what was there before ({mem.method})")
        else:
            yield from _absent(m.not_measured, label, what)


def _rates(m: Measurement) -> Iterable[TextRow]:
    """What its author says that a call gets done, in a second."""
    rates = {rate.what: rate for rate in m.rates()}
    for what, amount in m.work.amounts.items():
        if what in rates:
            yield TextRow(what, amount_per_s(rates[what].per_s, what), _detail_of(rates[what], amount, m))
        elif not m.failure:
            yield not_measured(what, Absent("samples", m.why_absent("samples") or "its time was not measured"))
    yield from _absent(m.not_measured, "work", "work")


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
        yield from _absent(m.not_measured, "operations", "cost")
        return
    timer = next((name for name in ("in_graph", "loop", "wall") if m.summary(name)), None)
    per_call = m.summary(timer) if timer else None
    if m.cost.flops:
        # With loops the count is of one trip: a rate made of it would be a wrong number.
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
        yield from _absent(m.not_measured, "checked", "numerics")
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


def _absent(absent: Sequence[Absent], label: str, what: str) -> Iterable[TextRow]:
    found = next((a for a in absent if a.what == what), None)
    if found:
        yield not_measured(label, found)


def not_measured(label: str, absent: Absent) -> TextRow:
    return TextRow(label, "not measured", f"because {absent.why}", "faint")
