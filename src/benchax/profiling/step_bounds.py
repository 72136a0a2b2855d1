"""Finds the steps of a training loop in a trace, and where each begins.

The program's own marks come first: `jax.profiler.StepTraceAnnotation`. Without them, a step is a call of one program.
Among the programs that are called repeatedly, it is the one that takes most of the time. A loop can call that program
several times per round (eager operations, accumulated gradients). Then a step is the round: the calls are a sequence
that repeats, and the call with a unique history in it begins the step.

If the loop runs ahead of the device, the device's runs of that program begin the steps, because they show when it
works.

Code that sets a program up repeats, too: `jnp.zeros` three times is three calls of one program, a second apart. So a
device must do the same work in most steps. All steps together must hold a good part of its work in the recording.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from benchax.profiling.events import Space
from benchax.profiling.host_thread import HostThread
from benchax.profiling.marks import program_name
from benchax.profiling.runs import PS, on_busiest_device
from benchax.protobuf import Ints
from benchax.repeating import LEAST_CALLS, goes_on, once_a_round
from benchax.results.profile import ProgramsPerStep, Run, Step, StepMark

SAME_INSIDE, SAME_IN_ALL = 1 / 3, 0.1
"""The work that most steps share must be at least these shares of a device's work in all steps, and in the recording.
In a test of 109 third-party programs, loops had 0.58 and 0.1 or more. Code that only set them up had 0.26, or 0.09, and
less."""
MOST_TRIED = 8
"""Programs that may begin the steps."""

LEFT_WAITING = 3
"""If the device has not begun this many calls when the recording ends, the loop runs ahead. This holds even if the
program waited for the first steps, such as the one that compiles."""


@dataclass(frozen=True, eq=False)
class StepBounds:
    """Where steps begin; each ends where the next one begins, and the last one is not whole."""

    mark: StepMark
    name: str
    begin_ps: Ints
    programs: tuple[ProgramsPerStep, ...] = ()


def find_steps(space: Space, host: HostThread, runs: Sequence[Run]) -> StepBounds:
    """Returns the steps; `mark` is "none" if nothing repeats."""
    marked = read_annotations(space)
    # The name with most steps: a program may mark its evaluation as well.
    for name, count in Counter(step.name for step in marked).most_common(1):
        if count >= LEAST_CALLS:
            begin = np.array([round(step.start_s * PS) for step in marked if step.name == name], np.int64)
            return StepBounds("annotation", name, begin, _programs(host, begin))
    found = islice(chain(_of_calls(host, runs), _of_runs(runs)), MOST_TRIED)
    name, begin = next((one for one in found if _do_the_same(one[1], runs)), ("", np.zeros(0, np.int64)))
    if not name:
        return StepBounds("none", "", begin)
    # Where the loop runs ahead, what was called between two steps of the device is of later ones.
    is_of_device = len(begin) > 0 and not np.isin(begin, host.call_start).any()
    return StepBounds("program", name, begin, _programs_run(runs, begin) if is_of_device else _programs(host, begin))


def _do_the_same(begin: Ints, runs: Sequence[Run]) -> bool:
    """Are these the steps of a loop, by what a device did in them? Yes, where its runs are not known, as on GPU."""
    # Of many calls the device may have begun one or two before the recording ended.
    if len(begin) < LEAST_CALLS or not runs:
        return len(begin) >= LEAST_CALLS
    if len(begin) > LEAST_CALLS:
        begin = begin[1:]  # the first step has what sets a loop up
    mine = on_busiest_device(runs)
    step = np.searchsorted(begin, [int(run.start_s * PS) for run in mine], side="right") - 1
    n_steps = len(begin) - 1
    inside, modules = (step >= 0) & (step < n_steps), np.array([run.module for run in mine])
    often = Counter(module for module, _ in set(zip(modules[inside].tolist(), step[inside].tolist(), strict=True)))
    usual = inside & np.isin(modules, [module for module, n in often.items() if n > n_steps / 2])
    worked = np.array([run.device_s for run in mine])
    same = float(worked[usual].sum())
    return same >= SAME_INSIDE * float(worked[inside].sum()) and same >= SAME_IN_ALL * float(worked.sum())


def read_annotations(space: Space) -> list[Step]:
    """Returns the steps that the program marked with `jax.profiler.StepTraceAnnotation`, in order."""
    found: list[Step] = []
    for line in space.host_lines:
        number, has_number = line.number("step_num")
        _, is_root = line.number("_r")
        for i in np.flatnonzero(has_number & is_root).tolist():
            name = line.names.get(int(line.name_id[i]), "")
            found.append(Step(name, int(number[i]), int(line.start_ps[i]) / PS, int(line.duration_ps[i]) / PS))
    return sorted(found, key=lambda step: step.start_s)


def _of_calls(host: HostThread, runs: Sequence[Run]) -> Iterator[tuple[str, Ints]]:
    """(program, where its steps begin), those that most of the time goes into first."""
    count = np.bincount(host.call_name, minlength=len(host.names))
    repeating = [i for i in range(len(host.names)) if count[i] >= LEAST_CALLS]
    cost = {i: _usual_ps(host, i, runs) * int(count[i]) for i in repeating}
    end = int(host.call_end.max(initial=0))
    going_on = {i: goes_on(host.call_start[host.call_name == i], int(host.call_start[0]), end) for i in repeating}
    for anchor in sorted(repeating, key=lambda i: (not going_on[i], -cost[i])):
        at, name = np.flatnonzero(host.call_name == anchor), program_name(host.names[anchor])
        begin = _at_device(name, host.call_start[at], runs)
        chosen = np.isin(at, once_a_round(host.call_name, at))
        # Of a loop that runs ahead, the device may have begun fewer than were called.
        yield name, begin[chosen[: len(begin)]]


def _usual_ps(host: HostThread, call: int, runs: Sequence[Run]) -> float:
    """Returns the usual time of a call on the host and on devices. The first calls compile."""
    own = float(np.quantile((host.call_end - host.call_start)[host.call_name == call], 0.25))
    module = program_name(host.names[call])
    device = [run.device_s * PS for run in runs if run.module == module]
    return own + (float(np.median(device)) if device else 0.0)


def _of_runs(runs: Sequence[Run]) -> Iterator[tuple[str, Ints]]:
    """By what a device ran: programs that were compiled ahead of time leave no call with a name."""
    for name, count in busiest_programs(runs):
        if count >= LEAST_CALLS:
            yield name, _starts(name, runs)


def busiest_programs(
    runs: Sequence[Run], begin_ps: float = -math.inf, end_ps: float = math.inf
) -> list[tuple[str, int]]:
    """(program, how often it began between the two times), on the device that works most, the busiest one first."""
    spent, count = Counter[str](), Counter[str]()
    for run in on_busiest_device(runs):
        if begin_ps <= run.start_s * PS < end_ps:
            spent[run.module] += int(run.device_s * PS)
            count[run.module] += 1
    return [(name, count[name]) for name, _ in spent.most_common()]


def _at_device(name: str, begin: Ints, runs: Sequence[Run]) -> Ints:
    """The beginnings on the device, where most runs begin only after the next step has been begun."""
    starts = _starts(name, runs)
    # A program may end before its last runs have; the first ones may have been called before the recording.
    starts = starts[max(0, len(starts) - len(begin)) :]
    if len(starts) and len(begin) - len(starts) >= LEFT_WAITING:
        return starts
    if len(starts) < LEAST_CALLS:
        return begin
    return starts if np.mean(starts[:-1] > begin[1 : len(starts)]) > 0.5 else begin


def _starts(name: str, runs: Sequence[Run]) -> Ints:
    first = next((run.device for run in runs if run.module == name), "")
    return np.sort(np.array([int(r.start_s * PS) for r in runs if r.module == name and r.device == first], np.int64))


def _programs(host: HostThread, begin: Ints) -> tuple[ProgramsPerStep, ...]:
    inside = (host.call_start >= begin[0]) & (host.call_start < begin[-1])
    counts = np.bincount(host.call_name[inside], minlength=len(host.names))
    return _list_programs({program_name(host.names[i]): n for i, n in enumerate(counts.tolist()) if n}, begin)


def _programs_run(runs: Sequence[Run], begin: Ints) -> tuple[ProgramsPerStep, ...]:
    return _list_programs(dict(busiest_programs(runs, begin[0], begin[-1])), begin)


def _list_programs(counts: Mapping[str, int], begin: Ints) -> tuple[ProgramsPerStep, ...]:
    found = [ProgramsPerStep(name, n / (len(begin) - 1)) for name, n in counts.items()]
    return tuple(sorted(found, key=lambda one: -one.per_step))
