"""What a step is made of: loops by hand, whose split is known."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import FrameType

import pytest
from source_tree import PACKAGE
from xspace_by_hand import (
    AT_NEXT,
    LOADER,
    LOOP,
    US,
    Event,
    call,
    compiled,
    plane,
    read,
    sample,
    sampler_end,
    space,
    work,
)

from benchax.hooks.command import run
from benchax.profiling.host_thread import SampledFrame, decode
from benchax.profiling.program_recorder import HOOK
from benchax.profiling.samplers import describe_stack
from benchax.profiling.trace import profile_of
from benchax.results.profile import PartKind, Profile, ProgramsPerStep, StepSplit

STEPS = 6
LIBRARY = SampledFrame("/usr/lib/python3.13/json/decoder.py", 7, "decode", "python")


def split_of(found: Profile) -> StepSplit:
    assert found.split is not None
    return found.split


def parts(split: StepSplit) -> dict[PartKind, float]:
    """Microseconds of the mean step."""
    return {part.kind: round(part.mean_s * 1e6, 3) for part in split.parts}


def loop(python_us: int = 600, device_us: int = 300, sampler: tuple[Event, ...] = (), more: int = 0) -> Profile:
    """Steps of 1 ms: 50 µs of dispatch, then the device, while Python waits in np.asarray, then Python."""
    calls: list[Event] = []
    runs: list[Event] = []
    at = 0
    for i in range(STEPS):
        calls += [call("step", at, 50), Event("np.asarray(jax.Array)", (at + 50) * US, (device_us + 50) * US)]
        runs += [work(at + 100, device_us, i)]
        at += 100 + device_us + python_us + (more if i == 3 else 0)
    return read([compiled(0, 0, LOOP, before=1), *calls], runs, sampler)


def sampled(*frames: SampledFrame, cpu_us: int) -> tuple[Event, ...]:
    """Two samples in the Python of each step."""
    times = [i * 1000 + offset for i in range(STEPS) for offset in (600, 700)]
    return tuple(sample(at, *frames, cpu_us=cpu_us) for at in times)


def test_a_step_is_a_call_of_the_program_that_repeats_and_each_moment_counts_once() -> None:
    """Without samples, Python is unseen."""
    found = split_of(loop())

    assert found.events_per_step == 3
    assert (found.samples, found.sampler_share) == (0, None)
    assert found.share("python") == found.share("input") == 0

    assert (found.mark, found.name) == ("program", "jit_step")
    assert found.lengths_s == pytest.approx((0.001,) * 4)
    assert parts(found) == {"unseen": 600, "device": 300, "dispatch": 100}
    assert sum(part.share for part in found.parts) == pytest.approx(1)


def test_time_in_an_iterator_of_the_loop_is_waiting_for_input_at_the_line_inside_of_it() -> None:
    found = split_of(loop(sampler=(*sampled(LOADER, AT_NEXT, cpu_us=0), sampler_end(5900, 50, 6000))))

    assert parts(found) == {"input": 600, "device": 300, "dispatch": 100}
    (line,) = found.parts[0].lines
    assert (line.source, line.function, round(line.share, 6)) == ("/home/me/loader.py:31", "batches", 0.6)
    assert (line.on_processor, line.samples) == (0, 8)
    assert found.sampler_share == pytest.approx(50 / 6000)


AT_14 = LOOP._replace(line=14)
WORDS = SampledFrame("/home/me/text.py", 3, "tokens", "user")
COUNTING = SampledFrame("/home/me/text.py", 9, "count", "user", is_iterating=True)
QUEUE = SampledFrame("/usr/lib/python3.11/queue.py", 171, "get", "python")
WAITING = SampledFrame("/usr/lib/python3.11/threading.py", 327, "wait", "python")


@pytest.mark.parametrize(
    ("frames", "cpu_us", "kind", "within"),
    [
        ((LOADER, AT_NEXT), 100, "input", ""),  # an iterator that computes
        ((WORDS, COUNTING, AT_14), 100, "python", ""),  # a generator that a function computes with
        ((LOADER, AT_14), 1, "waiting", ""),  # off the processor outside of an iterator
        ((QUEUE, LOADER, AT_14), 0, "input", "/usr/lib/python3.11/queue.py:171 get"),
        ((WAITING, QUEUE, AT_14), 0, "input", "/usr/lib/python3.11/queue.py:171 get"),  # what the user called
    ],
)
def test_python_is_told_apart_by_its_frames_and_its_processor_time(
    frames: tuple[SampledFrame, ...], cpu_us: int, kind: PartKind, within: str
) -> None:
    part = split_of(loop(sampler=sampled(*frames, cpu_us=cpu_us))).parts[0]

    assert (part.kind, part.lines[0].within) == (kind, within)
    assert part.lines[0].on_processor == cpu_us / 100


def test_a_sample_stands_for_the_same_piece_of_all_steps_unless_it_came_too_late() -> None:
    """Then it was due in one piece of Python and came in the next one, for C code held the lock."""
    one, late = (split_of(loop(sampler=(sample(2600, AT_14, cpu_us=100, late_us=us),))) for us in (0, 1800))

    assert parts(one)["python"] == 600
    assert "python" not in parts(late)


def test_a_compilation_in_each_step_is_tracing_and_compiling() -> None:
    python: list[Event] = []
    runs: list[Event] = []
    for i in range(STEPS):
        python += [call("step", 1000 * i, 850), compiled(1000 * i + 700, 600, LOOP)]
        runs += [work(1000 * i + 850, 100, i)]

    found = split_of(read(python, runs))

    assert parts(found) == {"compile": 850, "device": 100, "unseen": 50}
    assert found.compiling_steps == len(found.lengths_s) == STEPS - 2
    assert [(line.source, line.within) for line in found.parts[0].lines] == [("/home/me/train.py:12", "jit_step")]


def test_first_steps_that_compile_are_left_out_of_the_steady_ones() -> None:
    python = [call("step", 0, 900), compiled(800, 700, LOOP), call("step", 1000, 900), compiled(1800, 700, LOOP)]
    python += [call("step", 2000 + 100 * i, 20) for i in range(STEPS)]
    runs = [work(900, 50, 100), work(1900, 50, 101), *(work(2020 + 100 * i, 50, i) for i in range(STEPS))]

    found = split_of(read(python, runs))

    assert found.warm_up == 2
    assert found.first is not None
    assert (found.first.length_s, found.first.more) == (pytest.approx(0.001), "compile")
    assert found.lengths_s == pytest.approx((0.0001,) * (STEPS - 1))


def test_the_slowest_step_is_explained_by_what_it_has_more_of() -> None:
    slow = tuple(sample(at, SampledFrame("/home/me/save.py", 5, "save", "user"), LOOP) for at in (4200, 4400, 4600))

    found = split_of(loop(more=2000, sampler=slow))

    assert found.slowest is not None
    assert (found.slowest.index, found.slowest.more) == (3, "unseen")
    assert found.slowest.more_s == pytest.approx(0.002)
    assert found.slowest.where == "/home/me/save.py:5"


def test_a_copy_of_a_gpu_is_a_transfer_and_no_work() -> None:
    """On a stream, with no program: as CUPTI has it."""
    calls = [call("step", 1000 * i, 100) for i in range(STEPS)]
    kernels = [work(1000 * i + 100, 300, i) for i in range(STEPS)]
    copies = [Event("MemcpyH2D", (1000 * i + 500) * US, 400 * US) for i in range(STEPS)]
    planes = plane("/host:CPU", {"python": calls}), plane("/device:GPU:0", {"Stream #1": kernels, "Stream #2": copies})

    found = split_of(profile_of(space(*planes)))

    assert parts(found) == {"transfer": 400, "device": 300, "unseen": 200, "dispatch": 100}


def test_marks_of_the_program_are_its_steps() -> None:
    marks = [Event("train", 1000 * i * US, 400 * US, {"step_num": i, "_r": 1}) for i in range(STEPS)]
    calls = [call("part", 500 * i, 50) for i in range(2 * STEPS)]
    runs = [work(500 * i + 50, 100, i, hlo_module="jit_part") for i in range(2 * STEPS)]

    found = split_of(read([*marks, *calls], runs))

    assert (found.mark, found.name) == ("annotation", "train")
    assert found.lengths_s == pytest.approx((0.001,) * 4)
    assert [(one.name, one.per_step) for one in found.programs] == [("jit_part", 2)]


def times(name: str, count: int, every_us: int, lasting_us: int = 50, at_us: int = 0) -> list[Event]:
    """Calls of one program."""
    return [call(name, at_us + every_us * i, lasting_us) for i in range(count)]


def runs(
    count: int, every_us: int, busy_us: int, at_us: int = 0, module: str = "jit_step", first: int = 0, device: int = 0
) -> list[Event]:
    stats = {"hlo_module": module, "device_ordinal": device}
    return [work(at_us + every_us * i, busy_us, first + i, **stats) for i in range(count)]


QUEUE_OF_13 = [*times("step", 1, 1, 3000), *times("step", 13, 4, 3, at_us=3100)]
ACCUMULATED = ["gradient"] * 4 + ["update"]
EVALUATIONS = [i for i in range(STEPS) if i % 3 == 2]
SETUP = [call(f"setup_{i}", 1000 * i + 100, 800) for i in range(5)]
SETUP_RUNS = [work(1000 * i + 110, 700, 10 + i, hlo_module=f"jit_setup_{i}") for i in range(5)]


@pytest.mark.parametrize(
    ("calls", "device", "name", "lengths_s"),
    [
        # One took long to compile, and another one repeats.
        (
            [*times("init", 3, 30_000, 30_000), *times("step", STEPS, 1000, at_us=100_000)],
            [work(90_050, 10, 100, hlo_module="jit_init"), *runs(STEPS, 1000, 100, at_us=100_050)],
            "jit_step",
            (0.001,) * 4,
        ),
        # The loop runs ahead of the device.
        (times("step", STEPS, 10, 5), runs(STEPS, 1000, 1000, at_us=100), "jit_step", (0.001,) * 4),
        # After the first step, which compiles, the host calls many at once, of which the device begins a few, or one.
        (QUEUE_OF_13, [work(3000, 100, 0), *runs(4, 340, 340, at_us=3102, first=1)], "jit_step", (0.00034,) * 3),
        (QUEUE_OF_13, [work(3000, 5000, 0)], "", (0.008,)),
        # On another device than what sets it up.
        (
            [call("zeros", 0, 50), *times("step", STEPS, 1000, at_us=1000)],
            [
                *runs(1, 1, 20, at_us=10, module="jit_zeros", first=99),
                *runs(STEPS, 1000, 300, at_us=1100, first=1, device=1),
            ],
            "jit_step",
            (0.001,) * 4,
        ),
        # jnp.zeros, four times between imports and data, and then one long fit.
        (
            [*times("zeros", 4, 10_000), call("fit", 31_000, 60_000)],
            [*runs(4, 10_000, 2, at_us=10, module="jit_zeros"), work(31_100, 59_000, 9)],
            "",
            None,
        ),
        # Other programs work between the calls.
        (
            sorted([*times("zeros", 5, 1000), *SETUP], key=lambda one: one.start),
            [*runs(5, 1000, 2, at_us=10, module="jit_zeros"), *SETUP_RUNS],
            "",
            None,
        ),
        (times("step", 2, 1000, 100), runs(2, 1000, 300, at_us=100, first=1), "", (0.0014,)),
        # Gradients that are accumulated.
        (
            [call(name, 100 * i, 10) for i, name in enumerate(ACCUMULATED * STEPS)],
            [work(100 * i + 10, 50, i, hlo_module=f"jit_{name}") for i, name in enumerate(ACCUMULATED * STEPS)],
            "jit_gradient",
            (0.0005,) * (STEPS - 2),
        ),
        # Evaluations that take longer than the steps.
        (
            [*times("step", STEPS, 2000), *(call("evaluate", 2000 * i + 500, 50) for i in EVALUATIONS)],
            [
                *runs(STEPS, 2000, 400, at_us=10),
                *(work(2000 * i + 510, 1400, 50 + i, hlo_module="jit_evaluate") for i in EVALUATIONS),
            ],
            "jit_step",
            (0.002,) * 4,
        ),
    ],
    ids=[
        "compiles",
        "ahead",
        "queue",
        "queue of one",
        "device",
        "set-up",
        "others work",
        "two",
        "accumulated",
        "evaluated",
    ],
)
def test_steps_are_those_of_the_program_whose_work_repeats(
    calls: list[Event], device: list[Event], name: str, lengths_s: tuple[float, ...] | None
) -> None:
    found = split_of(read(calls, device))

    assert (found.mark, found.name) == ("program" if name else "none", name)
    assert lengths_s is None or found.lengths_s == pytest.approx(lengths_s)
    assert name != "jit_gradient" or found.programs[0].per_step == 4
    assert read([Event("anything", 0, 100)], []).split is None, "no program at all"


def test_where_nothing_repeats_the_recording_is_split() -> None:
    found = split_of(read([call("step", 0, 100), call("other", 100, 100)], [work(100, 300, 1), work(500, 100, 2)]))

    assert (found.mark, found.name, found.first, found.slowest) == ("none", "", None, None)
    assert found.lengths_s == pytest.approx((0.0006,))
    assert parts(found) == {"device": 400, "dispatch": 100, "unseen": 100}


def test_of_a_recording_between_two_calls_the_samples_say_what_python_does() -> None:
    """As of steps that take minutes."""
    lines = (LOOP, LOADER)
    found = split_of(read([], [], tuple(sample(at, lines[at // 100 % 2], cpu_us=100) for at in range(0, 1001, 100))))

    kinds = parts(found)
    assert (found.mark, set(kinds)) == ("none", {"python", "unknown"})  # the call around each end may be a program
    assert kinds["python"] > 800
    assert {line.source for line in found.parts[0].lines} == {"/home/me/loader.py:31", "/home/me/train.py:12"}


@pytest.mark.parametrize("frames", [(LOOP,), (LOOP._replace(file="jax/_src/interpreters/pxla.py", owner="jax"), LOOP)])
def test_what_the_device_did_in_a_call_that_the_trace_does_not_hold_is_not_measured(
    frames: tuple[SampledFrame, ...],
) -> None:
    """A loop of small operations is one event since jax 0.11, and only of calls that begin and end in the trace."""
    samples = tuple(sample(at, *frames, cpu_us=100) for at in range(1000, 3001, 100))

    found = split_of(read([call("step", 0, 50)], [work(100, 300, 1)], samples))

    assert parts(found) == {"unknown": 2650, "device": 300, "dispatch": 50}
    assert found.parts[0].lines[0].source == "/home/me/train.py:12"


def test_pythons_own_library_a_loop_or_an_iterator_up_to_the_end_is_no_call_of_a_program() -> None:
    for stack, kind in (
        ((LIBRARY, LOOP), "python"),
        ((LOOP._replace(is_jumping=True),), "python"),
        ((AT_NEXT,), "input"),
    ):
        samples = tuple(sample(at, *stack, cpu_us=100) for at in range(1000, 3001, 100))

        found = split_of(read([call("step", 0, 50)], [work(100, 300, 1)], samples))

        assert found.parts[0].kind == kind


def test_an_evaluation_between_two_steps_explains_the_slowest_one() -> None:
    calls: list[Event] = []
    runs: list[Event] = []
    for i in range(STEPS):
        at = i * 1000 + (800 if i > 3 else 0)
        calls += [call("step", at, 50), *([call("evaluate", at + 600, 50)] if i == 3 else [])]
        runs += [work(at + 100, 1300 if i == 3 else 300, i)]

    split = split_of(read([compiled(0, 0, LOOP, before=1), *calls], runs))

    assert split.slowest is not None
    assert (split.slowest.more, split.slowest.others) == ("device", (ProgramsPerStep("jit_evaluate", 1),))


# ---- step truth -----------------------------------------------------------------------------------------------------


LOOPS = PACKAGE.parent.parent / "benchmarks" / "step_loops.py"
NEAR = 0.05
RUNS = 3
"""The middle one of so many is held against the truth: a neighbour on the machine spoils one of them, rarely two."""


def measure(kind: str, steps: int, folder: Path) -> tuple[float, StepSplit]:
    """(the share that the loop measured itself, what was found)"""
    settings = {"folder": str(folder / "profile"), "samples_stack": True, "least_steps": 10}

    ended = run([sys.executable, str(LOOPS), kind, str(steps), str(folder / "truth.json")], HOOK, settings, limit_s=300)

    assert ended.exit_code == 0
    (report,) = ended.reports
    found = profile_of(Path(report.result["xplane"]).read_bytes()).split
    assert found is not None
    truth = json.loads((folder / "truth.json").read_text())
    return truth["planted_s"] / truth["whole_s"], found


def fresh_folder(project: Path, run: int) -> Path:
    folder = project / str(run)
    folder.mkdir()
    return folder


@pytest.mark.slow
@pytest.mark.serial  # what a neighbour takes from the loop is in its own measurement, but not evenly
@pytest.mark.parametrize(
    ("kind", "steps", "line"),
    [
        ("input", 60, "step_loops.py:34"),
        ("python", 60, "step_loops.py:41"),
        ("device", 30, ""),
        ("transfer", 40, "step_loops.py"),
        ("compile", 20, "step_loops.py"),
    ],
)
def test_the_planted_part_of_a_step_is_found_with_its_line(kind: str, steps: int, line: str, project: Path) -> None:
    measured = [measure(kind, steps, fresh_folder(project, run)) for run in range(RUNS)]

    parts = [found.parts[0] for _, found in measured]
    assert {part.kind for part in parts} == {kind}
    assert abs(median(part.share - truth for part, (truth, _) in zip(parts, measured, strict=True))) <= NEAR
    assert not line or sum(line in part.lines[0].source for part in parts) > RUNS / 2


# ---- samples of the stack -------------------------------------------------------------------------------------------


@dataclass
class Batch:
    frames: list[tuple[SampledFrame, ...]]

    def __post_init__(self) -> None:
        frame: FrameType | None = sys._getframe(1)  # the __init__ that dataclasses have made
        self.frames.append(decode(describe_stack(frame)))


def test_code_that_a_program_has_made_is_no_line_of_the_users() -> None:
    found: list[tuple[SampledFrame, ...]] = []

    Batch(found)

    (stack,) = found
    own = [frame.function for frame in stack if frame.owner == "user" and frame.file == __file__]
    assert own[0] == "test_code_that_a_program_has_made_is_no_line_of_the_users"
    assert [frame.owner for frame in stack if frame.function == "__init__"] == ["python"]
