"""pytest-benchmark's JSON as measurements. The golden files were written by pytest-benchmark 5.3.1 itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchax.codec import decode, encode
from benchax.errors import BenchaxError, FormatError, UsageError
from benchax.model import CaseId
from benchax.store.imports import measurements, read_pytest_benchmark

GOLDEN = Path(__file__).parents[1] / "golden" / "pytest-benchmark-5.3.1.json"
SAVED = GOLDEN.with_name("pytest-benchmark-5.3.1-saved.json")


def document() -> dict[str, Any]:
    return json.loads(GOLDEN.read_text("utf-8"))


def read(changed: object) -> list[Any]:
    return measurements(json.dumps(changed).encode())


def test_a_benchmark_becomes_the_case_that_the_plugin_would_make_of_its_test() -> None:
    found = [m.case for m in read_pytest_benchmark(GOLDEN)]

    assert found[1] == CaseId("test_x.py::test_rounds", (("rounds", 5), ("what", "x,y")), tag="rounds")
    assert found[2].params == (("rounds", 6), ("what", "é"))
    assert found[4] == CaseId("test_x.py::TestAll::test_calibrated")


def test_every_reading_is_kept() -> None:
    for m, theirs in zip(read_pytest_benchmark(GOLDEN), document()["benchmarks"], strict=True):
        samples = m.samples_of("pytest-benchmark")
        assert samples is not None
        assert samples.iterations == theirs["stats"]["iterations"]
        assert samples.per_call_s == pytest.approx(theirs["stats"]["data"], rel=1e-15)
        assert samples.summary.median_s == pytest.approx(theirs["stats"]["median"], rel=1e-12)


def test_the_machine_and_the_commit_are_those_of_the_file_and_the_rest_is_not_known() -> None:
    m = read_pytest_benchmark(GOLDEN)[0]
    env = m.environment

    assert (env.host, env.os, env.python) == ("node-17", "Linux 6.18.44-fc-v595", "3.11.7")
    assert (env.processor, env.cores) == ("AMD EPYC", 2)
    assert (env.commit, env.is_dirty, env.branch) == (document()["commit_info"]["id"], True, "master")
    assert m.started_at == document()["datetime"]
    assert (env.jax, env.backend, env.benchax) == (None, None, None)
    assert (m.stages.compile_s, m.memory.observed_peak_bytes, m.cost, m.program) == (None, None, None, None)
    assert [r.code for r in m.remarks] == ["imported"]
    unknown = document() | {"commit_info": {"id": "unknown", "dirty": False, "branch": "(unknown)"}}
    env = read(unknown)[0].environment
    assert (env.commit, env.is_dirty, env.branch) == (None, None, None)


def test_statistics_without_readings_are_quoted_and_a_file_is_one_run() -> None:
    (m,) = read_pytest_benchmark(SAVED)

    assert m.samples == ()
    assert "statistics without readings" in (m.why_absent("samples.pytest-benchmark") or "")
    assert m.remarks[1].message.startswith("in the file, of 5 rounds: min ")
    runs = {each.run_id for each in [*read_pytest_benchmark(GOLDEN), *read_pytest_benchmark(GOLDEN)]}
    assert (len(runs), m.run_id in runs) == (1, False)


@pytest.mark.parametrize("when", ["2014-12-25T10:00:00.000000", "2014-12-25T11:00:00+01:00"])
def test_times_are_utc(when: str) -> None:
    assert read(document() | {"datetime": when})[0].started_at == "2014-12-25T10:00:00.000000+00:00"


def with_stats(**stats: Any) -> dict[str, Any]:
    changed = document()
    changed["benchmarks"][1]["stats"] |= stats
    return changed


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ([], "not a file of pytest-benchmark: it has no machine_info"),
        ({"context": {}}, "not a file of pytest-benchmark: it has no machine_info"),
        (document() | {"benchmarks": []}, "the file holds no benchmark"),
        (document() | {"benchmarks": {}}, "benchmarks of the file is {}"),
        (document() | {"benchmarks": [3]}, r"benchmarks\[0\] is 3"),
        (document() | {"commit_info": None}, "commit_info of the file is None"),
        (document() | {"datetime": "yesterday"}, "datetime is 'yesterday'"),
        (with_stats(data=[1.0, "fast"]), r"benchmarks\[1\].stats.data holds 'fast'\nexpected times in seconds"),
        (with_stats(data=[1.0, -1.0]), r"benchmarks\[1\].stats.data holds -1.0"),
        (with_stats(data=[1.0, float("nan")]), r"benchmarks\[1\].stats.data holds nan"),
        (with_stats(data=[10**400]), r"benchmarks\[1\].stats.data holds 1000"),
        (with_stats(iterations=0), r"benchmarks\[1\].stats.iterations is 0"),
    ],
)
def test_a_damaged_file_is_refused_with_the_place(changed: object, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read(changed)


def test_what_is_no_file_of_pytest_benchmark_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")

    with pytest.raises(FormatError, match=r"notes.txt: not JSON \(.*\nexpected a file of pytest-benchmark"):
        read_pytest_benchmark(tmp_path / "notes.txt")
    with pytest.raises(UsageError, match=r"cannot read .*none.json"):
        read_pytest_benchmark(tmp_path / "none.json")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=60)
@given(ANYTHING, st.sampled_from(["fullname", "name", "params", "param", "group", "options", "stats"]), st.data())
def test_whatever_stands_in_a_benchmark_it_is_read_or_refused(value: Any, key: str, data: st.DataObject) -> None:
    changed = document()
    changed["benchmarks"][0][key] = value
    changed["machine_info"][data.draw(st.sampled_from(["node", "cpu", "python_version"]))] = value
    try:
        found = read(changed)
    except BenchaxError:
        return

    assert [decode(encode(m)) for m in found] == found
