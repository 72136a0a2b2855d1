"""The hook that records a program from inside: real programs, really ended in each way."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from benchax.hooks.command import EndedCommand, run
from benchax.profiling.program_recorder import HOOK, MOST_TIMES
from benchax.profiling.trace import profile_of

pytestmark = pytest.mark.slow  # each runs a program from beginning to end

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
def test_a_program_that_compiles_for_ever_is_recorded_for_a_limited_time(profile) -> None:
    compiling = "while not traces(): jax.jit(lambda x: x + 1).lower(x).compile()"

    found = only(profile(compiling, duration_s=0.1))

    assert found["stopped_by"] == "duration"
    assert found["recorded_s"] >= 0.1 * MOST_TIMES


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


def test_a_folder_that_takes_no_files_is_said_and_the_program_runs(profile, project: Path) -> None:
    (project / "profile").write_text("a file")

    ended = profile("print('fine')")

    assert ended.exit_code == 0
    assert only(ended)["xplane"] is None
    (remark,) = only(ended)["remarks"]
    assert "is a file; expected a folder" in remark


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


def test_one_recording_is_enough_where_it_holds_the_loop(profile) -> None:
    found = only(profile("until(traces)", duration_s=0.3, least_steps=5))

    assert (found["attempts"], found["first_xplane"]) == (1, None)


FULL = """
import benchax.profiling.program_recorder as recorder
recorder.FIRST_GROWTH = recorder.MOST_GROWTH = -(1 << 40)
"""


def test_a_recording_that_is_full_ends_before_its_time(profile) -> None:
    begin = f"{FULL}recorder.MOST_EVENTS, recorder.FIRST_EVENTS = 100, 0\n{BEGIN}"
    found = only(profile("until(traces)", begin, duration_s=20.0, least_steps=5))

    assert (found["attempts"], found["is_full"], found["stopped_by"]) == (1, True, "duration")
    assert found["recorded_s"] < 15


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
def test_a_step_is_timed_also_while_nothing_is_recorded(profile, project: Path, capfd) -> None:
    """Recorded, it takes several times as long. In its last half second the program is timed by both."""
    found = only(profile(begin=SMALL, duration_s=1.0, least_steps=10, samples_stack=True, told_in=str(project)))

    truth_s = float(capfd.readouterr().out)
    assert found["why_no_pace"] == ""
    assert found["unrecorded_step_s"] == pytest.approx(truth_s, rel=0.5)
    split = profile_of(Path(found["xplane"]).read_bytes()).split
    assert split.mean_s > 1.5 * found["unrecorded_step_s"]
