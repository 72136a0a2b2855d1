"""Calls that nobody means, by the hundred: each is an error of ours or a result, and never an exception of Python.

The functions that are given raise when they are called, so that nothing is measured. The values are of every kind and
of none that fits; hypothesis picks a few of them for each run, and the marker `slow` tries them all.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from command_line import Benchax, runner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import benchax
from benchax.errors import BenchaxError

pytestmark = pytest.mark.filterwarnings("ignore")  # such as: measured, and not stored

VALUES: dict[str, Any] = {
    "nan": math.nan, "inf": math.inf, "negative": -1, "zero": 0, "huge": 10**400, "beyond 64 bits": 2**70, "half": 0.5,
    "empty": "", "word": "x", "NUL": "\0", "surrogate": "\ud800", "spec": "f32[8]", "half a spec": "f32[", "comma": ",",
    "two lines": "a\nb", "long": "z" * 3000, "place": "/proc/none/x", "length": "-5ms", "unit": "5 parsecs",
    "object": object(), "list": [], "nones": [None], "nested": [[[]]], "tuple": (1, 2), "set": {1}, "dict": {},
    "names": {"a": 1}, "bytes": b"x", "type": Path, "None": None, "complex": 1j, "true": True, "false": False,
    "array": np.ones(2), "jax": jnp.ones(2), "module": math, "error": ValueError("v"),
}  # fmt: skip
X = np.ones(3, np.float32)


class Reached(Exception):
    """The function that was given has been called."""


def first(x: Any, n: Any = 1) -> Any:
    raise Reached


def second(x: Any, n: Any = 1) -> Any:
    raise Reached


CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "bench": (benchax.bench, (first, X), {"store": "off", "max_time_s": 0.01}),
    "benchmark": (benchax.benchmark, (first,), {}),
    "break_even": (benchax.break_even, (None, None), {}),
    "compare_jax": (benchax.compare_jax, ("x,y",), {}),
    "compare_ref": (benchax.compare_ref, ("HEAD",), {}),
    "compare_stored": (benchax.compare_stored, ("last",), {}),
    "elapsed_s": (benchax.clock.elapsed_s, (1, 2), {}),
    "inspect": (benchax.inspect, (first, X), {}),
    "load": (benchax.load, ("nothing",), {}),
    "max_compiles": (benchax.max_compiles, (1,), {}),
    "profile": (benchax.profile, (first, X), {}),
    "scaling": (benchax.scaling, (first, "f32[8@data]"), {"devices": "1,2"}),
    "stamp": (benchax.clock.stamp, (X,), {}),
    "watch": (benchax.watch, (), {}),
    "watch_transfers": (benchax.watch_transfers, (), {}),
    "with_deadline": (benchax.with_deadline, (first, 1.0), {}),
}
"""Those that take less than a second where they go through."""
IN_PROCESSES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "audit": (benchax.audit, (first, X), {}),
    "checklist": (benchax.checklist, (first, X), {}),
    "compare": (benchax.compare, ([first, second], X), {}),
    "compiled_grid": (benchax.compiled_grid, ([first, second], X), {}),
    "experiment": (benchax.experiment, (first, X), {"variants": "jit"}),
    "grid": (benchax.grid, ([first, second], [X]), {"store": "off"}),
}


def places(name: str) -> Iterator[str]:
    """Where a bad value can stand: 0, 1, … or the name of an option."""
    function, args, _ = (CALLS | IN_PROCESSES)[name]
    yield from map(str, range(len(args)))
    for index, parameter in enumerate(inspect.signature(function).parameters.values()):
        is_option = parameter.kind is parameter.POSITIONAL_OR_KEYWORD and index >= len(args)
        if is_option or parameter.kind is parameter.KEYWORD_ONLY:
            yield parameter.name


def every(calls: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(function, place, name of the value)"""
    return [(name, place, value) for name in calls for place, value in itertools.product(places(name), VALUES)]


def check(name: str, place: str, value_name: str) -> None:
    function, args, options = (CALLS | IN_PROCESSES)[name]
    value = VALUES[value_name]
    if place.isdecimal():
        args = (*args[: int(place)], value, *args[int(place) + 1 :])
    else:
        options = options | {place: value}
    if place in ("0", "progress") and callable(value):
        return  # it is called, and may raise what it likes
    with contextlib.suppress(BenchaxError, benchax.RecompileError, Reached):
        result = function(*args, **options)
        if hasattr(result, "__enter__"):
            with result:
                pass


@settings(suppress_health_check=list(HealthCheck))
@given(call=st.sampled_from(every(CALLS)))
def test_no_call_of_the_library_raises_what_is_not_ours(call: tuple[str, str, str], project: Path) -> None:
    check(*call)


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_no_value_in_any_place_raises_what_is_not_ours(name: str, project: Path) -> None:
    for call in every({name: CALLS[name]}):
        check(*call)


@pytest.mark.slow
@settings(suppress_health_check=list(HealthCheck), max_examples=30)
@given(call=st.sampled_from(every(IN_PROCESSES)))
def test_no_call_that_needs_processes_raises_what_is_not_ours(call: tuple[str, str, str], project: Path) -> None:
    check(*call)


# ---- the command line -------------------------------------------------------------------------------------------

WORDS = [
    "", "nan", "-1", "0", "1e400", "x", "zz,", "f32[8]", "f32[", "no:where", "bench_fails.py:f", "broken.py",
    "text.txt", "folder", "/proc/none/x", "\ud800", "a\nb", "--", "-", "last", "5 parsecs", "10" * 200, "grid.py",
    "x.json", "y.jsonl", "bad.db", "math:pi", "[1,2]", "n=1", "a=b=c", "HEAD", " ", "\x1b[31m",
]  # fmt: skip
QUICK_COMMANDS = {
    "list": ("--filter", "--limit", "--store"),
    "show": ("--store",),
    "history": ("--baseline", "--metric", "--store", "--plot"),
    "export": ("--format", "--output", "--store"),
    "import": ("--store",),
    "baseline set": ("--store",),
    "baseline list": ("--store",),
    "inspect": ("--output", "--seed", "--diff"),
    "run --dry-run": ("--filter", "--param", "--timer", "--max-time", "--seed", "--store", "--memory-limit"),
    "grid": ("--timeout", "--trials", "--seed", "--resume", "--csv", "--store"),
}


DEEP_COMMANDS = {
    "audit": ("--rules", "--max-time", "--timeout", "--seed", "--fail-on", "--output", "--sarif", "--html"),
    "checklist": ("--filter", "--param", "--max-time", "--timeout", "--seed"),
    "compare": ("--ref", "--jax", "--baseline", "--resolution", "--max-time", "--fail-slower", "--store", "--plot"),
    "compiled-grid": ("--seed",),
    "experiment": ("--variants", "--given", "--param", "--max-time", "--timeout", "--memory-limit", "--output"),
    "profile": ("--runs", "--dir", "--read", "--attach", "--compare", "--duration", "--seed"),
    "run": ("--work", "--mode", "--processes", "--relative-width", "--verify", "--max-samples", "--timeout"),
    "runs": ("--limit", "--store"),
    "bisect": ("--jax", "--max-time"),
    "watch": ("--timeout", "--output"),
    "baseline remove": ("--store",),
    "demo": ("--store",),
}
"""Those that would measure, in processes, what they can: the first word is nothing that they could."""
NOTHING = ["no:where", "text.txt", "/proc/none/x", "zz,", "\ud800", "a\nb", "f32[8]", "nan", "broken.py", "\x1b[31m"]


@pytest.fixture
def fuzzed(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Benchax:
    """The command line, in a folder with files of every unsuitable kind."""
    (project / "folder").mkdir()
    bench = "import benchax\n@benchax.benchmark(args=('f32[4]',))\ndef f(x): raise ValueError('no')\n"
    for name, text in {
        "bench_fails.py": bench, "broken.py": "1/0", "text.txt": "hello", "grid.py": "functions = [abs]\n",
        "x.json": "{", "y.jsonl": '{"benchax":99}\n', "bad.db": "\x01" * 9000,
    }.items():  # fmt: skip
        (project / name).write_text(text)
    return runner(monkeypatch, capsys)


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    command = draw(st.sampled_from(sorted(QUICK_COMMANDS | DEEP_COMMANDS)))
    first = [draw(st.sampled_from(NOTHING))] if command in DEEP_COMMANDS else []
    words = draw(st.lists(st.sampled_from(WORDS), max_size=2 - len(first)))
    option = draw(st.sampled_from(["", *(QUICK_COMMANDS | DEEP_COMMANDS)[command]]))
    return [*command.split(), *([option, draw(st.sampled_from(WORDS))] if option else []), *first, *words]


@settings(suppress_health_check=list(HealthCheck), max_examples=50)
@given(words=command_lines())
def test_no_command_line_ends_in_an_exception(words: list[str], fuzzed: Benchax) -> None:
    done = fuzzed(*words)

    assert done.code in (0, 1, 2, 126, 127)  # of a program that `watch` cannot start, a shell's
    assert "Traceback" not in done.err or "broken.py" in done.err or "bench_fails.py" in done.err
    assert "\x1b[31m" not in done.out + done.err
