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

import benchax
from benchax.errors import UsageError
from benchax.model import Options
from benchax.options import DEFAULTS, NAMES, check, resolve

A_TIME = "a time above 0, such as 0.5, 500ms or 2min"
A_TIME_ABOVE_0 = "a time above 0, such as 0.5, 500ms or 2min"
A_SIZE = "a size such as 4096, 64MiB or 2GB"
A_SIZE_ABOVE_0 = "a size above 0, such as 512MiB or 4GiB"
A_SHARE = "a share between 0 and 1, such as 0.02 or 2%"
A_SWITCH = "one of: true, yes, on, 1, false, no, off, 0"
A_TEXT = "a text that is not empty"


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


@sources
def test_every_source_wins_over_the_default(source: str, tmp_path: Path) -> None:
    found = resolve_from(tmp_path, **{source: {"max_time_s": "250ms", "memory": False}})

    assert found == dataclasses.replace(DEFAULTS, max_time_s=0.25, memory=False)


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


def test_the_result_has_no_gaps(tmp_path: Path) -> None:
    found = dataclasses.asdict(resolve_from(tmp_path))

    assert {name for name, value in found.items() if value is None} == LIMITS


def test_no_option_is_forgotten() -> None:
    """Each field of Options has a default, and the default is a value that its own reader accepts unchanged."""
    defaults = dataclasses.asdict(DEFAULTS)

    assert list(NAMES) == [f.name for f in dataclasses.fields(Options)]
    assert check(defaults, "here") == defaults
    assert {name for name, value in defaults.items() if value is None} == LIMITS


def test_the_environment_is_that_of_the_process(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCHAX_SEED", "11")

    assert resolve().seed == 11


def test_other_variables_of_the_environment_are_not_ours(project: Path) -> None:
    found = resolve(environ={"SEED": "1", "XBENCHAX_SEED": "2", "benchax_seed": "3"})

    assert found == DEFAULTS


# pyproject.toml


def test_the_project_is_found_above_the_folder(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.benchax]\nseed = 5")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)

    assert resolve(environ={}, project=below).seed == 5


def test_the_project_is_found_above_a_relative_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.benchax]\nseed = 5")
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a")

    assert resolve(environ={}, project=Path("b")).seed == 5


def test_the_project_of_the_working_directory_is_the_default(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.benchax]\nseed = 5")

    assert resolve(environ={}).seed == 5


def test_the_nearest_project_is_the_one(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.benchax]\nseed = 5")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "pyproject.toml").write_text("[project]\nname = 'x'")

    assert resolve(environ={}, project=inner) == DEFAULTS


@pytest.mark.parametrize("text", ["", "[tool]", "[tool.ruff]\nline-length = 99", "tool = 3", "[tool.benchax]"])
def test_a_project_that_says_nothing_of_benchax_changes_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)

    assert resolve(environ={}, project=tmp_path) == DEFAULTS


def test_a_folder_of_that_name_is_no_project(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").mkdir()

    assert resolve(environ={}, project=tmp_path) == DEFAULTS


@pytest.mark.parametrize("content", [b"[tool.benchax", b"seed = ", b"\xff\xfe", b"a = 1\na = 2"])
def test_a_project_that_is_not_toml_is_named(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_bytes(content)

    with pytest.raises(UsageError) as caught:
        resolve(environ={}, project=tmp_path)

    assert caught.value.problem.startswith(f"cannot read {path}: ")
    assert caught.value.expected == "a TOML file"


@pytest.mark.parametrize(("line", "shown"), [("benchax = 3", "3"), ("benchax = []", "[]"), ("benchax = 'x'", "'x'")])
def test_a_setting_in_the_place_of_the_table_is_quoted(line: str, shown: str, tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(f"[tool]\n{line}")

    with pytest.raises(UsageError) as caught:
        resolve(environ={}, project=tmp_path)

    assert str(caught.value) == f"tool.benchax in {path} is {shown}\nexpected a table: [tool.benchax]"


# Names


@sources
def test_an_unknown_option_names_its_source_and_the_nearest_name(source: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_from(tmp_path, **{source: {"max_tme_s": 1}})

    message = str(caught.value)
    assert message.startswith(
        f"unknown option 'max_tme_s' in {source_name(source, tmp_path)}\nexpected 'max_time_s'? Permitted is one of: "
    )
    assert message.endswith(", ".join(sorted(NAMES)))


@sources
def test_an_unknown_option_is_an_error_also_where_its_value_is_none_or_overridden(source: str, tmp_path: Path) -> None:
    nothing = "" if source in ("environ", "project") else None

    with pytest.raises(UsageError, match="unknown option 'sed' in"):
        resolve_from(tmp_path, **{"call": {"seed": 1}, source: {"sed": nothing}})


# Values


@sources
def test_a_bad_value_is_quoted_with_its_option_and_source(source: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_from(tmp_path, **{source: {"verify": "maybe"}})

    assert str(caught.value) == (
        f"option 'verify' in {source_name(source, tmp_path)} cannot be 'maybe'\nexpected one of: eager, float64, off"
    )


@pytest.mark.parametrize("source", SOURCES[1:])
def test_a_bad_value_is_an_error_also_where_a_stronger_source_overrides_it(source: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"option 'seed' in .* cannot be"):
        resolve_from(tmp_path, **{"call": {"seed": 1}, source: {"seed": "many"}})


DURATIONS = ["max_time_s", "min_time_s", "sample_time_s", "max_warmup_s", "timeout_s"]
SWITCHES = ["memory", "cold_process", "isolate"]


@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize(
    ("value", "expected"), [(2, 2.0), (0.5, 0.5), ("500ms", 0.5), ("2 min", 120.0), ("20us", 20e-6), ("1e-3", 1e-3)]
)
def test_a_duration_is_seconds_or_a_text_with_a_unit(name: str, value: Any, expected: float) -> None:
    found = check({name: value}, "here")[name]

    assert found == pytest.approx(expected, rel=1e-12)
    assert type(found) is float


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        *((name, value, A_TIME) for name in DURATIONS for value in (True, "fast", "", "1 h", math.nan, math.inf, [1])),
        *((name, value, A_TIME_ABOVE_0) for name in DURATIONS for value in (0, -1, "0ms", "-5ms")),
        *(("max_samples", value, "a whole number from 1 up") for value in (0, -3, 1.5, 20.0, True, "many", "", "1.0")),
        *(("seed", value, "a whole number from 0 up") for value in (-1, 0.5, False, "x", [1])),
        *(
            ("relative_width", value, A_SHARE)
            for value in (0, 1, -0.1, 2, "0%", "100%", "x", "", True, math.nan, [0.1])
        ),
        *((name, value, A_SWITCH) for name in SWITCHES for value in (2, 1.0, "maybe", "", [True])),
        *(("verify", value, "one of: eager, float64, off") for value in ("", 0, 1.5, "maybe")),
        *(("memory_limit_bytes", value, A_SIZE) for value in (True, "much", "", "1 h", math.nan, math.inf, [1])),
        *(("memory_limit_bytes", value, A_SIZE_ABOVE_0) for value in (0, -1, "0B", "-4GiB")),
        *(("timer", value, A_TEXT) for value in ("", True, 3, ["wall"])),
        *(("store", value, A_TEXT) for value in ("", True, 3, Path)),
    ],
)
def test_a_value_that_is_not_permitted_is_refused_with_those_that_are(name: str, value: Any, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        check({name: value}, "here")

    assert str(caught.value) == f"option {name!r} in here cannot be {value!r}\nexpected {expected}"


def test_the_nearest_permitted_value_comes_first() -> None:
    with pytest.raises(UsageError) as caught:
        check({"verify": "float65"}, "here")

    assert caught.value.expected == "'float64'? Permitted is one of: eager, float64, off"


@pytest.mark.parametrize(
    ("value", "expected"), [(0.02, 0.02), ("2%", 0.02), ("2 %", 0.02), ("0.02", 0.02), (" 0.5% ", 0.005)]
)
def test_a_share_is_a_number_or_percent(value: Any, expected: float) -> None:
    assert check({"relative_width": value}, "here") == {"relative_width": pytest.approx(expected, rel=1e-12)}


@pytest.mark.parametrize(("value", "expected"), [(1, 1), ("300", 300), ("1_000", 1000), (10**12, 10**12)])
def test_a_whole_number_may_be_a_text(value: Any, expected: int) -> None:
    found = check({"max_samples": value}, "here")

    assert found == {"max_samples": expected}
    assert type(found["max_samples"]) is int


@pytest.mark.parametrize(("value", "expected"), [(4096, 4096), ("4 GiB", 2**32), ("2GB", 2 * 10**9), ("1.5KiB", 1536)])
def test_a_memory_limit_is_bytes_or_a_text_with_a_unit(value: Any, expected: int) -> None:
    found = check({"memory_limit_bytes": value}, "here")

    assert found == {"memory_limit_bytes": expected}
    assert type(found["memory_limit_bytes"]) is int


@pytest.mark.parametrize(("value", "expected"), [(1, 1), ("5", 5), ("auto", 0), (0, 0)])
def test_processes_are_a_number_or_left_to_the_engine(value: Any, expected: int) -> None:
    assert check({"processes": value}, "here") == {"processes": expected}


@pytest.mark.parametrize("value", [-1, "many", 2.5])
def test_processes_that_are_no_number_are_refused(value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        check({"processes": value}, "the command line")

    assert f"option 'processes' in the command line cannot be {value!r}" in str(caught.value)
    assert 'a whole number from 1 up, or "auto"' in str(caught.value)


def test_a_benchmark_is_measured_in_one_process_unless_told() -> None:
    assert DEFAULTS.processes == 1


def test_no_limit_is_the_default() -> None:
    assert (DEFAULTS.isolate, DEFAULTS.timeout_s, DEFAULTS.memory_limit_bytes) == (False, None, None)


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize(
    ("words", "expected"),
    [((True, 1, "1", "true", "YES", " on "), True), ((False, 0, "0", "false", "No", "OFF"), False)],
)
def test_a_switch_knows_the_usual_words(name: str, words: tuple[Any, ...], expected: bool) -> None:
    found = [check({name: word}, "here")[name] for word in words]

    assert found == [expected] * len(words)


@pytest.mark.parametrize(
    ("value", "expected"), [(True, "eager"), (False, "off"), ("eager", "eager"), ("float64", "float64"), ("off", "off")]
)
def test_verify_may_be_a_switch(value: Any, expected: str) -> None:
    assert check({"verify": value}, "here") == {"verify": expected}


@pytest.mark.parametrize(
    ("value", "expected"), [(False, "off"), ("off", "off"), ("my rows", "my rows"), (Path("a/b"), str(Path("a/b")))]
)
def test_the_store_is_a_folder_or_off(value: Any, expected: str) -> None:
    assert check({"store": value}, "here") == {"store": expected}


def test_false_in_the_project_turns_the_store_off(tmp_path: Path) -> None:
    assert resolve_from(tmp_path, project={"store": False}).store == "off"


def test_which_timers_exist_is_not_known_here() -> None:
    assert check({"timer": "wall,sundial"}, "here") == {"timer": "wall,sundial"}


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


def test_the_command_line_wins_over_the_options_of_a_benchmark(tmp_path: Path) -> None:
    found = resolve_from(tmp_path, marker=DEFAULTS, command_line={"seed": 6})  # type: ignore[arg-type]

    assert found == dataclasses.replace(DEFAULTS, seed=6)


@pytest.mark.parametrize("given", [3, "wall", ["timer"]])
def test_what_holds_no_options_is_refused(given: Any, project: Path) -> None:
    with pytest.raises(UsageError, match="option"):
        benchax.bench(abs, "f32[8]", options=given)
