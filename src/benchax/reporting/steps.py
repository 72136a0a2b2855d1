"""The steps of a training loop: one sentence on top, then what a step is made of, its first one and its slowest.

A moment in which a device works is the device's; the other parts are of idle devices, by what these waited for.
Where a trace shows no device, its work is not measured.
"""

from __future__ import annotations

import re
from statistics import median

from benchax.reporting.document import (
    Block,
    Facts,
    Heading,
    Paragraph,
    Section,
    Table,
    TableCell,
    TableColumn,
    TextRow,
)
from benchax.reporting.tables import WHERE
from benchax.results.profile import OneStep, PartKind, PartLine, ProgramsPerStep, RecordingCost, StepPart, StepSplit
from benchax.units import count, percent, plural, seconds

KINDS: dict[PartKind, str] = {
    "device": "device at work",
    "input": "waiting for input",
    "python": "Python",
    "waiting": "off the processor",
    "compile": "tracing and compiling",
    "transfer": "transfers",
    "dispatch": "dispatch by JAX",
    "unknown": "not measured",
    "unseen": "Python, not sampled",
}
OF_IT, MEANWHILE = "· of it", "· Python meanwhile"
"""Names of the rows below a part, which become cards in a narrow window."""
LEAST_SHARE = 0.01
"""Lines with less of a step are in the JSON only."""
SECOND = 0.25
"""The sentence names a second part only if it takes at least this share of a step. It omits that a device works for the
rest."""
FEW = 30
"""With fewer samples than this, the picture is rough, and the table notes it."""
MOST_PROGRAMS = 4
_COLUMNS = (
    TableColumn("part of a step", "words"),
    TableColumn("time"),
    TableColumn("share"),
    WHERE,
)


def blocks(split: StepSplit, cost: RecordingCost | None = None) -> tuple[Block, ...]:
    """Returns the blocks at the top of a profile, below the sentence that is its title."""
    lines = [Paragraph(_describe_length(split), "faint")]
    if cost is not None:
        lines.append(Paragraph(describe_recording_cost(cost, "a step")))
    return (*lines, tabulate_parts(split), *_facts(split))


def sentence(split: StepSplit) -> str:
    """58 % of a step is data loading at loader.py:31; the device waits."""
    if not split.parts:
        return "nothing is known of the steps"
    part, others = split.parts[0], split.parts[1:]
    of = "a step" if split.mark != "none" else "the recorded time"
    others = [one for one in others if one.kind != "device" and one.share >= SECOND]
    also = [f"; {percent(one.share)} is {_describe_part(one, split)}" for one in others[:1]]
    return f"{percent(part.share)} of {of} is {_describe_part(part, split)}{''.join(also)}"


_PARTS: dict[PartKind, str] = {
    "device": "the device at work{hottest}",
    "input": "data loading{at}; the device waits",
    "python": "Python{at}{function}; the device waits",
    "waiting": "spent off the processor{at}{function}; the device waits",
    "compile": "tracing and compiling{at}{often}; the device waits",
    "transfer": "moving data{at}; the device waits",
    "dispatch": "JAX's own dispatch{programs}{at}; the device waits",
    "unknown": "spent{at}{function}; what the device did was not measured, because a trace holds only calls that begin "
    "and end in it",
    "unseen": "Python in pieces too short to be sampled; the device waits",
}


def _describe_part(part: StepPart, split: StepSplit) -> str:
    line = part.lines[0] if part.lines else None
    per_step = sum(program.per_step for program in split.programs)
    hottest = f"; {percent(split.hottest_share)} of its work is of {_near(split.hottest)}" if split.hottest else ""
    often = f", in {split.compiling_steps} of {plural(len(split.lengths_s), 'step')}" if _has_steps(split) else ""
    many = "one program" if round(per_step, 2) == 1 else f"{per_step:.3g} programs"
    return _PARTS[part.kind].format(
        at=f" at {_near(line.source)}" if line else "",
        function=_in(line),
        hottest=hottest,
        often=often,
        programs=f" of {many} a step" if _has_steps(split) and per_step else "",
    )


def _has_steps(split: StepSplit) -> bool:
    return split.mark != "none"


def _in(line: PartLine | None) -> str:
    return f" ({line.function})" if line and not line.function.startswith("<") else ""


def _describe_length(split: StepSplit) -> str:
    if split.mark == "none":
        recorded = f"the {seconds(split.mean_s)} that were recorded"
        return f"no step was found: no program that the devices were busy with was called three times in {recorded}"
    lengths = split.lengths_s
    spread = f", {seconds(min(lengths))} to {seconds(max(lengths))}" if len(lengths) > 1 else ""
    what = f"a call of {split.name}" if split.mark == "program" else f"marked as {split.name!r} by the program"
    where = f" at {_near(split.called_at)}" if split.called_at else ""
    return f"a step, {what}{where}, takes {seconds(median(lengths))} (median of {len(lengths)}{spread})"


def tabulate_parts(split: StepSplit) -> Table:
    """A line for each part, and below it one for each line of the user's beyond the first."""
    rows: list[tuple[TableCell, ...]] = []
    for part in split.parts:
        shown = [line for line in part.lines if line.share >= LEAST_SHARE]
        # Where Python was while a device worked is not where that work comes from.
        is_device = part.kind == "device"
        beside, below = (shown, []) if len(shown) == 1 and not is_device else ([], shown)
        rows.append(_row(KINDS[part.kind], seconds(part.mean_s), percent(part.share), beside))
        name = MEANWHILE if is_device else OF_IT
        rows += [_row(name, seconds(line.share * split.mean_s), percent(line.share), [line]) for line in below]
    return Table(_COLUMNS, tuple(rows), _describe_samples(split))


def _row(name: str, time: str, share: str, lines: list[PartLine]) -> tuple[TableCell, ...]:
    where = _describe_line(lines[0]) if lines else ""
    hint = lines[0].source if lines else ""
    return TableCell(name), TableCell(time), TableCell(share), TableCell(where, hint=hint)


def _describe_line(line: PartLine) -> str:
    inside = f" in {_near(line.within)}" if line.within else ""
    return f"{_near(line.source)}{_in(line)}{inside}"


def _describe_samples(split: StepSplit) -> str:
    if split.sampler_share is None:
        return "at which lines Python was is not known: this trace has no samples of the stack"
    few = ", which is few: shares of lines are rough" if split.samples < FEW else ""
    cost = f"sampling took {percent(split.sampler_share)} of the time"
    mean = f"parts of the mean step, {seconds(split.mean_s)}; " if _has_steps(split) else ""
    return f"{mean}each moment counts once; lines by {plural(split.samples, 'sample')}{few}; {cost}"


def _facts(split: StepSplit) -> tuple[Block, ...]:
    rows = _describe_first(split)
    if one := split.slowest:
        rows.append(TextRow("slowest step", seconds(one.length_s), f"number {one.index}, {_describe_more(one)}"))
    rows += _describe_programs(split)
    return (Heading("steps"), Facts((Section("", tuple(rows)),), "words")) if rows else ()


def _describe_first(split: StepSplit) -> list[TextRow]:
    rows: list[TextRow] = []
    if split.first is not None:
        rows.append(TextRow("first step", seconds(split.first.length_s), _describe_more(split.first)))
    if split.warm_up > 1:
        rows.append(
            TextRow("left out", plural(split.warm_up, "step"), "at the beginning, in which something was compiled")
        )
    if split.first_compile_s:
        rows.append(
            TextRow("before", seconds(split.first_compile_s), "of tracing and compiling, ahead of the recording")
        )
    return rows


def _describe_more(one: OneStep) -> str:
    if one.more is None or one.more_s <= 0:
        return ""
    name = "Python" if one.more == "unseen" else KINDS[one.more]
    where = f" at {_near(one.where)}" if one.where else ""
    also = ", ".join(f"{count(other.per_step)} × {other.name}" for other in one.others[:MOST_PROGRAMS])
    beside = f"; only in it: {also}" if also else ""
    return f"{seconds(one.more_s)} more than usual of: {name}{where}{beside}"


def _describe_programs(split: StepSplit) -> list[TextRow]:
    others = [one for one in split.programs if one.name != split.name or one.per_step > 1.5]
    steps = split.warm_up + len(split.lengths_s)
    shown = [_describe_calls(one, steps) for one in others[:MOST_PROGRAMS]]
    more = [f"and {len(others) - len(shown)} more"] if len(others) > len(shown) else []
    return [TextRow("also in a step", ", ".join([*shown, *more]))] if shown else []


def _describe_calls(one: ProgramsPerStep, steps: int) -> str:
    """4 × jit_add; jit_eval_step (16 in 204 steps)"""
    if one.per_step >= 1:
        return f"{count(round(one.per_step, 2))} × {one.name}"
    return f"{one.name} ({round(one.per_step * steps)} in {plural(steps, 'step')})"


def _near(source: str) -> str:
    """loader.py:31, of its whole path; what follows is kept."""
    return re.sub(r"^.*[/\\](?=[^/\\ ]+:\d+)", "", source)


LEAST_FACTOR = 1.05
"""Below it recorded and unrecorded are the same, as far as neighbours on the machine let it be known."""


def describe_recording_cost(cost: RecordingCost, what: str) -> str:
    """Recorded, a step takes 2.7 times as long as the 1.42 ms without, for its 4,900 events: ...

    Args:
        what: a step, or a call.
    """
    events = f"{count(round(cost.events))} events"
    if cost.unrecorded_s is None or cost.factor is None:
        return f"what recording the {events} of {what} adds to its time was not measured, because {cost.why}"
    unrecorded = seconds(cost.unrecorded_s)
    if cost.factor < LEAST_FACTOR:
        return f"while nothing is recorded, {what} takes {unrecorded}: recording adds little"
    times = f"{cost.factor:.2g} times as long"
    return (
        f"while nothing is recorded, {what} takes {unrecorded}: recording its {events} makes it {times} "
        f"({seconds(cost.recorded_s)}), and the shares of short operations too large"
    )
