"""The corpus: small programs with a pitfall, and without one, and a process that audits them.

`programs/<rule>/bad_*.py` ends each line that a finding of the rule names with `# expect: <rule>`, or `<rule>:info`.
`programs/<rule>/good_*.py` has no finding of the rule, and `programs/clean/good_*.py` no warning of any rule. These
lines can begin a file:

    # runs            it is audited as a program; otherwise each of its functions without a leading underscore is, with
                      the defaults of its parameters as inputs
    # devices: 4      it needs so many
    # needs: numpyro  it is skipped where the package is not installed
    # answers: fine   a good one: so the rule answers about each function

Run as a program, this module audits what it reads from its input, each in a fork: imports take seconds.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import inspect
import json
import os
import re
import runpy
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchax.json_values import decode_value, encode_value
from benchax.results.audit import Audit

FOLDER = Path(__file__).parent / "programs"
CLEAN = "clean"
LOADED = ("flax.linen", "flax.nnx", "optax", "equinox", "diffrax", "numpyro")
"""Loaded before the forks, where they are installed. None of them starts a backend of JAX, which no fork survives."""
_MARK = re.compile(r"# expect: ([a-z0-9-]+)(?::(\w+))?")
_DEVICES = re.compile(r"^# devices: (\d+)", re.MULTILINE)
_NEEDS = re.compile(r"^# needs: (\w+)", re.MULTILINE)
_ANSWERS = re.compile(r"^# answers: (.+)", re.MULTILINE)


@dataclass(frozen=True)
class Program:
    path: Path

    @property
    def name(self) -> str:
        return f"{self.rule}/{self.path.stem}"

    @property
    def rule(self) -> str:
        return self.path.parent.name

    @property
    def is_bad(self) -> bool:
        return self.path.name.startswith("bad")

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def is_run(self) -> bool:
        return self.text.startswith("# runs")

    @property
    def devices(self) -> int:
        found = _DEVICES.search(self.text)
        return int(found[1]) if found else 1

    @property
    def missing(self) -> list[str]:
        """Packages that it needs and that are not installed."""
        return [name for name in _NEEDS.findall(self.text) if importlib.util.find_spec(name) is None]

    @property
    def answers(self) -> tuple[str, ...]:
        """The outcomes that a good one can have."""
        found = _ANSWERS.search(self.text)
        return (found[1],) if found else ("fine", "not applicable")

    @property
    def marks(self) -> list[tuple[str, int, str | None]]:
        """(rule, line, severity) of the findings that it asks for; severity None: any."""
        lines = enumerate(self.text.splitlines(), 1)
        return [(found[1], i, found[2]) for i, line in lines for found in _MARK.finditer(line)]

    def named(self, audit: Audit) -> set[tuple[str, int]]:
        """(rule, line) of each line of this file that a finding names, as its own or a related one."""
        here = self.path.name
        return {(f.rule, line) for f in audit.findings for file, line in f.lines if Path(file).name == here}


def programs() -> list[Program]:
    return [Program(path) for path in sorted(FOLDER.glob("*/*.py"))]


Audits = dict[str, Audit]
"""By the name of the function; one without a name for a program that runs."""
Auditor = Callable[[Program, Sequence[str] | None], Audits]
"""Audits by these rules. None: by all, and those of packs; of a function by those that read its trace, and its own."""


@contextmanager
def auditor() -> Iterator[Auditor]:
    """Starts the process that audits, and ends it."""
    command = [sys.executable, __file__]
    environ = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}  # findings depend on times
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        asked, answers = server.stdin, server.stdout

        def audit(program: Program, rules: Sequence[str] | None) -> Audits:
            asked.write(f"{json.dumps([str(program.path), rules])}\n")
            asked.flush()
            found = json.loads(answers.readline())
            if isinstance(found, str):
                raise AssertionError(f"{program.name}:\n{found}")
            return {name: decode_value(each, Audit) for name, each in found.items()}

        yield audit
        asked.close()


def _serve() -> None:
    import jax
    import jax.numpy  # so that no program imports it again

    from benchax.auditing.rules import rules

    jax.config.update("jax_platforms", "cpu")
    for name in LOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a fork would go through, and copy, all that was imported
    for question in sys.stdin:
        path, asked = json.loads(question)
        program = Program(Path(path))
        every = [r.id for r in rules().values() if program.is_run or r.traced or r.id == program.rule]
        read, write = os.pipe()
        if os.fork() == 0:
            os.close(read)
            found = _audit(program, asked or every)
            with os.fdopen(write, "w") as answer:
                json.dump(found, answer)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            sys.stdout.write(f"{answer.read() or json.dumps('its process died')}\n")
        os.wait()
        sys.stdout.flush()


def _audit(program: Program, rules: list[str]) -> dict[str, Any] | str:
    """Its audits by name, or what was raised."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={program.devices}"
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.chdir(program.path.parent)
    sys.path.insert(0, str(program.path.parent))
    sys.argv = [str(program.path)]
    try:
        return _run(program, rules) if program.is_run else _audit_functions(program, rules)
    except BaseException:
        return traceback.format_exc()


def _run(program: Program, rules: list[str]) -> dict[str, Any]:
    from benchax.auditing import recording

    finish = recording.begin({"calls_s": 20.0, "rules": rules})
    runpy.run_path(str(program.path), run_name="__main__")
    return {"": finish("exit")["audit"]}


def _audit_functions(program: Program, rules: list[str]) -> dict[str, Any]:
    from benchax import audit

    spec = importlib.util.spec_from_file_location("audited", program.path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    audits = {}
    for name, fn in vars(module).items():
        if callable(fn) and not name.startswith("_") and getattr(fn, "__module__", spec.name) == spec.name:
            inputs = [parameter.default for parameter in inspect.signature(fn).parameters.values()]
            found = audit(fn, *inputs, rules=rules, max_time_s=1e-3, timeout_s=None, progress=False)
            audits[name] = encode_value(found, Audit)
    return audits


if __name__ == "__main__":
    _serve()
