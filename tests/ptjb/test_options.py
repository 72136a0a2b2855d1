"""What options and the marker permit, without a session."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from _pytest.config import PytestPluginManager
from _pytest.config.argparsing import Parser

from benchax.comparing.gate import Limit
from benchax.measuring.timers import TIMERS
from pytest_jax_bench import options
from pytest_jax_bench.context import BenchContext


def test_the_timers_that_are_permitted_are_those_that_there_are() -> None:
    """They are listed twice, since pytest's help must not load JAX."""
    assert set(options.TIMERS) == {"auto", *TIMERS}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("pin", "6bc9501", ("6bc9501", None)),
        ("pin", "6bc9501+:2", ("6bc9501", 2)),
        ("pin", "v0.2-3-g6bc9501", ("v0.2-3-g6bc9501", None)),
        ("pin", ":0", (None, 0)),
        ("timer", "in_graph, wall", "in_graph,wall"),
        ("timeout", "500ms", 0.5),
        ("timeout", "2", 2.0),
        ("timeout", "2min", 120.0),
        ("fail_slower", "10%", {"run": Limit(0.1)}),
        ("fail_slower", "run=5%+1ms,peak=0", {"run": Limit(0.05, 1e-3), "peak": Limit(absolute=0)}),
        ("plot_format", "svg", "svg"),
    ],
)
def test_a_text_is_read_as_its_value(name: str, text: str, value: object) -> None:
    assert reader(name)(text) == value


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("pin", "", "COMMIT"),
        ("pin", "abc:x", "COMMIT"),
        ("timer", "wal", "in_graph"),
        ("timer", "auto,wall", "auto"),
        ("timeout", "0", "above 0"),
        ("timeout", "soon", "500ms"),
        ("fail_slower", "much", "5%, 20us or 5%+20us (invalid limit 'much' for run)"),
        ("fail_slower", "5", "the limit '5' for run has no unit"),
        ("fail_slower", "-3%", "invalid limit '-3%' for run"),
        ("fail_slower", "speed=5%", "unknown metric 'speed'"),
        ("plot_format", "gif", "png, pdf, svg"),
        ("plot_xaxis", "tag", "run, commit"),
        ("verify", "yes", "eager"),
        ("only", "", "not empty"),
    ],
)
def test_a_value_that_is_not_permitted_is_refused_with_what_is(name: str, text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        reader(name)(text)


def reader(name: str):
    return next(option.read for option in options.OPTIONS if option.name == name)


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        (["--ptjb-plot-xaxis=tag"], ["--ptjb-plot-xaxis", "expected one of: run, commit"]),
        (["--ptjb-pin=:"], ["--ptjb-pin", "expected COMMIT, COMMIT:RUN or :RUN"]),
        (["--ptjb-output-dir", "taken.txt"], ["taken.txt' is a file"]),
        (
            ["--benchmark-only", "--benchmark-disable"],
            ["--benchmark-only and --benchmark-disable contradict each other"],
        ),
        (["--benchmark-columns=min,speed"], ["cannot be 'min,speed'", "expected columns: min, max, mean"]),
    ],
)
def test_options_that_are_not_permitted_end_the_session_before_it_begins(options, messages, pytester) -> None:
    pytester.makefile(".txt", taken="")

    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert all(message in result.stderr.str() for message in messages)
    assert "collected" not in result.stdout.str()


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("plt=print", "no keyword 'plt'\nexpected 'plot'?"),
        ("plot='f'", "plot='f'"),
        ("timeout_s=0", "invalid timeout_s=0 of the marker ptjb\nexpected a time above 0, such as 0.5"),
        ("3", "without a name"),
        ("timer='wal'", "timer='wal'"),
        ("timer=3", "invalid timer=3 of the marker ptjb\nexpected some of auto"),
        ("only_last=1", "expected True or False"),
    ],
)
def test_a_wrong_marker_fails_its_test_with_what_is_permitted(marker: str, message: str, pytester) -> None:
    pytester.makepyfile(f"import pytest\n@pytest.mark.ptjb({marker})\ndef test_a():\n    pass\ndef test_b():\n    pass")

    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")

    result.assert_outcomes(errors=1, passed=1)
    assert message in result.stdout.str()


def test_the_nearest_marker_wins_keyword_by_keyword(pytester) -> None:
    module = pytester.getmodulecol(
        """
        import pytest
        pytestmark = pytest.mark.ptjb(timer="wall", only_last=True)
        class TestA:
            pytestmark = pytest.mark.ptjb(timer="loop", save_graph=True)
            @pytest.mark.ptjb(timer="auto")
            def test_a(self):
                pass
        """,
        ("-p", "no:syrupy"),  # it ends a session that never began
    )
    (item,) = pytester.genitems([module])

    assert options.marker_of(item) == {"timer": "auto", "save_graph": True, "only_last": True}


def test_a_request_that_belongs_to_no_test_is_refused_with_its_scope(pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from pytest_jax_bench import JaxBench

        @pytest.fixture(scope="session")
        def bench(request):
            return JaxBench(request, jit_rounds=3)

        def test_one(bench):
            pass
        """
    )

    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")

    result.assert_outcomes(errors=1)
    assert "a fixture with the scope 'session', which belongs to no test" in result.stdout.str()


def test_help_says_each_option_once_with_its_default_and_both_spellings_and_has_the_marker(pytester) -> None:
    text = pytester.runpytest_inprocess("--help").stdout.str()

    lines = text.splitlines()
    found = [i for i, line in enumerate(lines) if "ptjb" in line]
    assert len(found) < 3 * len(options.OPTIONS)
    shown = "\n".join(lines[k] for k in sorted({k for i in found for k in range(i, i + 3)}))  # grep ptjb -A 2
    for option in options.OPTIONS:
        _, _, rest = shown.partition(f"  {option.flags[0]}")
        assert "(default:" in rest.partition("  --ptjb")[0], option.flags
    assert {"--benchax-timer", "--benchmark-columns"} <= set(re.findall(r"--[\w-]+", text))
    markers = pytester.runpytest_inprocess("--markers").stdout.str()
    assert all(f"@pytest.mark.{name}(plot=f, plot_summary=f" in markers for name in ("ptjb", "benchax"))
    assert pytester.parseconfig("-o", "ptjb_timer=loop").getini("ptjb_timer") == "loop"


def test_the_command_line_wins_over_a_call_then_a_marker_then_the_configuration(pytester) -> None:
    pytester.makeini("[pytest]\nptjb_timer = loop\nptjb_timeout = 1\nptjb_save_graph = true\n")

    def context(*words: str, **marker: object) -> BenchContext:
        return BenchContext("", settings=options.settings_of(pytester.parseconfig(*words)), marker=marker)

    asked = [
        context().choose("timer", None),
        context(timer="device").choose("timer", None),
        context(timer="device").choose("timer", "in_graph"),
        context("--benchax-timer=wall", timer="device").choose("timer", "in_graph"),
    ]

    assert asked == ["loop", "device", "in_graph", "wall"]
    assert context("--ptjb-timeout=9").choose("timeout_s", 3.0) == 9.0
    assert context().choose("timeout_s", None) == 1.0
    assert context().choose("save_graph", False) is False
    assert context().choose("verify", None) is None


class Installed:
    """A distribution, as `importlib.metadata` has it."""

    def __init__(self, name: str, plugins: dict[str, str]) -> None:
        self.metadata = {"name": name}
        self.entry_points = [metadata.EntryPoint(*each, "pytest11") for each in plugins.items()]


@pytest.mark.parametrize("is_first", [True, False])
def test_it_loads_next_to_pytest_jax_bench_in_either_order(is_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which has a plugin in the same module, under its own name."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    both = [
        Installed("benchax", project["entry-points"]["pytest11"]),
        Installed("pytest-jax-bench", {"pytest_jax_bench": "pytest_jax_bench.plugin"}),
    ]
    monkeypatch.setattr(metadata, "distributions", lambda: both if is_first else both[::-1])
    manager = PytestPluginManager()

    manager.load_setuptools_entrypoints("pytest11")
    manager.hook.pytest_addoption.call_historic(kwargs={"parser": Parser(_ispytest=True), "pluginmanager": manager})

    assert manager.is_registered(importlib.import_module("pytest_jax_bench.plugin"))


def test_files_that_another_package_replaced_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("pytest_jax_bench.load")
    monkeypatch.delitem(sys.modules, "pytest_jax_bench.entry", raising=False)

    with pytest.raises(pytest.UsageError, match="pip uninstall pytest-jax-bench"):
        importlib.import_module("pytest_jax_bench.entry")
