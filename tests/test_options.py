"""Options: which of six sources wins, what a value may be, and what is said about one that may not."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from refusals import refusal

import benchax
from benchax.errors import UsageError
from benchax.model import Options
from benchax.options import DEFAULTS, NAMES, check, resolve


def toml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def resolve_from(folder: Path, **sources: dict[str, Any]) -> Options:
    """`resolve` with what the caller has in each source; the project's is written to a pyproject.toml in `folder`."""
    lines = [f"{name} = {toml(value)}" for name, value in sources.pop("project", {}).items()]
    (folder / "pyproject.toml").write_text("\n".join(["[tool.benchax]", *lines]))
    environ = {f"BENCHAX_{name.upper()}": str(value) for name, value in sources.pop("environ", {}).items()}
    return resolve(**sources, environ=environ, project=folder)


def source_name(source: str, folder: Path) -> str:
    """How messages call the source."""
    return {
        "call": "the call",
        "marker": "the benchmark's options",
        "command_line": "the command line",
        "environ": "the environment",
        "project": f"[tool.benchax] of {folder / 'pyproject.toml'}",
    }[source]


# Strongest first, as the documentation lists them; "default" stands for saying nothing.
SOURCES = ["command_line", "call", "marker", "environ", "project"]
sources = pytest.mark.parametrize("source", SOURCES)


# Which source wins


@pytest.mark.parametrize(("stronger", "weaker"), [*itertools.combinations(SOURCES, 2)])
def test_the_stronger_source_wins(stronger: str, weaker: str, tmp_path: Path) -> None:
    found = resolve_from(tmp_path, **{stronger: {"seed": 1}, weaker: {"seed": 2}})

    assert found.seed == 1


def test_sources_fill_each_others_gaps(tmp_path: Path) -> None:
    found = resolve_from(
        tmp_path,
        call={"seed": 1},
        marker={"max_samples": 2},
        command_line={"max_time_s": 3},
        environ={"min_time_s": 4},
        project={"max_warmup_s": 5},
    )

    assert found == dataclasses.replace(
        DEFAULTS, seed=1, max_samples=2, max_time_s=3.0, min_time_s=4.0, max_warmup_s=5.0
    )


@pytest.mark.parametrize("source", ["call", "marker", "command_line"])
def test_none_is_not_said(source: str, tmp_path: Path) -> None:
    found = resolve_from(tmp_path, **{source: dict.fromkeys(NAMES)}, project={"seed": 7})

    assert found == dataclasses.replace(DEFAULTS, seed=7)


def test_a_value_that_is_false_is_said(tmp_path: Path) -> None:
    found = resolve_from(tmp_path, call={"memory": False, "seed": 0}, project={"memory": True, "seed": 7})

    assert (found.memory, found.seed) == (False, 0)


def test_with_no_source_at_all_the_defaults_hold(project: Path) -> None:
    assert resolve(environ={}) == DEFAULTS


LIMITS = {"relative_width", "timeout_s", "memory_limit_bytes", "nprocs"}  # None: by timer, no limit, one process


def test_what_every_source_overrides_are_the_defaults_of_the_caller(tmp_path: Path) -> None:
    assert resolve(environ={}, project=tmp_path, defaults={"timer": "wall"}).timer == "wall"
    assert resolve({"timer": "loop"}, environ={}, project=tmp_path, defaults={"timer": "wall"}).timer == "loop"
    assert resolve(environ={"BENCHAX_TIMER": "loop"}, project=tmp_path, defaults={"timer": "wall"}).timer == "loop"


def test_no_option_is_forgotten() -> None:
    """Each field of Options has a default, and the default is a value that its own reader accepts unchanged."""
    defaults = dataclasses.asdict(DEFAULTS)

    assert list(NAMES) == [f.name for f in dataclasses.fields(Options)]
    assert check(defaults, "here") == defaults
    assert {name for name, value in defaults.items() if value is None} == LIMITS


def test_other_variables_of_the_environment_are_not_ours(project: Path) -> None:
    found = resolve(environ={"SEED": "1", "XBENCHAX_SEED": "2", "benchax_seed": "3"})

    assert found == DEFAULTS


# pyproject.toml


def test_the_project_is_the_nearest_above_the_folder_or_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.benchax]\nseed = 5")
    inner = tmp_path / "a" / "inner"
    (inner / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a")

    assert {resolve(environ={}, project=place).seed for place in (inner / "b", Path("inner"), None)} == {5}
    (inner / "pyproject.toml").write_text("[project]\nname = 'x'")
    assert resolve(environ={}, project=inner) == DEFAULTS


@pytest.mark.parametrize("text", ["", "[tool]", "[tool.ruff]\nline-length = 99", "tool = 3", "[tool.benchax]"])
def test_a_project_that_says_nothing_of_benchax_changes_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)

    assert resolve(environ={}, project=tmp_path) == DEFAULTS


@pytest.mark.parametrize("content", [b"[tool.benchax", b"seed = ", b"\xff\xfe", b"a = 1\na = 2"])
def test_a_project_that_is_not_toml_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_bytes(content)

    said = refusal(resolve, environ={}, project=tmp_path)

    assert said.startswith(f"cannot read {path}: ")
    assert said.endswith("\nexpected a TOML file")


@pytest.mark.parametrize("value", [3, [], "x"])
def test_a_setting_in_the_place_of_the_table_is_quoted(value: Any, tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(f"[tool]\nbenchax = {value!r}")

    assert refusal(resolve, environ={}, project=tmp_path) == (
        f"tool.benchax in {path} is {value!r}\nexpected a table: [tool.benchax]"
    )


# Names and values


@sources
def test_an_unknown_option_names_its_source_and_the_nearest_name(source: str, tmp_path: Path) -> None:
    """Also where its value is None or overridden."""
    nothing = "" if source in ("environ", "project") else None

    message = refusal(resolve_from, tmp_path, **{"call": {"max_time_s": 1}, source: {"max_tme_s": nothing}})

    where = source_name(source, tmp_path)
    assert message == f"unknown option 'max_tme_s' in {where}\nexpected 'max_time_s'? Choices: " + (
        ", ".join(sorted(NAMES))
    )


@sources
def test_a_bad_value_is_quoted_with_its_option_and_source(source: str, tmp_path: Path) -> None:
    """Also where a stronger source overrides it."""
    given = {source: {"verify": "maybe"}} | ({"call": {"verify": "off"}} if source != "call" else {})

    assert refusal(resolve_from, tmp_path, **given) == (
        f"option 'verify' in {source_name(source, tmp_path)} cannot be 'maybe'\nexpected one of: eager, float64, off"
    )


DURATIONS = ["max_time_s", "min_time_s", "sample_time_s", "max_warmup_s", "timeout_s"]
SWITCHES = ["memory", "cold_process", "isolate"]


READ: list[tuple[str, dict[Any, Any]]] = [
    *((name, {2: 2.0, 0.5: 0.5, "500ms": 0.5, "2 min": 120.0, "20us": 20e-6, "1e-3": 1e-3}) for name in DURATIONS),
    *((name, dict.fromkeys(("1", "true", "YES", " on "), True)) for name in SWITCHES),
    *((name, dict.fromkeys(("0", "false", "No", "OFF"), False)) for name in SWITCHES),
    *((name, {True: True, False: False}) for name in SWITCHES),
    ("relative_width", {0.02: 0.02, "2%": 0.02, "2 %": 0.02, "0.02": 0.02, " 0.5% ": 0.005}),
    ("max_samples", {1: 1, "300": 300, "1_000": 1000, 10**12: 10**12}),
    ("memory_limit_bytes", {4096: 4096, "4 GiB": 2**32, "2GB": 2 * 10**9, "1.5KiB": 1536}),
    ("processes", {1: 1, "5": 5, "auto": 0, 0: 0}),
    ("verify", {True: "eager", False: "off", "eager": "eager", "float64": "float64", "off": "off"}),
    ("store", {False: "off", "off": "off", "my rows": "my rows", Path("a/b"): str(Path("a/b"))}),
    ("timer", {"wall,sundial": "wall,sundial"}),  # which timers exist is not known here
]


@pytest.mark.parametrize(("name", "values"), READ)
def test_a_value_is_read_in_each_form_that_people_write(name: str, values: dict[Any, Any]) -> None:
    found = [check({name: given}, "here")[name] for given in values]

    assert found == pytest.approx(list(values.values()), rel=1e-12) if name in DURATIONS else list(values.values())
    assert list(map(type, found)) == list(map(type, values.values()))


REFUSED: dict[str, tuple[Any, ...]] = {
    "max_time_s": (True, "fast", "", "1 h", math.nan, math.inf, [1], 0, -1, "0ms", "-5ms"),
    "max_samples": (0, -3, 1.5, 20.0, True, "many", "", "1.0"),
    "seed": (-1, 0.5, False, "x", [1]),
    "relative_width": (0, 1, -0.1, 2, "0%", "100%", "x", "", True, math.nan, [0.1]),
    "memory": (2, 1.0, "maybe", "", [True]),
    "verify": ("", 0, 1.5, "float65"),
    "memory_limit_bytes": (True, "much", "", "1 h", math.nan, math.inf, [1], 0, -1, "0B", "-4GiB"),
    "timer": ("", True, 3, ["wall"]),
    "store": ("", True, 3),
    "processes": (-1, "many", 2.5),
    "stages": ("half", 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_is_not_permitted_is_refused_with_those_that_are(name: str, snapshot: Any) -> None:
    assert [refusal(check, {name: value}, "here") for value in REFUSED[name]] == snapshot


def attempt(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except UsageError as error:
        return error


@given(st.sampled_from(NAMES), st.text() | st.floats() | st.integers() | st.booleans() | st.lists(st.integers()))
@example("max_time_s", "1e400")
@example("relative_width", "nan")
@example("max_samples", "9" * 5000)
def test_any_value_is_read_or_refused_and_what_is_read_stays_as_it_is(name: str, value: Any) -> None:
    found = attempt(lambda: check({name: value}, "here"))

    if isinstance(found, UsageError):
        assert found.problem == f"option {name!r} in here cannot be {value!r}"
        assert found.expected
    else:
        assert check(found, "here") == found


# A whole `Options`


def test_all_options_of_a_row_hold_over_weaker_sources(tmp_path: Path) -> None:
    given = dataclasses.replace(DEFAULTS, seed=3)

    found = resolve_from(tmp_path, call=given, project={"timeout_s": 9, "seed": 5})  # type: ignore[arg-type]

    assert found == given


def test_a_keyword_wins_over_the_options_of_the_call(project: Path) -> None:
    m = benchax.bench(abs, "f32[8]", options={"stages": "build", "store": "off", "seed": 2}, seed=4)
    again = benchax.bench(abs, "f32[8]", options=m.options, seed="5")

    assert (m.options.stages, m.options.seed) == ("build", 4)
    assert again.options == dataclasses.replace(m.options, seed=5)


def test_a_function_may_have_an_argument_called_options(project: Path) -> None:
    m = benchax.bench(lambda x, options: x + options, "f32[8]", options="f32[8]", stages="build", store="off")

    assert m.signature == "f32[8], options=f32[8]"


@pytest.mark.parametrize("given", [3, "wall", ["timer"]])
def test_what_holds_no_options_is_refused(given: Any, project: Path) -> None:
    with pytest.raises(UsageError, match="option"):
        benchax.bench(abs, "f32[8]", options=given)
