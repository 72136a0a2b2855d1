"""The command line as a process among others: exit codes, what goes where, pipes, poor terminals."""

from __future__ import annotations

import errno
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Benchax, command, read_terminal, runner
from measurement_strategies import RICH, measured
from rich.cells import cell_len
from source_tree import PACKAGE

from benchax.cli import main
from benchax.cli.console import Waiting, at_terminal
from benchax.cli.main import COMMANDS as LISTED
from benchax.cli.main import first_line, load
from benchax.model import CaseId, Failure, Remark
from benchax.reporting.terminal import longest_word
from benchax.store.database import open_store

SETTINGS = ("BENCHAX_", "COLUMNS", "NO_COLOR", "FORCE_COLOR", "PYTHONIOENCODING", "PYTHONUNBUFFERED", "TERM")
"""What a terminal or a user may have set, and these tests set themselves."""

COMMANDS = ["run", "compare", "experiment", "grid", "list", "show", "env", "doctor", "demo"]


def environment(**settings: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
    return inherited | {"PYTHONPATH": str(PACKAGE.parent), "PYTHONUTF8": "0", "LC_ALL": "C.UTF-8"} | settings


def benchax(*words: str, cwd: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words), cwd=cwd, env=environment(**settings), capture_output=True, encoding="utf-8", timeout=120
    )


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Benchax:
    """Runs the command line in this process."""
    return runner(monkeypatch, capsys)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three stored rows; nothing was measured."""
    folder = tmp_path_factory.mktemp("stored")
    store = open_store(folder / ".benchmarks")
    store.append(measured("matmul", n=8))
    store.append(replace(RICH, case=CaseId("fft", (("n", 256),)), failure=None))
    store.append(replace(RICH, case=CaseId("naïve 🦊")))
    return folder


# ---- words and exit codes ---------------------------------------------------------------------------------------


def test_without_words_it_explains_itself_and_help_goes_to_stdout_and_is_fine(here: Benchax) -> None:
    bare, asked = here(), here("--help")

    assert (bare.code, asked.code, asked.err) == (2, 0, "")
    assert [c for c in COMMANDS if f"  {c} " not in bare.out + bare.err or f"  {c} " not in asked.out] == []


def test_the_version_is_one_line(tmp_path: Path) -> None:
    done = benchax("--version", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"\d+\.\d+\.\d+.*\n|unknown: this copy was not installed\n", done.stdout)


def test_our_own_errors_are_sentences_and_no_tracebacks(tmp_path: Path) -> None:
    done = benchax("show", "1", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: no database at .benchmarks/benchax.db\n\n"
        "hint: run `benchax run` first, or name another place with --store\n"
    )


# ---- pipes ------------------------------------------------------------------------------------------------------

OUTPUTS = ("stdout", "stderr")


@pytest.mark.slow
@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["show", "--samples"]], ids=" ".join)
def test_a_reader_that_goes_away_is_no_error(words: list[str], stored: Path) -> None:
    """As `benchax list | head` ends: no exit code, no traceback, also not when Python ends."""
    read_end, write_end = os.pipe()
    os.close(read_end)

    done = subprocess.run(
        command(*words), cwd=stored, env=environment(), stdout=write_end, stderr=subprocess.PIPE, timeout=120
    )
    os.close(write_end)

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "unread"),
    [("audit", OUTPUTS), ("watch", OUTPUTS), ("profile", OUTPUTS), ("profile", OUTPUTS[:1]), ("profile", OUTPUTS[1:])],
)
def test_a_program_keeps_its_exit_code_where_nobody_reads_the_report(
    name: str, unread: tuple[str, ...], tmp_path: Path
) -> None:
    """As `benchax watch -- python train.py 2>&1 | true` does."""
    (tmp_path / "train.py").write_text("raise SystemExit(7)")
    read_end, write_end = os.pipe()
    os.close(read_end)
    streams = {each: write_end if each in unread else subprocess.DEVNULL for each in OUTPUTS}

    done = subprocess.run(
        command(name, "--", sys.executable, "train.py"), cwd=tmp_path, env=environment(), timeout=120, **streams
    )
    os.close(write_end)

    assert done.returncode == 7


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which Linux has")
def test_output_that_finds_no_space_is_an_error(stored: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("list"), cwd=stored, env=environment(), stdout=full, stderr=subprocess.PIPE, timeout=120
        )

    assert done.returncode == 2
    assert done.stderr == b"error: cannot write the output: [Errno 28] No space left on device\n"


def test_a_file_without_permission_is_named_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read() -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "trace.xplane.pb")

    monkeypatch.setattr(main, "app", read)

    with pytest.raises(SystemExit) as end:
        main.main()

    assert end.value.code == 2
    assert capsys.readouterr().err == "error: 'trace.xplane.pb': Permission denied\n"


def test_in_a_pipe_there_are_no_colours_and_each_row_is_a_line(stored: Path) -> None:
    done = benchax("list", cwd=stored, TERM="xterm-256color")

    assert "\x1b" not in done.stdout
    assert len(done.stdout.splitlines()) == 4


def test_a_width_can_be_asked_for(stored: Path) -> None:
    done = benchax("show", "2", cwd=stored, COLUMNS="40")

    assert done.returncode == 0
    assert max(map(cell_len, done.stdout.splitlines())) <= 40
    assert "arguments 512 KiB" in done.stdout


# ---- poor terminals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "code", "said"),
    [("2", 0, "120 us  (110-130)  wall"), ("3", 0, "na?ve ?  "), ("1 µs", 2, "error: '1 us' is not the id of a row\n")],
    ids=["units", "a name", "an error"],
)
def test_a_terminal_that_knows_ascii_only_is_spelled_out(word: str, code: int, said: str, stored: Path) -> None:
    done = benchax("show", word, cwd=stored, PYTHONIOENCODING="ascii")

    assert done.returncode == code
    assert (done.stdout + done.stderr).isascii()
    assert said in done.stdout + done.stderr


def on_a_terminal(*words: str, cwd: Path, **settings: str) -> str:
    """What a terminal is sent by `words`."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command(*words), cwd=cwd, env=environment(**settings), stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        sent = read_terminal(ours)
    assert process.returncode == 0, sent
    return sent.decode()


def test_a_terminal_gets_colours(stored: Path) -> None:
    sent = on_a_terminal("show", "2", cwd=stored, TERM="xterm")

    assert "\x1b[1mfft[n=256]\x1b[0m" in sent
    assert re.search(r"\x1b\[36m *120 µs", sent)


@pytest.mark.parametrize(
    ("settings", "unwanted"),
    [({"TERM": "xterm", "NO_COLOR": "1"}, r"\x1b\[[\d;]*3\d[\d;]*m"), ({"TERM": "dumb"}, r"\x1b")],
    ids=["NO_COLOR", "dumb"],
)
def test_a_terminal_without_colours_gets_none(settings: dict[str, str], unwanted: str, stored: Path) -> None:
    sent = on_a_terminal("show", "2", cwd=stored, **settings)

    assert "120 µs" in sent
    assert re.findall(unwanted, sent) == []


# ---- the first line ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["run", "."], "benchax run: importing JAX"),
        (["audit", "f.py:f"], "benchax audit: importing JAX"),
        (
            ["watch", "--", "python", "my train.py"],
            "benchax watch: running python 'my train.py'; the report comes when it has ended",
        ),
        (["list"], ""),
        (["run", "--help"], ""),
        (["audit", "--list"], ""),
    ],
)
def test_what_takes_its_time_says_so_first(words: list[str], line: str) -> None:
    assert first_line(words[0], words) == line


def test_at_a_terminal_the_first_line_comes_before_jax(tmp_path: Path) -> None:
    main, side = pty.openpty()
    code = (
        "import sys, benchax.cli.main as m; note = m.note\n"
        "m.note = lambda text: note(f'{text} {\"jax\" in sys.modules}')\n"
        "sys.argv = ['benchax', 'run', '--dry-run', 'jax.numpy:sort', 'f32[8]']; m.main()"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=side, timeout=120
    )
    os.close(side)

    assert done.stdout.split() == [b"sort"]
    assert os.read(main, 1000).decode().strip() == "benchax run: importing JAX False"
    os.close(main)


# ---- while a program runs --------------------------------------------------------------------------------------------


def said_by(folder: Path | None = None) -> tuple[Waiting, list[str]]:
    said: list[str] = []
    return Waiting("profile", folder, said.append), said


def test_it_speaks_after_ten_seconds_and_then_ever_more_seldom() -> None:
    waiting, said = said_by()

    for elapsed_s in range(300):
        waiting(elapsed_s)

    assert [text.split("after ")[1].split(":")[0] for text in said] == ["10 s", "30 s", "90 s", "4 min"]
    assert said[0] == "\nbenchax profile: after 10 s: the report comes when the program ends"


def test_what_the_program_tells_is_said_at_once_and_once(tmp_path: Path) -> None:
    waiting, said = said_by(tmp_path)
    file = tmp_path / "7.txt"

    for elapsed_s, text in enumerate(["", "3 of 20 steps", "3 of 20 steps", "enough is recorded"], start=1):
        file.write_text(text)
        waiting(elapsed_s)

    assert said == ["\nbenchax profile: after 2 s: 3 of 20 steps", "\nbenchax profile: after 4 s: enough is recorded"]


def test_a_log_is_not_filled(monkeypatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)

    assert at_terminal("watch") is None


# ---- help ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LISTED)
def test_the_list_of_commands_says_of_each_what_its_docstring_says(name: str) -> None:
    """`benchax --help` imports no command."""
    assert LISTED[name].summary == load(name).get_short_help_str(1000)


@pytest.mark.parametrize("example", [example for command in LISTED.values() for example in command.examples])
def test_an_example_names_options_that_there_are(example: str) -> None:
    program, name, *words = shlex.split(example)
    known = {option for parameter in load(name).params for option in (*parameter.opts, *parameter.secondary_opts)}
    own = words[: words.index("--")] if "--" in words else words

    assert program == "benchax"
    assert [word for word in own if word.startswith("-") and word not in known] == []


# ---- in a real terminal, of three widths: nothing is broken inside a word, and reports fit --------------------------


in_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs a terminal: tmux is not installed")

WIDTHS = [80, 100, 120]
PATH = "/home/somebody/models/crashes/plugins/profile/vm.xplane.pb:12"
OPERATION = "jit(step)/transpose(jvp(main))/broadcast_in_dim"
NUMBERS = ["1.23 ms", "0.990 – 1.01", "512 MiB"]
SENTENCE = f"what {PATH} says of {OPERATION} is that it takes {' or '.join(NUMBERS)} and a few other things, and more"
Show = Callable[..., list[str]]


@pytest.fixture
def show(project: Path) -> Iterator[Show]:
    """Runs benchax in a terminal of that width; what stands there, wrapped lines joined as they are copied."""
    servers: list[str] = []

    def tmux(*words: str) -> str:
        done = subprocess.run(["tmux", "-L", servers[-1], *words], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(width: int, *commands: str) -> list[str]:
        servers.append(f"benchax-{uuid.uuid4().hex}")  # one that is about to end takes no new session
        python = shlex.join([sys.executable, "-m", "benchax.cli.main"])
        benchax = "\n".join(line if line.startswith("echo") else f"{python} {line}" for line in commands)
        done = f"{uuid.uuid4().hex}"
        script = project / "script.sh"
        script.write_text(f"cd {shlex.quote(str(project))}\n{benchax}\necho {done}\nsleep 600\n")
        env = [f"-e{name}={os.environ[name]}" for name in ("JAX_PLATFORMS", "PYTHONPATH") if name in os.environ]
        tmux("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", "400", *env, f"sh {script}")
        deadline = time.monotonic() + 120
        while done not in (shown := tmux("capture-pane", "-p", "-J", "-S", "-")):
            assert time.monotonic() < deadline, shown
            time.sleep(0.05)
        tmux("kill-server")
        return shown.split(done)[0].splitlines()

    yield run
    for server in servers:
        subprocess.run(["tmux", "-L", server, "kill-server"], check=False, capture_output=True)


def check(lines: list[str], width: int) -> None:
    text = "\n".join(lines)
    for word in (PATH, OPERATION, *NUMBERS):
        assert word in text, f"{word} is broken in\n{text}"
    too_wide = [line for line in lines if len(line.rstrip()) > width and longest_word([line]) + 20 < width]
    assert too_wide == []


@in_tmux
@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_and_remarks_break_between_words(width: int, show: Show, project: Path) -> None:
    failure = Failure("crashed", "first run", SENTENCE, SENTENCE)
    for i in range(3):
        m = measured(f"bench_models/crashes/bench_fft.py::fft{i}", n=1024, run=f"run {i}")
        m = replace(m, signature=SENTENCE, remarks=(Remark("note", "warning", SENTENCE),))
        open_store(project / ".benchmarks").append(replace(m, failure=failure if i == 2 else None))

    lines = show(width, "show 1", "echo next", "show 3", "echo next", "list")

    first, third, listed = "\n".join(lines).split("\nnext\n")
    check(first.splitlines(), width)
    check(third.splitlines(), width)
    rows = [line for line in listed.splitlines() if "bench_models/crash" in line]  # a long name is cut in its middle
    assert [f"fft{i}[n=1024]" in row for i, row in enumerate(rows)] == [True] * 3


@in_tmux
@pytest.mark.slow
@pytest.mark.parametrize("width", [WIDTHS[0], WIDTHS[-1]])
def test_the_report_of_a_program_is_as_wide_as_the_terminal(width: int, show: Show, project: Path) -> None:
    (project / "program.py").write_text(
        "import jax, jax.numpy as jnp\nf = jax.jit(lambda x: jnp.sin(x) * 2)\n"
        "for n in (3, 4, 5): f(jnp.ones(n)).block_until_ready()\n"
    )

    lines = show(width, f"watch -- {shlex.quote(sys.executable)} program.py")

    assert re.search(r"ended with 0 after \S+ \w+", " ".join(lines))
    assert [line for line in lines if len(line.rstrip()) > width and longest_word([line]) + 20 < width] == []
    assert max(len(line.rstrip()) for line in lines if "program.py" not in line) <= width
