"""Results of other tools as measurements: pytest-benchmark's JSON (formats of 3.1 to 5.3).

Facts that are not in the file stay unknown: no stages, no memory, no JAX. Readings are kept if the file has them (as
with `--benchmark-json`, or `--benchmark-save-data`). Otherwise the row has no samples, and a remark quotes the
statistics, which cannot be computed again. Importing a file twice gives the same run, so that a store can detect it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from benchax.case import storable_param
from benchax.environment import clean
from benchax.errors import FormatError, UsageError
from benchax.model import Absent, CaseId, Environment, Measurement, Options, Remark, Samples
from benchax.options import DEFAULTS
from benchax.units import seconds

TIMER = "pytest-benchmark"
"""Its readings contain whatever the test did: also the dispatch only, where the test did not wait for JAX."""
EXPECTED = "a file of pytest-benchmark, such as --benchmark-json writes"
NO_READINGS = "the file holds statistics without readings, as --benchmark-save writes without --benchmark-save-data"
QUOTED = ("min", "median", "mean", "stddev", "max")


def read_pytest_benchmark(path: Path) -> list[Measurement]:
    """One measurement for each benchmark of the file, all of one run.

    Raises:
        UsageError: the file cannot be read.
        FormatError: it is not one of pytest-benchmark, or a benchmark in it is damaged.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error}", EXPECTED) from error
    try:
        return measurements(content)
    except FormatError as error:
        raise FormatError(f"{path}: {error.problem}", error.expected, error.hint) from error


def measurements(content: bytes) -> list[Measurement]:
    """Raises `FormatError` as `read_pytest_benchmark` does."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON ({error})", EXPECTED) from error
    if not isinstance(document, dict) or "machine_info" not in document:
        raise FormatError("not a file of pytest-benchmark: it has no machine_info", EXPECTED)
    whole = cast("dict[str, Any]", document)
    started_at = _utc(whole.get("datetime"))
    bare = Measurement(
        case=CaseId(""),
        environment=_environment(_table(whole, "machine_info"), _table(whole, "commit_info")),
        options=DEFAULTS,
        run_id=hashlib.sha256(content).hexdigest()[:32],
        started_at=started_at,
    )
    version = clean(str(whole.get("version", "of unknown version")))
    found = [_measurement(bare, each, i, version) for i, each in enumerate(_list(whole, "benchmarks"))]
    if not found:
        raise FormatError("the file holds no benchmark", EXPECTED)
    return found


def _measurement(bare: Measurement, benchmark: Any, index: int, version: str) -> Measurement:
    where = f"benchmarks[{index}]"
    if not isinstance(benchmark, dict):
        raise FormatError(f"{where} is {benchmark!r:.80}", "an object")
    given = cast("dict[str, Any]", benchmark)
    stats = _table(given, "stats", where)
    iterations = stats.get("iterations", 1)
    # Not isinstance: `true` of JSON would be 1.
    if type(iterations) is not int or iterations < 1:
        raise FormatError(f"{where}.stats.iterations is {iterations!r:.80}", "a whole number from 1 up")
    elapsed_s = _readings(stats, iterations, where)
    said = Remark(
        "imported", "info", f"imported from pytest-benchmark {version}; how calls were waited for is not known"
    )
    row = replace(bare, case=_case(given, where), options=_options(given), remarks=(said,))
    if not elapsed_s:
        quoted = Remark("imported-statistics", "info", _quote(stats))
        return replace(row, remarks=(said, quoted), not_measured=(Absent(f"samples.{TIMER}", NO_READINGS),))
    samples = Samples(TIMER, iterations, elapsed_s, answers="one call, as the test made it")
    return replace(row, samples=(samples,))


def _readings(stats: Mapping[str, Any], iterations: int, where: str) -> tuple[float, ...]:
    """Readings of all calls of a round together; the file has them per call."""
    data: Any = stats.get("data") or []
    readings: list[float] = []
    for value in cast("list[Any]", data) if isinstance(data, list) else [data]:
        per_call_s = _number(value)
        if per_call_s is None or per_call_s < 0 or not math.isfinite(per_call_s * iterations):
            raise FormatError(f"{where}.stats.data holds {value!r:.80}", "times in seconds")
        readings.append(per_call_s * iterations)
    return tuple(readings)


def _number(value: Any) -> float | None:
    """None for a value that is not a number, is not finite, or is beyond a float."""
    try:
        number = float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _quote(stats: Mapping[str, Any]) -> str:
    numbers = {name: _number(stats.get(name)) for name in QUOTED}
    said = ", ".join(f"{name} {seconds(value)}" for name, value in numbers.items() if value is not None)
    return f"in the file, of {stats.get('rounds', 'an unknown number of')!s:.40} rounds: {said or 'no statistics'}"


def _case(given: Mapping[str, Any], where: str) -> CaseId:
    """As the plugin of benchax names the same test: the node id without parameters, and the group as the tag."""
    name = given.get("fullname") or given.get("name")
    if not isinstance(name, str):
        raise FormatError(f"{where}.fullname is {name!r:.80}", "a text")
    params: Any = given.get("params") or {}
    if not isinstance(params, dict):
        raise FormatError(f"{where}.params is {params!r:.80}", "an object, or null")
    if params:
        name = name.removesuffix(f"[{given.get('param')}]")
    listed = cast("dict[str, Any]", params).items()
    tag = str(group) if (group := given.get("group")) is not None else ""
    return CaseId(clean(name), tuple((clean(key), storable_param(value)) for key, value in listed), tag=clean(tag))


def _options(given: Mapping[str, Any]) -> Options:
    """The known options. Nothing was verified, and memory was not observed."""
    said = given.get("options")
    max_time_s = _number(cast("dict[str, Any]", said).get("max_time")) if isinstance(said, dict) else None
    bare = replace(DEFAULTS, timer=TIMER, verify="off", memory=False)
    return bare if max_time_s is None else replace(bare, max_time_s=max_time_s)


def _environment(machine: Mapping[str, Any], commit: Mapping[str, Any]) -> Environment:
    system = " ".join(text for name in ("system", "release") if (text := _text(machine, name)))
    cpu = machine.get("cpu")
    facts = cast("dict[str, Any]", cpu) if isinstance(cpu, dict) else {}
    cores, dirty, id, branch = facts.get("count"), commit.get("dirty"), _text(commit, "id"), _text(commit, "branch")
    is_known = id not in (None, "unknown")
    python = [_text(machine, "python_version"), _text(machine, "python_implementation")]
    return Environment(
        host=_text(machine, "node") or "unknown",
        os=system or "unknown",
        python=" ".join(text for text in python if text and text != "CPython") or "unknown",
        processor=_text(facts, "brand_raw") or _text(facts, "brand") or _text(machine, "processor"),
        cores=cores if type(cores) is int else None,
        commit=id if is_known else None,
        branch=branch if branch not in ("(unknown)", "(detached head)") else None,
        is_dirty=dirty if is_known and isinstance(dirty, bool) else None,
    )


def _utc(when: Any) -> str:
    """pytest-benchmark writes UTC, in some versions without saying so."""
    try:
        read = datetime.fromisoformat(str(when))
    except ValueError as error:
        raise FormatError(f"datetime is {when!r:.80}", "a time in ISO 8601") from error
    aware = read if read.tzinfo else read.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat(timespec="microseconds")


def _table(whole: Mapping[str, Any], name: str, where: str = "the file") -> dict[str, Any]:
    value = whole.get(name)
    if not isinstance(value, dict):
        raise FormatError(f"{name} of {where} is {value!r:.80}", "an object")
    return cast("dict[str, Any]", value)


def _list(whole: Mapping[str, Any], name: str) -> list[Any]:
    value = whole.get(name)
    if not isinstance(value, list):
        raise FormatError(f"{name} of the file is {value!r:.80}", "an array")
    return cast("list[Any]", value)


def _text(table: Mapping[str, Any], name: str) -> str | None:
    value = table.get(name)
    return clean(value) if isinstance(value, str) and value else None
