"""Whether a recording is enough, how long the next one should be, and how long a step takes without a recording."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from xspace_by_hand import US, Event, call, op, plane, space, work

from benchax.errors import NotMeasured
from benchax.hooks.command import EndedCommand, run
from benchax.profiling.program_recorder import (
    CLOCK,
    HOOK,
    LONGEST_S,
    MOST_EVENTS,
    MOST_TIMES,
    PATIENCE_S,
    SeenSteps,
    look,
    measure_plain_pace,
    next_duration,
    read_run_times,
)
from benchax.profiling.trace import profile_of


def trace(calls: int, until_us: int = 0) -> bytes:
    python = [call("step", 1000 * i, 50) for i in range(calls)]
    python += [Event("later", until_us * US, 10)] if until_us else []
    return space(
        plane("/host:CPU", {"python": python, "pool": [work(1000 * i + 50, 100, i) for i in range(max(calls, 1))]})
    )


def test_steps_are_counted_and_a_program_that_is_called_once_or_not_at_all_has_none() -> None:
    nothing = space(plane("/host:CPU", {"python": [Event("waiting", 0, 10)]}))
    found, once = look(trace(8)), look(trace(1))

    assert (found.count, found.length_s) == (7, pytest.approx(0.001))
    assert once == SeenSteps(0, None, once.n_events, in_all_s=0.0001)
    assert look(nothing).in_all_s == 0.0


def test_a_loop_that_had_ended_before_the_recording_does_not_count() -> None:
    found = look(trace(8, until_us=1_000_000))

    # Of two such recordings that one is kept in which the device did more.
    assert (found.count, found.worked_s) == (0, pytest.approx(8 * 0.0001))


@pytest.mark.parametrize(
    ("seen", "recorded_s", "in_all_s", "expected"),
    [
        (SeenSteps(10, 0.1, 1000), 5.0, 6.0, None),
        (SeenSteps(0, None, 1000), 5.0, 6.0, 10.0),
        (SeenSteps(0, None, 1000), 50.0, 100.0, LONGEST_S),
        (SeenSteps(2, 2.0, 1000), 5.0, 6.0, 24.0),
        (SeenSteps(3, 20.0, 1000), LONGEST_S, 70.0, None),
        (SeenSteps(0, None, 1000), 5.0, PATIENCE_S, None),
        (SeenSteps(2, 2.0, MOST_EVENTS), 5.0, 6.0, None),
        (SeenSteps(0, None, 2 * MOST_EVENTS), 5.0, 6.0, 2.5),
    ],
    ids=["enough", "none yet", "a minute", "a few", "long steps", "patience", "too many events", "shorter"],
)
def test_how_long_the_next_recording_is(
    seen: SeenSteps, recorded_s: float, in_all_s: float, expected: float | None
) -> None:
    assert next_duration(seen, recorded_s, in_all_s, least_steps=10) == expected


def test_the_program_that_devices_are_busy_with_is_the_one_whose_runs_are_counted() -> None:
    names = (("cast", 0), ("step", 100), ("step", 400))
    python = [call(name, 1000 * i + at, 50) for i in range(8) for name, at in names]
    runs = [work(1000 * i + 160 + 300 * k, 100, 2 * i + k) for i in range(8) for k in range(2)]
    runs += [work(1000 * i + 60, 10, 100 + i, hlo_module="jit_cast") for i in range(8)]

    found = look(space(plane("/host:CPU", {"python": python, "pool": runs})))

    assert (found.program, found.runs_per_step) == ("jit_step", 2)
    assert found.events_per_s == pytest.approx(6 / 0.001)


# ---- the pace while nothing is recorded -------------------------------------------------------------------------


def recording(
    at_ns: int, *numbers: int, program: str = "jit_step", program_id: int = 6, is_marked: bool = True
) -> bytes:
    """Of runs 100 µs apart, the first one 50 µs after the mark of the clock."""
    stats = {"hlo_module": program, "program_id": program_id}
    runs = [op("dot.1", (60 + 100 * i) * US, 40 * US, run_id=n, **stats) for i, n in enumerate(numbers)]
    mark = [Event(f"{CLOCK}{at_ns}", 10 * US, US)] if is_marked else []
    return space(plane("/host:CPU", {"python": mark, "pool": runs}))


def test_the_first_and_last_run_are_told_with_their_times() -> None:
    found = read_run_times(recording(1_000_000, 41, 42, 43), "jit_step")

    assert found == pytest.approx({41: 1_050_000, 42: 1_150_000, 43: 1_250_000})


def test_another_program_is_not_counted() -> None:
    assert read_run_times(recording(0, 1, 2, program="jit_other"), "jit_step") == {}
    assert read_run_times(space(plane("/host:CPU", {"python": []})), "jit_step") == {}


MIXED = [op("dot.1", i * US, US, hlo_module="jit_step", program_id=i, run_id=9) for i in (1, 2)]


@pytest.mark.parametrize(
    ("recorded", "why"),
    [
        (recording(0, 1, 7), "the runs of jit_step are not numbered in a row by jax"),
        (space(plane("/host:CPU", {"pool": MIXED})), "not numbered in a row"),
        (recording(0, 1, is_marked=False), "does not say when it was recorded"),
    ],
    ids=["a gap", "two programs of one name", "no mark of the clock"],
)
def test_runs_that_cannot_be_counted_are_refused(recorded: bytes, why: str) -> None:
    with pytest.raises(NotMeasured, match=why):
        read_run_times(recorded, "jit_step")


class Loop:
    """A program whose steps take 10 µs, and 100 µs while they are recorded."""

    def __init__(self, ends_after: int = 10**9) -> None:
        self.now_ns, self.number, self.ends_after = 0, 0, ends_after
        self.waited: list[float] = []

    def record(self, for_s: float) -> bytes:
        begin_ns = self.now_ns
        self.now_ns += 300_000
        if self.number >= self.ends_after:
            return recording(begin_ns)
        self.number += 3
        return recording(begin_ns, *range(self.number - 3, self.number))

    def wait(self, for_s: float) -> None:
        self.waited.append(for_s)
        self.now_ns += 1_000_000
        self.number += 100


def test_the_runs_between_two_recordings_are_counted() -> None:
    """From the last run of one to the first of the next there are 101, in 1.1 ms."""
    loop = Loop()

    found = measure_plain_pace("jit_step", 100e-6, loop.record, loop.wait)

    assert found == pytest.approx(1.1e-3 / 101, rel=1e-6)
    assert len(loop.waited) == 3


def test_a_loop_that_ends_meanwhile_is_told_by_the_windows_that_it_filled() -> None:
    loop = Loop(ends_after=200)

    assert measure_plain_pace("jit_step", 100e-6, loop.record, loop.wait) == pytest.approx(1.1e-3 / 101, rel=1e-6)


def test_a_loop_that_has_ended_and_a_window_with_one_run_are_not_measured() -> None:
    ended, loop = Loop(ends_after=0), Loop()

    with pytest.raises(NotMeasured, match="jit_step was not run any more"):
        measure_plain_pace("jit_step", 100e-6, ended.record, ended.wait)
    with pytest.raises(NotMeasured, match="too few runs"):
        measure_plain_pace("jit_step", 100e-6, loop.record, lambda for_s: None)


# ---- programs that are recorded from inside: real ones, really ended in each way ------------------------------------


BEGIN = """
import os, pathlib, signal, sys
import jax, jax.numpy as jnp
jax.jit(lambda x: x + 1).trace(jax.ShapeDtypeStruct((3,), "float32"))  # an event, and no backend yet
jax.config.update("jax_num_cpu_devices", 2)  # refused once there is one
f = jax.jit(lambda x: jnp.tanh(x @ x))
x = f(jnp.ones((64, 64)))

def until(is_over):
    while not is_over():
        f(x).block_until_ready()

def traces():
    return list(pathlib.Path("profile").glob("plugins/**/*.xplane.pb"))

for _ in range(20):
    f(x).block_until_ready()
assert len(jax.devices()) == 2
"""


@pytest.fixture
def profile(project: Path):
    """Runs a program that begins as above and goes on as given; recorded into the folder profile."""

    def run_it(then: str = "", begin: str = BEGIN, **wish: Any) -> EndedCommand:
        (project / "train.py").write_text(begin + then)
        return run([sys.executable, "train.py"], HOOK, {"folder": str(project / "profile"), **wish}, limit_s=60)

    return run_it


def only(ended: EndedCommand) -> dict[str, Any]:
    (report,) = ended.reports
    return report.result


@pytest.mark.slow
@pytest.mark.parametrize(
    ("then", "code"),
    [
        ("sys.exit(7)", 7),
        ("raise ValueError('oops')", 1),
        ("os.kill(os.getpid(), signal.SIGTERM)", 128 + signal.SIGTERM),
        ("os.kill(os.getpid(), signal.SIGINT)", 128 + signal.SIGINT),
    ],
)
def test_the_trace_is_saved_however_python_ends(then: str, code: int, profile, project: Path) -> None:
    ended = profile(then)

    found = only(ended)
    assert ended.exit_code == code
    assert Path(found["xplane"]).stat().st_size > 1000
    assert (found["stopped_by"], found["remarks"]) == ("end", [])
    assert found["recorded_s"] > 0


@pytest.mark.slow
def test_a_compilation_does_not_use_up_the_time(profile) -> None:
    """Else a program that compiles for a minute would never be seen running."""
    compiling = """
end = time.perf_counter() + 0.6
while time.perf_counter() < end:
    jax.jit(lambda x: x + 1).lower(x).compile()
until(traces)
"""

    found = only(profile("import time" + compiling, duration_s=0.3))

    assert found["stopped_by"] == "duration"
    assert found["recorded_s"] >= 0.6 + 0.3


@pytest.mark.serial  # 0.1 s without a compilation, as on a busy machine, ends it earlier
@pytest.mark.slow
def test_a_program_that_compiles_for_ever_is_recorded_for_a_limited_time(profile) -> None:
    compiling = "while not traces(): jax.jit(lambda x: x + 1).lower(x).compile()"

    found = only(profile(compiling, duration_s=0.1))

    assert found["stopped_by"] == "duration"
    assert found["recorded_s"] >= 0.1 * MOST_TIMES


@pytest.mark.slow
def test_it_can_begin_later_ends_when_its_time_is_over_and_who_waits_is_told(profile, project: Path) -> None:
    told = "''.join(file.read_text() for file in pathlib.Path().glob('*.txt'))"
    loop = f"import pathlib\nwhile 'enough is recorded' not in {told}: f(x).block_until_ready()"

    found = only(profile(loop, start_after_s=0.5, duration_s=0.2, told_in=str(project)))

    assert found["began_s"] >= 0.5
    assert found["stopped_by"] == "duration"
    assert found["recorded_s"] >= 0.2
    (file,) = project.glob("*.txt")
    assert file.read_text() == "enough is recorded; the report comes when the program ends"


OWN = "import jax, jax.numpy as jnp\nwith jax.profiler.trace('own'): jnp.ones(3).block_until_ready()"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begin", "why"),
    [
        (BEGIN, "the program ended before the 1000 s had passed after which to begin"),
        ("import jax", "the program compiled nothing with JAX, so there was nothing to profile"),
        (OWN, "the program began its own trace first"),
    ],
)
def test_a_program_without_a_recording_is_told_why(begin: str, why: str, profile, project: Path) -> None:
    ended = profile(begin=begin, start_after_s=1000.0)

    found = only(ended)
    assert (ended.exit_code, found["xplane"], found["recorded_s"], found["remarks"]) == (0, None, None, [why])
    assert len(list(project.rglob("own/plugins/profile/*/*.xplane.pb"))) == (begin == OWN)


@pytest.mark.slow
def test_a_folder_that_takes_no_files_is_said_and_the_program_runs(profile, project: Path) -> None:
    (project / "profile").write_text("a file")

    ended = profile("print('fine')")

    assert ended.exit_code == 0
    assert only(ended)["xplane"] is None
    (remark,) = only(ended)["remarks"]
    assert "is a file; expected a folder" in remark


@pytest.mark.slow
def test_recordings_follow_one_another_until_one_holds_the_loop(profile, project: Path) -> None:
    """The first one is over while the program still prepares; it stays, for the first step."""
    waiting = "import time\nwhile not traces(): time.sleep(0.01)\n"
    once, _, _ = BEGIN.partition("for _ in range(20)")
    loop = "while len(traces()) < 2: f(x).block_until_ready()"

    found = only(profile(waiting + loop, once, duration_s=0.2, least_steps=5))

    assert found["attempts"] >= 2
    assert found["began_s"] > 0.2
    assert Path(found["xplane"]).exists()
    assert Path(found["first_xplane"]).exists()
    assert profile_of(Path(found["xplane"]).read_bytes()).split.mark == "program"


@pytest.mark.slow
def test_one_recording_is_enough_where_it_holds_the_loop(profile) -> None:
    found = only(profile("until(traces)", duration_s=0.3, least_steps=5))

    assert (found["attempts"], found["first_xplane"]) == (1, None)


FULL = """
import benchax.profiling.program_recorder as recorder
recorder.FIRST_GROWTH = recorder.MOST_GROWTH = -(1 << 40)
"""


@pytest.mark.slow
def test_a_recording_that_is_full_ends_before_its_time(profile) -> None:
    begin = f"{FULL}recorder.MOST_EVENTS, recorder.FIRST_EVENTS = 100, 0\n{BEGIN}"
    found = only(profile("until(traces)", begin, duration_s=20.0, least_steps=5))

    assert (found["attempts"], found["is_full"], found["stopped_by"]) == (1, True, "duration")
    assert found["recorded_s"] < 15


@pytest.mark.slow
def test_a_program_that_has_grown_by_itself_is_recorded_for_the_time_that_was_asked_for(profile) -> None:
    """Once more, because nobody knows why it grows before the recording is ended."""
    loop = "while len(traces()) < 2: f(x).block_until_ready()"

    begin = f"{FULL}recorder.FIRST_EVENTS = recorder.GROWN = 1 << 40\n{BEGIN}"
    found = only(profile(loop, begin, duration_s=1.0, least_steps=5))

    assert (found["attempts"], found["is_full"]) == (2, False)
    assert found["recorded_s"] >= 1.0


SMALL = """
import time
import benchax.profiling.program_recorder as recorder
recorder.WINDOWS, recorder.MOST_WINDOW_S, recorder.MOST_GROWTH = 1, 1.0, 32 << 20
import jax, jax.numpy as jnp

@jax.jit
def f(x):
    return jax.lax.fori_loop(0, 300, lambda i, y: jnp.sort(y) + 1, x)

x, ended, told = jnp.ones(2), [], __import__("pathlib").Path()
while not any("enough" in file.read_text() for file in told.glob("*.txt")):
    for _ in range(50):
        f(x).block_until_ready()
        ended.append(time.perf_counter())
late = [at for at in ended if at > ended[-1] - 0.6]
print((late[-1] - late[0]) / (len(late) - 1))
"""


@pytest.mark.serial  # what neighbours take of the recorded part is not taken of the other one
@pytest.mark.slow
def test_a_step_is_timed_also_while_nothing_is_recorded(profile, project: Path, capfd) -> None:
    """Recorded, it takes several times as long. In its last half second the program is timed by both."""
    found = only(profile(begin=SMALL, duration_s=1.0, least_steps=10, samples_stack=True, told_in=str(project)))

    truth_s = float(capfd.readouterr().out)
    assert found["why_no_pace"] == ""
    assert found["unrecorded_step_s"] == pytest.approx(truth_s, rel=0.5)
    split = profile_of(Path(found["xplane"]).read_bytes()).split
    assert split.mean_s > 1.5 * found["unrecorded_step_s"]
