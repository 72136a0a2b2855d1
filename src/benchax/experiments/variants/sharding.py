"""The function over 1 … N devices, and over meshes of several shapes: the data on each device, and the exchanged data.

    devices=1,2,4,8      the batch cut over this number of devices (data parallel)
    mesh=4x2,8x1         the batch over the first axis, the last axis of the other float matrices over the second

The user names the arguments that hold the batch (batch=x), or benchax guesses them from the shapes of the outputs
(`batches.py`). The curve shows which of the two it was. XLA inserts the communication (jit with sharded inputs,
automatic axes). If there are too few real devices and the backend is the CPU, one process pretends to have as many as
are needed. Then counts and bytes of its programs match the real devices. Times do not, and are not reported. Results
are compared with the results of one device.

A useful ratio is the operations of one device over the bytes that it exchanges. Compare it with the machine's ratio:
FLOP/s of a device over bytes/s of its links. Both are counts of the program, and do not show how much of one hides
behind the other. A short profile shows that on real devices (`devices.py`; not tried on several accelerators).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from benchax.case import Case
from benchax.environment import count_cores
from benchax.errors import NotAvailable, UsageError
from benchax.experiments.batches import Batch, find_batch
from benchax.experiments.devices import MOST_DEVICES, DeviceReading, seen_communication, time_calls, with_devices
from benchax.experiments.functions import is_float, plain
from benchax.experiments.lab import Lab
from benchax.experiments.variant import Measure
from benchax.experiments.variant_rows import failed_row
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.measuring.jax_settings import without_cache
from benchax.measuring.program import program_of
from benchax.model import Failure
from benchax.numerics import compare
from benchax.program import hlo
from benchax.program.collectives import collectives
from benchax.program.memory import memory_plan
from benchax.program.work import counts
from benchax.results.experiment import Curve, Facts, VariantRow
from benchax.units import count, size
from benchax.workers.task import Say, task

AXES = ("data", "model")
Shape = tuple[int, int]
NOTHING = ("exchanged:", "nothing")


@dataclass(frozen=True)
class MeshReadings:
    """The readings of all meshes, in their order."""

    readings: tuple[DeviceReading, ...]
    is_fake: bool
    devices: int
    cores: int


@dataclass(frozen=True)
class Sharded:
    """A sweep over meshes."""

    name: str
    title: str
    usual: str
    is_mesh: bool
    needs: str = "several devices; on a CPU they are fake"
    only_by_name: bool = True
    batch: str = ""
    """Arguments that hold the batch; empty: they are guessed."""

    def with_batch(self, batch: str) -> Sharded:
        return dataclasses.replace(self, batch=batch)

    def plan(self, case: Case, given: Any = None, seed: int = 0) -> Measure:
        if not case.jit:
            raise NotAvailable("only a jitted function is split over devices")
        shapes = self.shapes(self.usual if given is None else given)
        unjitted = plain(case, seed)
        plan = plan_sharding(unjitted, make_inputs(unjitted, seed), self.batch)
        return lambda lab: (self._curve(unjitted, plan, shapes, lab),)

    def shapes(self, text: Any) -> tuple[Shape, ...]:
        """Raises `UsageError` for what is no list of numbers of devices, or of meshes."""
        words = [word.strip() for word in str(text).split(",")]
        found = [_shape(word, self.is_mesh) for word in words]
        if any(shape is None for shape in found):
            expected = "meshes such as 4x2,8x1" if self.is_mesh else "numbers of devices, such as 1,2,4,8"
            raise UsageError(f"{self.name}={text!r}", f"{expected}, of at most {MOST_DEVICES} devices each")
        return tuple(dict.fromkeys(shape for shape in found if shape))

    def _curve(self, case: Case, plan: ShardingPlan, shapes: tuple[Shape, ...], lab: Lab) -> Curve | VariantRow:
        argument, devices = (case, plan, shapes, lab.options.seed), with_devices(max(map(math.prod, shapes)))
        told = lab.call_alone(try_meshes, argument, name=f"the meshes of {case.id.label!r}", condition=devices)
        if isinstance(told, Failure):
            return failed_row(self.name, self.title, told)
        points = tuple(
            reading.point(math.prod(shape), "x".join(map(str, shape)) if self.is_mesh else str(shape[0]))
            for shape, reading in zip(shapes, told.readings, strict=True)
        )
        x_label = "mesh (data x model)" if self.is_mesh else "devices"
        return Curve(self.name, self.title, x_label, points, sentence=_sentence(plan, told))


def _shape(word: str, is_mesh: bool) -> Shape | None:
    numbers = word.split("x")
    is_number = all(n.isascii() and n.isdecimal() and 0 < int(n) <= MOST_DEVICES for n in numbers)
    if not is_number or len(numbers) != (2 if is_mesh else 1):
        return None
    rows, columns = int(numbers[0]), int(numbers[1]) if is_mesh else 1
    return (rows, columns) if rows * columns <= MOST_DEVICES else None


@dataclass(frozen=True)
class ShardingPlan:
    """Which array is sharded over which axis."""

    batch: Batch
    """The arguments that are cut over "data"."""
    others: tuple[int | str, ...]
    """Arguments whose float matrices are cut over "model", by their last axis."""


def plan_sharding(case: Case, inputs: Inputs, batch: str = "") -> ShardingPlan:
    """Raises `NotAvailable` if no argument is an array, `UsageError` if `batch` names no argument."""
    found = find_batch(case, inputs, batch)
    dynamic = [key for key in (*range(len(inputs.args)), *inputs.kwargs) if key not in inputs.static]
    return ShardingPlan(found, tuple(key for key in dynamic if key not in found.arguments))


def _sentence(plan: ShardingPlan, told: MeshReadings) -> str:
    cut = f"cut are {plan.batch.how}"
    if not told.is_fake:
        return f"{cut}; times are of one process, one after the other, and no comparison in pairs"
    return (
        f"{cut}; {told.devices} fake devices share {told.cores} cores: counts and bytes are real, times and the "
        "share of communication in them are not measured"
    )


# ---- in the worker ----------------------------------------------------------------------------------------------


@task
def try_meshes(argument: tuple[Case, ShardingPlan, tuple[Shape, ...], int], say: Say) -> MeshReadings:
    case, plan, shapes, seed = argument
    say("inputs")
    is_fake, found = jax.default_backend() == "cpu", list[DeviceReading]()
    with without_cache():
        inputs = make_inputs(case, seed)
        program = program_of(dataclasses.replace(case, donate=()))
        # Without donation, since the same inputs are placed on every mesh.
        expected = jax.block_until_ready(program.call(*inputs.args, **inputs.kwargs))
        for shape in shapes:
            say(f"mesh {'x'.join(map(str, shape))}", again=True)
            try:
                found.append(_try_mesh(case, plan, shape, inputs, expected, is_timed=not is_fake))
            except NotAvailable as error:
                found.append(DeviceReading(why=error.problem))
            except Exception as error:
                found.append(DeviceReading(why=diagnose(error, "mesh").message))
    return MeshReadings(tuple(found), is_fake, len(jax.devices()), count_cores())


def _try_mesh(
    case: Case, plan: ShardingPlan, shape: Shape, inputs: Inputs, expected: Any, *, is_timed: bool
) -> DeviceReading:
    mesh = _mesh(shape, plan)
    args, kwargs = _place_inputs(mesh, plan, inputs)
    program = program_of(dataclasses.replace(case, donate=()))
    compiled = program.call.lower(*args, **kwargs).compile()
    outputs = jax.block_until_ready(program.call(*args, **kwargs))
    exchanged = _collective_facts(compiled.as_text() or "")
    facts = (*exchanged, *_memory_facts(compiled), *_agreement(outputs, expected))
    if not is_timed:
        return DeviceReading(facts)
    call = functools.partial(program.call, *args, **kwargs)
    seen = () if NOTHING in exchanged else seen_communication(call, mesh.devices.flatten().tolist())
    return DeviceReading((*seen, *facts), time_calls(call))


def _mesh(shape: Shape, plan: ShardingPlan) -> Mesh:
    """Raises `NotAvailable` where it does not fit the devices, or the batch."""
    wanted, there = math.prod(shape), len(jax.devices())
    if wanted > there:
        raise NotAvailable(f"the mesh has {wanted} places, and there are {there} devices")
    batch = plan.batch
    if batch.rows % shape[0]:
        raise NotAvailable(f"the {batch.rows} rows of {', '.join(batch.names)} do not divide among {shape[0]} devices")
    # Said outright: XLA is to insert the communication, whatever kind of axes is the default of a JAX.
    automatic = (AxisType.Auto,) * len(AXES)
    return jax.make_mesh(shape, AXES, axis_types=automatic, devices=jax.devices()[:wanted])


def _place_inputs(mesh: Mesh, plan: ShardingPlan, inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    columns = mesh.shape["model"]

    def leaf_spec(key: int | str, leaf: Any) -> PartitionSpec:
        if key in plan.batch.arguments:
            return PartitionSpec("data")
        is_matrix = is_float(leaf) and leaf.ndim >= 2 and leaf.shape[-1] % columns == 0
        return PartitionSpec(*[None] * (leaf.ndim - 1), "model") if is_matrix and columns > 1 else PartitionSpec()

    def place(key: int | str, tree: Any) -> Any:
        if key in inputs.static:
            return tree
        return jax.tree.map(
            lambda leaf: (
                jax.device_put(leaf, NamedSharding(mesh, leaf_spec(key, leaf))) if isinstance(leaf, jax.Array) else leaf
            ),
            tree,
        )

    args = tuple(place(i, value) for i, value in enumerate(inputs.args))
    return args, {name: place(name, value) for name, value in inputs.kwargs.items()}


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
        return "operations that nobody can count, in custom calls"
    done = f"{'' if is_exact else 'about '}{count(flops, 'FLOP')} per device"
    if not exchanged_bytes:
        return done
    return f"{done} for {size(exchanged_bytes)} exchanged: {count(flops / exchanged_bytes, 'FLOP/B')}"


def _memory_facts(compiled: Any) -> Facts:
    plan = memory_plan(compiled)
    if plan.argument_bytes is None or plan.temp_bytes is None:
        return ()
    return (("each device holds", f"{size(plan.argument_bytes)} of arguments, {size(plan.temp_bytes)} of temporaries"),)


def _agreement(outputs: Any, expected: Any) -> Facts:
    """Nothing where they agree: XLA sums in another order on several devices, within what the dtype permits."""
    found = compare(outputs, expected, against="baseline")
    return (("wrong result:", found.why),) if found.why else ()


MEMBERS = (
    Sharded("devices", "the batch cut over 1 … N devices", "1,2,4,8", is_mesh=False),
    Sharded("mesh", "batch and matrices cut over meshes of two axes", "8x1,4x2,2x4", is_mesh=True),
)
