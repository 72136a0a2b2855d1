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
from typing import Any

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
        return measurements(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error}", EXPECTED) from error
    except FormatError as error:
        raise FormatError(f"{path}: {error.problem}", error.expected, error.hint) from error


def measurements(content: bytes) -> list[Measurement]:
    """Raises `FormatError` as `read_pytest_benchmark` does."""
    try:
        whole: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON ({error})", EXPECTED) from error
    if not _is(whole, dict) or "machine_info" not in whole:
        raise FormatError("not a file of pytest-benchmark: it has no machine_info", EXPECTED)
    version = clean(str(whole.get("version", "of unknown version")))
    said = f"imported from pytest-benchmark {version}; how calls were waited for is not known"
    bare = Measurement(
        case=CaseId(""),
        environment=_environment(*(_get(whole, name, dict, "an object") for name in ("machine_info", "commit_info"))),
        options=DEFAULTS,
        run_id=hashlib.sha256(content).hexdigest()[:32],
        started_at=_utc(whole.get("datetime")),
        remarks=(Remark("imported", "info", said),),
    )
    listed = _get(whole, "benchmarks", list, "an array")
    found = [_measurement(bare, each, f"benchmarks[{i}]") for i, each in enumerate(listed)]
    if not found:
        raise FormatError("the file holds no benchmark", EXPECTED)
    return found


def _measurement(bare: Measurement, given: Any, where: str) -> Measurement:
    if not _is(given, dict):
        raise FormatError(f"{where} is {given!r:.80}", "an object")
    stats = _get(given, "stats", dict, "an object", where)
    iterations = stats.get("iterations", 1)
    # Not isinstance: `true` of JSON would be 1.
    if type(iterations) is not int or iterations < 1:
        raise FormatError(f"{where}.stats.iterations is {iterations!r:.80}", "a whole number from 1 up")
    elapsed_s = _readings(stats, iterations, where)
    row = replace(bare, case=_case(given, where), options=_options(given))
    if not elapsed_s:
        quoted = Remark("imported-statistics", "info", _quote(stats))
        absent = Absent(f"samples.{TIMER}", NO_READINGS)
        return replace(row, remarks=(*bare.remarks, quoted), not_measured=(absent,))
    return replace(row, samples=(Samples(TIMER, iterations, elapsed_s, answers="one call, as the test made it"),))


def _readings(stats: Mapping[str, Any], iterations: int, where: str) -> tuple[float, ...]:
    """Readings of all calls of a round together; the file has them per call."""
    data: Any = stats.get("data") or []
    readings: list[float] = []
    for value in data if _is(data, list) else [data]:
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
    if not _is(params, dict):
        raise FormatError(f"{where}.params is {params!r:.80}", "an object, or null")
    if params:
        name = name.removesuffix(f"[{given.get('param')}]")
    tag = str(group) if (group := given.get("group")) is not None else ""
    stored = tuple((clean(key), storable_param(value)) for key, value in params.items())
    return CaseId(clean(name), stored, tag=clean(tag))


def _options(given: Mapping[str, Any]) -> Options:
    """The known options. Nothing was verified, and memory was not observed."""
    said: Any = given.get("options")
    max_time_s = _number(said.get("max_time")) if _is(said, dict) else None
    bare = replace(DEFAULTS, timer=TIMER, verify="off", memory=False)
    return bare if max_time_s is None else replace(bare, max_time_s=max_time_s)


def _environment(machine: Mapping[str, Any], commit: Mapping[str, Any]) -> Environment:
    system = " ".join(text for name in ("system", "release") if (text := _text(machine, name)))
    cpu: Any = machine.get("cpu")
    facts: dict[str, Any] = cpu if _is(cpu, dict) else {}
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


def _is(value: Any, kind: type) -> bool:
    """As `isinstance`, without a claim about the values inside."""
    return isinstance(value, kind)


def _get(whole: Any, name: str, kind: type, expected: str, where: str = "the file") -> Any:
    """Raises `FormatError` if the value is of another kind."""
    value = whole.get(name)
    if not isinstance(value, kind):
        raise FormatError(f"{name} of {where} is {value!r:.80}", expected)
    return value


def _text(table: Mapping[str, Any], name: str) -> str | None:
    value = table.get(name)
    return clean(value) if isinstance(value, str) and value else None
