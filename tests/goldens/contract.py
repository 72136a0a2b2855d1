"""What programs of users rely on: names, signatures, options, keys of JSON, rules, codes of remarks, variants."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

JSON_LINES = (
    "runs --json", "list --store full --json", "history --json", "audit f.py:noise key --rules key-reuse --json",
    "inspect f.py:double f32[8] --json", "env --json", "export --format json --store full",
    "export --format bencher --store full", "export --format github-action --store full",
    "export --format google-benchmark --store full", "export --format pytest-benchmark --store full",
)  # fmt: skip


def sections() -> dict[str, Callable[[], str]]:
    found: dict[str, Callable[[], str]] = {}
    for package in ("benchax", "pytest_jax_bench"):
        found |= {f"{package}.{name}": partial(_describe, package, name) for name in import_module(package).__all__}
    from goldens.printed import every_command

    found |= {f"options: {words}": partial(_options, words) for words in every_command() if words != "ptjb-plot"}
    for option, begins in (
        ("--help", ("  --ptjb", "  --benchax", "  --benchmark", "  --codspeed", "  ptjb_", "  benchax_")),
        ("--markers", ("@pytest",)),
    ):
        found[f"pytest {option}"] = partial(_pytest, option, begins)
    found |= {f"JSON keys: benchax {words}": partial(_keys, words) for words in JSON_LINES}
    found |= {"JSON keys: SARIF": _sarif, "rules": _rules, "remarks": _remarks, "variants": _variants}
    return found | {"timers": _timers, "kinds of failure": _failures, "settings": _settings}


# ---- Python -----------------------------------------------------------------------------------------------------


def _describe(package: str, name: str) -> str:
    thing = getattr(import_module(package), name)
    return "\n".join(_module(thing) if isinstance(thing, ModuleType) else _thing(name, thing))


def _module(module: ModuleType) -> Iterator[str]:
    own = [n for n, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    for name in sorted(n for n in getattr(module, "__all__", own) if not n.startswith("_")):
        yield from _thing(name, getattr(module, name))


def _thing(name: str, thing: Any) -> Iterator[str]:
    if not isinstance(thing, type):
        yield f"{name}{inspect.signature(thing)}" if callable(thing) else f"{name} = {thing!r}"
        return
    yield f"class {name}({', '.join(b.__name__ for b in thing.__mro__ if b.__module__ == 'builtins')})"
    if dataclasses.is_dataclass(thing):
        for field in dataclasses.fields(thing):
            default = "" if field.default is dataclasses.MISSING else f" = {field.default!r}"
            yield f"    {field.name}: {field.type}{default}"
    else:
        yield from [f"    {signature}" for signature in _signature("__init__", thing)]
    for member in sorted({n for n in dir(thing) if not n.startswith("_")} - {*dir(Exception)}):
        value = inspect.getattr_static(thing, member)
        if isinstance(value, property | cached_property):
            yield f"    {member}: property"
        elif callable(function := getattr(value, "__func__", value)) and not isinstance(value, type):
            yield from [f"    {signature}" for signature in _signature(member, function)]


def _signature(name: str, thing: Any) -> Iterator[str]:
    try:
        yield f"{name}{inspect.signature(thing)}"
    except ValueError:  # of what is written in C
        yield f"{name}(...)"


# ---- command line and pytest ------------------------------------------------------------------------------------


def _options(words: str) -> str:
    from command_line import commands

    command = commands()
    for word in words.split()[1:]:
        command = command.commands[word]
    return "\n".join(sorted(_option(parameter) for parameter in command.params))


def _option(parameter: Any) -> str:
    names = "/".join([*parameter.opts, *parameter.secondary_opts])
    facts = {
        "default": None if callable(parameter.default) else parameter.default,
        "required": parameter.required,
        "flag": getattr(parameter, "is_flag", False),
        "many": parameter.multiple if hasattr(parameter, "multiple") else parameter.nargs != 1,
        "hidden": getattr(parameter, "hidden", False),
    }
    return f"{names}: " + ", ".join(f"{name} {value}" for name, value in facts.items() if value not in (None, False))


def _pytest(option: str, begins: tuple[str, ...]) -> str:
    """Our options, settings, and markers, without the names of their values, which versions of Python place apart."""
    command = [sys.executable, "-m", "pytest", "--benchax-fixture", option, "-p", "no:cacheprovider"]
    with TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    names = ("ptjb", "benchax", "benchmark", "codspeed", "jax_bench")
    lines = [line for line in done.stdout.splitlines() if line.startswith(begins)]
    lines = [re.sub(r"=\S+", "", line) if option == "--help" else line for line in lines]
    return "\n".join(line for line in lines if any(name in line.split(":")[0] for name in names))


# ---- JSON -------------------------------------------------------------------------------------------------------


def _keys(words: str) -> str:
    from goldens import commands

    done = commands.run(f"benchax {words}")
    if done.code:
        return str(done)
    whole = done.out.startswith(("{\n", "[\n"))
    return commands.keys_of_lines(json.dumps(json.loads(done.out)) if whole else done.out)


def _sarif() -> str:
    from goldens import commands
    from results_by_hand import audit

    from benchax.reporting.audit import to_sarif

    with TemporaryDirectory() as folder:
        return commands.keys_of_lines(json.dumps(json.loads(to_sarif([audit(Path(folder))]))))


# ---- names that people write, search for, or silence ------------------------------------------------------------


def _rules() -> str:
    from benchax.auditing.rules import rules

    return "\n".join(sorted(f"{rule.id}: {rule.severity}, {rule.of}" for rule in rules().values()))


def _remarks() -> str:
    from benchax.codes import REMARKS

    return "\n".join(sorted(REMARKS))


def _variants() -> str:
    from benchax.experiments.variants import VARIANTS

    return "\n".join(sorted(VARIANTS))


def _timers() -> str:
    from benchax.measuring.timers import TIMERS

    return "\n".join(sorted(TIMERS))


def _failures() -> str:
    from typing import get_args

    from benchax.model import FailureKind

    return "\n".join(sorted(get_args(FailureKind)))


def _settings() -> str:
    """Options that can be set in [tool.benchax] and as BENCHAX_*, with their defaults."""
    from benchax.options import DEFAULTS

    return "\n".join(sorted(f"{name} = {value!r}" for name, value in dataclasses.asdict(DEFAULTS).items()))
