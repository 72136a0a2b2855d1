"""One verb, one name: what all commands have in common with one another, and with the functions of the same name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from command_line import Benchax

import benchax as library
from benchax.cli.main import app
from benchax.errors import UsageError
from benchax.options import DEFAULTS

COMMANDS: dict[str, Any] = {
    name: command
    for name, command in typer.main.get_command(app).commands.items()  # type: ignore[attr-defined]
    if name != "baseline"  # a group, whose commands have no option but --store
}
SAME = ("audit", "checklist", "compare", "compiled-grid", "experiment", "grid", "inspect", "profile")
VERBS = {name: name.replace("-", "_") for name in SAME} | {"run": "bench"}
"""Command: function. `watch` is a block of code there, and a program here."""
STOPS: dict[str, tuple[str, ...]] = {
    "audit": ("nowhere:f",),
    "bisect": ("--jax", "one"),
    "checklist": ("nowhere:f",),
    "compare": ("nowhere:f", "nowhere:g"),
    "compiled-grid": ("nowhere:f", "f32[8]"),
    "demo": ("nothing",),
    "doctor": ("--aa",),
    "experiment": ("nowhere:f",),
    "grid": ("nowhere.py",),
    "profile": ("nowhere:f",),
    "run": ("nowhere:f",),
    "watch": ("--", "/nowhere/program"),
}
"""Words with which each ends before it does anything, but behind the reading of its options."""
IS_WORDS = {"what", "file", "command"}
CASES = {"pattern", "params"}
"""Which benchmarks of files, in place of a function and its inputs."""
FILES = {"output", "plot", "csv", "sarif", "html"}
RESULTS = FILES | {"as_json", "details", "show", "full", "is_verbose", "list_them", "dry_run"}
"""Where the result goes, which a function returns; and what is there to choose from."""
EXIT_CODES = {"fail_on", "fail_slower", "fail_unclear", "exit_code"}
ONLY_COMMAND_LINE = {
    "audit": set[str](),
    "checklist": set[str](),
    "compare": {"ref", "jax", "benchmarks", "process_pairs", "store", "no_jit"},  # compare_ref and its like; jit=False
    # The comparison is a method of what the function returns; data are made from specs.
    "compiled-grid": {"python_loop", "rounds", "seed"},
    "experiment": {"no_jit"},
    "grid": set[str](),
    "inspect": {"diff", "time"},
    # Of programs, whose profile the library has no function for; and a function is recorded in a worker, which has a
    # limit and makes the data.
    "profile": {"duration", "start_after", "steps", "serve", "attach", "nsys", "xprof", "read", "compare"}
    | {"timeout", "seed"},
    "run": {"break_even", "devices", "no_jit", "nprocs", "on", "quick"},
}
OBJECTS = {"fn", "functions", "data", "make", "check", "name", "tag", "axis", "static", "donate", "options", "jit"}
"""Python objects: a benchmark in a file has them. On the command line literals are static."""
ONLY_LIBRARY = {
    "compiled-grid": {"like", "fill", "clip", "nan_to_num", "stop_inside"},  # of outputs, which it does not show
    "grid": {"clip", "nan_to_num", "output_limit_bytes"},  # the file sets them, as all others
    "profile": {"dir"},  # a name of --output
}


def options_of(command: str) -> dict[str, Any]:
    return {p.name: p for p in COMMANDS[command].params if p.name not in IS_WORDS}


def with_metavar(metavar: str) -> Iterator[Any]:
    for command in COMMANDS:
        for option in options_of(command).values():
            if option.metavar == metavar:
                yield pytest.param(command, option.opts[0], id=f"{command}{option.opts[0]}")


DURATIONS = list(with_metavar("TIME"))
SEEDS = [pytest.param(name, id=name) for name in COMMANDS if "seed" in options_of(name)]


def run(benchax: Benchax, command: str, *options: str) -> Any:
    words = STOPS[command]
    if "--" in words:
        return benchax(command, *options, *words)
    return benchax(command, *words, *options)


@pytest.fixture(autouse=True)
def nothing_is_measured(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> Any:
        raise UsageError("stopped")

    monkeypatch.setattr("benchax.machine.doctor.examine", stop)
    monkeypatch.setattr("benchax.paired_runs.protocol.measure_rounds", stop)
    monkeypatch.setattr("benchax.cli.run.measure", stop)


# ---- durations and seeds -----------------------------------------------------------------------------------------


def test_every_option_of_time_is_known_as_one() -> None:
    named = {
        (command, name)
        for command in COMMANDS
        for name in options_of(command)
        if any(part in ("timeout", "duration", "after") for part in name.split("_")) or name.endswith("_time")
    }

    assert {(each.values[0], str(each.values[1])[2:].replace("-", "_")) for each in DURATIONS} == named


@pytest.mark.parametrize(("command", "option"), DURATIONS)
@pytest.mark.parametrize("given", ["2.5", "500ms", "2min"])
def test_a_duration_is_a_number_or_has_a_unit(command: str, option: str, given: str, benchax: Benchax) -> None:
    words = [option, given]
    if command == "doctor" and option == "--duration":
        done = benchax("doctor", *words)
    elif command == "demo":
        done = benchax("demo", *words)
    else:
        done = run(benchax, command, *words)

    assert done.code in (1, 2, 127)
    assert not re.search("cannot be|invalid", done.err) or command == "bisect"
    assert repr(given) not in done.err


@pytest.mark.parametrize(("command", "option"), DURATIONS)
@pytest.mark.parametrize("given", ["soon", "-1s", "1e999"])
def test_what_is_no_duration_is_refused_in_one_text(command: str, option: str, given: str, benchax: Benchax) -> None:
    words = () if (command, option) == ("doctor", "--duration") else STOPS[command]

    done = benchax(command, f"{option}={given}", *words)

    name = option[2:].replace("-", "_")
    assert done.code == 2
    assert f"option {name!r} in the command line cannot be {given!r}\nexpected a time above 0, such as" in (
        done.err.replace(f"{name}_s'", f"{name}'")
    )


@pytest.mark.parametrize("command", SEEDS)
@pytest.mark.parametrize("given", ["1.5", "-1", "x", "True"])
def test_a_seed_is_a_whole_number(command: str, given: str, benchax: Benchax) -> None:
    done = run(benchax, command, f"--seed={given}")

    assert done.code == 2
    assert f"option 'seed' in the command line cannot be {given!r}\nexpected a whole number from 0 up" in done.err


# ---- names -------------------------------------------------------------------------------------------------------


def test_o_is_what_is_written_wherever_something_is() -> None:
    found = {
        name: set(option.opts)
        for name, command in COMMANDS.items()
        for option in command.params
        if {"--output", "-o"} & set(option.opts)
    }

    assert {name for name, words in found.items() if not {"--output", "-o"} <= words} == set()
    assert found.keys() == {"audit", "experiment", "export", "inspect", "profile", "report", "site", "watch"}


def test_help_tells_the_defaults_that_are_in_force() -> None:
    """They come from options and settings, so that typer knows none of them."""
    run = {option.name: option.help for option in COMMANDS["run"].params if option.name != "what"}

    told = {name: re.findall(r"\((?:as --timeout|)([^()]*)\)", text) for name, text in run.items()}

    assert {name: told[name][-1] for name in ("timer", "max_time", "min_time", "max_samples", "verify", "seed")} == {
        "timer": DEFAULTS.timer,
        "max_time": f"{DEFAULTS.max_time_s:g}",
        "min_time": f"{DEFAULTS.min_time_s:g}",
        "max_samples": f"{DEFAULTS.max_samples}",
        "verify": DEFAULTS.verify,
        "seed": f"{DEFAULTS.seed}",
    }


def test_what_the_library_can_do_is_a_command_of_that_name() -> None:
    assert {verb.replace("_", "-") for verb in VERBS.values()} - {"bench"} <= COMMANDS.keys()


@pytest.mark.parametrize(("command", "verb"), VERBS.items())
def test_options_of_a_command_are_those_of_the_function(command: str, verb: str) -> None:
    parameters = inspect.signature(getattr(library, verb)).parameters.values()
    theirs = {p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    without_units = {name.removesuffix("_s").removesuffix("_bytes"): name for name in theirs}
    ours = {without_units.get(name, name) for name in options_of(command)}

    assert ours - theirs - CASES - RESULTS - EXIT_CODES == ONLY_COMMAND_LINE[command]
    assert theirs - ours - OBJECTS - {"progress"} == ONLY_LIBRARY.get(command, set())
