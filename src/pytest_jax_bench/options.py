"""The options of the plugin: on the command line, in pytest's configuration, and checked before anything runs.

    --ptjb-timer wall        or            [pytest] ptjb_timer = wall

Each option also has a spelling with `benchax` instead of `ptjb`, in both places. The command line wins, also over a
call and a marker. Options of benchax itself (timer, verify, timeout) can also be in `[tool.benchax]`, which all of them
override. This module imports nothing else from benchax, and makes no dataclass (1 ms each), because pytest loads it in
every session. Settings are plain classes instead, whose `vars` hold the values that were given.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pytest


TIMERS = ("auto", "in_graph", "wall", "pipelined", "loop", "device")
OUTPUT_DIR = ".benchmarks"
MARKERS = ("ptjb", "benchax")
"""Both spellings mean the same, and may stand on one test."""


class Option(NamedTuple):
    """One option. `read` makes its value out of a text, or raises ValueError with what was expected."""

    name: str
    help: str
    read: Callable[[str], Any] | None = None
    """None for a switch."""
    metavar: str = ""

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(f"--{prefix}-{self.name.replace('_', '-')}" for prefix in MARKERS)

    @property
    def inis(self) -> tuple[str, ...]:
        return tuple(f"{prefix}_{self.name}" for prefix in MARKERS)


def matching(
    pattern: str, expected: str, make: Callable[[re.Match[str]], Any] = lambda match: match[0]
) -> Callable[[str], Any]:
    """A reader of texts that match all of `pattern`; it raises ValueError with what was expected for any other."""

    def read(text: str) -> Any:
        if (match := re.fullmatch(pattern, text)) is None:
            raise ValueError(expected)
        return make(match)

    return read


def one_of(*permitted: str) -> Callable[[str], str]:
    return matching("|".join(permitted), f"one of: {', '.join(permitted)}")


class Pin(NamedTuple):
    """The reference for all comparisons. Without `commit`, it is the current commit; without `run`, its first run."""

    commit: str | None
    run: int | None

    def __str__(self) -> str:
        return (self.commit or "") + ("" if self.run is None else f":{self.run}")


_TIMER = rf"\s*(?:{'|'.join(TIMERS[1:])})\s*"
_timer = matching(
    rf"\s*auto\s*|{_TIMER}(?:,{_TIMER})*",
    f"auto, or some of {', '.join(TIMERS[1:])}, separated by commas",
    lambda match: "".join(match[0].split()),
)
_pin = matching(
    r"(?=.)([^:\s]*?)\+?(?::(\d+))?",
    "COMMIT, COMMIT:RUN or :RUN, such as 6bc9501, 6bc9501:2 or :0",
    lambda match: Pin(match[1] or None, None if match[2] is None else int(match[2])),
)
_text = matching("(?s).+", "a text that is not empty")
count_from_1 = matching("0*[1-9][0-9]*", "a whole number from 1 up", lambda match: int(match[0]))
_path = matching("(?s).+", "a text that is not empty", lambda match: Path(match[0]))


def read_seconds(text: str) -> float:
    from benchax.errors import UsageError
    from benchax.units import DURATION, parse_duration

    try:
        return parse_duration(text)
    except UsageError:
        raise ValueError(DURATION) from None


def _limits(text: str) -> Any:
    """By metric; the same as `benchax compare --fail-slower`."""
    from benchax.comparing.gate import parse
    from benchax.errors import UsageError

    try:
        return parse(text)
    except UsageError as error:
        raise ValueError(f"{error.expected} ({error.problem})") from None


# Short, so that `pytest --help | grep ptjb -A 2` shows all of each.
OPTIONS = (
    Option("output_dir", f"Folder of CSV files, database, plots and graphs (default: {OUTPUT_DIR})", _path, "DIR"),
    Option("no_compare", "Do not compare (default: with the first run of this commit, or the previous one)"),
    Option(
        "no_judge", "Do not run stored programs side by side where stored times can't decide (default: 0.5 s a test)"
    ),
    Option("pin", "Compare with this commit, and this run of it (default: none)", _pin, "COMMIT[:RUN]"),
    Option("save_graph", "Save compiled graphs as SVG if they differ from the last saved (default: off)"),
    Option("plot", "Draw plots at the end; needs matplotlib (default: off)"),
    Option("plot_xaxis", "Axis of the plots: run or commit (default: run)", one_of("run", "commit"), "AXIS"),
    Option("plot_format", "png, pdf or svg (default: png)", one_of("png", "pdf", "svg"), "FORMAT"),
    Option(
        "timer",
        "wall, in_graph, loop, pipelined, device, auto, or several with commas (default: wall)",
        _timer,
        "NAMES",
    ),
    Option(
        "verify",
        "Check jitted results: eager, float64, off (default: eager if fn and fn_jit are given)",
        one_of("eager", "float64", "off"),
        "HOW",
    ),
    Option(
        "timeout",
        "Time limit of each stage, which runs in a process that can be killed (default: none)",
        read_seconds,
        "TIME",
    ),
    Option("fail_slower", "Exit with 1 beyond 10%, or run=5%,peak=0,compile=20% (default: never)", _limits, "LIMITS"),
    Option("ignore_unclear", "With --ptjb-fail-slower: pass also if no measurement was judged (default: exit with 3)"),
    Option("json", "Write all results of this session to this file (default: none)", _path, "FILE"),
    Option("only", "Measure only this part of NODEID#TAG, or pattern with * ? (default: all)", _text, "PATTERN"),
    Option("skip", "Do not measure this part of NODEID#TAG, or pattern (default: none)", _text, "PATTERN"),
    Option("disable", "Measure nothing, call each function once, keep nothing (default: off)"),
    Option("fixture", "Provide `benchmark` of pytest-benchmark and pytest-codspeed, for JAX (default: off)"),
)


def add(parser: pytest.Parser) -> None:
    group = parser.getgroup("ptjb", "Pytest-Jax-Bench (ptjb)")
    for option in OPTIONS:
        # Without `dest`, pytest looks for it among all options, for each of ours.
        known: dict[str, Any] = {"dest": f"ptjb_{option.name}", "help": option.help.replace("%", "%%")}
        if option.read is None:
            # Not False: what nobody has said on the command line, the configuration may say.
            group.addoption(*option.flags, action="store_true", default=None, **known)
        else:
            group.addoption(*option.flags, type=for_argparse(option.read), metavar=option.metavar, **known)
        kind: Any = {"default": None} if option.read else {"type": "bool", "default": False}
        ours, alias = option.inis[::-1]
        try:
            parser.addini(ours, f"Default of {option.flags[1]}", **kind, aliases=[alias])
        except TypeError:  # pytest 8, which lists both
            for ini in option.inis:
                parser.addini(ini, f"Default of {option.flags[1]}", **kind)


def for_argparse(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"cannot be {text!r}\nexpected {error}") from None

    return convert


class Settings:
    """Values by name: those that were given, which `vars` holds, and the defaults of the others."""

    defaults: Mapping[str, Any]

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)

    def __getattr__(self, name: str) -> Any:
        if name not in self.defaults:
            raise AttributeError(f"there is no setting {name!r}")
        return self.defaults[name]


class BenchmarkSettings(Settings):
    """The values of the options `--benchmark-*` that have no counterpart among ours. `compare` is the beginning of a
    file's name; empty: the last one."""

    defaults = {  # noqa: RUF012  # nothing changes it
        **dict.fromkeys(("json", "save", "compare", "sort", "columns", "name", "time_unit", "max_time", "min_rounds")),
        **dict.fromkeys(("autosave", "only", "skip"), False),
        "group_by": ("group",),
    }

    @property
    def shows_statistics(self) -> bool:
        """Do the tables need all readings?"""
        by_time = self.sort is not None and self.sort not in ("name", "fullname")
        return by_time or bool(self.columns or self.time_unit) or self.compare is not None

    @property
    def keeps_documents(self) -> bool:
        """Is a file in the form of pytest-benchmark wanted?"""
        return self.json is not None or self.save is not None or self.autosave


class PluginSettings(Settings):
    """The settings of a session, by the names of OPTIONS.

    `benchmark` has those of pytest-benchmark. `typed` names the settings whose value is from the command line.
    """

    defaults = {  # noqa: RUF012  # nothing changes it
        **{option.name: None if option.read else False for option in OPTIONS},
        "output_dir": Path(OUTPUT_DIR), "plot_xaxis": "run", "plot_format": "png",
        "benchmark": BenchmarkSettings(), "typed": frozenset(),
    }  # fmt: skip


def settings_of(config: pytest.Config) -> PluginSettings:
    """Returns the values in force.

    Raises:
        pytest.UsageError: a value in pytest's configuration that is not permitted. Such values on the command line were
            refused before.
    """
    found = {option.name: value for option in OPTIONS if (value := _value(config, option)) is not None}
    typed = frozenset(option.name for option in OPTIONS if config.getoption(f"ptjb_{option.name}") is not None)
    # Like all paths: relative to the shell's folder on the command line, else to the project's.
    here = config.invocation_params.dir
    found["output_dir"] = (here if "output_dir" in typed else config.rootpath) / found.get("output_dir", OUTPUT_DIR)
    if "json" in found:
        found["json"] = here / found["json"]
    if found["output_dir"].exists() and not found["output_dir"].is_dir():
        import pytest

        raise pytest.UsageError(
            f"the output folder {str(found['output_dir'])!r} is a file\nexpected a folder, or a new name"
        )
    return PluginSettings(**found, typed=typed)


def _value(config: pytest.Config, option: Option) -> Any:
    given = config.getoption("ptjb_" + option.name)
    if given is not None:
        return given
    ini, written = next(((ini, value) for ini in option.inis if (value := config.getini(ini))), ("", None))
    if option.read is None or not written:
        return written
    try:
        return option.read(written)
    except ValueError as error:
        import pytest

        raise pytest.UsageError(f"{ini} in {config.inipath} cannot be {written!r}\nexpected {error}") from None


def is_match(label: str, pattern: str) -> bool:
    """Is `pattern` a part of `label`, or, with * or ?, does it match all of it?"""
    if "*" not in pattern and "?" not in pattern:
        return pattern in label
    # Brackets hold the parameters of a test; fnmatch would take them for a set of characters.
    return fnmatchcase(label, pattern.replace("[", "[[]"))


# The marker `ptjb`, or `benchax`: which keywords it takes, checked by name, and what is in force for one test.
#
# A marker on a test wins over one on its class, and that over one on its module, keyword by keyword.


def _accepted_by(read: Callable[[Any], Any]) -> Callable[[Any], bool]:
    def is_accepted(value: Any) -> bool:
        try:
            return bool(read(value))
        except (AttributeError, TypeError, ValueError):
            return False

    return is_accepted


def is_count(value: Any, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


Keywords = Mapping[str, tuple[Callable[[Any], bool], str]]
KEYWORDS: Keywords = {
    "plot": (callable, "a function of the data"),
    "plot_summary": (callable, "a function of the data"),
    "max_time_ms": (_is_time, "milliseconds above 0"),
    "min_time_ms": (_is_time, "milliseconds above 0"),
    "max_compiles": (is_count, "a whole number from 0 up"),
    "only_last": (lambda value: isinstance(value, bool), "True or False"),
    "save_graph": (lambda value: isinstance(value, bool), "True or False"),
    "timeout_s": (_accepted_by(read_seconds), "a time above 0, such as 0.5, 500ms or 2min"),
    "timer": (_accepted_by(_timer), f"some of {', '.join(TIMERS)}, separated by commas"),
    "verify": (lambda value: value in ("eager", "float64", "off"), "one of: eager, float64, off"),
}


def marker_of(item: pytest.Item, names: Sequence[str] = MARKERS) -> dict[str, Any]:
    """The keywords in force for `item`."""
    merged: dict[str, Any] = {}
    for mark in marks_of(item, names):
        merged = {**mark.kwargs, **merged}
    return merged


def marks_of(item: pytest.Item, names: Sequence[str] = MARKERS) -> list[pytest.Mark]:
    """The nearest first."""
    return [mark for mark in item.iter_markers() if mark.name in names]


def check_marks(marks: Sequence[pytest.Mark], keywords: Keywords = KEYWORDS) -> None:
    """Fails the test whose markers have a keyword or a value that is not permitted."""
    import pytest

    for mark in marks:
        if mark.args:
            listed = ", ".join(sorted(keywords))
            unnamed = f"the marker {mark.name} was given {mark.args[0]!r} without a name\nexpected keywords: {listed}"
            pytest.fail(unnamed, pytrace=False)
        for name, value in mark.kwargs.items():
            if name not in keywords:
                from benchax.errors import one_of

                unknown = f"the marker {mark.name} has no keyword {name!r}\nexpected {one_of(keywords, name)}"
                pytest.fail(unknown, pytrace=False)
            is_right, expected = keywords[name]
            if value is not None and not is_right(value):
                pytest.fail(f"invalid {name}={value!r} of the marker {mark.name}\nexpected {expected}", pytrace=False)
