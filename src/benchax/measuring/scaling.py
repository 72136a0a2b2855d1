"""Measures a function over 1, 2, 4 … devices: the work in a second, and the share of the ideal speedup.

One axis of the mesh grows. *Strong*: the same shapes on each count (Amdahl 1967). *Weak*: the dimensions on that axis
grow with it (Gustafson 1988), so that each device has as many rows as with the fewest devices. The work differs if it
is not proportional to the rows: the comparison is of rows in a second.

All counts are timed alternately: a round is one sample of each by the `wall` timer, in random order. Blocks of rounds
have new data. So a disturbance affects neighboring samples equally. The ratio of each pair of counts is read in each
round, as `measuring/paired.py` reads the ratio of two versions (interval: `stats.verdicts.ratio_of`).

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any

import jax

from benchax.case import Case, make_case
from benchax.environment import capture, count_cores
from benchax.errors import BenchaxError, UsageError
from benchax.keywords import guard_keywords
from benchax.machine.noise import paused_gc
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.inputs import fake_devices, make_inputs
from benchax.measuring.paired import Turns, prepare_turns, take_round
from benchax.measuring.prepare import is_fake
from benchax.model import CaseId, Estimate, Remark
from benchax.numerics import compare
from benchax.options import resolve
from benchax.progress import Progress, ProgressEvent, show_progress
from benchax.results.experiment import Scaling, ScalingCurve, ScalingKind, ScalingPoint
from benchax.specs import ArraySpec, MeshSpec, is_spec, parse_spec
from benchax.stats.verdicts import ratio_of
from benchax.units import plural

BLOCKS, LEAST_ROUNDS, MOST_ROUNDS = 3, 6, 40
ALPHA = 0.05
KINDS: tuple[ScalingKind, ...] = ("strong", "weak")


@guard_keywords()
def scaling(
    fn: Callable[..., Any],
    *args: Any,
    devices: str | Sequence[int] | None = None,
    mesh: Any = None,
    name: str | None = None,
    max_time_s: float | str | None = None,
    seed: int | None = None,
    progress: Progress = None,
    **kwargs: Any,
) -> Scaling:
    """Measures `fn(*args, **kwargs)` on several numbers of devices. Nothing is stored.

    Args:
        fn: a plain function, or a jitted one.
        args, kwargs: its inputs, as for `bench`. Specs such as "f32[1024@data,512]" name the axis that grows.
        devices: two counts or more, such as [1, 2, 4] or "1,2,4"; default: 1, 2, 4, … up to all that there are, times
            those of the other axes.
        mesh: the sizes of the other axes, as for `bench`.
        name: default: the function's own.
        max_time_s: of sampling, for each count.
        seed: of the data made from specs.
        progress: as for `bench`.

    Raises:
        UsageError: an argument that cannot work, or more devices than there are; nothing has been measured then.

    If an argument of `fn` has the name of one of these, pass it through `functools.partial`.

    Example:
        >>> s = benchax.scaling(jnp.matmul, "f32[8192@data,512]", "f32[512,512]")  # doctest: +SKIP
        >>> s.curves[0].kind, s.curves[0].last_that_pays  # doctest: +SKIP
        ('strong', 4)
    """
    case = make_case(fn, args, kwargs, name=name, mesh=mesh)
    options = resolve({"max_time_s": max_time_s, "seed": seed}, project=case.folder)
    with show_progress(progress) as report:
        return measure_scaling(
            case,
            read_counts(devices) if devices is not None else _powers(case),
            max_time_s=options.max_time_s,
            seed=options.seed,
            report=lambda step: report(ProgressEvent(case.id.label, step)),
        )


def read_counts(given: Any) -> tuple[int, ...]:
    """ "1,2,4,8" or [1, 2, 4, 8] as numbers, ascending.

    Raises:
        UsageError: fewer than two, or one that is no whole number above 0.
    """
    listed = given.split(",") if isinstance(given, str) else list(given) if isinstance(given, list | tuple) else [given]
    texts = [str(each).strip() for each in listed]
    if len(set(texts)) < 2 or not all(t.isascii() and t.isdecimal() and 0 < int(t) < 10**6 for t in texts):
        raise UsageError(f"cannot read {given!r} as numbers of devices", "two or more from 1 up, such as 1,2,4,8")
    return tuple(sorted({int(text) for text in texts}))


def _powers(case: Case) -> list[int]:
    others = math.prod(case.mesh.sizes.values()) if case.mesh else 1
    return [others * 2**i for i in range(max(2, (len(jax.devices()) // others).bit_length()))]


def measure_scaling(
    case: Case, counts: Sequence[int], *, max_time_s: float, seed: int, report: Callable[[str], None]
) -> Scaling:
    """Measures the case on each of these device counts.

    Args:
        max_time_s: of sampling, for each count.
        report: receives each step that begins.

    Raises:
        UsageError: its inputs name no axis that can grow, or several; or the counts are not multiples of the devices of
            the other axes.
    """
    axis, rest = growing_axis(case)
    _check_counts(counts, rest)
    curves = tuple(_curve(case, kind, axis, rest, counts, max_time_s, seed, report) for kind in KINDS)
    devices = jax.devices()
    fake = is_fake(devices) and max(counts) > 1
    text = (
        f"{len(devices)} fake devices share {plural(count_cores(), 'core')} of this CPU: the times show how well "
        "they share these cores, and not how the function scales over devices"
    )
    remarks = (Remark("fake-devices", "warning", text),) if fake else ()
    return Scaling(_unplaced(case.id), capture(case.folder), axis, fake, curves, remarks)


def _unplaced(found: CaseId) -> CaseId:
    return replace(found, params=tuple(p for p in found.params if p[0] != "mesh"))


def growing_axis(case: Case) -> tuple[str, dict[str, int]]:
    """(the axis that the inputs name and the mesh leaves open, the others with their sizes).

    Raises:
        UsageError: there is no such axis, or there are several.
    """
    rest = case.mesh.sizes if case.mesh else {}
    specs = [parse_spec(leaf) for leaf in jax.tree.leaves(case.inputs()) if isinstance(leaf, str) and is_spec(leaf)]
    named = dict.fromkeys(name for spec in specs for over in spec.axes for name in over)
    left = [name for name in named if name not in rest]
    if not named:
        raise UsageError(f"no input of {case.id.label!r} is sharded", "a spec such as f32[1024@data,512]")
    if not left:
        raise UsageError(
            f"the mesh {case.mesh} has a size for each axis of {case.id.label!r}, and --devices needs one that grows",
            f"--mesh without one of: {', '.join(named)}",
        )
    if len(left) > 1:
        raise UsageError(
            f"inputs of {case.id.label!r} are sharded over {' and '.join(left)}, and --devices grows one axis",
            f"a size for the others, such as --mesh {left[-1]}=2",
        )
    return left[0], rest


def _check_counts(counts: Sequence[int], rest: dict[str, int]) -> None:
    others = math.prod(rest.values())
    wrong = [n for n in counts if n % others]
    if wrong:
        raise UsageError(
            f"{wrong[0]} devices do not divide among the {others} of the other axes", f"multiples of {others}"
        )
    there = len(jax.devices())
    if max(counts) > there:
        problem = f"--devices {','.join(map(str, counts))}: there is {plural(there, 'device')}"
        raise UsageError(problem, f"at most {there}", fake_devices(max(counts)))


# ---- one curve --------------------------------------------------------------------------------------------------


@dataclass
class _Running:
    """A count that could be built, and its samples."""

    point: ScalingPoint
    work: float
    """Rows, in multiples of those at the fewest devices."""
    case: Case
    turns: Turns
    blocks: list[list[float]]

    def sample(self) -> float:
        """Seconds of a call."""
        return self.turns.sample(self.turns.iterations) / 1e9 / self.turns.iterations


def _curve(
    case: Case,
    kind: ScalingKind,
    axis: str,
    rest: dict[str, int],
    counts: Sequence[int],
    max_time_s: float,
    seed: int,
    report: Callable[[str], None],
) -> ScalingCurve:
    points: dict[int, ScalingPoint] = {}
    running: list[_Running] = []
    for count in counts:
        report(f"{kind}: {plural(count, 'device')}")
        work = count / counts[0] if kind == "weak" else 1.0
        placed = _placed(case, axis, rest, count, round(work))
        points[count] = ScalingPoint(count, str(placed.mesh))
        try:
            one = _start(placed, points[count], work, seed)
            if kind == "strong" and running:
                first = running[0]
                outputs = (each.turns.version.subject.outputs for each in (one, first))
                agreement = compare(*outputs, against="baseline")
                if not agreement.agrees:
                    raise UsageError(f"its result differs from that of {first.point.devices}: {agreement.why}")
            running.append(one)
        except Exception as error:  # of one count: the others still say something
            problem = error.problem if isinstance(error, BenchaxError) else diagnose(error, "scaling").message
            points[count] = replace(points[count], why=problem)
    if running:
        report(f"{kind}: timing them alternately")
        _sample(running, max_time_s, seed)
    for before, one in zip([None, *running], running, strict=False):
        points[one.point.devices] = _judge(one, running[0], before)
    return ScalingCurve(kind, tuple(points[count] for count in counts))


def _placed(case: Case, axis: str, rest: dict[str, int], count: int, times: int) -> Case:
    """The case on that many devices, with `times` as many rows over the axis."""
    mesh = MeshSpec(((axis, count // math.prod(rest.values())), *rest.items()))

    def grow(leaf: Any) -> Any:
        if times == 1 or not (isinstance(leaf, str) and is_spec(leaf)):
            return leaf
        spec = parse_spec(leaf)
        shape = [n * times if axis in over else n for n, over in zip(spec.shape, spec.axes, strict=False)]
        return str(ArraySpec(spec.dtype, tuple(shape), spec.axes)) if spec.axes else leaf

    def inputs() -> tuple[tuple[Any, ...], Any]:
        args, kwargs = case.inputs()
        return jax.tree.map(grow, args), jax.tree.map(grow, dict(kwargs))

    return replace(case, inputs=inputs, mesh=None, id=_unplaced(case.id)).with_mesh(mesh)


def _start(case: Case, point: ScalingPoint, work: float, seed: int) -> _Running:
    turns = prepare_turns(case, seed, lambda stage: None)
    return _Running(replace(point, signature=turns.version.inputs.signature), work, case, turns, [])


def _sample(running: Sequence[_Running], max_time_s: float, seed: int) -> None:
    rng, limit_s = random.Random(seed), max_time_s * len(running) / BLOCKS
    with paused_gc():
        for block in range(BLOCKS):
            for one in running:
                one.turns.version.inputs = make_inputs(one.case, seed + block)
                one.turns.version.warm_up(is_new=False)
            until_s, taken = perf_counter() + limit_s, list[list[float]]()
            while len(taken) < LEAST_ROUNDS or (len(taken) < MOST_ROUNDS and perf_counter() < until_s):
                taken.append(take_round([one.sample for one in running], rng))
            for one, *seconds in zip(running, *taken, strict=True):
                one.blocks.append(seconds)


def _judge(one: _Running, first: _Running, before: _Running | None) -> ScalingPoint:
    median_s = median(seconds for block in one.blocks for seconds in block)
    point = replace(one.point, median_s=median_s)
    if before is None:
        return point
    throughput, devices = _gain(one, first), one.point.devices / first.point.devices
    efficiency = throughput.map(lambda factor: factor / devices)
    return replace(point, throughput=throughput, efficiency=efficiency, gain=_gain(one, before))


def _gain(one: _Running, other: _Running) -> Estimate:
    """Work in a second of `one` over that of `other`."""
    more = one.work / other.work
    blocks = [
        [math.log(more * b / a) for a, b in zip(mine, theirs, strict=True)]
        for mine, theirs in zip(one.blocks, other.blocks, strict=True)
    ]
    found = ratio_of(blocks, ALPHA)
    return Estimate(found.ratio, found.low, found.high)
