"""Stages on one device each, fed with micro-batches, and the result of the whole batch. It is the worker's side of
`variants/pipeline.py`, which describes the experiment.

All work is enqueued at once, tick by tick, and JAX's asynchronous dispatch lets stage 2 do the first part while stage 1
does the second. A time includes enqueuing and the transfers between stages. It excludes cutting the batch and putting
the results together.

On a CPU the devices are fake, and each operation has one thread, so that one device is about one core. They are timed
only if they do not slow one another down, which is checked first. Two cores can really be one (two threads of a core, a
limit of a container).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from benchax.case import Case
from benchax.environment import count_cores, jax_facts
from benchax.errors import NotAvailable
from benchax.experiments.devices import DeviceReading, seen_idle, time_calls
from benchax.experiments.functions import count_rows
from benchax.experiments.parsing import value_of
from benchax.json_values import Json
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.measuring.jax_settings import without_cache
from benchax.measuring.program import program_of
from benchax.numerics import compare
from benchax.units import number, percent, size
from benchax.workers.task import Say, task

Stage = Callable[[Any], Any]
TRIAL_S = 0.2
MOST_SLOWDOWN = 1.2
"""Fake devices that slow one another down further than this stand for no devices."""
UNTIMED = ("not timed:", "each reading is so like the one before it that their median has no interval")


@dataclass(frozen=True)
class Chain:
    """The combined work of the stages."""

    stages: tuple[Stage, ...]

    def __call__(self, x: Any) -> Any:
        for stage in self.stages:
            x = stage(x)
        return x


@dataclass(frozen=True)
class Piped:
    """A function and the stages that it is made of."""

    case: Case
    """Gives the results that are expected."""
    batch: int | str
    """The argument that is cut into micro-batches."""
    stages: tuple[Stage, ...]
    numbers: tuple[int, ...]
    """The outputs of micro-batches, one after the other."""


@dataclass(frozen=True)
class PipelineReadings:
    """The readings for all numbers of micro-batches, in their order."""

    environment: Json
    """As `environment.jax_facts` has it."""
    signature: str
    is_fake: bool
    devices: int
    readings: tuple[DeviceReading, ...] = ()
    skip_reason: str = ""
    """Why nothing was timed."""
    why: str = ""
    """Why nothing was tried."""


@task
def try_pipeline(argument: tuple[Piped, int], say: Say) -> PipelineReadings:
    piped, seed = argument
    count = len(piped.stages)
    say("inputs")
    inputs = make_inputs(piped.case, seed)
    is_fake, there = jax.default_backend() == "cpu", len(jax.devices())
    told = PipelineReadings(Json(jax_facts()), inputs.signature, is_fake, count)
    if there < count:
        return replace(told, why=f"{count} stages need {count} devices, and there are {there}")
    batch = value_of(inputs, piped.batch)
    with without_cache():
        say("whole")
        expected = _compute_expected(piped, inputs)
        say("stages")
        jax.eval_shape(Chain(piped.stages), batch)  # a stage that fails is told once, not for each number of parts
        pipe = Pipe(tuple(map(jax.jit, piped.stages)), tuple(jax.devices()[:count]))
        say("trial")
        skip_reason = skip_reason_of(count, count_cores(), lambda: pipe.slowdown(batch)) if is_fake else ""
        readings: list[DeviceReading] = []
        for parts in piped.numbers:
            say(f"{parts} micro-batches", again=True)
            readings.append(try_pipe(pipe, batch, parts, expected, is_timed=not skip_reason))
    return replace(told, readings=tuple(readings), skip_reason=skip_reason)


def _compute_expected(piped: Piped, inputs: Inputs) -> Any:
    """Computes the whole batch on one device. Called with copies: a function may take its inputs away (donation)."""
    args, kwargs = inputs.renewed()
    return jax.block_until_ready(program_of(piped.case).call(*args, **kwargs))


@dataclass(frozen=True)
class Pipe:
    """Jitted stages, each with its device."""

    stages: tuple[Stage, ...]
    devices: tuple[Any, ...]

    def __call__(self, parts: Sequence[Any]) -> list[Any]:
        """Enqueues all of it: in each tick every stage takes the part that the stage before it had in the last one."""
        values, last = list(parts), len(self.stages) - 1
        for tick in range(len(values) + last):
            # Any order gives the same values; from the back, the part that came in first is enqueued first.
            for stage in range(last, -1, -1):
                part = tick - stage
                if 0 <= part < len(values):
                    values[part] = self._await_stage(stage, values[part])
        return values

    def handed_bytes(self, part: Any) -> tuple[int, ...]:
        """Returns the bytes of one part at each border between two stages. Nothing runs."""
        found: list[int] = []
        for stage in self.stages[:-1]:
            part = jax.eval_shape(stage, part)
            found.append(sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(part)))
        return tuple(found)

    def slowdown(self, batch: Any) -> float:
        """How much longer all stages take at once than the slowest of them alone."""
        inputs, value = list[Any](), batch
        for stage, device in enumerate(self.devices):
            inputs.append(jax.block_until_ready(jax.device_put(value, device)))
            value = jax.block_until_ready(self.stages[stage](inputs[-1]))
        calls = [lambda s=stage: self.stages[s](inputs[s]) for stage in range(len(inputs))]
        alone_s = max(time_calls(call, TRIAL_S)[0] for call in calls)
        return time_calls(lambda: [call() for call in calls], TRIAL_S)[0] / alone_s

    def _await_stage(self, stage: int, value: Any) -> Any:
        return self.stages[stage](jax.device_put(value, self.devices[stage]))


def skip_reason_of(devices: int, cores: int, slowdown: Callable[[], float]) -> str:
    """Why times of fake devices would not stand for devices; empty: nothing speaks against them."""
    if cores < devices:
        return f"{devices} fake devices share {cores} {'core' if cores == 1 else 'cores'}"
    if (found := slowdown()) > MOST_SLOWDOWN:
        return (
            f"{devices} fake devices slow one another down: all stages at once take {number(found)} times as long as "
            "the slowest alone"
        )
    return ""


def try_pipe(pipe: Pipe, batch: Any, count: int, expected: Any, *, is_timed: bool) -> DeviceReading:
    try:
        parts = _split_batch(batch, count)
        outputs = _together(jax.block_until_ready(pipe(parts)))
        handed = ("handed on:", _describe_transfers(pipe.handed_bytes(parts[0]), count))
        if why := compare(outputs, expected, against="baseline").why:
            return DeviceReading((("wrong result:", why), handed))
        predicted = ("idle by the formula, if stages are equal:", percent(bubble(len(pipe.devices), count)))
        if not is_timed:
            return DeviceReading((predicted, handed))
        facts = (predicted, *seen_idle(lambda: pipe(parts), pipe.devices), handed)
        time = time_calls(lambda: pipe(parts))
        if time[1] is None:  # a median without its interval is no number to stand behind
            return DeviceReading((*facts, UNTIMED))
        return DeviceReading(facts, time)
    except NotAvailable as error:
        return DeviceReading(why=error.problem)
    except Exception as error:
        return DeviceReading(why=diagnose(error, "pipeline").message)


def bubble(stages: int, micro_batches: int) -> float:
    """The share of the time in which a device has nothing to do: (s - 1) / (m + s - 1), for stages of equal length."""
    return (stages - 1) / (micro_batches + stages - 1)


def _split_batch(batch: Any, count: int) -> list[Any]:
    """Parts of equal length, ready on the first device."""
    rows = count_rows(batch)
    if rows is None:
        raise NotAvailable("x is no batch: an array, or a tree of arrays with as many rows")
    if rows % count:
        raise NotAvailable(f"the {rows} rows of x do not divide into {count} micro-batches")
    length = rows // count
    return jax.block_until_ready(
        [jax.tree.map(lambda leaf, i=i: leaf[i * length : (i + 1) * length], batch) for i in range(count)]
    )


def _together(outputs: list[Any]) -> Any:
    if any(not leaf.shape for leaf in jax.tree.leaves(outputs)):
        raise NotAvailable("the last stage gives a scalar for each micro-batch: no rows that can be put together")
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *jax.device_get(outputs))


def _describe_transfers(sizes: tuple[int, ...], count: int) -> str:
    """1.50 MiB in 8 transfers"""
    transfers = len(sizes) * count
    return f"{size(sum(sizes) * count)} in {transfers} {'transfer' if transfers == 1 else 'transfers'}"
