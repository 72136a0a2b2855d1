"""Options: where they come from, which wins, and what a value must be.

    command line ▸ call ▸ decorator ▸ environment (BENCHAX_*) ▸ [tool.benchax] in pyproject.toml ▸ default

Every source is checked in full, also the keys that a stronger source overrides, and an error names its source.
Whether a timer exists is the timers' business (`measuring/timers`), not known here.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from benchax.errors import UsageError, one_of
from benchax.model import Options
from benchax.printable import can_name_a_file
from benchax.units import parse_duration, parse_size

DEFAULTS = Options(
    timer="auto",
    max_time_s=0.5,
    min_time_s=0.1,
    max_samples=20_000,
    relative_width=None,
    sample_time_s=150e-6,
    max_warmup_s=0.5,
    verify="eager",
    memory=True,
    cold_process=False,
    seed=0,
    store=".benchmarks",
)
NAMES = tuple(f.name for f in dataclasses.fields(Options))
GATE = "gate"
AUDIT = "audit"
"""The tables in [tool.benchax] that are no options: the limits of comparisons, and what audits are silent about."""
_PREFIX = "BENCHAX_"
_NO_OPTIONS = {"BENCHAX_HOST", "BENCHAX_SENT_FROM"}
"""Read elsewhere (`environment.py`, `workers/pickling.py`)."""
_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def resolve(
    call: Mapping[str, Any] | None = None,
    marker: Mapping[str, Any] | None = None,
    command_line: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    project: Path | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Options:
    """Merges all sources into Options, in which `None` means just one thing: no limit.

    Args:
        call, marker, command_line: options by name; a value of `None` counts as not given.
        environ: default `os.environ`.
        project: a folder; the nearest pyproject.toml from there up is read. Default: the working directory.
        defaults: the values if no source gives any, instead of DEFAULTS.

    Raises:
        UsageError: an unknown option (names the nearest known one) or a value that is not permitted; both name the
            source and quote the value.
    """
    found = {
        "the command line": command_line or {},
        "the call": call or {},
        "the benchmark's options": marker or {},
        "the environment": _from_environment(os.environ if environ is None else environ),
    }
    path, table = project_table(project or Path.cwd())
    found[f"[tool.benchax] of {path}"] = {name: value for name, value in table.items() if name not in (GATE, AUDIT)}
    merged = dataclasses.asdict(DEFAULTS) | check(defaults or {}, "the defaults")
    for source, given in reversed(found.items()):
        merged |= {name: value for name, value in check(given, source).items() if value is not None}
    return Options(**merged)


def check(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """`given` with every value in its final type.

    Raises:
        UsageError: see `resolve`.
    """
    return {name: _value(name, value, source) for name, value in given.items()}


def _value(name: str, value: Any, source: str) -> Any:
    if name not in _READERS:
        raise UsageError(f"unknown option {name!r} in {source}", one_of(NAMES, name))
    if value is None:
        return None
    try:
        return _READERS[name](value)
    except UsageError as error:
        raise UsageError(f"option {name!r} in {source} cannot be {value!r}", error.expected, error.hint) from None


def read_seed(given: Any, source: str = "the call") -> int:
    """The seed that is given, else that of the project; a whole number in either case."""
    check({"seed": given}, source)
    return resolve({"seed": given}).seed


def split_names(given: object) -> list[str] | None:
    """["donate", "bf16"], or "donate,bf16", as a list; None stays None, which is: all.

    Raises:
        UsageError: neither of these, or no name at all.
    """
    if given is None:
        return None
    named = given.split(",") if isinstance(given, str) else given
    listed: list[Any] = list(cast("Iterable[Any]", named)) if isinstance(named, Iterable) else [None]
    if not all(isinstance(name, str) for name in listed):
        raise UsageError(f"cannot read {given!r} as names", "a text such as 'a,b', or a list of texts")
    names = [name.strip() for name in listed if name.strip()]
    if not names:
        raise UsageError(f"there are no names in {given!r}", "one name at least, or None for all")
    return names


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    given = {k: v for k, v in environ.items() if k.startswith(_PREFIX) and k not in _NO_OPTIONS}
    return {k.removeprefix(_PREFIX).lower(): v for k, v in given.items()}


def project_table(folder: Path) -> tuple[Path | None, Mapping[str, Any]]:
    """Returns the nearest pyproject.toml from `folder` up, and its [tool.benchax]; (None, {}) if there is no such file.

    Raises:
        UsageError: it cannot be read.
    """
    folder = folder.absolute()  # a relative path has no parents above the working directory
    path = next((p for f in (folder, *folder.parents) if (p := f / "pyproject.toml").is_file()), None)
    if path is None:
        return None, {}
    try:
        state = path.stat()
        tools = _read_tools(path, state.st_mtime_ns, state.st_size)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}", "a TOML file") from error
    table: Any = cast("dict[str, Any]", tools).get("benchax", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(f"tool.benchax in {path} is {table!r}", "a table: [tool.benchax]")
    return path, cast("dict[str, Any]", table)


# Reading a file of 300 lines takes 3 ms, and each measurement asks twice. By time and size, since it may be edited.
@lru_cache(maxsize=8)
def _read_tools(path: Path, mtime_ns: int, size: int) -> Any:
    return tomllib.loads(path.read_text(encoding="utf-8")).get("tool")


def _bytes(value: Any) -> int:
    result = parse_size(value)
    if not 1 <= result < 2**62:  # what systems count memory by has 64 bits
        raise UsageError("", "a size above 0, such as 512MiB or 4GiB")
    return result


def _share(value: Any) -> float:
    expected = UsageError("", "a share between 0 and 1, such as 0.02 or 2%")
    text = str(value).strip()
    try:
        result = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise expected from None
    if not 0 < result < 1:
        raise expected
    return result


def _whole(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        expected = UsageError("", f"a whole number from {least} up")
        try:
            result = int(str(value))
        except ValueError:
            raise expected from None
        if result < least:
            raise expected
        return result

    return read


def _processes(value: Any) -> int:
    if str(value) in ("auto", "0"):  # 0 is what "auto" is kept as
        return 0
    try:
        return _whole(1)(value)
    except UsageError as error:
        raise UsageError("", f'{error.expected}, or "auto"') from None


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if (word := str(value).strip().lower()) not in _WORDS:
        raise UsageError("", f"one of: {', '.join(_WORDS)}")
    return _WORDS[word]


def _choice(*permitted: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in permitted:
            raise UsageError("", one_of(permitted, str(value)))
        return str(value)

    return read


def _verify(value: Any) -> str:
    # False is what people write for "off"; True for the default.
    return _choice("eager", "float64", "off")(
        {True: "eager", False: "off"}[value] if isinstance(value, bool) else value
    )


def _text(value: Any) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(cast("os.PathLike[str]", value))
    if not isinstance(value, str) or not value:
        raise UsageError("", "a text that is not empty")
    return value


def _store(value: Any) -> str:
    # `false` is what people write for "off", as a word too; a folder of that name can still be ./false.
    is_off = value is False or (isinstance(value, str) and _WORDS.get(value.lower()) is False)
    if not is_off and not can_name_a_file(_text(value)):
        raise UsageError("", "the name of a folder, which holds no \\0")
    return "off" if is_off else _text(value)


_READERS: dict[str, Callable[[Any], Any]] = {
    "timer": _text,
    "max_time_s": parse_duration,
    "min_time_s": parse_duration,
    "max_samples": _whole(1),
    "relative_width": _share,
    "sample_time_s": parse_duration,
    "max_warmup_s": parse_duration,
    "verify": _verify,
    "memory": _switch,
    "cold_process": _switch,
    "seed": _whole(0),
    "store": _store,
    "isolate": _switch,
    "timeout_s": parse_duration,
    "memory_limit_bytes": _bytes,
    "stages": _choice("build", "first_run", "samples", "all"),
    "processes": _processes,
    "nprocs": _whole(1),
}
