"""Finds benchmarks: `bench_*.py` files in folders, files, and targets such as `jax.numpy:sort f32[1000000]`.

A file whose import fails becomes a `Failure`, in addition to the cases of the good files. It never ends the run.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import itertools
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import Any

from benchax.case import Benchmark, Case, benchmark_of, check_work, make_case, param_value
from benchax.errors import UsageError, one_of, text_of
from benchax.model import CaseId, Failure
from benchax.printable import LONGEST_TRACEBACK, cap
from benchax.source_files import format_error
from benchax.source_trees import tree_of
from benchax.specs import is_spec, parse_spec

A_FUNCTION = "benchax run jax.numpy:sort f32[1000000]"
MOST_NAMES = 4
PATTERN = "bench_*.py"
EXPECTED = f"a folder with {PATTERN} files, or such a file"
MODULE_PREFIX = "benchax_file_"
"""The beginning of the names under which files are imported; such modules exist in this process only."""


def collect(what: Sequence[str], pattern: str, params: Sequence[str]) -> tuple[list[Case], list[Failure]]:
    """The cases that the arguments of the command line name, and the files that could not be imported.

    Args:
        what: folders and files, or a target and its inputs.
        params: texts such as "n=128,256".
    """
    values = dict(map(values_of, params))
    if ":" in what[0] and not Path(what[0]).exists():
        return _matching(target_cases(what[0], what[1:], values), pattern), []
    return find([Path(path) for path in what], values, pattern)


def split_setting(text: str, option: str, expected: str) -> tuple[str, str]:
    """("n", "128") of "n=128", which was given as `option`. Raises UsageError if it has another form."""
    name, _, value = text.partition("=")
    if not name or not value:
        raise UsageError(f"cannot read {option} {text!r}", expected)
    return name, value


def values_of(text: str) -> tuple[str, list[Any]]:
    name, values = split_setting(text, "-p", "NAME=VALUES, such as -p n=128,256")
    together = literal(f"[{values}]")
    return name, together if isinstance(together, list) else [literal(value) for value in values.split(",")]


def read_work(texts: Sequence[str]) -> dict[str, float]:
    """["tokens=4096"] as amounts of one call. Raises UsageError if one isn't an amount."""
    pairs = [split_setting(text, "--work", "NAME=AMOUNT, such as --work tokens=4096") for text in texts]
    return check_work({name: literal(amount) for name, amount in pairs} or None) or {}


def find(
    paths: Sequence[Path], params: Mapping[str, Sequence[Any]] | None = None, pattern: str = ""
) -> tuple[list[Case], list[Failure]]:
    """All cases below `paths` (folders are searched for bench_*.py), in order of path and definition. And the failures
    of files that could not be imported.

    Args:
        params: values that replace a parameter's own, in the benchmarks that have it.
        pattern: keeps the cases whose label contains it (or matches it, if it holds * or ?).

    Raises:
        UsageError: a path does not exist, holds no benchmarks, none has a parameter in `params`, none matches, or
            two cases have one identity.
    """
    words = [str(path) for path in paths]
    if words and not paths[0].exists() and (hint := suggest_for_words(words)):  # benchax run python train.py
        raise UsageError(f"there is no file or folder {words[0]!r}", EXPECTED, hint)
    params, cases, broken = params or {}, list[Case](), list[Failure]()
    each_once = {file.resolve(): file for path in paths for file in files(path)}
    benchmarks = [b for file in each_once.values() for b in _load(file, broken)]
    known = {name for benchmark, _ in benchmarks for name in benchmark.params}
    unknown = [name for name in params if name not in known]
    if unknown and not broken:
        expected = one_of(known, unknown[0]) if known else "no -p at all"
        raise UsageError(f"no benchmark has a parameter {unknown[0]!r}", expected)
    for benchmark, folder in benchmarks:
        chosen = {k: v for k, v in params.items() if k in benchmark.params}
        cases += [replace(case, folder=folder) for case in benchmark.cases(chosen)]
    if not cases and not broken:
        raise UsageError(
            f"no benchmarks in {', '.join(map(repr, words))}",
            f"functions under @benchax.benchmark(...) in files named {PATTERN}",
            suggest_for_file(paths[0])
            if len(paths) == 1 and paths[0].is_file()
            else f"to measure one function without a file: {A_FUNCTION}",
        )
    kept = _matching(cases, pattern, broken)
    _refuse_twins(kept)
    return kept, broken


def _matching(cases: Sequence[Case], pattern: str, broken: Sequence[Failure] = ()) -> list[Case]:
    """Raises `UsageError` without any. A file in `broken` can have those that were asked for."""
    kept = [case for case in cases if matches(case.id, pattern)]
    if not kept and not broken:
        raise UsageError(f"no case matches {pattern!r}", one_of({case.id.label for case in cases}, pattern))
    return kept


def _refuse_twins(cases: Sequence[Case]) -> None:
    """Refuses two cases with one identity: their rows could not be distinguished afterwards."""
    seen: dict[CaseId, Case] = {}
    for case in cases:
        twin = seen.setdefault(case.id, case)
        if twin is not case:
            places = " and ".join(sorted({str(c.folder) for c in (twin, case) if c.folder}))
            raise UsageError(
                f"two benchmarks are called {case.id.label!r} (in {places}), so their rows would have the same name",
                "names that differ within one run",
                "give one of them a name: @benchax.benchmark(name=...), or choose with --filter",
            )


def matches(case_id: CaseId, pattern: str) -> bool:
    """Does the label contain `pattern`, or match it where it has * or ?"""
    if any(c in pattern for c in "*?"):
        pattern = pattern.replace("[", "[[]")  # the brackets of a label are not a set of characters
        return fnmatchcase(case_id.label, pattern) or fnmatchcase(case_id.name, pattern)
    return pattern in case_id.label


def files(path: Path) -> list[Path]:
    """The benchmark files at `path`: itself if it is a file, else every bench_*.py below it, hidden folders left out.

    Raises:
        UsageError: there is nothing at `path`, or it is not a Python file.
    """
    if path.is_dir():
        below = sorted(path.rglob(PATTERN))
        return [p for p in below if not any(part.startswith(".") for part in p.relative_to(path).parts)]
    if not path.exists():
        raise UsageError(f"there is no file or folder {str(path)!r}", EXPECTED)
    if path.suffix != ".py":
        raise UsageError(f"{str(path)!r} is not a Python file", EXPECTED)
    return [path]


def target_cases(target: str, inputs: Sequence[str], params: Mapping[str, Sequence[Any]] | None = None) -> list[Case]:
    """Cases of one function named on the command line, one for each combination of `params`.

    Args:
        target: `module:function` or `file.py:function`; attributes may be dotted (`jax:nn.relu`).
        inputs: a spec (`f32[8]`) or a number (`3.0`) is data, and traced; anything else (`n=3`, `'fast'`, `True`,
            `shape=(8, 2)`) is a Python literal, passed as a static argument. `{n}` is replaced by the value of the
            parameter n. None at all for a benchmark, and for a workload where its own are wanted.

    Raises:
        UsageError: no such module or function, or an input that cannot be read.
    """
    fn, params = resolve_target(target), params or {}
    own = benchmark_of(fn)
    if own and not inputs:
        return [replace(case, folder=Path.cwd()) for case in own.cases(params)]
    if isinstance(fn, Benchmark):
        raise UsageError(
            f"{target!r} is a benchmark and brings its own inputs", "no inputs, or a plain function", "benchax run FILE"
        )
    unused = [k for k in params if not any("{" + k + "}" in text for text in inputs)]
    if unused:
        raise UsageError(f"no input mentions the parameter {unused[0]!r}", f"an input such as f32[{{{unused[0]}}}]")
    combinations = itertools.product(*params.values())
    return [_target_case(fn, target, inputs, dict(zip(params, values, strict=True))) for values in combinations]


def resolve_target(target: str) -> Callable[..., Any]:
    """The object that `module:function` or `file.py:function` names."""
    where, _, attribute = target.rpartition(":")
    if not where or not attribute:
        raise UsageError(
            f"cannot read {target!r} as a target", "module:function or file.py:function, such as jax.numpy:sort"
        )
    found: Any = import_file(Path(where)) if where.endswith(".py") else _import_module(where)
    for name in attribute.split("."):
        if not hasattr(found, name):
            names = [n for n in dir(found) if not n.startswith("_")]
            function, _, label = attribute.partition("[")
            chosen = f"benchax run {where}:{function} {' '.join(f'-p {p}' for p in label.rstrip(']').split(', '))}"
            near = name.partition("[")[0]
            raise UsageError(f"{where!r} has no function {attribute!r}", one_of(names, near), chosen if label else "")
        found = getattr(found, name)
    return found


def _target_case(fn: Callable[..., Any], target: str, inputs: Sequence[str], params: dict[str, Any]) -> Case:
    args, kwargs, static = list[Any](), dict[str, Any](), list[int | str]()
    for text in inputs:
        for name, filled in params.items():
            text = text.replace("{" + name + "}", str(filled))
        key, value, is_data = _input(text)
        if key:
            kwargs[key] = value
        else:
            args.append(value)
        if not is_data:
            static.append(key or len(args) - 1)
    case = make_case(fn, tuple(args), kwargs, name=target.rpartition(":")[2])
    stored = tuple((k, param_value(v)) for k, v in params.items())
    return replace(case, id=replace(case.id, params=stored), static=tuple(static), folder=Path.cwd())


def _input(text: str) -> tuple[str, Any, bool]:
    """(name or "", value, is it data?)"""
    key, equals, value = text.partition("=")
    if not equals or not key.isidentifier():
        key, value = "", text
    if not is_spec(value):
        read = literal(value)
        # A number by its name is a setting: `n=3` says so.
        return key, read, not key and isinstance(read, int | float | complex) and not isinstance(read, bool)
    parse_spec(value)  # a slip is reported now, not in the middle of the run
    return key, value, True


def literal(text: str) -> Any:
    """`3`, `1.5`, `True`, `(1, 2)`, `'fast'` as Python reads them; any other text as it stands."""
    try:
        return ast.literal_eval(text)
    # All that literal_eval is documented to raise.
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _load(file: Path, broken: list[Failure]) -> list[tuple[Benchmark, Path]]:
    try:
        module = import_file(file)
    except UsageError as error:
        cause = error.__cause__
        text = cap(format_error(cause), LONGEST_TRACEBACK) if cause else ""
        broken.append(Failure("error", "import", str(error.problem), error.hint, text))
        return []
    # By identity: a benchmark bound to two names is one benchmark.
    found = {id(v): v for v in vars(module).values() if isinstance(v, Benchmark)}
    return [(benchmark, file.resolve().parent) for benchmark in found.values()]


def import_file(file: Path, name: str = "") -> ModuleType:
    """Imports a file under a unique name, or the given one. Its folder is first on sys.path, as if the file was run."""
    path = file.resolve()
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    # Derived from the path, so that files of one name in different folders stay apart.
    name = name or f"{MODULE_PREFIX}{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"cannot import {str(file)!r}", "a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise UsageError(f"{file} cannot be imported: {type(error).__name__}: {cap(text_of(error))}") from error
    return module


def _import_module(name: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"cannot import the module {name!r}: {type(error).__name__}: {cap(text_of(error))}",
            "an installed module or one in this folder",
        ) from error


# ---- suggestions -----------------------------------------------------------------------------------------------------
#
# The likely intention of a user who passes a program, a test file, or a file of functions instead of benchmarks.


def suggest_for_words(words: Sequence[str]) -> str:
    """How a program is looked at, or a function measured, that `words` are; empty if they are neither."""
    parts = [part for word in words for part in word.split()]
    if parts and ":" in parts[0]:
        return f"a function is measured by: benchax run {shlex.join(parts)}"
    return _suggest_for_program(parts) if any(Path(part).suffix == ".py" for part in parts) else ""


def _suggest_for_program(parts: Sequence[str]) -> str:
    program = shlex.join(parts if Path(parts[0]).suffix != ".py" else ["python", *parts])
    return f"this shows where a program spends its time: benchax profile -- {program}"


def suggest_for_file(file: Path) -> str:
    """How a Python file without benchmarks is measured: as tests, by its functions, or as a whole program."""
    named = shlex.quote(str(file))
    functions = _functions(file)
    if file.name.startswith("test_") or any(arg.arg == "benchmark" for one in functions for arg in one.args.args):
        return f"tests with the fixture `benchmark` are measured by: pytest {named} --benchax-fixture"
    of_program = _suggest_for_program([str(file)])
    if not functions:
        return of_program
    names = [one.name for one in functions]
    listed = ", ".join(names[:MOST_NAMES]) + ", …" * (len(names) > MOST_NAMES)
    # Quote specs: zsh treats brackets as a pattern.
    return f"a function of it ({listed}) is measured by: benchax run {named}:{names[0]} 'f32[8,128]'; {of_program}"


def _functions(file: Path) -> list[ast.FunctionDef]:
    """Those that the file defines for others, in their order."""
    tree = tree_of(str(file))
    nodes = tree.body if tree else []
    return [node for node in nodes if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
