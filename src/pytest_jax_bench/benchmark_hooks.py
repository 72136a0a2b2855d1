"""The hooks of pytest-benchmark, which a conftest.py may implement: their specifications, and the calls.

Called as there: `pytest_benchmark_group_stats` for the tables, all others when a JSON file is written. Hooks get
objects like `benchmark.stats` as `benchmarks`. Hooks in `NOT_CALLED` may be there, and the session says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import pytest

NOT_CALLED = ("pytest_benchmark_scale_unit", "pytest_benchmark_compare_machine_info")


@pytest.hookspec(firstresult=True)
def pytest_benchmark_scale_unit(config, unit, benchmarks, best, worst, sort):  # pyright: ignore
    """Not called: each table chooses its own unit (--benchmark-time-unit)."""


@pytest.hookspec(firstresult=True)
def pytest_benchmark_generate_machine_info(config):  # pyright: ignore
    """Returns the `machine_info` of the JSON file instead of the usual one."""


@pytest.hookspec
def pytest_benchmark_update_machine_info(config, machine_info):  # pyright: ignore
    """Changes `machine_info` in place."""


@pytest.hookspec(firstresult=True)
def pytest_benchmark_generate_commit_info(config):  # pyright: ignore
    """Returns the `commit_info` of the JSON file instead of the usual one."""


@pytest.hookspec
def pytest_benchmark_update_commit_info(config, commit_info):  # pyright: ignore
    """Changes `commit_info` in place."""


@pytest.hookspec(firstresult=True)
def pytest_benchmark_group_stats(config, benchmarks, group_by):  # pyright: ignore
    """Returns pairs of a title and its benchmarks: a table each."""


@pytest.hookspec(firstresult=True)
def pytest_benchmark_generate_json(config, benchmarks, include_data, machine_info, commit_info):  # pyright: ignore
    """Returns the whole JSON document instead of the usual one."""


@pytest.hookspec
def pytest_benchmark_update_json(config, benchmarks, output_json):  # pyright: ignore
    """Changes the JSON document in place."""


@pytest.hookspec
def pytest_benchmark_compare_machine_info(config, benchmarksession, machine_info, compared_benchmark):  # pyright: ignore
    """Not called: a saved run is shown next to the new one, whatever machine it is from."""


def uncalled(config: pytest.Config) -> list[str]:
    """One line for each hook that is implemented and never called."""
    return [f"the hook {name} isn't called" for name in NOT_CALLED if getattr(config.hook, name).get_hookimpls()]


def complete_document(config: pytest.Config, document: dict[str, Any]) -> dict[str, Any]:
    """Returns what the hooks make of the JSON document of a session."""
    hook = config.hook
    benchmarks = [_stats_of(each) for each in document["benchmarks"]]
    machine = hook.pytest_benchmark_generate_machine_info(config=config) or document["machine_info"]
    hook.pytest_benchmark_update_machine_info(config=config, machine_info=machine)
    commit = hook.pytest_benchmark_generate_commit_info(config=config) or document["commit_info"]
    hook.pytest_benchmark_update_commit_info(config=config, commit_info=commit)
    document |= {"machine_info": machine, "commit_info": commit}
    given = {"benchmarks": benchmarks, "include_data": True, "machine_info": machine, "commit_info": commit}
    document = hook.pytest_benchmark_generate_json(config=config, **given) or document
    hook.pytest_benchmark_update_json(config=config, benchmarks=benchmarks, output_json=document)
    return document


def _stats_of(entry: Mapping[str, Any]) -> BenchmarkStats:
    named = SimpleNamespace(**{"has_error": False} | dict(entry))
    return BenchmarkStats(named, entry["stats"]["data"], entry["stats"]["iterations"])


def group(config: pytest.Config, records: Sequence[Any], group_by: Sequence[str]) -> list[tuple[str, list[Any]]] | None:
    """Returns the records in the groups that a hook makes of them; None without such a hook."""
    if not config.hook.pytest_benchmark_group_stats.get_hookimpls():
        return None
    benchmarks = [_stats_of_record(record) for record in records]
    of = {id(stats): record for stats, record in zip(benchmarks, records, strict=True)}
    found = config.hook.pytest_benchmark_group_stats(config=config, benchmarks=benchmarks, group_by=",".join(group_by))
    return found and [(title or "", [of[id(stats)] for stats in each]) for title, each in found]


def _stats_of_record(record: Mapping[str, Any]) -> BenchmarkStats:
    plain = {"group": None, "name": record["nodeid"].rpartition("::")[2], "fullname": record["nodeid"]}
    readings = record["readings"] or {"times_s": [], "iterations": 1}
    stats = {"data": readings["times_s"], "iterations": readings["iterations"]}
    named = {"param": None, "params": None, "extra_info": {}, "has_error": False}
    return _stats_of(named | plain | (record.get("benchmark") or {}) | {"stats": stats})


# `benchmark.stats`: the statistics of a measurement, by the names of pytest-benchmark, in seconds per call.


NAMES = ("name", "fullname", "group", "param", "params", "extra_info", "has_error")


class BenchmarkStats:
    """`stats["mean"]`, `stats.stats.mean` and `stats.iterations`."""

    def __init__(self, fixture: Any, times_s: Sequence[float], iterations: int) -> None:
        self.fixture, self.times_s, self.iterations = fixture, list(times_s), iterations

    @cached_property
    def stats(self) -> SimpleNamespace:
        # With it come all exports, 0.2 s for who asks for no statistics.
        from benchax.reporting.exports import stats as statistics_of

        return SimpleNamespace(**statistics_of(self.times_s), data=self.times_s)

    def __getitem__(self, key: str) -> Any:
        return getattr(self if key in (*NAMES, "iterations", "stats") else self.stats, key)

    def get(self, key: str, default: Any = None) -> Any:
        return getattr(self if key in (*NAMES, "iterations", "stats") else self.stats, key, default)

    def __getattr__(self, name: str) -> Any:
        if name in NAMES:
            return getattr(self.fixture, name)
        raise AttributeError(f"the statistics of benchmark have no {name!r}; they are in .stats")

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self.stats))
