"""Finds programs that send operation after operation from a line that runs again and again."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any

from benchax.auditing.eager_functions import EagerFunction, functions_to_jit
from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.rule import list_some, rule
from benchax.auditing.syntax import binding_of, call_at, def_of, tree_of, where_of
from benchax.errors import NotMeasured
from benchax.results.audit import Finding, Where
from benchax.source_files import without_folders
from benchax.units import plural, seconds

MANY = 100
"""Operations from one line. Setting up a model takes some, too, each once."""
MANY_INSIDE = 1000
"""The same of a line for which a package sends them: one call of it, as to set up a sampler, may take hundreds."""
BY_FAR = 5.0
"""So many operations for each call of a jitted function are worth a warning."""
MOST_FUNCTIONS = 3
LIBRARIES = {"equinox": "eqx.filter_jit", "flax.nnx": "nnx.jit"}
"""Packages whose objects jax.jit does not take, and what does."""


@rule("eager-operations", "are operations sent one at a time?", "warning", of="program")
def eager_operations(e: ProgramEvidence) -> Iterable[Finding]:
    calls = e.facts["calls"]
    if not calls["is_seen"]:
        raise NotMeasured("calls cannot be seen in this JAX")
    if not calls["jitted"] + calls["eager"]:
        raise NotMeasured("no call was seen")
    # Less than one for each step is what a program does now and then, such as reading or making a key.
    least = max(MANY, calls["jitted"])
    noted = e.facts.get("eager_calls")
    functions = functions_to_jit(noted, least)[:MOST_FUNCTIONS] if noted else []
    lines = _lines(calls, functions, least)
    seen = [f"{n} from {where}" for where, n in lines]
    within = f"in the {seconds(calls['seen_s'])} in which calls were counted"
    seen.append(f"{calls['eager']} operations {within}, and calls of jitted functions: {calls['jitted']}")
    programs = [c for c in e.watch.compiles if c.is_eager]
    seen.append(f"programs for them: {len(programs)}, compiled in {seconds(sum(c.total_s for c in programs))}")
    # By number and not by time: counting keeps calls off JAX's fast path, and each takes ten times as long meanwhile.
    is_by_far = calls["eager"] >= BY_FAR * calls["jitted"]
    for one in functions:
        yield _of_function(one, seen, is_by_far=is_by_far)
    if lines and not functions:
        yield eager_operations.finding(
            f"sends operations one at a time: {lines[0][1]} from one line",
            seen,
            "Put the line into a function under jax.jit, best the same one that computes what it works on: "
            "operations then become one program, with one call and no arrays in between.",
            where=where_of(lines[0][0]),
            severity="warning" if is_by_far else "info",
        )


def _lines(calls: Mapping[str, Any], functions: Iterable[EagerFunction], least: int) -> list[tuple[str, int]]:
    """Lines of many operations that are in none of the functions."""
    inside = dict(calls.get("eager_inside", ()))
    rest = [(where, n - sum(one.lines[where] for one in functions)) for where, n in calls["eager_lines"] if where]
    return [(where, n) for where, n in rest if n >= least and (n - inside.get(where, 0) >= least or n >= MANY_INSIDE)]


def _of_function(one: EagerFunction, seen: list[str], *, is_by_far: bool) -> Finding:
    call, called_at = one.call, where_of(one.call["where"])
    tree = tree_of(called_at[0]) if called_at is not None else None
    name = _name(call, tree)
    lines = list_some([f"{n} from {where}" for where, n in one.lines.most_common()], what="lines")
    line = call["where"].rpartition(":")[2]
    called = f"{name} was called {plural(call['count'], 'time')} at {call['where']}: {one.operations} operations"
    return eager_operations.finding(
        f"{name}, called at line {line}, sends {one.each} operations one at a time each call",
        [called, *lines, *seen],
        _advice(call, name, tree),
        where=_where(call, tree),
        severity="warning" if is_by_far else "info",
    )


def _name(call: Mapping[str, Any], tree: ast.Module | None) -> str:
    """The user's function by its own name; a package's as it is called."""
    node = call_at(tree, call["span"])
    if call["is_users"] or node is None:
        return call["function"].rpartition(".")[2]
    return ast.unparse(node.func)


def _where(call: Mapping[str, Any], tree: ast.Module | None) -> Where | None:
    """The user's definition; of a package's function the line that gives it a name, else the one that calls it."""
    called, defined = where_of(call["where"]), where_of(call["defined"])
    if call["is_users"] and defined is not None:
        node = def_of(tree_of(defined[0]), defined[1])
        return defined[0], defined[1] if node is None else node.lineno
    node = call_at(tree, call["span"])
    if called is None or tree is None or node is None or not isinstance(node.func, ast.Name):
        return called
    bound = binding_of(tree, node.func.id, called[1])
    return called if bound is None else (called[0], bound.lineno)


def _advice(call: Mapping[str, Any], name: str, tree: ast.Module | None) -> str:
    jit = _jit_of(tree)
    node = call_at(tree, call["span"])
    callee = ast.unparse(node.func) if node is not None and not call["is_through_package"] else name
    at = without_folders(call["where"])
    if not call["is_users"] or "." in call["function"]:
        how = f"Make {jit}({callee}) once, before the loop, and call that at {at}"
    else:
        how = f"Decorate {name} with {jit}, or call at {at} what {jit}({callee}) gives once"
    read = f" Return what it reads at {call['read_at']} as an array, and read it outside." if call["reads"] else ""
    return f"{how}: its operations become one program, with one call and no arrays in between.{read}"


def _jit_of(tree: ast.Module | None) -> str:
    """The jit that takes the objects of the libraries that a file imports."""
    for node in ast.walk(tree) if tree is not None else ():
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for package, jit in LIBRARIES.items():
            if any(f"{module}{each}".startswith(package) for each in names):
                return jit
    return "jax.jit"
