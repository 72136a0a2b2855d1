"""Was a function profiled since it was written? With real traces."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import benchax
from benchax.auditing.audit import ask
from benchax.auditing.evidence import Evidence
from benchax.auditing.rules import whole_calls
from benchax.case import make_case
from benchax.model import Remark
from benchax.results.profile import Profile

ID = "profile-missing"
INPUT = "f32[64,64]"
MODEL = """
import jax.numpy as jnp

def inner(x):
    return jnp.sin(x) @ x

def outer(x):
    return inner(x) + 1

def other(x):
    return jnp.cos(x)
"""


@pytest.fixture(autouse=True)
def worthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short a call is."""
    monkeypatch.setattr(whole_calls, "WORTH_PROFILE_S", 0.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    file = tmp_path_factory.mktemp("model") / "model.py"
    file.write_text(MODEL, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("model", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def trace(model: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a profile of `outer`, which calls `inner`."""
    kept = benchax.profile(jax.jit(model.outer), jnp.ones((8, 8)), dir=tmp_path_factory.mktemp("trace"), runs=1)
    return Path(kept.files["xplane"])


def put(trace: Path, folder: Path) -> Path:
    """As if it had been recorded there."""
    new = folder / "plugins" / "profile" / "run" / trace.name
    new.parent.mkdir(parents=True)
    new.write_bytes(trace.read_bytes())
    return new


def test_a_short_call_is_not_told_to_be_profiled(
    project: Path, model: ModuleType, ask_about: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_calls, "WORTH_PROFILE_S", 3600.0)

    answered = ask_about(ID, model.outer, INPUT)

    assert answered.outcome == "not applicable"
    assert "from 3600 s on it is worth a profile" in answered.why


def test_without_a_profile_the_finding_shows_what_one_would_show(
    project: Path, model: ModuleType, ask_about: Any
) -> None:
    finding = ask_about(ID, model.outer, INPUT).one

    assert finding.title.startswith(
        "no profile of it was recorded since its file was changed; the hottest operation is "
    )
    assert finding.where == (model.__file__, 7)
    assert "from the working one: 1, at most" in finding.seen[0]
    assert "calls were profiled just now, compiled" in finding.seen[1]
    assert "(model.py:5), " in finding.seen[1]
    assert finding.seen[2].startswith("cpu:0 was busy for ")
    assert finding.gain is None
    assert not list(project.iterdir())


@pytest.mark.parametrize("place", [".", "traces", "a/b/c", ".benchmarks/profiles/outer-20260101-000000"])
@pytest.mark.parametrize("name", ["outer", "inner"])
def test_a_profile_of_it_is_found_also_where_another_function_calls_it(
    project: Path, model: ModuleType, trace: Path, ask_about: Any, place: str, name: str
) -> None:
    put(trace, project / place)

    assert ask_about(ID, getattr(model, name), INPUT).outcome == "fine"


@pytest.mark.parametrize(
    ("place", "name", "age_s", "is_empty"),
    [
        (".hidden", "outer", 0, False),
        ("a/b/c/d", "outer", 0, False),
        (".", "other", 0, False),
        (".", "outer", 1, False),
        (".", "outer", 0, True),
    ],
    ids=["hidden", "deep", "of another function of the file", "older than the file", "empty"],
)
def test_what_is_no_profile_of_it(
    project: Path, model: ModuleType, trace: Path, ask_about: Any, place: str, name: str, age_s: int, is_empty: bool
) -> None:
    kept = put(trace, project / place)
    if is_empty:
        kept.write_bytes(b"")
    if age_s:
        before = Path(str(model.__file__)).stat().st_mtime - age_s
        os.utime(kept, (before, before))

    assert ask_about(ID, getattr(model, name), INPUT).outcome == "finding"


def test_a_function_that_takes_its_buffers_is_profiled_too(project: Path, ask_about: Any) -> None:
    finding = ask_about(ID, lambda x: x * 2, "f32[128]", donate=(0,)).one

    assert finding.seen[1].startswith("5 calls ")


def test_what_takes_long_is_not_profiled_in_passing(
    project: Path, model: ModuleType, ask_about: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_calls, "LONG_PROFILE_S", 0.0)

    answered = ask_about(ID, model.outer, INPUT)

    assert answered.outcome == "not checked"
    assert "too long to profile" in answered.why


def test_a_trace_without_operations_is_told(
    project: Path, model: ModuleType, ask_about: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = Profile("", "cpu", (), remarks=(Remark("no-operations", "error", "there is no such plane"),))
    monkeypatch.setattr(whole_calls, "profile", lambda fn, runs: empty)

    answered = ask_about(ID, model.outer, INPUT)

    assert (answered.outcome, answered.why) == ("not checked", "there is no such plane")


def test_where_another_recording_runs_that_is_told(project: Path, model: ModuleType, ask_about: Any) -> None:
    with benchax.profile():
        answered = ask_about(ID, model.outer, INPUT)

    assert answered.outcome == "not checked"
    assert "profil" in answered.why or "recording" in answered.why


def test_of_a_function_that_does_not_trace_there_is_no_profile(project: Path) -> None:
    evidence = Evidence(make_case(lambda x: x if x > 0 else -x, (jnp.float32(1),)))

    _, checked = ask(whole_calls.profile_missing, evidence)

    assert checked.outcome == "not applicable"
    assert "does not trace" in checked.why
