"""xprof, where it is installed: asked in a process of its own, on copies. A stand-in does as it does."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from benchax.errors import MissingPackage, NotAvailable, UsageError
from benchax.profiling import xprof

STAND_IN = """
import json, os, sys
def xspace_to_tool_data(files, tool, params):
    print("noise", file=sys.stderr)
    for file in files:  # as xprof does: it writes beside what it reads
        open(file + ".hlo_proto.pb", "w").close()
    if tool == "kernel_stats":
        os.abort()
    if tool == "op_profile":
        print("E0000 no such thing", file=sys.stderr); sys.exit(3)
    if tool == "memory_profile":
        return None, "application/json"
    content = [open(file).read() for file in files]
    return json.dumps({"cols": [], "rows": [{"c": c} for c in content]}), "application/json"
"""


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file to ask about, and a package xprof to ask."""
    convert = tmp_path / "packages" / "xprof" / "convert"
    convert.mkdir(parents=True)
    for folder in (convert, convert.parent):
        (folder / "__init__.py").write_text("")
    (convert / "raw_to_tool_data.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    file = tmp_path / "run" / "höst.xplane.pb"
    file.parent.mkdir()
    file.write_text("content")
    return file


def test_the_answer_is_json_and_nothing_is_written_beside_the_trace(
    trace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = xprof.ask("hlo_stats", [trace])

    assert answer == {"cols": [], "rows": [{"c": "content"}]}
    assert xprof.rows(answer) == 1
    assert list(trace.parent.iterdir()) == [trace]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        ("kernel_stats", "exit code -6"),
        ("op_profile", "exit code 3, and said: E0000 no such thing"),
        ("memory_profile", "xprof gave no answer for 'memory_profile'"),
    ],
)
def test_what_goes_wrong_inside_xprof_is_an_error_with_its_words(tool: str, says: str, trace: Path) -> None:
    with pytest.raises(NotAvailable, match=says):
        xprof.ask(tool, [trace])


def test_an_unknown_tool_is_refused_with_the_nearest_names(trace: Path) -> None:
    with pytest.raises(UsageError, match="'hlo_stat'") as raised:
        xprof.ask("hlo_stat", [trace])

    assert "'hlo_stats'?" in str(raised.value)


def test_tables_without_rows_are_counted_and_other_answers_are_no_tables() -> None:
    assert xprof.rows([{"cols": [1], "rows": []}, {"cols": [], "rows": []}]) == 0
    assert xprof.rows({"traceEvents": []}) is None


@pytest.mark.skipif(importlib.util.find_spec("xprof") is not None, reason="xprof is installed")
def test_without_xprof_it_is_said_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(MissingPackage, match="pip install xprof"):
        xprof.ask("hlo_stats", [tmp_path / "a.xplane.pb"])


@pytest.mark.skipif(importlib.util.find_spec("xprof") is None, reason="xprof is not installed")
def test_the_real_xprof_reads_a_trace_of_ours(tmp_path: Path) -> None:
    with jax.profiler.trace(str(tmp_path)):
        jnp.ones(8).block_until_ready()

    answer = xprof.ask("trace_viewer", list(tmp_path.rglob("*.xplane.pb")))

    assert answer["traceEvents"]
