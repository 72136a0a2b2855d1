"""Options: one table of their names, types, readers, defaults, and help; where values come from; and which wins.

    command line ▸ call ▸ decorator ▸ environment (BENCHAX_*) ▸ [tool.benchax] in pyproject.toml ▸ default

`Options` is the table: each field is a row. The command line (`cli/console.py`) and the reference are made from it.
Every source is checked in full, also the keys that a stronger source overrides, and an error names its source.
Whether a timer exists is the timers' business (`measuring/timers`), not known here.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

from benchax.errors import UsageError, one_of
from benchax.printable import can_name_a_file
from benchax.units import parse_duration, parse_size, read_share

GATE = "gate"
AUDIT = "audit"
"""The tables in [tool.benchax] that are no options: the limits of comparisons, and what audits are silent about."""
_PREFIX = "BENCHAX_"
_NO_OPTIONS = {"BENCHAX_HOST", "BENCHAX_SENT_FROM", "BENCHAX_IN_NSYS"}
"""Read elsewhere (`environment.py`, `workers/pickling.py`, `cli/profile.py`)."""
_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
Reach = Literal["build", "first_run", "samples", "all"]


# ---- readers ---------------------------------------------------------------------------------------------------------
#
# Each reader turns text into a value, and returns a value unchanged.


def _bytes(value: Any) -> int:
    result = parse_size(value)
    if not 1 <= result < 2**62:  # what systems count memory by has 64 bits
        raise UsageError("", "a size above 0, such as 512MiB or 4GiB")
    return result


def _share(value: Any) -> float:
    result = read_share(value)
    if not 0 < result < 1:
        raise UsageError("", "a share between 0 and 1, such as 0.02 or 2%")
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


# ---- the table -------------------------------------------------------------------------------------------------------


class Option(NamedTuple):
    """A row of the table."""

    read: Callable[[Any], Any]
    default: Any
    """The value if no source gives any."""
    help: str
    """A sentence for the command line, without the default."""
    metavar: str
    """How help calls the value; of a switch, the flag that turns it off."""
    shown: str | None = None
    """How help shows the default, if not as it is."""

    @property
    def is_switch(self) -> bool:
        return self.read is _switch

    def describe(self) -> str:
        """The sentence with the default."""
        words: dict[Any, str] = {None: "no limit", True: "yes", False: "no"}
        is_number = isinstance(self.default, int | float) and not isinstance(self.default, bool)
        value = f"{self.default:g}" if is_number else words.get(self.default, self.default)
        shown = value if self.shown is None else self.shown
        return f"{self.help} ({shown})." if shown else f"{self.help}."


def _option(
    read: Callable[[Any], Any],
    default: Any,
    help: str,
    metavar: str,
    *,
    shown: str | None = None,
    unstored: Any = dataclasses.MISSING,
) -> Any:
    """A field of `Options`. `unstored` is its value in rows that are older than the option.

    All other fields have no default there, because a stored row states the options that were in force.
    """
    row = Option(read, default, help, metavar, shown)
    return dataclasses.field(default=unstored, metadata={"option": row})


@dataclass(frozen=True)
class Options:
    """How to measure and when to stop: what was in force, after all sources were merged.

    Each is an argument of `bench`, a variable `BENCHAX_…` of the environment, and a name in `[tool.benchax]` of
    pyproject.toml. The command line wins over the call, then come the options of `@benchmark`, the environment,
    and the file.

    Example:
        >>> benchax.bench(abs, "f32[8]", stages="build", store="off", seed=7).options.seed
        7
    """

    timer: str = _option(
        _text, "auto", "Use these timers, headline first: in_graph,wall,pipelined,loop,device; or auto", "NAMES"
    )
    """Names separated by commas: in_graph, wall, pipelined, loop, device; or "auto". The first one is the headline. On
    CPU, "auto" is in_graph, wall and pipelined for calls below 10 ms (the least of several), and wall alone above. It
    takes loop if in_graph does not work or reads below 0.5 µs. On GPU and TPU it is device, wall, pipelined and loop
    for calls below 1 ms; wall, device and pipelined up to 10 ms; wall above. `not_measured` says why a timer is left
    out."""
    max_time_s: float = _option(parse_duration, 0.5, "Limit sampling time per timer: 2, 500ms, 2min", "TIME")
    """Sampling of one timer stops after this long, in all requested processes together. With processes="auto" each one
    takes a twenty-fifth of it."""
    min_time_s: float = _option(parse_duration, 0.1, "Sample each timer for at least this time", "TIME")
    """... and not before this long: a shorter look cannot see the machine change its pace."""
    max_samples: int = _option(_whole(1), 20_000, "Limit samples per timer", "N")
    """The maximum number of samples."""
    relative_width: float | None = _option(
        _share, None, "Add no process once the time is this precise", "SHARE",
        shown="by timer: 7.5% inside a program, 17.5% a call",
    )  # fmt: skip
    """Sampling in a process ends, and no process is added, once half the width of the 95 % interval is below this share
    of the median. None: sampling ends at 1 %, adding processes at 17.5 % for whole calls and 7.5 % for the rest."""
    sample_time_s: float = _option(parse_duration, 150e-6, "Let one sample last about this long", "TIME")
    """About how long one sample lasts. Short samples fall between preemptions."""
    max_warmup_s: float = _option(parse_duration, 0.5, "End warming up after this time", "TIME")
    """Warming up ends when times and compile events are steady, or after this long."""
    verify: str = _option(_verify, "eager", "Compare the result with this: eager, float64 or off", "REFERENCE")
    """"eager", "float64" or "off": the reference for the compiled outputs. The limit is the rounding error that the
    operations can produce. A result that consists of rounding is "not verified", with the reason."""
    memory: bool = _option(_switch, True, "Measure peak memory", "--no-memory")
    """Observe the peak of resident memory in an extra, untimed pass."""
    cold_process: bool = _option(_switch, False, "Run each case in a new process: truly cold stages", "--warm-process")
    """Measure in a new process, so that the stages are those of a cold process."""
    seed: int = _option(_whole(0), 0, "Seed for data made from specs: a whole number", "N")
    """Seeds the data made from specs."""
    store: str = _option(_store, ".benchmarks", "Folder of the database, or off", "DIR")
    """Folder of the database, URL of a PostgreSQL database, or "off"."""
    isolate: bool = _option(
        _switch, False, "Run each case in a worker process that can be killed", "--no-isolate", unstored=False
    )
    """Measure in a worker process, which can be killed; limits of time and memory imply it."""
    timeout_s: float | None = _option(
        parse_duration, None, "End any stage in a worker after this time: 30, 500ms", "TIME", unstored=None
    )
    """No stage may take longer (sampling: beyond what its own options grant); the worker process is killed then."""
    memory_limit_bytes: int | None = _option(
        _bytes, None, "Limit the memory of a worker: 512MiB, 4GiB", "SIZE", unstored=None
    )
    """Address space that a case may take beyond what a worker process has mapped before it."""
    stages: Reach = _option(  # noqa: RUF009  # makes a field
        _choice(*get_args(Reach)),
        "all",
        "Run up to build, first_run, samples, or all with transfers and dispatch",
        "STAGE",
        unstored="all",
    )
    """How far to go: build only, up to the first run (with verification and memory), up to the samples, or all, with
    transfers and dispatch."""
    processes: int = _option(
        _processes, 1, "Measure in this many processes; auto: as many as needed, up to 5", "N|auto", unstored=1
    )
    """The readings come from this many processes, which share the time for sampling. 0, given as "auto" and the default
    of `benchax run`, adds processes while the interval is too wide, up to 5. A call above 0.1 s, a build above 1 s, and
    an accelerator take one process. A row says how many it has."""
    nprocs: int | None = _option(
        _whole(1), None,
        "Run one program in N processes (jax.distributed). Show the slowest and the last one", "N",
        shown="", unstored=None,
    )  # fmt: skip
    """This many processes make one program (`jax.distributed`); None: one process, as usual. It is not an argument of
    `bench`.
    """


TABLE: dict[str, Option] = {field.name: field.metadata["option"] for field in dataclasses.fields(Options)}
NAMES = tuple(TABLE)
DEFAULTS = Options(**{name: row.default for name, row in TABLE.items()})


Given = Mapping[str, Any] | Options
"""Options by name, where `None` counts as not given; or all options, such as those of a row."""


def resolve(
    call: Given | None = None,
    marker: Given | None = None,
    command_line: Given | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    project: Path | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Options:
    """Merges all sources into Options, in which `None` means just one thing: no limit.

    Args:
        call, marker, command_line: the options from there.
        environ: default `os.environ`.
        project: a folder; the nearest pyproject.toml from there up is read. Default: the working directory.
        defaults: the values if no source gives any, instead of DEFAULTS.

    Raises:
        UsageError: an unknown option (names the nearest known one) or a value that is not permitted; both name the
            source and quote the value.
    """
    path, table = project_table(project or Path.cwd())
    weakest_first: list[tuple[str, Given]] = [
        ("the defaults", defaults or {}),
        (f"[tool.benchax] of {path}", {name: value for name, value in table.items() if name not in (GATE, AUDIT)}),
        ("the environment", _from_environment(os.environ if environ is None else environ)),
        ("the benchmark's options", marker or {}),
        ("the call", call or {}),
        ("the command line", command_line or {}),
    ]
    merged = vars(DEFAULTS)
    for source, given in weakest_first:
        if isinstance(given, Options):
            merged = vars(given)
        else:
            merged = merged | {name: value for name, value in check(given, source).items() if value is not None}
    return Options(**merged)


def with_options(given: object, named: Mapping[str, Any]) -> Given:
    """`given`, which a call has as `options=`, changed by the keywords of the call.

    Raises:
        UsageError: `given` holds no options, or a value is not permitted.
    """
    if isinstance(given, Options):
        return dataclasses.replace(given, **check(named, "the call"))
    if given is not None and not isinstance(given, Mapping):
        raise UsageError(f"invalid options={given!r}", "options by name, or benchax.Options such as those of a row")
    return {**cast("Mapping[str, Any]", given or {}), **named}


def check(given: Mapping[str, Any], source: str) -> dict[str, Any]:
    """`given` with every value in its final type.

    Raises:
        UsageError: see `resolve`.
    """
    return {name: _value(name, value, source) for name, value in given.items()}


def _value(name: str, value: Any, source: str) -> Any:
    if name not in TABLE:
        raise UsageError(f"unknown option {name!r} in {source}", one_of(NAMES, name))
    if value is None:
        return None
    try:
        return TABLE[name].read(value)
    except UsageError as error:
        raise UsageError(f"option {name!r} in {source} cannot be {value!r}", error.expected, error.hint) from None


def read_seed(given: Any) -> int:
    """The seed that is given, else that of the project; a whole number in either case."""
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
    except (OSError, ValueError) as error:  # those of TOML and of Unicode are ValueErrors
        raise UsageError(f"cannot read {path}: {error}", "a TOML file") from error
    table: Any = cast("dict[str, Any]", tools).get("benchax", {}) if isinstance(tools, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(f"tool.benchax in {path} is {table!r}", "a table: [tool.benchax]")
    return path, cast("dict[str, Any]", table)


# Cached, because reading a file of 300 lines takes 3 ms and each measurement asks twice. The key has time and size,
# because the file may be edited.
@lru_cache(maxsize=8)
def _read_tools(path: Path, mtime_ns: int, size: int) -> Any:
    import tomllib  # noqa: PLC0415  # help needs the table of options, and no file

    return tomllib.loads(path.read_text(encoding="utf-8")).get("tool")
