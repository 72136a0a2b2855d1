"""`benchax profile`: functions, programs, existing traces, other tools; what is shown, kept, and returned."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command_line import Benchax, runner
from source_tree import PACKAGE

pytestmark = pytest.mark.usefixtures("kept_pools")

FUNCTIONS = """
import os, time, jax, jax.numpy as jnp

def product(x):
    with jax.named_scope("prodükt"):
        return jnp.tanh(x @ x)

def slower(x):
    return jnp.tanh(x @ x @ x)

def never_ends(x):
    return jax.lax.while_loop(lambda x: True, lambda x: x + 1, x)

calls = []
def stuck(x):
    calls.append(1)
    if len(calls) > 300:
        time.sleep(1000)

def tells(x):
    jax.debug.callback(stuck, x)
    return jnp.sin(x)
"""
PROGRAM = """
import os, signal, sys
import jax, jax.numpy as jnp
print("begun")
f = jax.jit(lambda x: jnp.tanh(x @ x))
x = jnp.ones((64, 64))
for _ in range(30):
    f(x).block_until_ready()
"""


@pytest.fixture
def benchax(project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Benchax:
    """Runs the command line in this process, in a folder with functions.py and train.py."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (project / "functions.py").write_text(FUNCTIONS, encoding="utf-8")
    (project / "train.py").write_text(PROGRAM)

    return runner(monkeypatch, capfd)


def traces(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.xplane.pb"))


@pytest.fixture
def recorded(project: Path) -> Path:
    import jax
    import jax.numpy as jnp

    f = jax.jit(lambda x: jnp.tanh(x @ x))
    x = f(jnp.ones((64, 64)))
    with jax.profiler.trace(str(project / "träces")):
        for _ in range(5):
            f(x).block_until_ready()
    return project / "träces"


# ---- a function -------------------------------------------------------------------------------------------------


def test_a_function_is_a_table_of_operations_and_files(benchax: Benchax, project: Path) -> None:
    done = benchax("profile", "functions.py:product", "f32[64,64]", "--runs", "7", "--memory")

    assert done.code == 0, done.err
    assert done.err == "profiling product\n"
    assert done.out.startswith("product, 7 runs: ")
    assert "prodükt/dot_general" in done.out
    (trace,) = traces(project / ".benchmarks" / "profiles")
    assert {file.name for file in trace.parent.iterdir()} == {
        trace.name, trace.name.replace("xplane.pb", "trace.json.gz"), "perfetto_trace.json.gz", "memory.prof",
        "memory.csv",
    }  # fmt: skip
    assert "memory over time\n  live arrays cpu:0" in done.out


def test_a_call_is_timed_also_while_nothing_is_recorded(benchax: Benchax, project: Path) -> None:
    (project / "small.py").write_text(
        "import jax, jax.numpy as jnp\n"
        "def small(x): return jax.lax.fori_loop(0, 200, lambda i, y: jnp.sort(y) + 1, x)\n"
    )

    done = benchax("profile", "small.py:small", "f32[2]", "--runs", "5", "--json", "-o", "p")

    cost = json.loads(done.out)["recording_cost"]
    assert 0 < cost["unrecorded_s"] < 1
    assert cost["events"] > 200


def test_json_is_one_document_per_profile(benchax: Benchax, project: Path) -> None:
    done = benchax(
        "profile", "functions.py:product", "f32[{n},{n}]", "-p", "n=8,64", "--runs", "3", "--json", "-o", "p"
    )

    documents = [json.loads(text) for text in done.out.splitlines()]
    assert [d["title"] for d in documents] == ["product[n=8], 3 runs", "product[n=64], 3 runs"]
    assert [len(d["steps"]) for d in documents] == [3, 3]
    assert {Path(d["files"]["xplane"]).resolve() for d in documents} == {
        file.resolve() for file in traces(project / "p")
    }


def test_a_function_that_never_ends_is_killed_and_said_to_have_no_profile(benchax: Benchax, project: Path) -> None:
    done = benchax("profile", "functions.py:never_ends", "f32[]", "--timeout", "1s")

    assert (done.code, done.out) == (2, "")
    assert "never_ends: first run took longer than 1.00 s" in done.err
    assert "there is no profile of it: it ended in the stage 'first run'" in done.err
    assert [p for p in project.rglob("*") if "recording" in p.name or p.suffix == ".pb"] == []


def test_what_had_been_recorded_of_a_function_that_got_stuck_is_shown(benchax: Benchax, project: Path) -> None:
    done = benchax("profile", "functions.py:tells", "f32[8]", "--runs", "100000", "--timeout", "2s")

    assert done.code == 2
    assert "error: tells: " in done.err
    assert "the case failed; this was recorded until then" in " ".join(done.out.split())
    assert "custom-call" in done.out or "sin" in done.out
    assert len(traces(project)) == 1


def test_two_recordings_are_compared_without_a_verdict(benchax: Benchax, project: Path) -> None:
    benchax("profile", "functions.py:product", "f32[64,64]", "--runs", "5", "-o", "before")

    done = benchax("profile", "functions.py:slower", "f32[64,64]", "--runs", "5", "--compare", "before")

    assert done.code == 0
    assert "before → slower, 5 runs" in done.out
    assert "for a verdict use" in done.out


# ---- a program --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_program_keeps_its_output_and_exit_code_and_the_table_goes_to_stderr(benchax: Benchax, project: Path) -> None:
    (project / "train.py").write_text(PROGRAM + "print(sys.argv[1:]); sys.exit(7)")

    done = benchax("profile", "-o", "p", "--json", "--", sys.executable, "train.py", "--lr", "-1", "--", "x y")

    assert done.code == 7
    assert done.out == "begun\n['--lr', '-1', '--', 'x y']\n"
    assert "ended with 7" in done.err
    (document,) = [json.loads(text) for text in (project / "p" / "profile.json").read_text().splitlines()]
    assert any(op["calls"] == 30 for op in document["ops"])


@pytest.mark.slow
def test_a_program_that_is_interrupted_leaves_a_table(project: Path) -> None:
    """The signal reaches benchax, which passes it on; the program is in the middle of computing."""
    (project / "train.py").write_text(PROGRAM + "print('ready', flush=True)\nwhile True: f(x).block_until_ready()")
    command = [sys.executable, "-m", "benchax.cli.main", "profile", "--", sys.executable, "train.py"]
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent), "COLUMNS": "140"}

    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while process.stdout.readline() != "ready\n":
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()

    assert process.returncode == 128 + signal.SIGINT
    assert "was ended by SIGINT" in said
    assert "train.py:5 dot_general" in said


def test_a_program_that_is_killed_says_that_nothing_could_be_saved(benchax: Benchax, project: Path) -> None:
    (project / "train.py").write_text(PROGRAM + "os.kill(os.getpid(), signal.SIGKILL)")

    done = benchax("profile", "--", sys.executable, "train.py")

    assert done.code == 137
    assert "there was no room to save one" in done.err
    assert "error: there is no profile" in done.err
    assert "self time" not in done.err
    assert [p for p in project.rglob("*") if "recording" in p.name] == []


@pytest.mark.slow
def test_what_was_written_before_a_program_was_killed_is_shown(benchax: Benchax, project: Path) -> None:
    wait = "import pathlib\nwhile not list(pathlib.Path('p').glob('plugins/**/*.pb')): f(x).block_until_ready()\n"
    (project / "train.py").write_text(PROGRAM + wait + "os.kill(os.getpid(), signal.SIGKILL)")

    done = benchax("profile", "-o", "p", "--duration", "200ms", "--", sys.executable, "train.py")

    assert done.code == 137
    assert "self time" in done.err
    assert "this was written before" in done.err


def test_a_trace_that_was_being_moved_when_its_program_was_killed_is_found(
    benchax: Benchax, recorded: Path, project: Path
) -> None:
    (file,) = traces(recorded)
    place = "p/.recording-x/plugins/profile/now"
    text = f"import os, shutil\nos.makedirs({place!r}); shutil.copy({str(file)!r}, {place!r}); os.kill(os.getpid(), 9)"
    (project / "train.py").write_text(text)

    done = benchax("profile", "-o", "p", "--", sys.executable, "train.py")

    assert done.code == 137
    assert "self time" in done.err
    assert [trace.parent for trace in traces(project / "p")] == [project / "p" / "plugins" / "profile" / "now"]


def test_a_program_that_never_imports_jax_is_told_so(benchax: Benchax, project: Path) -> None:
    done = benchax("profile", "--", sys.executable, "-c", "print('hello')")

    assert (done.code, done.out) == (2, "hello\n")
    assert "jax was never imported by " in done.err
    assert "error: there is no profile" in done.err
    assert traces(project) == []


def test_a_trace_that_cannot_be_read_does_not_cost_the_exit_code(benchax: Benchax, project: Path) -> None:
    (project / "train.py").write_text(
        "import os, sys\nos.mkdir('p')\nopen('p/a.xplane.pb', 'w').write('x')\nsys.exit(5)"
    )

    done = benchax("profile", "-o", "p", "--", sys.executable, "train.py")

    assert done.code == 5
    assert "a.xplane.pb cannot be read" in done.err


# ---- a program that runs ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_program_that_is_served_runs_unchanged_and_is_recorded_while_it_runs(benchax: Benchax, project: Path) -> None:
    (project / "train.py").write_text(PROGRAM + "print('ready', flush=True)\nwhile True: f(x).block_until_ready()")
    serve = [sys.executable, "-m", "benchax.cli.main", "profile", "--serve", "0", "--", sys.executable, "train.py"]
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}

    with subprocess.Popen(
        serve, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        port = process.stderr.readline().rpartition(" ")[2].strip()
        assert [process.stdout.readline() for _ in range(2)] == ["begun\n", "ready\n"]
        shown = benchax("profile", "--attach", port, "--duration", "100ms", "--memory", "-o", "p")
        document = benchax("profile", "--attach", port, "--duration", "100ms", "--json")
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()

    assert (shown.code, document.code, process.returncode) == (0, 0, 128 + signal.SIGINT)
    assert "train.py:5 dot_general" in shown.out
    assert "memory over time" in shown.out
    assert shown.err.startswith("recording process ")
    assert json.loads(document.out)["timeline"] is None
    assert len(traces(project / "p")) == 1
    assert "was recorded 2 times" in said


def test_a_program_that_refuses_to_be_recorded_says_why(benchax: Benchax, project: Path) -> None:
    from benchax.profiling import serve
    from benchax.profiling.profile import session

    with serve() as server, session():
        done = benchax("profile", "--attach", str(server.port))

    assert (done.code, done.out) == (2, "")
    assert "jax.profiler is tracing this process already" in done.err
    assert [*project.rglob("*.pb"), *project.rglob("port-*")] == []


def test_where_nobody_listens_it_is_said_what_to_do(benchax: Benchax) -> None:
    from benchax.profiling import serve

    with serve() as server:
        port = str(server.port)

    done = benchax("profile", "--attach", port)

    assert (done.code, done.out) == (2, "")
    assert f"no program of yours answers on port {port} of 127.0.0.1" in done.err
    assert f"benchax profile --serve {port} -- python train.py" in done.err


def test_readings_of_memory_are_found_again_beside_a_trace(benchax: Benchax, recorded: Path) -> None:
    (file,) = traces(recorded)
    file.with_name("memory.csv").write_text("time_s,reading_s,resident_bytes\n0.0,0.0,1024\n0.1,0.0,2048\n")

    assert "1.00 KiB to 2.00 KiB, most at 100 ms" in benchax("profile", "--read", str(recorded)).out
    file.with_name("memory.csv").write_text("of,somebody,else\n")
    assert "cannot be read as readings of memory" in " ".join(benchax("profile", "--read", str(recorded)).out.split())


# ---- a trace that exists ----------------------------------------------------------------------------------------


def test_a_trace_of_any_tool_is_read(benchax: Benchax, recorded: Path) -> None:
    (file,) = traces(recorded)

    for path in (str(recorded), str(file)):
        done = benchax("profile", "--read", path)

        assert (done.code, done.err) == (0, "")
        assert "tanh" in done.out


def test_of_several_traces_the_newest_is_read_and_said(benchax: Benchax, recorded: Path) -> None:
    (file,) = traces(recorded)
    other = file.with_name("other.xplane.pb")
    other.write_bytes(file.read_bytes())
    os.utime(other, (0, 0))

    done = benchax("profile", "--read", str(recorded), "--json")

    assert "holds 2 traces; this is the newest" in done.err
    assert Path(json.loads(done.out)["files"]["xplane"]).name == file.name


def test_a_trace_without_operations_is_no_table_and_an_error(benchax: Benchax, project: Path) -> None:
    import jax

    with jax.profiler.trace(str(project / "empty")):
        pass

    done = benchax("profile", "--read", "empty")

    assert done.code == 2
    assert "self time" not in done.out
    assert "no operation of a compiled program is in this trace" in " ".join(done.out.split())


@pytest.mark.parametrize("content", [b"", b"not a trace", bytes(range(256))])
def test_what_is_no_trace_is_refused(content: bytes, benchax: Benchax, project: Path) -> None:
    (project / "a.xplane.pb").write_bytes(content)

    done = benchax("profile", "--read", "a.xplane.pb")

    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")


# ---- tools from other projects ----------------------------------------------------------------------------------


def test_the_command_of_an_xprof_tool_reads_the_trace(
    benchax: Benchax, recorded: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = benchax("profile", "--read", str(recorded), "--xprof", "hlo_stats")

    (project / "xprof").mkdir()
    stand_in = "def xspace_to_tool_data(files, tool, options): return f'{tool} {files}'.encode(), None"
    (project / "xprof" / "convert.py").write_text(f"class raw_to_tool_data:\n    {stand_in}\n")
    monkeypatch.setenv("PYTHONPATH", str(project))
    _, *words = shlex.split(done.out)
    said = subprocess.check_output([sys.executable, *words], text=True)
    assert said.startswith("hlo_stats [")
    assert said.endswith(".xplane.pb']\n")


def test_the_command_of_nsys_for_a_program(benchax: Benchax, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=a b")
    program = ["python", "my train.py", "$HOME"]

    done = benchax("profile", "--nsys", "-o", "p q", "--start-after", "10s", "--duration", "2.5s", "--", *program)

    words = shlex.split(done.out)
    assert done.code == 0
    assert words[0] == "XLA_FLAGS=--xla_dump_to=a b --xla_gpu_enable_command_buffer="
    assert words[2:4] == ["nsys", "profile"]
    assert words[words.index("--output") + 1] == "p q/my-train.py"
    assert "--cuda-graph-trace node --delay 10 --duration 2.5 --kill none" in done.out
    assert words[-3:] == program
    assert "open my-train.py.nsys-rep with nsys-ui" in done.err


def test_the_command_of_nsys_leaves_what_you_have_set(benchax: Benchax, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_enable_command_buffer=FUSION")
    monkeypatch.setenv("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "3")

    assert benchax("profile", "--nsys", "--", "python", "a.py").out.startswith("nsys profile --output ")


@pytest.mark.slow
def test_the_command_of_nsys_for_a_function_runs_it(benchax: Benchax, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["profile", "--nsys", "functions.py:product", "f32[64,64]", "--runs", "3"]
    monkeypatch.setattr(sys, "argv", ["benchax", *words])

    told = shlex.split(benchax(*words).out)
    program = told[told.index(sys.executable) :]
    for setting in told[: told.index("nsys")]:
        monkeypatch.setenv(*setting.split("=", 1))
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE.parent), prepend=os.pathsep)
    done = subprocess.run(program, check=True, capture_output=True, text=True)

    assert "product: 3 runs" in done.stderr


# ---- the demo ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_demo_says_how_to_open_its_files(benchax: Benchax, project: Path) -> None:
    done = benchax("demo", "profile")

    assert done.code == 0
    assert done.out.startswith("mlp, 500 runs: ")
    assert "dot_general" in done.out
    folder = done.err.split("--logdir ")[1].strip()
    assert len(traces(project / folder)) == 1
    assert "ui.perfetto.dev" in done.err


# ---- programs that are not simple: what was seen is told, what was not, and why -------------------------------------


BEGIN = """
import os, sys, time
import jax, jax.numpy as jnp, numpy as np
step = jax.jit(lambda x: jnp.tanh(x @ x))
x = jnp.ones((64, 64))

def busy(length_s):
    began = time.perf_counter()
    while time.perf_counter() - began < length_s:
        pass
"""
LOADER = """
import multiprocessing, sys
import numpy as np

def produce(queue):
    for _ in range(30):
        queue.put(np.ones((64, 64), np.float32))
    queue.put(None)

def main():
    context = multiprocessing.get_context(sys.argv[1])
    queue = context.Queue(2)
    import jax, jax.numpy as jnp
    step = jax.jit(lambda x: jnp.tanh(x @ x))
    step(np.ones((64, 64), np.float32)).block_until_ready()
    worker = context.Process(target=produce, args=(queue,))
    worker.start()
    while (batch := queue.get()) is not None:
        step(batch).block_until_ready()
    worker.join()
    sys.exit(3)

if __name__ == "__main__":
    main()
"""
RANK = """
import sys
import jax
port, count, rank = map(int, sys.argv[1:])
jax.distributed.initialize(f"localhost:{port}", num_processes=count, process_id=rank)
import jax.numpy as jnp
step, x = jax.jit(lambda x: jnp.tanh(x @ x)), jnp.ones((64, 64))
for _ in range(30):
    x = step(x).block_until_ready()
jax.distributed.shutdown()
sys.exit(4)
"""
RANKS = """
import subprocess, sys
started = [subprocess.Popen([sys.executable, "rank.py", sys.argv[1], "2", str(rank)]) for rank in range(2)]
sys.exit(max(one.wait() for one in started))
"""


@dataclass
class Profiled:
    code: int
    said: str
    """With single spaces."""
    documents: list[dict[str, Any]]

    @property
    def steps(self) -> list[int]:
        """How many steady steps each process showed."""
        return [0 if d["split"] is None else len(d["split"]["lengths_s"]) for d in self.documents]


Profile = Callable[..., Profiled]


@pytest.fixture
def profile(project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Profile:
    """Profiles a program of this text. What the program prints is in `said` too."""
    benchax = runner(monkeypatch, capfd)

    def profile(text: str, *words: str, options: tuple[str, ...] = ()) -> Profiled:
        (project / "train.py").write_text(text, encoding="utf-8")
        done = benchax("profile", "-o", "p", "--json", *options, "--", sys.executable, "train.py", *words)
        file = project / "p" / "profile.json"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return Profiled(done.code, " ".join(done.err.split()), [json.loads(line) for line in lines])

    return profile


def remarks(found: Profiled) -> str:
    return " ".join(remark["message"] for document in found.documents for remark in document["remarks"])


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return str(found.getsockname()[1])


@pytest.mark.slow
@pytest.mark.parametrize(("method", "forks"), [("fork", True), ("spawn", False)])
def test_loading_in_other_processes_is_waiting_for_input(method: str, forks: bool, profile: Profile) -> None:
    found = profile(LOADER, method)

    assert found.code == 3
    assert [count >= 20 for count in found.steps] == [True]
    assert ("the program made 1 fork of itself" in remarks(found)) is forks


@pytest.mark.slow
def test_each_distributed_process_has_a_profile(profile: Profile, project: Path) -> None:
    (project / "rank.py").write_text(RANK, encoding="utf-8")

    found = profile(RANKS, free_port())

    assert found.code == 4
    assert [count >= 20 for count in found.steps] == [True, True]
    assert len({document["title"] for document in found.documents}) == 2


@pytest.mark.slow
def test_steps_of_microseconds_are_counted_one_by_one(profile: Profile) -> None:
    found = profile(BEGIN + "x = jnp.ones(4)\nfor _ in range(3000): x = step(x[:, None] * x)[0]\nsys.exit(5)")

    assert found.code == 5
    assert found.steps[0] > 2000


@pytest.mark.slow
@pytest.mark.serial  # what a neighbor takes is not Python
def test_of_steps_that_are_longer_than_a_recording_it_is_said_where_they_spend_their_time(profile: Profile) -> None:
    """As of a step of minutes; limits are shortened, so that the test takes seconds."""
    short = (
        "import benchax.profiling.program_recorder as recorder\nrecorder.LONGEST_S, recorder.PATIENCE_S = 0.3, 30.0\n"
    )

    loop = "for _ in range(3):\n    busy(0.8)\n    x = step(x).block_until_ready()\nsys.exit(8)"
    found = profile(short + BEGIN + loop, options=("--duration", "100ms"))

    (document,) = found.documents
    # A call that outlasts the recording would look the same, unless a sample shows Python between two rounds.
    parts = [part for part in document["split"]["parts"] if part["kind"] in ("python", "unknown")]
    assert found.code == 8
    assert document["split"]["mark"] == "none"
    assert sum(part["share"] for part in parts) > 0.8
    assert {part["lines"][0]["function"] for part in parts} == {"busy"}
    assert document["ops"], "a recording in which something ran is better than one in which nothing did"
    assert "the best of" in remarks(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "code", "says"),
    [("raise ValueError('NaN in step 10')", 1, "ValueError: NaN in step 10"), ("sys.exit('diverged')", 1, "diverged")],
)
def test_a_program_that_fails_in_its_tenth_step_shows_those_before(
    end: str, code: int, says: str, profile: Profile
) -> None:
    found = profile(BEGIN + f"for i in range(99):\n    x = step(x).block_until_ready()\n    if i == 9: {end}")

    assert (found.code, found.steps) == (code, [8])
    assert says in found.said


@pytest.mark.slow
def test_two_programs_and_an_evaluation_now_and_then_are_one_step(profile: Profile) -> None:
    """Three steps of a discriminator for one of a generator: a step is a round, also where one evaluates behind it."""
    loop = """
def discriminate(x): return jnp.tanh(x @ x)
def generate(x): return jnp.sin(x @ x)
def evaluate(x): return (x @ x).sum()
discriminate, generate, evaluate = map(jax.jit, (discriminate, generate, evaluate))
for i in range(40):
    for _ in range(3):
        x = discriminate(x).block_until_ready()
    x = generate(x).block_until_ready()
    if i % 10 == 9: float(evaluate(x))
sys.exit(10)
"""

    found = profile(BEGIN + loop)

    (document,) = found.documents
    calls = {one["name"]: one["per_step"] for one in document["split"]["programs"]}
    assert found.code == 10
    assert found.steps[0] in (37, 38)  # 40 but the first, those behind it that compile, and the last
    assert (calls["jit_discriminate"], calls["jit_generate"]) == (3, 1)
    assert "jit_evaluate (3 in 39 steps)" in found.said


@pytest.mark.slow
def test_a_loop_in_a_thread_is_found_with_its_line(profile: Profile) -> None:
    loop = """
import threading
def train():
    global x
    for _ in range(30):
        time.sleep(0.01)
        x = step(x).block_until_ready()
one = threading.Thread(target=train)
one.start()
one.join()
sys.exit(11)
"""

    found = profile(BEGIN + loop)

    part = found.documents[0]["split"]["parts"][0]
    assert (found.code, [count >= 20 for count in found.steps]) == (11, [True])
    assert (part["kind"], part["lines"][0]["function"]) == ("waiting", "train")


@pytest.mark.slow
def test_a_first_step_that_never_ends_is_shown_as_far_as_it_was_recorded(profile: Profile) -> None:
    """In compiled code, so that nothing of Python's can end it."""
    stuck = """
endless = jax.jit(lambda x: jax.lax.while_loop(lambda x: x[0] < 2, lambda x: jnp.sort(-x), x))
endless(jnp.linspace(-1, 1, 1 << 18)).block_until_ready()
"""

    found = profile(BEGIN + stuck, options=("--timeout", "8s", "--duration", "300ms"))

    splits = [document["split"] for document in found.documents]
    assert found.code in (137, 143)
    assert "when its time was up" in found.said
    assert {split["mark"] for split in splits} == {"none"}
    assert max(split["lengths_s"][0] for split in splits) > 0.1
    # On a busy machine compiling may have taken longer than what was recorded of the step.
    assert "device" in {split["parts"][0]["kind"] for split in splits}
