"""Variants over several devices: the batch cut over them, meshes of several shapes, stages in a pipeline.

    devices=1,2,4,8      the batch cut over this number of devices (data parallel)
    mesh=4x2,8x1         the batch over the first axis, the last axis of the other float matrices over the second

The user names the arguments that hold the batch (batch=x), or benchax guesses them from the shapes of the outputs
(`functions.py`). The curve shows which of the two it was. XLA inserts the communication (jit with sharded inputs,
automatic axes). Results are compared with the results of one device. A useful ratio is the operations of one device
over the bytes that it exchanges. Compare it with the machine's ratio: FLOP/s of a device over bytes/s of its links.
Both are counts of the program, and do not show how much of one hides behind the other. A short profile shows that on
real devices.

    pipeline=model.py:STAGES=1,2,4              a list of functions y = stage(x), and numbers of micro-batches
    pipeline=model.py:embed+model.py:head       functions by name; 1,2,4,8 micro-batches

Stages run on one device each, fed with micro-batches, as in GPipe (Huang et al. 2019). A program does not show where a
function can be cut into stages, so the user gives them. The batch is cut into m parts along its first axis, and each
stage does one part after the other. The combined results are compared with the results of the function on one device.
With s stages of equal length each device is idle for (s - 1) / (m + s - 1) of the time (section 2.3 there). The result
also shows the idle time of a short profile. All work is enqueued at once, tick by tick, and JAX's asynchronous dispatch
lets stage 2 do the first part while stage 1 does the second. A time includes enqueuing and the transfers between
stages. It excludes cutting the batch and putting the results together.

All of it happens in a separate process. If there are too few real devices and the backend is the CPU, it pretends to
have as many as are needed. Then counts and bytes of its programs match the real devices. Times do not, and are not
reported. Fake devices of a pipeline have one thread for each operation, so that one is about one core. They are timed
only if they do not slow one another down, which is checked first. Two cores can really be one (two threads of a core, a
limit of a container).

Idle devices and communication come from several recordings of one call by JAX's profiler. One recording can lack the
last operations, or the end of one. Each run has the same operations, so the recordings with the most operations are
complete; benchax reports the median one. Idle is the time without any operation. `profiling/operations.py` defines
communication, and which part of it is exposed. This was tried on fake devices of a CPU, whose shares of communication
mean nothing, and on made-up traces, but not on several accelerators.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter_ns
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from benchax.case import Case
from benchax.discovery import literal
from benchax.environment import count_cores
from benchax.errors import FormatError, NotAvailable, NotMeasured, UsageError
from benchax.experiments.functions import (
    Batch,
    CallArguments,
    arguments,
    change_arrays,
    count_rows,
    every_argument,
    find_batch,
    is_float,
)
from benchax.experiments.lab import Condition, WorkerLab
from benchax.experiments.variant import Asked, Measure, array_leaves, whole_number
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.measuring.jax_settings import without_cache
from benchax.measuring.program import program_of
from benchax.measuring.timers.base import on_fresh_stack
from benchax.model import Estimate
from benchax.numerics import compare
from benchax.profiling.profile import session
from benchax.profiling.samplers import device_name
from benchax.profiling.trace import profile_of, refuse_incomplete
from benchax.program import hlo
from benchax.program.compiled import memory_plan
from benchax.program.work import collectives, counts
from benchax.results.experiment import Curve, Facts, Point, point_at
from benchax.results.profile import Device, Profile
from benchax.stats.intervals import median_interval, quantile
from benchax.units import count, number, percent, plural, size
from benchax.workers.task import Say

MOST_DEVICES = 64
"""Fake ones share the cores of this machine: a limit of time."""
# Fewer than six readings have no two that enclose the median with 95 %.
LEAST_READINGS, MOST_READINGS, READING_S = 6, 50, 1.0
_FAKE = re.compile(r"--xla_force_host_platform_device_count=\S*")


@dataclass(frozen=True)
class DeviceSweep:
    """A worker's readings for all ways to use its devices, in their order."""

    points: tuple[Point, ...] = ()
    sentence: str = ""
    """The timed program, and the method."""
    why: str = ""
    """Why nothing was tried."""


Reading = tuple[Facts, Estimate | None]
"""Facts, and the seconds of a call; None where the devices are fake."""


def attempt(x: int, label: str, try_it: Callable[[], Reading], stage: str) -> Point:
    """The point of a reading, or with the reason for its absence."""
    try:
        facts, time = try_it()
    except Exception as error:
        why = error.problem if isinstance(error, NotAvailable) else diagnose(error, stage).message
        facts, time = (("not available:", why),), None
    return point_at(x, label, time, facts)


def with_devices(count: int, flags: str = "") -> Condition:
    """A process that has this many devices, fake ones if the backend is the CPU; `flags` are additional flags of
    XLA."""
    # The flag is the older form of the setting, and JAX does not accept both.
    usual = _FAKE.sub("", os.environ.get("XLA_FLAGS", ""))
    environ = {"XLA_FLAGS": f"{usual} {flags}".strip()}
    return Condition(f"{count} devices", {"jax_num_cpu_devices": count}, environ)


@on_fresh_stack
def time_calls(call: Callable[[], Any], enough_s: float = READING_S) -> Estimate:
    """The median of a call and the wait for its result, in seconds, for any caller
    (`measuring/timers/base.py`).

    Args:
        enough_s: no further reading after this many seconds in calls, except for the least number that gives an
            interval.
    """
    readings: list[float] = []
    while len(readings) < LEAST_READINGS or (len(readings) < MOST_READINGS and sum(readings) < enough_s):
        begun = perf_counter_ns()
        jax.block_until_ready(call())
        readings.append((perf_counter_ns() - begun) / 1e9)
    low, high = median_interval(readings) or (None, None)
    return Estimate(quantile(sorted(readings), 0.5), low, high)


# ---- recordings ---------------------------------------------------------------------------------------------------

IDLE, COMMUNICATION = "idle in a profile:", "communication:"
PROFILES, LEAST_PROFILES = 7, 3
"""Recordings of one call each, and how many of them have to be whole."""
SPOIL_COMMUNICATION = ("no-programs", "no-communication", "half-communications", "exposed-unknown")
"""Remarks on a trace whose share of communication is not reported."""


class DeviceRecording(NamedTuple):
    """The result of one recording of one call. benchax reports the one of median `rank`."""

    rank: float
    text: str
    operations: int


Read = Callable[[bytes, Sequence[str]], DeviceRecording]
"""Reads a trace, given the names that the devices have there."""


def record(call: Callable[[], Any], devices: Sequence[Any], what: str, read: Read) -> Facts:
    """Reads the middle one of several recordings of `call` with `read`. Returns its facts, or the reason for none,
    under the label `what`. Waits for the results of `call`."""
    names = [device_name(device) for device in devices]
    found, why = list[DeviceRecording](), ""
    for _ in range(PROFILES):
        try:
            with session() as recording:
                jax.block_until_ready(call())
            found.append(read(recording.xspace, names))
        except (NotMeasured, NotAvailable, UsageError, FormatError) as error:
            why = error.problem
    return describe_middle(what, found, why)


def describe_middle(what: str, found: Sequence[DeviceRecording], why: str) -> Facts:
    """Describes the middle one of those that are whole.

    Args:
        why: the others, if any, cannot be read.
    """
    most = max((each.operations for each in found), default=0)
    # Each run has the same operations, so a recording with fewer has lost some.
    whole = sorted(each for each in found if each.operations == most)
    if len(whole) < LEAST_PROFILES:
        subject = what.partition(" ")[0].rstrip(":")
        return ((f"{subject}, not measured:", why or "the recordings differ in the number of operations"),)
    return ((what, whole[len(whole) // 2].text),)


def idle_of(xspace: bytes, devices: Sequence[str]) -> DeviceRecording:
    """The shares of time in which no operation was under way, from the first operation on any device to the end of the
    last: on average, and by device, in their order. The rank is that time.

    Raises:
        NotMeasured: it lacks operations of a device, or the end of one.
    """
    p, found = _read_devices(xspace, devices)
    begin_s = min(start for lane in p.lanes for start in lane.starts_s)
    span_s = max(end for lane in p.lanes for end in lane.ends_s) - begin_s
    shares = [1 - device.busy_s / span_s for device in found]
    text = f"{percent(sum(shares) / len(shares))} (by device {', '.join(map(percent, shares))})"
    return DeviceRecording(span_s, text, sum(op.calls for op in p.ops))


def shares_of(xspace: bytes, devices: Sequence[str]) -> DeviceRecording:
    """The share of communication in the time in which a device was busy, over all devices, and the exposed part of it.
    The rank is that share.

    Raises:
        NotMeasured: it lacks operations of a device, or what would say which of them communicate.
    """
    p, found = _read_devices(xspace, devices, SPOIL_COMMUNICATION)
    busy_s = sum(device.busy_s for device in found)
    share = sum(device.communication_s or 0.0 for device in found) / busy_s
    if not share:
        raise NotMeasured("the trace holds none of the collectives that the program has")
    exposed = sum(device.exposed_s or 0.0 for device in found) / busy_s
    text = f"{percent(share)} of the device time, {percent(exposed)} exposed"
    return DeviceRecording(share, text, sum(op.calls for op in p.ops))


def _read_devices(xspace: bytes, names: Sequence[str], more: Sequence[str] = ()) -> tuple[Profile, list[Device]]:
    p = profile_of(xspace)
    refuse_incomplete(p, more)
    by_name = {device.name: device for device in p.devices}
    if missing := [name for name in names if name not in by_name]:
        raise NotMeasured(f"the trace has no operations of {', '.join(missing)}")
    return p, [by_name[name] for name in names]


# ---- the batch cut over devices, and meshes of two axes -----------------------------------------------------------

AXES = ("data", "model")
Shape = tuple[int, int]
NOTHING = ("exchanged:", "nothing")


def read_meshes(asked: Asked, usual: str) -> dict[str, Shape]:
    """The meshes by their labels: numbers of devices, or of devices along both axes.

    Raises:
        UsageError: something else is given.
    """
    meshes: dict[str, Shape] = {}
    for word in asked.words(usual):
        along, *more = map(whole_number, word.split("x"))
        shape = along, more[0] if more else 1
        if len(more) > 1 or min(shape) < 1 or math.prod(shape) > MOST_DEVICES:
            kinds = "numbers of devices such as 1,2,4, or meshes such as 4x2"
            raise UsageError(asked.text, f"{kinds}, of at most {MOST_DEVICES} devices each")
        meshes[word] = shape
    return meshes


def measure_meshes(usual: str, x_label: str, asked: Asked) -> Measure:
    """The batch cut over meshes, the `usual` ones if none are given."""
    meshes = read_meshes(asked, usual)
    name, title, case = asked.variant.name, asked.variant.title, asked.plain
    batch = find_batch(case, asked.inputs, asked.batch)

    def measure(lab: WorkerLab) -> tuple[Curve]:
        argument = (case, batch, meshes, lab.options.seed)
        devices = with_devices(max(map(math.prod, meshes.values())))
        told = lab.call_alone(try_meshes, argument, name=f"the meshes of {case.id.label!r}", condition=devices)
        return (Curve(name, title, x_label, told.points, sentence=told.sentence),)

    return measure


# ---- in the worker ----------------------------------------------------------------------------------------------


def try_meshes(argument: tuple[Case, Batch, dict[str, Shape], int], say: Say) -> DeviceSweep:
    case, batch, meshes, seed = argument
    say("inputs")
    is_fake, found = jax.default_backend() == "cpu", list[Point]()
    with without_cache():
        inputs = make_inputs(case, seed)
        # Without donation, since the same inputs are placed on every mesh.
        call = program_of(replace(case, donate=())).call
        expected = jax.block_until_ready(call(*inputs.args, **inputs.kwargs))
        for label, shape in meshes.items():
            say(f"mesh {label}", again=True)
            tried = functools.partial(_try_mesh, call, batch, shape, inputs, expected, is_timed=not is_fake)
            found.append(attempt(math.prod(shape), label, tried, "mesh"))
    told = "times are from one process, one after the other, not compared in pairs"
    if is_fake:
        told = (
            f"{len(jax.devices())} fake devices share {count_cores()} cores: counts and bytes are real, times and the "
            "share of communication in them are not measured"
        )
    return DeviceSweep(tuple(found), f"the batch is {batch.how}; {told}")


def _try_mesh(call: Any, batch: Batch, shape: Shape, inputs: Inputs, expected: Any, *, is_timed: bool) -> Reading:
    mesh = _mesh(shape, batch)
    args, kwargs = _place_inputs(mesh, batch, inputs)
    compiled = call.lower(*args, **kwargs).compile()
    outputs = jax.block_until_ready(call(*args, **kwargs))
    exchanged = _collective_facts(compiled.as_text() or "")
    # On several devices XLA sums in another order, within the tolerance of the dtype.
    wrong = compare(outputs, expected, against="baseline").why
    facts = (*exchanged, *_memory_facts(compiled), *((("wrong result:", wrong),) if wrong else ()))
    if not is_timed:
        return facts, None
    again = functools.partial(call, *args, **kwargs)
    seen = () if NOTHING in exchanged else record(again, mesh.devices.flatten().tolist(), COMMUNICATION, shares_of)
    return (*seen, *facts), time_calls(again)


def _mesh(shape: Shape, batch: Batch) -> Mesh:
    """Raises `NotAvailable` where it does not fit the devices, or the batch."""
    wanted, there = math.prod(shape), len(jax.devices())
    if wanted > there:
        raise NotAvailable(f"the mesh has {wanted} places, and there are {there} devices")
    if batch.rows % shape[0]:
        raise NotAvailable(f"the {batch.rows} rows of {', '.join(batch.names)} do not divide among {shape[0]} devices")
    # Stated explicitly: XLA inserts the communication, whatever kind of axes the JAX version defaults to.
    automatic = (AxisType.Auto,) * len(AXES)
    return jax.make_mesh(shape, AXES, axis_types=automatic, devices=jax.devices()[:wanted])


def _place_inputs(mesh: Mesh, batch: Batch, inputs: Inputs) -> CallArguments:
    columns = mesh.shape["model"]

    def place(key: int | str, leaf: Any) -> Any:
        is_matrix = is_float(leaf) and leaf.ndim >= 2 and leaf.shape[-1] % columns == 0
        spec = PartitionSpec()
        if key in batch.arguments:
            spec = PartitionSpec("data")
        elif is_matrix and columns > 1:
            spec = PartitionSpec(*[None] * (leaf.ndim - 1), "model")
        return jax.device_put(leaf, NamedSharding(mesh, spec))

    return change_arrays(inputs, place)


def _collective_facts(hlo_text: str) -> Facts:
    module = hlo.parse(hlo_text)
    found, counted = collectives(module), counts(module)
    total = found.bytes_per_call
    work = _work(counted.flops if counted else None, total, is_exact=counted is not None and counted.is_exact)
    if not found.calls:
        return (NOTHING, ("computes", work))
    opcodes = Counter(call.opcode for call in found.calls)
    listed = ", ".join(f"{n} {opcode}" for opcode, n in sorted(opcodes.items()))
    exchanged = f"{listed}, {'of unknown trip count' if total is None else size(total)} per device"
    return (("exchanged:", exchanged), ("computes", work))


def _work(flops: float | None, exchanged_bytes: int | None, *, is_exact: bool) -> str:
    """84.0 MFLOP per device for 128 KiB exchanged: 641 FLOP/B"""
    if flops is None:
        return "operations that benchax can't count, in custom calls"
    done = f"{'' if is_exact else 'about '}{count(flops, 'FLOP')} per device"
    if not exchanged_bytes:
        return done
    return f"{done} for {size(exchanged_bytes)} exchanged: {count(flops / exchanged_bytes, 'FLOP/B')}"


def _memory_facts(compiled: Any) -> Facts:
    plan = memory_plan(compiled)
    if plan.argument_bytes is None or plan.temp_bytes is None:
        return ()
    return (("each device holds", f"{size(plan.argument_bytes)} of arguments, {size(plan.temp_bytes)} of temporaries"),)


# ---- stages with micro-batches --------------------------------------------------------------------------------------

Stage = Callable[[Any], Any]
TITLE = "micro-batches through stages, each on its own device"
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"
"""So that one fake device is about one core."""
MICRO_BATCHES = (1, 2, 4, 8)
TRIAL_S = 0.2
"""For each stage: a limit of time."""
MOST_SLOWDOWN = 1.2
"""Fake devices that slow one another down further than this stand for no devices."""


def chain(stages: tuple[Stage, ...], x: Any) -> Any:
    """The combined work of the stages."""
    for stage in stages:
        x = stage(x)
    return x


def measure_pipeline(asked: Asked) -> Measure:
    case, (stages, numbers) = asked.case, read_stages(asked)
    argument = case, _batch(case, make_inputs(case, asked.seed)), stages, numbers, asked.seed

    def measure(lab: WorkerLab) -> tuple[Curve]:
        name, condition = f"the {case.id.label!r}", with_devices(len(stages), ONE_THREAD)
        told = lab.call_alone(try_pipeline, argument, name=name, condition=condition)
        if told.why:
            raise NotAvailable(told.why)
        sentence = f"results are compared with those of {case.id.label} on one device; {told.sentence}"
        return (Curve("pipeline", TITLE, "micro-batches", told.points, sentence=sentence),)

    return measure


def read_stages(asked: Asked) -> tuple[tuple[Stage, ...], tuple[int, ...]]:
    """Stages and numbers of micro-batches. Raises `UsageError` for what is no such thing."""
    raw, said = asked.given, asked.text
    if isinstance(raw, str):
        # A path can contain a '='; no number contains a ':'.
        names, equals, numbers = raw.rpartition("=")
        if not equals or ":" in numbers:
            names, numbers = raw, "1,2,4,8"
        # model.py:embed+model.py:head: a path can contain a '+'; a name ends after its ':'.
        parts = [*re.split(r"(:[\s\w.]*)\+", names), ""]
        found = [asked.named_object(where + name) for where, name in zip(parts[::2], parts[1::2], strict=True)]
        stages = [stage for one in found for stage in (one if isinstance(one, list | tuple) else [one])]
        return check_stages(said, stages), check_numbers(said, literal(f"({numbers},)"))
    is_both = isinstance(raw, Sequence) and len(raw) == 2 and isinstance(raw[0], Sequence)
    stages, counts = raw if is_both else (raw, MICRO_BATCHES)
    return check_stages(said, stages), check_numbers(said, counts)


def _batch(case: Case, inputs: Inputs) -> int | str:
    """Returns the one argument with arrays. Raises `UsageError` if there are several, or none."""
    named = arguments(case, inputs)
    found = {name: key for name, key in named.items() if array_leaves(every_argument(inputs)[key])}
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


# ---- in the worker ----------------------------------------------------------------------------------------------


def try_pipeline(argument: tuple[Case, int | str, tuple[Stage, ...], tuple[int, ...], int], say: Say) -> DeviceSweep:
    case, batched, stages, numbers, seed = argument
    count = len(stages)
    say("inputs")
    inputs = make_inputs(case, seed)
    is_fake, there = jax.default_backend() == "cpu", len(jax.devices())
    if there < count:
        return DeviceSweep(why=f"{count} stages need {count} devices, and there are {there}")
    batch = every_argument(inputs)[batched]
    with without_cache():
        say("whole")
        # Call it with copies, because a function may donate its inputs.
        args, kwargs = inputs.renewed()
        expected = jax.block_until_ready(program_of(case).call(*args, **kwargs))
        say("stages")
        # Report a failing stage once, not for each number of parts.
        jax.eval_shape(functools.partial(chain, stages), batch)
        pipe = Pipe(tuple(map(jax.jit, stages)), tuple(jax.devices()[:count]))
        say("trial")
        skip_reason = skip_reason_of(count, count_cores(), lambda: pipe.slowdown(batch)) if is_fake else ""
        points: list[Point] = []
        for parts in numbers:
            say(f"{parts} micro-batches", again=True)
            points.append(try_pipe(pipe, batch, parts, expected, is_timed=not skip_reason))
    where = f"{count} fake devices with a thread each; " if is_fake else ""
    sentence = f"{where}times are from one process, one after the other, not compared in pairs"
    if skip_reason:
        sentence = f"{skip_reason}: results and bytes are real; times, busy and idle devices are not measured"
    return DeviceSweep(tuple(points), sentence)


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
                    values[part] = self.stages[stage](jax.device_put(values[part], self.devices[stage]))
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
        alone_s = max(time_calls(call, TRIAL_S).value for call in calls)
        return time_calls(lambda: [call() for call in calls], TRIAL_S).value / alone_s


def skip_reason_of(devices: int, cores: int, slowdown: Callable[[], float]) -> str:
    """Why times of fake devices would not stand for devices; empty: nothing speaks against them."""
    if cores < devices:
        return f"{devices} fake devices share {plural(cores, 'core')}"
    if (found := slowdown()) > MOST_SLOWDOWN:
        return (
            f"{devices} fake devices slow one another down: all stages at once take {number(found)} times as long as "
            "the slowest alone"
        )
    return ""


def try_pipe(pipe: Pipe, batch: Any, count: int, expected: Any, *, is_timed: bool) -> Point:
    return attempt(count, str(count), lambda: _try_pipe(pipe, batch, count, expected, is_timed), "pipeline")


def _try_pipe(pipe: Pipe, batch: Any, count: int, expected: Any, is_timed: bool) -> Reading:
    parts = _split_batch(batch, count)
    outputs = _together(jax.block_until_ready(pipe(parts)))
    sizes = pipe.handed_bytes(parts[0])
    handed = ("handed on:", f"{size(sum(sizes) * count)} in {plural(len(sizes) * count, 'transfer')}")
    if why := compare(outputs, expected, against="baseline").why:
        return (("wrong result:", why), handed), None
    predicted = ("idle by the formula, if stages are equal:", percent(bubble(len(pipe.devices), count)))
    if not is_timed:
        return (predicted, handed), None
    facts = (predicted, *record(lambda: pipe(parts), pipe.devices, IDLE, idle_of), handed)
    time = time_calls(lambda: pipe(parts))
    # A median without an interval is not reported.
    untimed = ("not timed:", "each reading resembles the one before, so their median has no interval")
    return ((*facts, untimed), None) if time.low is None else (facts, time)


def bubble(stages: int, micro_batches: int) -> float:
    """The share of the time in which a device has nothing to do: (s - 1) / (m + s - 1), for stages of equal length."""
    return (stages - 1) / (micro_batches + stages - 1)


def _split_batch(batch: Any, count: int) -> list[Any]:
    """Parts of equal length, ready on the first device."""
    rows = count_rows(batch)
    if rows is None:
        raise NotAvailable("x isn't a batch: an array, or a tree of arrays with as many rows")
    if rows % count:
        raise NotAvailable(f"the {rows} rows of x do not divide into {count} micro-batches")
    length = rows // count
    return jax.block_until_ready(
        [jax.tree.map(lambda leaf, i=i: leaf[i * length : (i + 1) * length], batch) for i in range(count)]
    )


def _together(outputs: list[Any]) -> Any:
    if any(not leaf.shape for leaf in jax.tree.leaves(outputs)):
        raise NotAvailable("the last stage returns a scalar for each micro-batch, so there are no rows to join")
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *jax.device_get(outputs))
