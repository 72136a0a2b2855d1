"""Stages on one device each, fed with micro-batches, as in GPipe (Huang et al. 2019): a variant, and
`benchax.experiments.pipeline`.

    pipeline=model.py:STAGES=1,2,4              a list of functions y = stage(x), and numbers of micro-batches
    pipeline=model.py:embed+model.py:head       functions by name; 1,2,4,8 micro-batches

A program does not show where a function can be cut into stages, so the user gives them. The batch is cut into m parts
along its first axis, and each stage does one part after the other. The combined results are compared with the results
of the function on one device. With s stages of equal length each device is idle for (s - 1) / (m + s - 1) of the time
(section 2.3 there). The result also shows the idle time of a short profile. All of it happens in a separate process
(`experiments/pipes.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchax.case import Case, make_case
from benchax.discovery import literal
from benchax.environment import capture
from benchax.errors import NotMeasured, UsageError
from benchax.experiments import parsing
from benchax.experiments.devices import MOST_DEVICES, with_devices
from benchax.experiments.lab import BASELINE, Lab, WorkerLab
from benchax.experiments.pipes import Chain, Piped, PipelineReadings, Stage, try_pipeline
from benchax.experiments.variant import Measure
from benchax.experiments.variant_rows import failed_row, refused_row
from benchax.keywords import guard_keywords
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.model import Failure
from benchax.options import resolve
from benchax.progress import Progress, show_progress
from benchax.results.experiment import Curve, Experiment, VariantRow
from benchax.units import plural

TITLE = "micro-batches through stages on a device each"
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"
"""So that one fake device is about one core."""
MICRO_BATCHES = (1, 2, 4, 8)
WHOLE = "the whole batch through all stages on one device"


@dataclass(frozen=True)
class Pipeline:
    name: str = "pipeline"
    title: str = f"{TITLE} (pipeline=model.py:STAGES=1,2,4)"
    needs: str = "several devices; on a CPU they are fake"
    only_by_name: bool = False

    def plan(self, case: Case, given: Any = None, seed: int = 0) -> Measure:
        if given is None:
            raise NotMeasured(
                "it has to be told the stages, which are not to be seen from a program: pipeline=model.py:STAGES, "
                "a list of functions y = stage(x)"
            )
        stages, numbers = self._parse(case, given)
        piped = Piped(case, _batch(case, make_inputs(case, seed)), stages, numbers)
        return lambda lab: (self._curve(piped, lab),)

    def _parse(self, case: Case, raw: Any) -> tuple[tuple[Stage, ...], tuple[int, ...]]:
        """Stages and numbers of micro-batches. Raises `UsageError` for what is no such thing."""
        said = f"{self.name}={raw!r}"
        if isinstance(raw, str):
            names, numbers = _halves(raw)
            counts = MICRO_BATCHES if numbers is None else literal(f"({numbers},)")
            stages = _flat(parsing.named_objects(self.name, _names(names), case))
            return check_stages(f"{said} names {_kinds(stages)}", stages), check_numbers(said, counts)
        is_both = isinstance(raw, Sequence) and len(raw) == 2 and isinstance(raw[0], Sequence)
        stages, counts = raw if is_both else (raw, MICRO_BATCHES)
        return check_stages(said, stages), check_numbers(said, counts)

    def _curve(self, piped: Piped, lab: Lab) -> Curve | VariantRow:
        told = try_in_worker(piped, lab)
        if isinstance(told, Failure):
            return failed_row(self.name, self.title, told)
        if told.why:
            return refused_row(self.name, self.title, "not_available", told.why)
        found = curve(piped, told)
        against = f"results are compared with those of {piped.case.id.label} on one device"
        return replace(found, sentence=f"{against}; {found.sentence}")


def _halves(text: str) -> tuple[str, str | None]:
    """Splits model.py:STAGES=1,2 into (model.py:STAGES, 1,2). A path can contain a '='; no number contains a ':'."""
    names, equals, numbers = text.rpartition("=")
    return (names, numbers) if equals and ":" not in numbers else (text, None)


def _names(text: str) -> list[str]:
    """Splits model.py:embed+model.py:head. A path can contain a '+'; a name ends after its ':'."""
    names, begun = list[str](), ""
    for part in text.split("+"):
        begun += part
        where, _, name = begun.rpartition(":")
        if where and name.strip().replace(".", "_").isidentifier():
            names, begun = [*names, begun], ""
        else:
            begun += "+"
    return [*names, begun.removesuffix("+")] if begun else names


def _flat(found: Iterable[Any]) -> list[Any]:
    """Lists of stages, and stages."""
    return [stage for one in found for stage in (one if isinstance(one, list | tuple) else [one])]


def _kinds(found: Sequence[Any]) -> str:
    """Returns "2 functions", or describes the first object that is not a function: an object of the type int."""
    other = next((one for one in found if not callable(one)), None)
    if other is not None:
        return f"an object of the type {type(other).__name__}"
    return plural(len(found), "function")


def _batch(case: Case, inputs: Inputs) -> int | str:
    """Returns the one argument with arrays. Raises `UsageError` if there are several, or none."""
    named = parsing.arguments(case, inputs)
    found = {name: key for name, key in named.items() if parsing.array_leaves(parsing.value_of(inputs, key))}
    if len(found) != 1:
        raise UsageError(
            f"pipeline cannot feed stages with {case.id.label}({inputs.signature}): "
            f"{len(found) or 'none'} of its arguments {'have' if found else 'has'} arrays",
            "one input x, an array or a tree of arrays, that flows through all stages",
            "parameters belong into the function and its stages: functools.partial(f, weights)",
        )
    return next(iter(found.values()))


def check_stages(said: str, stages: Any) -> tuple[Stage, ...]:
    """Raises `UsageError`, which begins with `said`, for what are no stages."""
    listed = tuple(stages) if isinstance(stages, Sequence) else ()
    if not 2 <= len(listed) <= MOST_DEVICES or not all(map(callable, listed)):
        raise UsageError(said, f"a list of 2 to {MOST_DEVICES} functions y = stage(x)")
    return listed


def check_numbers(said: str, numbers: Any) -> tuple[int, ...]:
    """Raises `UsageError`, which begins with `said`, for what are no numbers of micro-batches."""
    listed = tuple(dict.fromkeys(numbers)) if isinstance(numbers, Iterable) else ()
    if not listed or not all(type(each) is int and each > 0 for each in listed):
        raise UsageError(said, "whole numbers from 1 up, such as (1, 2, 4, 8)")
    return listed


def try_in_worker(piped: Piped, lab: Lab) -> PipelineReadings | Failure:
    """Returns the worker's readings, or its failure."""
    argument, devices = (piped, lab.options.seed), with_devices(len(piped.stages), ONE_THREAD)
    return lab.call_alone(try_pipeline, argument, name=f"the {piped.case.id.label!r}", condition=devices)


def curve(piped: Piped, told: PipelineReadings) -> Curve:
    """Over the numbers of micro-batches."""
    numbered = zip(piped.numbers, told.readings, strict=True)
    points = tuple(reading.point(number, str(number)) for number, reading in numbered)
    return Curve("pipeline", TITLE, "micro-batches", points, sentence=_sentence(told))


def _sentence(told: PipelineReadings) -> str:
    if told.skip_reason:
        return f"{told.skip_reason}: results and bytes are real; times, busy and idle devices are not measured"
    where = f"{told.devices} fake devices with a thread each; " if told.is_fake else ""
    return f"{where}times are of one process, one after the other, and no comparison in pairs"


@guard_keywords()
def pipeline(
    stages: Sequence[Stage],
    x: Any,
    *,
    micro_batches: Iterable[int] = MICRO_BATCHES,
    name: str | None = None,
    timeout_s: float | str | None = None,
    seed: int | None = None,
    progress: Progress = None,
) -> Experiment:
    """Lets micro-batches flow through stages on one device each, and compares the results with the whole batch on one.

        for stage in stages:
            x = stage(x)

    Args:
        stages: functions y = stage(x), with their parameters inside (a closure, a partial). Each must treat the rows of
            its input separately. A stage that does not, such as a mean over the batch, gives a wrong result, which the
            experiment reports.
        x: the batch: an array, a pytree of arrays with as many rows, a spec such as "f32[1024,64]".
        micro_batches: the numbers of parts to cut the batch into, one after the other.
        timeout_s: of each number of micro-batches, in the process that tries them.
        seed: of the data made from specs.
        progress: as for `bench`.

    Returns:
        Experiment: its one curve has a point for each number of micro-batches. Its `seconds` are None if they would not
            represent devices; the sentence of the curve gives the reason.

    Raises:
        UsageError: `stages` are not several functions, or `micro_batches` are not numbers.
    """
    stages = check_stages(f"stages={stages!r}", stages)
    numbers = check_numbers(f"micro_batches={micro_batches!r}", micro_batches)
    options = resolve({"timeout_s": timeout_s, "seed": seed})
    case = make_case(Chain(stages), (x,), name=name or f"pipeline of {len(stages)} stages")
    piped = Piped(case, 0, stages, numbers)
    with show_progress(progress) as report:
        told = try_in_worker(piped, WorkerLab(options, report=report))
    return _fail(case, told) if isinstance(told, Failure) else _experiment(piped, told)


def _fail(case: Case, failure: Failure) -> Experiment:
    return Experiment(case.id.label, "", failed_row(BASELINE, WHOLE, failure), environment=capture(with_jax=False))


def _experiment(piped: Piped, told: PipelineReadings) -> Experiment:
    label, environment = piped.case.id.label, replace(capture(with_jax=False), **told.environment)
    if told.why:
        row = refused_row(BASELINE, WHOLE, "not_available", told.why)
        return Experiment(label, told.signature, row, environment=environment)
    row = VariantRow(BASELINE, WHOLE, sentence=f"{WHOLE}: its results are those that are expected")
    return Experiment(label, told.signature, row, curves=(curve(piped, told),), environment=environment)


MEMBERS = (Pipeline(),)
