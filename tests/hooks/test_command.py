"""Programs of users run as they stand, and our hook is in their Python processes.

A package named jax that is empty stands for jax here: nothing of ours looks into it.
"""

from __future__ import annotations

import contextlib
import os
import pty
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from process_ends import wait_until_gone

from benchax.errors import UsageError
from benchax.hooks import command
from benchax.hooks.command import EndedCommand, run

HOOK = """
import jax

def begin(settings):
    assert jax.loaded
    calls = []
    def finish(how):
        calls.append(how)
        return {"settings": settings, "calls": calls}
    return finish

def fails(settings):
    raise RuntimeError("no luck")

def fails_late(settings):
    return lambda how: 1 / 0
"""


class Programs:
    """Writes programs into a folder where `import jax` and `import hook` work, and runs them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {**os.environ, "PYTHONPATH": str(folder)}
        self.write("jax/__init__.py", "loaded = True")
        self.write("hook.py", HOOK)

    def write(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        return file

    def run(
        self, *words: str, hook: str = "hook:begin", limit_s: float | None = None, **settings: object
    ) -> EndedCommand:
        return run(words, hook, settings, limit_s=limit_s, cwd=self.folder, env=self.env)

    def python(self, code: str, *options: str, hook: str = "hook:begin", limit_s: float | None = None) -> EndedCommand:
        self.write("program.py", code)
        return self.run(sys.executable, *options, "program.py", hook=hook, limit_s=limit_s)


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


def test_a_program_that_ends_by_itself_leaves_a_report(programs: Programs) -> None:
    programs.write("program.py", "import jax")

    words = ("program.py", "--name", "µ\n'", "", '\\ "$(x)" \t\x7f', "\N{GRINNING FACE}")
    ended = programs.run(sys.executable, *words, given=[1, *words])

    (report,) = ended.reports
    assert report.result == {"settings": {"given": [1, *words]}, "calls": ["exit"]}
    assert report.argv == (sys.executable, *words)
    assert report.ended == "exit"
    assert 0 < report.wall_s < ended.elapsed_s
    assert (ended.exit_code, ended.signal, ended.is_timed_out, ended.remarks) == (0, None, False, ())


@pytest.mark.parametrize(
    ("end", "code", "number"),
    [
        ("import sys; sys.exit(7)", 7, None),
        ("1 / 0", 1, None),
        ("raise SystemExit('text')", 1, None),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", 143, signal.SIGTERM),
        ("raise KeyboardInterrupt", 130, signal.SIGINT),
    ],
)
def test_however_python_ends_the_report_is_there_and_the_exit_code_is_the_programs(
    programs: Programs, end: str, code: int, number: int | None
) -> None:
    ended = programs.python(f"import jax\n{end}")

    assert (ended.exit_code, ended.signal) == (code, number)
    how = "SIGTERM" if number == signal.SIGTERM else "exit"
    assert [(report.result["calls"], report.ended) for report in ended.reports] == [([how], how)]


FULL_DISK = "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), signal.SIGKILL)", "os.abort()", FULL_DISK])
def test_an_end_before_which_nothing_can_be_saved_is_said(programs: Programs, end: str) -> None:
    ended = programs.python(f"import jax, os, resource, signal\n{end}")

    assert ended.reports == ()
    assert ended.exit_code in (3, 137, 134, 0)
    (remark,) = ended.remarks
    assert "left no report: it ended by SIGKILL, a crash, os._exit or os.exec" in remark
    assert remark.endswith(", or there was no room to save one")


def test_a_program_without_jax_without_python_or_without_benchax_is_said_to_have_none(programs: Programs) -> None:
    ended, no_python = programs.python("import json"), programs.run("true")
    elsewhere = programs.python("import jax", hook="benchax_of_another_place.watch:begin")

    assert ended.reports == ()
    assert ended.remarks == (f"jax was never imported by {shlex.quote(sys.executable)} program.py",)
    (remark,) = no_python.remarks
    assert remark.startswith("no Python process of true loaded benchax's hook, because it started no Python")
    (remark,) = elsewhere.remarks
    assert f"benchax is not installed in its Python, {sys.executable}" in remark
    assert elsewhere.exit_code == 0
    for option in ("-S", "-I", "-E", "-IB"):
        remarks = programs.python("print()", "-u", option).remarks
        assert f"loaded benchax's hook, because {option} tells Python to ignore PYTHONPATH" in remarks[0]


def test_the_first_import_that_succeeds_counts(programs: Programs) -> None:
    programs.write(
        "jax/__init__.py", "import os\nif 'READY' not in os.environ:\n    raise ImportError('not yet')\nloaded = True"
    )

    ended = programs.python("""
        import os
        try:
            import jax
        except ImportError:
            os.environ["READY"] = "1"
        import jax
    """)

    assert len(ended.reports) == 1


@pytest.mark.parametrize(("hook", "error"), [("fails", "RuntimeError: no luck"), ("fails_late", "ZeroDivisionError")])
def test_a_failure_of_ours_is_none_of_the_programs(programs: Programs, hook: str, error: str) -> None:
    ended = programs.python("import jax, sys; sys.exit(4)", hook=f"hook:{hook}")

    assert ended.exit_code == 4
    assert error in ended.remarks[0]


@pytest.mark.parametrize("fails", [False, True])
def test_a_module_that_the_hook_needs_may_be_the_first_to_import_jax_and_may_fail(
    programs: Programs, fails: bool
) -> None:
    """As `benchax.watching.compiles` does: while it is half loaded, the hook cannot import from it."""
    programs.write("ours/__init__.py", "")
    programs.write("ours/outer.py", "from ours.inner import value\nimport ours.inner as inner\ndone = True")
    programs.write("ours/inner.py", f"import jax\nvalue = 7\n{'raise ValueError' if fails else ''}")
    needs = "" if fails else "from ours.outer import done\n"
    programs.write("ours/hook.py", f"{needs}def begin(settings):\n    return lambda how: how")

    ended = programs.python(
        """
        import contextlib, sys
        with contextlib.suppress(ValueError):
            import ours.outer as o
            sys.exit(type(o.__spec__).__name__ != 'ModuleSpec')
        """,
        hook="ours.hook:begin",
    )

    assert ended.exit_code == 0
    assert [report.result for report in ended.reports] == ["exit"]
    assert ended.remarks == ()


def test_the_program_sees_nothing_of_us(programs: Programs) -> None:
    programs.write("program.py", "import sys, jax; print(sys.path, jax.__spec__.loader.__dict__, sys.flags)")
    alone = subprocess.check_output([sys.executable, "program.py"], cwd=programs.folder, env=programs.env)

    programs.run("sh", "-c", f"{shlex.quote(sys.executable)} program.py > seen")

    assert (programs.folder / "seen").read_bytes() == alone


HANDLER = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
import jax
os.kill(os.getpid(), signal.SIGTERM)
"""
WAKEUP = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_DFL)
reader, writer = os.pipe()
os.set_blocking(writer, False)
signal.set_wakeup_fd(writer)
import jax
sys.exit(7 if signal.set_wakeup_fd(-1) == writer else 8)
"""
CUSTOM = "import jax, sys, sitecustomize; sys.exit(0 if marked == sitecustomize.__file__ else 8)"


@pytest.mark.parametrize(
    ("code", "exit_code"), [(CUSTOM, 0), (HANDLER, 9), (WAKEUP, 7)], ids=["sitecustomize", "SIGTERM", "wakeup"]
)
def test_what_the_program_brings_of_its_own_works_as_ever(programs: Programs, code: str, exit_code: int) -> None:
    programs.write("sitecustomize.py", "import builtins\nbuiltins.marked = __file__")

    ended = programs.python(code)

    assert (ended.exit_code, len(ended.reports)) == (exit_code, 1)


def test_each_process_of_a_program_reports_for_itself_and_a_forked_child_not_its_parents_numbers(
    programs: Programs,
) -> None:
    programs.write("child.py", "import jax")

    ended = programs.python("import jax, subprocess, sys; subprocess.run([sys.executable, '-m', 'child'])")
    forked = programs.python("""
        import jax, os, sys
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            os._exit(0)  # so that a report could only be the child's
    """)

    assert [report.argv[1:] for report in ended.reports] == [("program.py",), ("-m", "child")]
    assert len({report.pid for report in ended.reports}) == 2
    assert forked.reports == ()


def test_who_waits_is_told_how_long_until_the_program_ends(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(command, "TICK_S", 0.01)
    go_on = tmp_path / "go_on"
    heard: list[float] = []

    def on_wait(elapsed_s: float) -> None:
        heard.append(elapsed_s)
        if len(heard) == 3:
            go_on.touch()

    code = f"import os\nwhile not os.path.exists({str(go_on)!r}): pass"
    ended = run([sys.executable, "-c", code], "hook:begin", {}, on_wait=on_wait)

    assert (ended.exit_code, ended.is_timed_out) == (0, False)
    assert len(heard) >= 3
    assert heard == sorted(heard)


def test_a_program_that_takes_too_long_is_ended_and_reports_or_is_killed_with_its_children(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = programs.python("import jax, threading; threading.Event().wait()", limit_s=2.0)
    monkeypatch.setattr(command, "GRACE_S", 0.2)
    programs.write("child.py", "import threading; threading.Event().wait()")
    refusing = programs.python(
        """
        import signal, subprocess, sys, threading
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(subprocess.Popen([sys.executable, "child.py"]).pid, file=open("pid", "w"), flush=True)
        threading.Event().wait()
        """,
        limit_s=2.0,
    )

    assert (ended.is_timed_out, ended.exit_code) == (True, 143)
    assert [report.ended for report in ended.reports] == ["SIGTERM"]
    assert (refusing.is_timed_out, refusing.exit_code) == (True, 137)
    wait_until_gone({int((programs.folder / "pid").read_text())})


def test_a_command_that_is_not_there_is_an_error_of_usage(programs: Programs) -> None:
    with pytest.raises(UsageError, match=r"cannot run 'trian\.py': No such file"):
        programs.run("trian.py")
    with pytest.raises(UsageError, match="no command to run"):
        programs.run()


# ---- signals ----------------------------------------------------------------------------------------------------

WRAPPER = """
import os, sys
if sys.argv[1:]:
    os.open(sys.argv[1], os.O_RDWR)  # the first terminal that a new session opens is its own, with Ctrl-C
from benchax.hooks.command import run
ended = run([sys.executable, "program.py"], "hook:begin", {})
print("wrapper:", ended.exit_code, len(ended.reports), flush=True)
"""
COUNTING = """
import signal, sys, threading
import jax
got = []
signal.signal(signal.SIGINT, lambda *_: got.append(1))
print("ready", flush=True)
while not got:
    signal.pause()
signal.sigtimedwait([signal.SIGUSR1], 0.3)  # a second SIGINT would come in here
print("interrupts:", len(got), flush=True)
"""


def start_wrapper(programs: Programs, program: str, before: str = "") -> subprocess.Popen[str]:
    """Until the program is ready."""
    programs.write("program.py", program)
    programs.write("wrapper.py", before + WRAPPER)
    wrapper = subprocess.Popen(
        [sys.executable, "wrapper.py"],
        cwd=programs.folder,
        env=programs.env,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert wrapper.stdout.readline() == "ready\n"
    return wrapper


def test_a_signal_to_us_alone_reaches_the_program(programs: Programs) -> None:
    with start_wrapper(programs, COUNTING) as wrapper:
        wrapper.send_signal(signal.SIGINT)
        rest = wrapper.communicate()[0]

    assert rest == "interrupts: 1\nwrapper: 0 1\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_time_a_program_that_does_not_end_is_killed(number: int, programs: Programs) -> None:
    """As one whose first step never ends: XLA waits for it when Python ends."""
    stuck = """
import signal, threading
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: print("not yet", flush=True))
print("ready", flush=True)
while True:
    signal.pause()
"""
    shorter = "from benchax.hooks import command\ncommand.GRACE_S = 0.2\n"
    with start_wrapper(programs, stuck, shorter) as wrapper:
        wrapper.send_signal(number)
        assert wrapper.stdout.readline() == "not yet\n"
        while wrapper.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                wrapper.wait(0.25)  # more than the grace
            wrapper.send_signal(number)
        rest = wrapper.stdout.read()

    assert rest.splitlines()[-1] == "wrapper: 137 0"


def test_ctrl_c_at_a_terminal_reaches_the_program_once_and_we_wait_for_it(programs: Programs) -> None:
    programs.write("program.py", COUNTING)
    programs.write("wrapper.py", WRAPPER)
    ours, theirs = pty.openpty()
    wrapper = subprocess.Popen(
        [sys.executable, "wrapper.py", os.ttyname(theirs)],
        cwd=programs.folder,
        env=programs.env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    with wrapper, open(ours, "rb", buffering=0) as seen:  # noqa: PTH123  # a file descriptor
        text = b""
        while b"ready" not in text:
            text += seen.read(1000)
        os.write(ours, b"\x03")
        while b"wrapper:" not in text or not text.endswith(b"\n"):
            text += seen.read(1000)
    os.close(theirs)

    assert b"interrupts: 1\r\nwrapper: 0 1\r\n" in text
