"""The options `--benchmark-*`, the fixture `benchmark`, and whole tests that are marked `benchmark`.

    --benchmark-only --benchmark-json=out.json --benchmark-columns=min,median --benchmark-compare-fail=min:5%

An option of pytest-benchmark with a counterpart does the same. An option without one is accepted, so that existing
commands keep working, and a message names the nearest option (`WITHOUT`).

If pytest-benchmark or pytest-codspeed is active, neither exists. This module measures nothing, and loads the rest
late. With --benchax-fixture, it is a plugin.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_jax_bench import load, options
from pytest_jax_bench.stash import FIXTURE

if TYPE_CHECKING:
    from pytest_jax_bench.benchmark_fixture import BenchmarkFixture

COLUMNS = ("min", "max", "mean", "stddev", "median", "iqr", "ops", "outliers", "rounds", "iterations")
TIMES = ("min", "max", "mean", "stddev", "median", "iqr")
SORTS = ("min", "max", "mean", "stddev", "name", "fullname")
NAMES = ("short", "normal", "long", "trial")
UNITS = ("ns", "us", "ms", "s", "auto")
GROUPINGS = ("group", "name", "func", "fullname", "fullfunc", "param")

WITHOUT = {
    "min-time": "all rounds together take 10 ms, which decides the calls in a round; calls_per_round= sets them",
    "precision": "rounds= and --benchmark-min-rounds set the number of rounds",
    "confidence": "the interval of the median is always one of 95 %",
    "timer": "--ptjb-timer: wall, in_graph, loop, pipelined or device",
    "calibration-precision": "calls_per_round= says how many calls a round holds",
    "warmup": "every function is warmed up until its times are steady",
    "warmup-iterations": "jit_warmup= of jax_bench",
    "histogram": "--ptjb-plot",
    "csv": "the CSV files in --ptjb-output-dir",
    "cprofile": "benchax profile",
    "cprofile-loops": "benchax profile",
    "cprofile-top": "benchax profile",
    "cprofile-dump": "benchax profile",
    "netrc": "a PostgreSQL URL as --store of benchax",
    "cleanup": "nothing: files are kept",
}
"""The options of pytest-benchmark that take a value and that benchax does not know, and the nearest alternative."""
SILENT = ("disable-gc", "verbose", "quiet", "save-data")
"""Switches that hold always (no garbage is collected in rounds, all readings are kept), or for which pytest has its own
(-v, -q)."""
MAY_BE_EMPTY = {"nargs": "?", "const": ""}
CODSPEED = ("mode", "warmup-time", "max-time", "max-rounds")


def _lower_case(permitted: Sequence[str]) -> Callable[[str], str]:
    pattern = rf"(?i)\s*(?:{'|'.join(permitted)})\s*"
    return options.matching(pattern, f"one of: {', '.join(permitted)}", lambda match: match[0].strip().lower())


def _list_of(what: str, permitted: Sequence[str], prefix: str = "\0") -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        named = tuple(part.strip() for part in text.split(","))
        if unknown := [one for one in named if one not in permitted and not one.startswith(prefix)]:
            more = f", {prefix}NAME" if prefix != "\0" else ""
            raise ValueError(f"{what}: {', '.join(permitted)}{more} (there is no {unknown[0]!r})")
        return named

    return read


_file_name = options.matching(r"[^\\/:*?<>|]+", r"part of a file name, without \ / : * ? < > |")
_folder = options.matching(
    r"(?s)(?:file://)?((?:(?!://).)*)",
    "a folder; benchax stores rows in PostgreSQL instead: `store` in [tool.benchax]",
    lambda match: Path(match[1]),
)
# min:5% → run=5%; mean:0.001 → run=0.001s
_limit = options.matching(
    r"(?:min|max|mean|median|stddev|iqr):(?:(\d+)%|(\d*\.?\d+(?:[eE][-+]?\d+)?))",
    "such as min:5% or mean:0.001 (seconds)",
    lambda match: f"run={match[1]}%" if match[1] else f"run={float(match[2]) * 1e6:g}us",
)


VALUES: tuple[tuple[str, Callable[[str], Any], str, str, dict[str, Any]], ...] = (
    ("json", Path, "PATH", "Write pytest-benchmark's JSON, with every reading", {}),
    ("save", _file_name, "NAME", "Write that to OUTPUT-DIR/MACHINE/COUNTER_NAME.json", {}),
    ("storage", _folder, "DIR", "As --ptjb-output-dir", {}),
    ("compare", str, "NUM", "Also show the times of that saved run (default: the last one)", MAY_BE_EMPTY),
    ("compare-fail", _limit, "EXPR", "As --ptjb-fail-slower: min:5%% is 5%%", {"nargs": "+", "action": "extend"}),
    ("group-by", _list_of("groupings", GROUPINGS, "param:"), "LABEL", f"A table for each of {GROUPINGS}", {}),
    ("sort", _lower_case(SORTS), "COL", f"Order of the rows: {', '.join(SORTS)}", {}),
    ("columns", _list_of("columns", COLUMNS), "LABELS", f"Some of {', '.join(COLUMNS)}", {}),
    ("name", _lower_case(NAMES), "FORMAT", f"How tests are named: {', '.join(NAMES)}", {}),
    ("time-unit", _lower_case(UNITS), "UNIT", f"The unit of these columns: {', '.join(UNITS)}", {}),
    ("max-time", options.read_seconds, "SECONDS", "Sampling of a function ends then (default: 1.0)", {}),
    ("min-rounds", options.count_from_1, "NUM", "Measure at least this many rounds", {}),
    *(
        (name, str, "X", f"Does nothing here; the nearest: {nearest}".replace("%", "%%"), MAY_BE_EMPTY)
        for name, nearest in WITHOUT.items()
    ),
)
"""Options with a value: name, reader, metavar, help, and further arguments."""
SWITCHES = {
    "--benchmark-only": "Skip tests that measure nothing",
    "--benchmark-skip": "Skip tests that measure",
    "--benchmark-disable": "As --ptjb-disable",
    "--benchmark-enable": "Overrides --benchmark-disable",
    "--codspeed": "As --benchmark-only",
    "--benchmark-autosave": "As --benchmark-save, named by the commit",
    **{f"--benchmark-{name}": "No effect: always on, or handled by pytest" for name in SILENT},
}


def add(parser: pytest.Parser) -> None:
    group = parser.getgroup("benchmark", "pytest-benchmark's options, as benchax understands them")
    for flag, text in SWITCHES.items():
        group.addoption(flag, action="store_true", default=False, help=text)
    for name, read, metavar, text, more in VALUES:
        read = options.for_argparse(read)
        group.addoption(f"--benchmark-{name}", type=read, metavar=metavar, default=None, help=text, **more)
    for name in CODSPEED:
        group.addoption(f"--codspeed-{name}", default=None, metavar="X", help="Does nothing here")


def ignored(config: pytest.Config) -> list[str]:
    """One line for each option that was given and does nothing."""
    given = [name for name in WITHOUT if config.getoption(_dest(name), None) is not None]
    lines = [f"--benchmark-{name} does nothing here; the nearest: {WITHOUT[name]}" for name in given]
    codspeed = [name for name in CODSPEED if config.getoption(f"codspeed_{name.replace('-', '_')}", None) is not None]
    return lines + [f"--codspeed-{name} does nothing here" for name in codspeed]


def _dest(name: str) -> str:
    return f"benchmark_{name.replace('-', '_')}"


def settings_of(config: pytest.Config) -> options.BenchmarkSettings:
    """Returns the given options."""
    found = {name: config.getoption(_dest(name), None) for name in options.BenchmarkSettings.defaults}
    found["only"] = found["only"] or config.getoption("codspeed", None)
    given = {name: value for name, value in found.items() if value is not None and value is not False}
    return options.BenchmarkSettings(**given)


def for_ours(config: pytest.Config) -> dict[str, Any]:
    """Returns the values that these options set for our own options, by the names of `options.PluginSettings`."""
    for one, other in (("only", "disable"), ("only", "skip"), ("disable", "enable")):
        if config.getoption(_dest(one), False) and config.getoption(_dest(other), False):
            raise pytest.UsageError(f"--benchmark-{one} and --benchmark-{other} contradict each other")
    found: dict[str, Any] = {}
    if config.getoption("benchmark_disable", False) and not config.getoption("benchmark_enable", False):
        found["disable"] = True
    if (folder := config.getoption("benchmark_storage", None)) is not None:
        found["output_dir"] = config.invocation_params.dir / folder
    if limits := config.getoption("benchmark_compare_fail", None):
        from benchax.comparing.gate import parse

        found["fail_slower"] = parse(limits[0])  # of several, which compare one number, the first
    return found


MARKS = ("benchmark", "codspeed_benchmark")
NAMED = (
    "group", "max_time", "min_time", "precision", "confidence", "timer", "disable_gc", "warmup", "warmup_iterations",
    "warmup_time", "calibration_precision", "cprofile",
)  # fmt: skip
COUNTED = ("min_rounds", "max_rounds")
KEYWORDS: options.Keywords = {
    **{name: (lambda value: True, "") for name in NAMED},
    **{name: (lambda value: options.is_count(value, 1), "a whole number from 1 up") for name in COUNTED},
}
"""The keywords of pytest-benchmark and pytest-codspeed. Those from `min_time` on are accepted and change nothing: see
WITHOUT."""
MARKER_LINE = (
    "benchmark(group=None, min_rounds=1, max_time=1.0, ...): as of pytest-benchmark and pytest-codspeed. On a test "
    "without a fixture that measures, the whole test is measured"
)


@pytest.fixture
def benchmark(request: pytest.FixtureRequest) -> Iterator[BenchmarkFixture]:
    """As of pytest-benchmark, for functions of JAX: waits for all outputs, and times compilation apart."""
    fixture = make_fixture(request.node)
    yield fixture
    fixture.finish()


@pytest.fixture
def benchmark_weave(benchmark: BenchmarkFixture) -> Any:
    """`benchmark.weave`, as in pytest-benchmark."""
    return benchmark.weave


def pytest_runtest_setup(item: pytest.Item) -> None:
    options.check_marks(options.marks_of(item, MARKS), KEYWORDS)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A whole test is the function: called again and again with the same values of its fixtures."""
    if not is_whole(pyfuncitem) or inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    named = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    make_fixture(pyfuncitem).measure_test(pyfuncitem.obj, named)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    # Before the record is put on the report: tests set `group` and `extra_info` after the call as well.
    if call.when == "call" and (fixture := item.stash.get(FIXTURE, None)) is not None:
        fixture.complete_record(call.excinfo)
    return (yield)


def make_fixture(item: pytest.Item) -> BenchmarkFixture:
    keywords = options.marker_of(item, MARKS)
    fixture = item.stash[FIXTURE] = load("benchmark_fixture").BenchmarkFixture(item, keywords)
    return fixture


def is_whole(item: pytest.Item) -> bool:
    """Is the test itself what is measured?"""
    return bool(options.marks_of(item, MARKS)) and not _has_fixture(item)


def _has_fixture(item: pytest.Item) -> bool:
    return not {"benchmark", "jax_bench"}.isdisjoint(getattr(item, "fixturenames", ()))


def measures(item: pytest.Item) -> bool:
    return _has_fixture(item) or bool(options.marks_of(item, (*options.MARKERS, *MARKS)))


def leave_out(items: list[pytest.Item], *, only: bool) -> None:
    """Skips, as pytest-benchmark does: all that measure, or with `only` all others."""
    reason = "measures nothing (--benchmark-only)" if only else "measures (--benchmark-skip)"
    for item in items:
        if measures(item) is not only:
            item.add_marker(pytest.mark.skip(reason=reason))
