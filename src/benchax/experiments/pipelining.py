"""`benchax.experiments.pipeline`: stages on a device each, fed with micro-batches, as in GPipe (Huang et al. 2019).

The batch is cut into m parts along its first axis. All work is enqueued at once, tick by tick, and JAX's asynchronous
dispatch lets stage 2 do the first part while stage 1 does the second. With s stages of equal length each device is idle
for (s - 1) / (m + s - 1) of the time (section 2.3 there); what a short profile saw stands beside it. A time includes
enqueuing and what is handed from stage to stage; cutting the batch and putting the results together are outside of it.

On a CPU the devices are fake, in a process of its own, and each operation has one thread, so that one device is about
one core. They are timed only where they do not slow one another down, which is tried first: two cores may be one in
truth (two threads of a core, a limit of a container).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from benchax.case import Case, make_case
from benchax.environment import capture, jax_facts
from benchax.errors import NotAvailable, NotMeasured, UsageError
from benchax.executors import pickling
from benchax.executors.isolated import limit
from benchax.executors.jobs import Job
from benchax.executors.pool import Pool
from benchax.experiments.base import Facts
from benchax.experiments.judging import failed_row, refused_row
from benchax.experiments.run import BASELINE, quiet
from benchax.experiments.variants.sharding import MOST_DEVICES, cores, front, pretend, timed
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.inputs import make_inputs
from benchax.measuring.paired import without_cache
from benchax.model import Failure
from benchax.numerics import compare
from benchax.options import resolve
from benchax.profiling.events import read
from benchax.profiling.intervals import unions
from benchax.profiling.operations import KEEP, operations
from benchax.profiling.programs import programs
from benchax.profiling.session import session
from benchax.results.experiment import Curve, Experiment, Point, VariantRow
from benchax.units import number, percent, size

ENTRY = "benchax.experiments.pipelining:try_pipeline"
WHOLE = "the whole batch through all stages on one device"
TITLE = "micro-batches through stages on a device each"
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"
PROFILES, LEAST_PROFILES = 7, 3
"""Recordings of one run each, of which the one of median length is told; some may lack their last operations."""
TRIAL_S = 0.2
MOST_SLOWDOWN = 1.2
"""Fake devices that slow one another down further than this stand for no devices."""
UNTIMED = ("not timed:", "each reading is so like the one before it that their median has no interval")

Stage = Callable[[Any], Any]


def pipeline(
    stages: Sequence[Stage],
    x: Any,
    *,
    micro_batches: Iterable[int] = (1, 2, 4, 8),
    name: str | None = None,
    timeout_s: float | str | None = None,
    seed: int | None = None,
    progress: Callable[[str], None] = quiet,
) -> Experiment:
    """Lets micro-batches flow through stages on a device each, and compares the results with the whole batch on one.

        for stage in stages:
            x = stage(x)

    Args:
        stages: functions y = stage(x), with their parameters inside (a closure, a partial). Each must treat the rows
            of its input apart; one that does not, such as a mean over the batch, gives a wrong result, which is told.
        x: the batch: an array, a pytree of arrays with as many rows, a spec such as "f32[1024,64]".
        micro_batches: into how many parts the batch is cut, one after the other.
        timeout_s: of each number of micro-batches, in the process that tries them.
        seed: of the data made from specs.
        progress: told in words how far it is.

    Returns:
        Experiment: its one curve has a point for each number of micro-batches. Its `seconds` are None where they would
        not stand for devices; the sentence of the curve says why.

    Raises:
        UsageError: `stages` are not several functions, or `micro_batches` no numbers.
    """
    stages = _checked_stages(stages)
    numbers = _checked_numbers(micro_batches)
    options = resolve({"timeout_s": timeout_s, "seed": seed})
    case = make_case(Chain(stages), (x,), name=name or f"pipeline of {len(stages)} stages")
    try:
        content = pickling.dumps(case)
    except Exception as error:
        return _failed(case, diagnose(error, "start"))
    job = Job(
        ENTRY,
        (content, len(stages), numbers, options.seed),
        limits=lambda stage: limit(stage, options),
        memory_limit_bytes=options.memory_limit_bytes,
        name=f"the {case.id.label!r}",
    )
    with Pool(start="spawn", warm=False, reuse=False) as pool:
        ended = pool.run(job, lambda message: progress(message["stage"]))
    if ended.document is None:
        return _failed(case, ended.failure or Failure("crashed", ended.stage, "the process gave no answer"))
    return _experiment(case.id.label, numbers, ended.document)


@dataclass(frozen=True)
class Chain:
    """What the stages do together."""

    stages: tuple[Stage, ...]

    def __call__(self, x: Any) -> Any:
        for stage in self.stages:
            x = stage(x)
        return x


def _checked_stages(stages: Any) -> tuple[Stage, ...]:
    listed = tuple(stages) if isinstance(stages, Sequence) else ()
    if not 2 <= len(listed) <= MOST_DEVICES or not all(map(callable, listed)):
        raise UsageError(f"stages={stages!r}", f"a list of 2 to {MOST_DEVICES} functions y = stage(x)")
    return listed


def _checked_numbers(micro_batches: Any) -> tuple[int, ...]:
    listed = tuple(dict.fromkeys(micro_batches)) if isinstance(micro_batches, Iterable) else ()
    if not listed or not all(type(each) is int and each > 0 for each in listed):
        raise UsageError(f"micro_batches={micro_batches!r}", "whole numbers from 1 up, such as (1, 2, 4, 8)")
    return listed


def _failed(case: Case, failure: Failure) -> Experiment:
    return Experiment(case.id.label, "", failed_row(BASELINE, WHOLE, failure), environment=capture(with_jax=False))


def _experiment(label: str, numbers: tuple[int, ...], told: dict[str, Any]) -> Experiment:
    environment = replace(capture(with_jax=False), **told["environment"])
    if told["why"]:
        row = refused_row(BASELINE, WHOLE, "not_available", told["why"])
        return Experiment(label, told["signature"], row, environment=environment)
    points = tuple(_point(number, each) for number, each in zip(numbers, told["points"], strict=True))
    curve = Curve("pipeline", TITLE, "micro-batches", points, sentence=_sentence(told))
    row = VariantRow(BASELINE, WHOLE, sentence=f"{WHOLE}: its results are those that are expected")
    return Experiment(label, told["signature"], row, curves=(curve,), environment=environment)


def _point(number: int, told: dict[str, Any]) -> Point:
    if "why" in told:
        return Point(number, str(number), None, facts=(("not available:", told["why"]),))
    return Point(number, str(number), *told["time"], facts=tuple(map(tuple, told["facts"])))


def _sentence(told: dict[str, Any]) -> str:
    if told["hindrance"]:
        return f"{told['hindrance']}: results and bytes are real; times, busy and idle devices are not measured"
    where = f"{told['devices']} fake devices with a thread each; " if told["is_fake"] else ""
    return f"{where}times are of one process, one after the other, and no comparison in pairs"


# ---- in the worker ----------------------------------------------------------------------------------------------


def try_pipeline(
    argument: tuple[bytes, int, tuple[int, ...], int], say: Callable[..., None]
) -> tuple[dict[str, Any], list[Any]]:
    content, count, numbers, seed = argument
    pretend(count)
    os.environ["XLA_FLAGS"] = f"{os.environ['XLA_FLAGS']} {ONE_THREAD}".strip()
    case: Case = pickling.loads(content)
    say("inputs")
    inputs = make_inputs(case, seed)
    is_fake, there = jax.default_backend() == "cpu", len(jax.devices())
    told = {"environment": jax_facts(), "signature": inputs.signature, "is_fake": is_fake, "devices": count, "why": ""}
    if there < count:
        return {**told, "why": f"{count} stages need {count} devices, and there are {there}"}, []
    batch, chain = inputs.args[0], cast(Chain, case.fn)
    with without_cache():
        say("whole")
        expected = jax.block_until_ready(jax.jit(chain)(batch))
        pipe = Pipe(tuple(map(jax.jit, chain.stages)), tuple(jax.devices()[:count]))
        say("trial")
        hindrance = _hindrance(count, cores(), lambda: pipe.slowdown(batch)) if is_fake else ""
        points: list[dict[str, Any]] = []
        for parts in numbers:
            say(f"{parts} micro-batches", again=True)
            points.append(_tried(pipe, batch, parts, expected, is_timed=not hindrance))
    return {**told, "points": points, "hindrance": hindrance}, []


@dataclass(frozen=True)
class Pipe:
    """Jitted stages, each with its device."""

    stages: tuple[Stage, ...]
    devices: tuple[Any, ...]

    def __call__(self, parts: Sequence[Any]) -> list[Any]:
        """Enqueues all of it: in each tick every stage takes the part that the stage before it had in the last one."""
        values, last = list(parts), len(self.stages) - 1
        for tick in range(len(values) + last):
            for stage in range(last, -1, -1):
                part = tick - stage
                if 0 <= part < len(values):
                    values[part] = self._done(stage, values[part])
        return values

    def handed_bytes(self, part: Any) -> tuple[int, ...]:
        """Of one part, at each border between two stages. Nothing runs."""
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
        alone_s = max(timed(call, TRIAL_S)[0] for call in calls)
        return timed(lambda: [call() for call in calls], TRIAL_S)[0] / alone_s

    def _done(self, stage: int, value: Any) -> Any:
        return self.stages[stage](jax.device_put(value, self.devices[stage]))


def _hindrance(devices: int, cores: int, slowdown: Callable[[], float]) -> str:
    """Why times of fake devices would not stand for devices; empty: nothing speaks against them."""
    if cores < devices:
        return f"{devices} fake devices share {cores} {'core' if cores == 1 else 'cores'}"
    if (found := slowdown()) > MOST_SLOWDOWN:
        return (
            f"{devices} fake devices slow one another down: all stages at once take {number(found)} times as long as "
            "the slowest alone"
        )
    return ""


def _tried(pipe: Pipe, batch: Any, count: int, expected: Any, *, is_timed: bool) -> dict[str, Any]:
    try:
        parts = _cut(batch, count)
        outputs = _together(jax.block_until_ready(pipe(parts)))
        handed = ("handed on:", _handed(pipe.handed_bytes(parts[0]), count))
        if why := compare(outputs, expected, against="baseline").why:
            return {"facts": (("wrong result:", why), handed), "time": (None, None, None)}
        predicted = ("idle by the formula, if stages are equal:", percent(bubble(len(pipe.devices), count)))
        if not is_timed:
            return {"facts": (predicted, handed), "time": (None, None, None)}
        facts, time = (predicted, *_seen_idle(pipe, parts), handed), timed(lambda: pipe(parts))
        if time[1] is None:  # a median without its interval is no number to stand behind
            return {"facts": (*facts, UNTIMED), "time": (None, None, None)}
        return {"facts": facts, "time": time}
    except NotAvailable as error:
        return {"why": error.problem}
    except Exception as error:
        return {"why": diagnose(error, "pipeline").message}


def bubble(stages: int, micro_batches: int) -> float:
    """The share of the time in which a device has nothing to do: (s - 1) / (m + s - 1), for stages of equal length."""
    return (stages - 1) / (micro_batches + stages - 1)


def _cut(batch: Any, count: int) -> list[Any]:
    """Parts of equal length, ready on the first device."""
    rows = front(batch)
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


def _handed(sizes: tuple[int, ...], count: int) -> str:
    """1.50 MiB in 8 transfers"""
    transfers = len(sizes) * count
    return f"{size(sum(sizes) * count)} in {transfers} {'transfer' if transfers == 1 else 'transfers'}"


class Idle(NamedTuple):
    """What one recording of one run says."""

    span_s: float
    """From the first operation on any device to the end of the last."""
    shares: tuple[float, ...]
    """Of that, in the order of the devices: no operation was under way."""
    operations: int


def _seen_idle(pipe: Pipe, parts: list[Any]) -> Facts:
    names = [f"{device.platform}:{device.id}" for device in pipe.devices]
    found, why = list[Idle](), ""
    for _ in range(PROFILES):
        with session() as recording:
            jax.block_until_ready(pipe(parts))
        try:
            found.append(idle_of(recording.xspace, names))
        except NotMeasured as error:
            why = error.problem
    return told_idle(found, why)


def told_idle(found: Sequence[Idle], why: str) -> Facts:
    """Of the recordings that hold most operations: each run has the same ones.

    Args:
        why: the others, if any, cannot be read.
    """
    most = max((each.operations for each in found), default=0)
    whole = sorted(each for each in found if each.operations == most)
    if len(whole) < LEAST_PROFILES:
        return (("idle, not measured:", why or "the recordings differ in the number of operations"),)
    shares = whole[len(whole) // 2].shares
    each = ", ".join(map(percent, shares))
    return (("idle in a profile:", f"{percent(sum(shares) / len(shares))} (by device {each})"),)


def idle_of(xspace: bytes, devices: Sequence[str]) -> Idle:
    """Reads a trace.

    Raises:
        NotMeasured: it lacks operations of a device, or the end of one.
    """
    space = read(xspace, KEEP)
    found = operations(space, programs(space))
    if missing := [name for name in devices if name not in found.devices]:
        raise NotMeasured(f"the trace has no operations of {', '.join(missing)}")
    if found.is_open.any():
        raise NotMeasured("the trace does not say when some operations ended")
    order = np.argsort(found.start_ps, kind="stable")
    start, end, device = (column[order] for column in (found.start_ps, found.end_ps, found.device))
    busy = unions(device.tolist(), start.tolist(), end.tolist())
    span = int(end.max() - start.min())
    shares = tuple(1 - busy[found.devices.index(name)][1] / span for name in devices)
    return Idle(span / 1e12, shares, len(found))
