"""The hooks of the plugin `ptjb`, and the fixture `jax_bench`. They measure nothing, and load the rest late.

The measurements of a test travel to the summary as a text on its report. So they arrive in the same way from this
process, from a fork, and from a worker of xdist. The summary reads no file again to learn what just ran.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pytest_jax_bench import load, options
from pytest_jax_bench.stash import MARKED, MEASURED, PROCESS, SESSION, SETTINGS, STARTED

ATTRIBUTE = "ptjb"
"""The attribute of a report that holds the records as JSON."""

MARKER_LINE = (
    "{}(plot=f, plot_summary=f, only_last=False, save_graph=False, timeout_s=None, timer=None, "
    "verify=None, max_compiles=None, max_time_ms=None, min_time_ms=None): "
    "how a benchmark is measured and drawn. plot: a function of the data of this test"
    "; plot_summary: of the merged data of all its parameters; only_last: these get only the newest run; save_graph: "
    "save the compiled graph as SVG; timeout_s: for each stage (2.5, '500ms', '2min'); timer, verify: as --ptjb-timer "
    "and --ptjb-verify; max_compiles: the test fails where its own lines compile more programs than this; "
    "max_time_ms, min_time_ms: the test fails where a run time is beyond these for sure"
)


def __getattr__(name: str) -> Any:
    # pytest-jax-bench 0.5.0 has it here. It needs JAX, so it is loaded late.
    if name == "JaxBench":
        return load("fixture").JaxBench
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add(parser)


def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    # By now all plugins are registered, and the command line isn't fully parsed yet.
    asks = any(one.startswith(("--benchmark", "--codspeed", "-h", "--help", "--ptjb-f", "--benchax-f")) for one in args)
    if asks or any(early_config.getini(f"{name}_fixture") for name in options.MARKERS):
        from pytest_jax_bench import benchmark_plugin

        if not other_plugins(early_config):
            benchmark_plugin.add(parser)


OTHERS = {
    "pytest-benchmark": (("benchmark", "pytest_benchmark.plugin"), "--benchmark-only", "-p no:benchmark"),
    "pytest-codspeed": (("codspeed", "pytest_codspeed.plugin"), "--codspeed", "-p no:codspeed"),
}
"""Plugins with their own fixture `benchmark`: their names, the option that runs only their tests, and the option that
switches them off."""


def other_plugins(config: pytest.Config) -> list[str]:
    """Returns those of OTHERS that are active."""
    return [name for name, (plugins, *_) in OTHERS.items() if any(map(config.pluginmanager.hasplugin, plugins))]


def pytest_configure(config: pytest.Config) -> None:
    for name in options.MARKERS:
        config.addinivalue_line("markers", MARKER_LINE.format(name))
    settings = config.stash[SETTINGS] = options.settings_of(config)
    others = other_plugins(config)
    if not others and config.getoption("benchmark_only", None) is not None:
        from pytest_jax_bench import benchmark_hooks, benchmark_plugin

        given = {"benchmark": benchmark_plugin.settings_of(config), **benchmark_plugin.for_ours(config)}
        vars(settings).update(given)
        config.pluginmanager.add_hookspecs(benchmark_hooks)
    if settings.fixture and not others:
        from pytest_jax_bench import benchmark_plugin

        config.addinivalue_line("markers", benchmark_plugin.MARKER_LINE)
        config.addinivalue_line("markers", "codspeed_benchmark: as benchmark")
        config.pluginmanager.register(benchmark_plugin, "benchax-fixture")
    # With xdist, all workers belong to the session of the controller.
    config.stash[SESSION] = getattr(config, "workerinput", {}).get("ptjb_session") or os.urandom(8).hex()
    config.stash[MARKED] = {}
    config.stash[PROCESS] = os.getpid()
    config.pluginmanager.register(SessionReporter(config), "ptjb-reporter")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A hook of xdist: called in the controller for each worker."""
    node.workerinput["ptjb_session"] = node.config.stash[SESSION]


def pytest_runtest_setup(item: pytest.Item) -> None:
    options.check_marks(options.marks_of(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """Fails an item that compiles more programs than `max_compiles` of its markers, if any.

    Only compilations by the test's own lines count, including first calls. Eager operations do not count. `jax_bench`
    does not count either, because it compiles each function again to time that.
    """
    limit = options.marker_of(item).get("max_compiles")
    if limit is None:
        return (yield)
    from benchax.errors import NotMeasured
    from benchax.watching.watch import RecompileError, max_compiles
    from pytest_jax_bench.fixture import MEASURING

    try:
        with max_compiles(limit, ignored=frozenset({MEASURING})):
            return (yield)
    except (RecompileError, NotMeasured) as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def jax_bench(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Makes benchmarks: `jax_bench(jit_rounds=20, jit_warmup=1).measure(fn_jit=f, x=x)`, or just `jax_bench(f, x)`."""
    return partial(load("fixture").use_fixture, request)


# This is the outermost wrapper: after its yield, no other plugin changes the report.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    report = yield
    is_fork = os.getpid() != item.config.stash[PROCESS]
    if records := item.stash.get(MEASURED, []):
        if asks_for_fork(item) and not is_fork:
            for record in records:
                record["codes"].append("unforked")
        # `benchmark.extra_info` can hold any object.
        setattr(report, ATTRIBUTE, json.dumps(records, default=lambda value: f"UNSERIALIZABLE[{value!r}]"))
        # Setup, call, and teardown have a report each, and a record travels with one of them.
        records.clear()
    if is_fork and not isinstance(report.__dict__.get("_id", ""), str):
        # pytest-forked (up to 1.7.5) sends the attributes of a report by `marshal`, and expects those of pytest before
        # 9.1.
        report.__dict__["nodeid"] = report.__dict__["_id"] = report.nodeid
    return report


def asks_for_fork(item: pytest.Item) -> bool:
    return bool(item.config.getoption("forked", False)) or item.get_closest_marker("forked") is not None


def count_left_out(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """Returns a line for each option of another plugin that leaves out tests with `jax_bench`."""
    fixtures = [set(getattr(item, "fixturenames", ())) for item in items]
    count = sum("jax_bench" in each and "benchmark" not in each for each in fixtures)
    tests = f"{count} test{'s' if count > 1 else ''} with jax_bench"
    given = [(name, OTHERS[name][1]) for name in other_plugins(config) if count]
    return [
        f"ptjb: {tests} did not run, because {option} of {name} runs only its own tests; leave {option} out"
        for name, option in given
        if config.getoption(option.lstrip("-").replace("-", "_"), False)
    ]


class SessionReporter:
    """Collects the measurements of a session, and reports them. It is an object because some hooks get no config."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.records: list[dict[str, Any]] = []
        self.left_out: list[str] = []
        self.session: pytest.Session | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> object:
        """Runs a benchmark without the requested fork if JAX has started: a fork has none of JAX's threads, so no
        computation would end there."""
        own = inspect.signature(item.function).parameters if isinstance(item, pytest.Function) else ()
        is_measuring = "request" in own or {"jax_bench", "benchmark"} & set(getattr(item, "fixturenames", ()))
        # A private name (tried with jax 0.6 to 0.12.0.1). Without it, the answer is no.
        started = getattr(sys.modules.get("jax._src.xla_bridge"), "backends_are_initialized", bool)
        self.config.stash[STARTED] = started()
        if not (is_measuring and asks_for_fork(item) and self.config.stash[STARTED]):
            return None
        manager = self.config.pluginmanager
        without = [self, manager.get_plugin("pytest_forked")]
        run = manager.subset_hook_caller("pytest_runtest_protocol", without)
        return run(item=item, nextitem=nextitem)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Runs first, because the terminal writes the name of the test as soon as it gets the report.
        if isinstance(report.__dict__.get("_id"), str):  # by pytest_runtest_makereport, in a fork
            report.nodeid = report.__dict__["_id"]
        self.records += json.loads(getattr(report, ATTRIBUTE, "[]"))

    def pytest_report_header(self) -> list[str]:
        settings, lines = self.config.stash[SETTINGS], []
        if settings.fixture and (others := other_plugins(self.config)):
            switches = " ".join(OTHERS[name][2] for name in others)
            lines = [f"the fixture benchmark is that of {' and '.join(others)}; for ours: {switches}"]
        if "benchmark" in vars(settings):
            from pytest_jax_bench import benchmark_hooks, benchmark_plugin

            lines += benchmark_plugin.ignored(self.config) + benchmark_hooks.uncalled(self.config)
        return [f"benchax: {line}" for line in lines]

    # Runs first, because other plugins remove tests from the list.
    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        wanted = self.config.stash[SETTINGS].benchmark
        if wanted.only or wanted.skip:
            from pytest_jax_bench import benchmark_plugin

            benchmark_plugin.leave_out(items, only=wanted.only)
        self.left_out = count_left_out(self.config, items)
        self.config.stash[MARKED] = {item.nodeid: options.marker_of(item) for item in items if options.marks_of(item)}

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        self.session = session
        if exitstatus or not self.records:
            return
        from pytest_jax_bench import session_summary

        if any(record["gate"] and record["gate"]["alarms"] for record in self.records):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif session_summary.unjudged(self.records, self.config.stash[SETTINGS]):
            # The code of `benchax compare`. pytest uses it for internal errors, which print a traceback.
            session.exitstatus = 3

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.left_out:
            terminalreporter.write_line(line, yellow=True)
        settings = self.config.stash[SETTINGS]
        if self.records or settings.json or settings.disable or "benchmark" in vars(settings):
            is_written = load("session_summary").report(self.config, terminalreporter, self.records)
            if self.session and not is_written:
                self.session.exitstatus = self.session.exitstatus or pytest.ExitCode.USAGE_ERROR
