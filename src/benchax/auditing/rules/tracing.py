"""Functions that JAX cannot trace, or that depend on more than their arguments, or do more than giving a result."""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.recorder.hooks import DEBUGGING, debugging_settings
from benchax.auditing.rule import Match, NotApplicable, list_some, refuse_failed, rule, try_variant
from benchax.auditing.syntax import NOWHERE, Source, calls, holds, readable, where_of
from benchax.errors import BenchaxError, NotMeasured
from benchax.experiments.rewriting import leave_out, rewritten
from benchax.measuring import program as programs
from benchax.measuring.diagnosis import diagnose, explain, user_line
from benchax.measuring.program import program_of as call_of
from benchax.measuring.purity import ClockRead, difference, watch_clock_reads
from benchax.measuring.state import changes, state_of
from benchax.printable import truncate
from benchax.program.index import TracedOp
from benchax.program.jaxpr import count_primitives, equations, own_line
from benchax.program.jaxpr import user_line as line_of
from benchax.results.audit import Where
from benchax.source_files import owner_of
from benchax.units import count

# ---- branch-on-value, not-traceable ----------------------------------------------------------------------------------

IF = "Here: jnp.where(condition, a, b), or jax.lax.cond if only one side may run."
BY_NODE = (
    (ast.While, "while", "Here: jax.lax.while_loop(condition, body, state)."),
    (ast.For, "the loop", "Here: jax.lax.fori_loop(0, n, body, state)."),
    ((ast.If, ast.IfExp), "if", IF),
    (ast.Assert, "assert", "Here: leave the check out of the traced function, or use jax.experimental.checkify."),
)


@rule("branch-on-value", "does Python decide by the value of an argument?", "error")
def branch_on_value(e: Evidence) -> Iterable[Match]:
    """Finds Python that decides by the value of an argument, which is not known while JAX traces."""
    is_jitted = e.is_jitted
    if e.failure is None:
        return
    explained = explain(e.error) if e.error is not None else None
    if e.error is None or explained is None:
        raise NotApplicable(f"it does not {e.failure.stage}, for another reason: {e.failure.message}")
    where = where_of(user_line(e.error)) or e.def_where
    node = _statement(where) if explained.use == "value" else None
    what, advice = next(((what, advice) for kinds, what, advice in BY_NODE if isinstance(node, kinds)), ("", ""))
    what = what or explained.expression or "a Python operation"
    argument = explained.argument.removeprefix("the ")
    argument = "an argument" if argument == "argument" else argument
    needed = "a size from the value of" if explained.use == "size" else "the value of"
    yield Match(
        f"{what} selects a number of elements that is not known while tracing"
        if explained.use == "selection"
        else f"{what} needs {needed} {argument}, which is not known while tracing",
        [*_text_at(where), f"{type(e.error).__name__}: {str(e.error).strip().splitlines()[0]}"],
        f"{advice} {e.failure.advice}".strip(),
        where=where,
        severity="error" if is_jitted else "warning",
    )


def _statement(where: Where | None) -> ast.stmt | ast.IfExp | None:
    """The smallest statement that decides on this line, or else the smallest statement."""
    file, line = where or NOWHERE
    nodes = [n for n in ast.walk(readable(file)) if isinstance(n, ast.stmt | ast.IfExp) and holds(n, line)]
    own = [n for n in nodes if n.lineno == line and isinstance(n, ast.If | ast.While | ast.For | ast.IfExp)]
    return min(own or nodes, key=lambda n: (n.end_lineno or 0) - n.lineno, default=None)


def _text_at(where: Where | None) -> list[str]:
    line = linecache.getline(*where).strip() if where else ""
    return [f"line {where[1]}: {line}"] if where and line else []


@rule("not-traceable", "does it trace and compile?", "error")
def not_traceable(e: Evidence) -> Iterable[Match]:
    """Finds a function that does not trace or compile, for a reason that no other rule explains."""
    failure = e.failure
    if failure is None:
        return
    if e.why_not_called:  # the program that it belongs to has traced it
        raise NotMeasured(failure.message)
    if e.error is not None and explain(e.error) is not None:
        raise NotApplicable("branch-on-value explains why it does not")
    where = (where_of(user_line(e.error)) if e.error is not None else None) or e.def_where
    yield Match(
        f"it does not {failure.stage}",
        [*_text_at(where), failure.message],
        failure.advice or "Call it by itself, and read the error.",
        where=where,
        # In eager mode this can be correct.
        severity="error" if e.is_jitted else "warning",
    )


# ---- leaked-tracer ---------------------------------------------------------------------------------------------------

_HOLDER = re.compile(r"is referred to by ([^<\s]\S*)")
_TRACED = re.compile(r"^(?:Jit)?(?:Tracer|Traced<)\(?(.*?)[)>]", re.MULTILINE)


@rule(
    "leaked-tracer",
    "do values of a trace outlive it?",
    "error",
    advice=(
        "Return the value as an output of the function, and store it outside. A traced value has no number; using it "
        "after the trace is an error (UnexpectedTracerError)."
    ),
)
def leaked_tracer(e: Evidence) -> Iterable[Match]:
    """Finds values of a trace that outlive it: they are kept in a global, a closure or an object."""
    if (used := _find_use(e)) is not None:
        yield Match(
            "uses a value of an earlier trace",
            [used],
        )
        return
    refuse_failed(e.failure)
    defined = where_of(e.recorded.place.defined) if e.recorded else None
    if defined is not None and owner_of(defined[0]) == "package":
        raise NotApplicable("it belongs to a package, whose caches can keep traced values on purpose")
    leak = _leak(e)
    if leak is None:
        return
    values = [f"a traced value {text} is still held after the trace" for text in dict.fromkeys(_TRACED.findall(leak))]
    holders = [f"held by {name}" for name in dict.fromkeys(_HOLDER.findall(leak))]
    if values and not holders and all(":JaxprTrace " in value for value in values):
        # jax 0.10.2 reports this for each jax.debug.callback in a differentiated scan, although nothing is kept.
        raise NotMeasured("JAX names values that it makes for derivatives, and nothing that keeps them")
    yield Match(
        "keeps a traced value beyond the trace",
        [
            *list_some(values or ["a traced value is still held after the trace"]),
            *list_some(holders),
            "seen by jax.checking_leaks()",
        ],
    )


def _find_use(e: Evidence) -> str | None:
    """A sign that it takes a value from an earlier trace. JAX makes such a value another input, which only the call
    refuses; so this must be asked before anything that compiles."""
    try:
        traced = programs.trace(call_of(e.case), e.inputs.args, e.inputs.kwargs)
    except jax.errors.UnexpectedTracerError as error:
        return str(error).strip().splitlines()[0]
    except BenchaxError:
        raise
    except Exception:  # it does not trace for another reason, which `failure` reports
        return None
    more = len(traced.jaxpr.in_avals) - len(jax.tree.leaves(traced.args_info))
    return f"its program has {more} more inputs than arguments: values of an earlier trace" if more > 0 else None


def _leak(e: Evidence) -> str | None:
    """The report of JAX about a leak in a new trace of the function; None without a leak."""
    try:
        with jax.checking_leaks():
            programs.trace(call_of(e.plain_case), e.inputs.args, e.inputs.kwargs)
    except Exception as error:  # JAX reports a leak as a bare Exception
        if str(error).startswith("Leaked"):
            return str(error)
        raise NotMeasured(f"tracing it with jax.checking_leaks() fails: {diagnose(error, 'trace').message}") from error
    return None


# ---- impure-function -------------------------------------------------------------------------------------------------

TRACED_TWICE = "the function was traced twice to see this; what it changed stays changed"
_RANDOM = re.compile(r"((np|numpy)\.)?random\.\w+$")


@rule("impure-function", "does it have side effects?", "warning")
def impure_function(e: Evidence) -> Iterable[Match]:
    """Finds a function that does more than give a result: the rest happens while it is traced, and not again.

    The function is traced twice for this. Each trace repeats the changes, texts, and differences
    of the second one. A change that only the first one makes fills a memo, and is no finding.
    """
    # Without jit, a plain function does these things in each call, as intended.
    severity = None if e.is_jitted else "info"
    if e.failure is not None and e.failure.stage == "trace":
        raise NotApplicable(f"it does not trace: {e.failure.message}")
    # The program, the printed text, the clock readings, and what is different afterwards.
    (first, *_), (second, printed, reads, changed) = _trace(e), _trace(e)
    for name, change in changed.items():
        yield Match(
            f"changes {name!r} while it is traced, but not when it runs compiled",
            [f"{name!r} {change} in one trace", TRACED_TWICE],
            f"Return the new value as an output and store it outside. A compiled call does not run Python: {name!r} "
            "changes once for each new shape, and can hold traced values.",
            where=_where_named(e.source, name),
            severity=severity,
        )
    if printed:
        prints = [call for call in calls(e.source.tree, "print") if isinstance(call.func, ast.Name)] if e.source else []
        yield Match(
            "prints while it is traced, but not when it runs compiled",
            [f"printed by a trace: {truncate(printed.strip(), 200)!r}", TRACED_TWICE],
            "Use jax.debug.print, which prints values in each run, or jax.experimental.io_callback for other "
            "effects. Both make each call wait for Python, so measure their cost before you keep them.",
            where=_first_line(e.source, prints),
            severity=severity,
        )
    for read in reads:
        # Found from the call, not from a difference: in float32, the seconds since 1970 change in steps of 128, so two
        # traces agree.
        yield Match(
            f"reads the clock by {read.name} while it is traced, but not when it runs compiled",
            [f"called by a trace: {read}", TRACED_TWICE],
            "The compiled function keeps the first reading. Pass the time as an argument; to time a part of a "
            "function, read the clock in the compiled program (benchax.clock.stamp).",
            where=(read.file, read.line),
            severity=severity,
        )
    if (found := _difference(first, second)) is not None:
        difference, line = found
        nodes = list(ast.walk(e.source.tree)) if e.source else []
        drawn = [n for n in nodes if isinstance(n, ast.Call) and _RANDOM.match(ast.unparse(n.func))]
        stored = [n for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)]
        yield Match(
            "becomes a different program each time it is traced",
            [difference, TRACED_TWICE],
            "It reads a value that changes on its own: random numbers of Python or NumPy, the time, a counter. The "
            "compiled function keeps the first value. Pass such values as arguments; for random numbers, pass a key "
            "of jax.random.",
            where=_first_line(e.source, drawn) or _first_line(e.source, stored) or line,
        )


def _trace(e: Evidence) -> tuple[Any, str, list[ClockRead], dict[str, str]]:
    case = e.plain_case
    call = call_of(case)  # a new function object, so that JAX traces it again
    before = state_of(case.fn)
    with contextlib.redirect_stdout(io.StringIO()) as printed, watch_clock_reads() as reads:
        closed = programs.trace(call, e.inputs.args, e.inputs.kwargs).jaxpr
    return closed, printed.getvalue(), reads, changes(before, state_of(case.fn))


def _difference(first: Any, second: Any) -> tuple[str, str] | None:
    """(how two traced programs differ, the user's line that wrote it); None if they are the same."""
    found = difference(first, second, own_line)
    if found is None:
        return None
    # An array that the program holds has no line, but the operations that read it have one.
    constants = second.jaxpr.constvars
    readers = (eqn for eqn in second.jaxpr.eqns if any(v is const for v in eqn.invars for const in constants))
    text, _, line = found.partition(" at ")
    return f"from one trace to the next {text}", line or next(map(own_line, readers), "")


def _first_line(source: Source | None, nodes: Sequence[Any]) -> Where | None:
    return (source.file, min(node.lineno for node in nodes)) if source and nodes else None


def _where_named(source: Source | None, name: str) -> Where | None:
    """The first line that names it: assignments, then calls of its methods, then others."""
    nodes = list(ast.walk(source.tree)) if source else []
    named = [node for node in nodes if isinstance(node, ast.Name) and node.id == name]
    stored = [node for node in named if isinstance(node.ctx, ast.Store)]
    methods = (node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))
    called = [node for node in methods if isinstance(node.func, ast.Attribute) and node.func.value in named]
    return _first_line(source, stored or called or named)


# ---- host-callback ---------------------------------------------------------------------------------------------------

CALLBACKS = ("debug_callback", "debug_print", "pure_callback", "io_callback")
COSTS = "Each call waits for Python, copies its operands to the host, and starts the program in a slower way. "
OF_USER = "Remove debugging output from code that runs often. Write the rest in jax.numpy, or do it outside of jit."
OF_LIBRARY = (
    "Look for an option of the package, such as verbose=False. The line named here is your line that causes it."
)


@rule("host-callback", "does compiled code call Python?", "warning", traced=True)
def host_callback(e: Evidence) -> Iterable[Match]:
    """Finds callbacks from compiled code into Python."""
    program = e.program
    ops = [op for op in program.ops if op.name in CALLBACKS]
    # equinox's error_if is in a branch that only an error takes. A warning about it in diffrax was a false alarm.
    library, is_conditional = _library(ops), all(any(body.kind == "branch" for body in op.body.around) for op in ops)
    # Errors that a package raises: the user cannot change them, and it is unknown whether they run.
    if not ops or (library and is_conditional):
        return
    # XLA can drop them only at the outermost level, and only without results.
    silent = [op for op in program.body.ops if op.name in CALLBACKS and not op.makes]
    returning = sum(bool(op.makes) for op in ops)
    hidden, tried = len(ops) - returning - len(silent), None
    groups = [p for p in count_primitives(list(equations(e.closed_jaxpr))) if p.name in CALLBACKS]
    in_loops = {p.name: f", {p.in_loops} of them in loops" if p.in_loops else "" for p in groups}
    seen = [f"{p.count} × {p.name}{in_loops[p.name]}{f', at {p.lines[0]}' if p.lines else ''}" for p in groups]
    what = "without them" if len(silent) == len(ops) else "without those that give no results"
    if silent and e.why_not_called:  # of what a package traces within its own call there is no case to change, either
        seen.append(f"{what}: gain not measured, because {e.why_not_called}")
    elif silent:
        without = replace(e.plain_case, fn=rewritten(e.plain_case.fn, change=partial(leave_out, CALLBACKS)))
        tried = try_variant(e, what, without)
        seen.append(tried.sentence)
    seen += [f"gain not measured for {returning}: the rest of the program can need their results"] * bool(returning)
    seen += [f"gain not measured for {hidden}: they are in loops or branches"] * (hidden > 0)
    seen += ["all of them are in branches, such as checks for errors; whether they run is not known"] * is_conditional
    seen += [f"all of them are in an installed package: {library}"] * bool(library)
    # If there are also errors raised by packages, report the user's own, which they can change.
    line = min(
        (op.line for op in ops if op.line), key=lambda line: owner_of(line.rpartition(":")[0]) != "user", default=""
    )
    yield Match(
        f"calls Python from compiled code ({len(ops)} ×)",
        seen,
        COSTS + (OF_LIBRARY if library else OF_USER),
        where=line,
        gain=tried.gain if tried else None,
        # Only the authors of a package can change it. Its users can look for an option to disable it.
        severity="info" if is_conditional or library else None,
    )


def _library(ops: Sequence[TracedOp]) -> str:
    """file:line of the first one in an installed package, if all of them are in one; otherwise empty."""
    lines = [line_of(op.equation) for op in ops]
    files = [line.rpartition(":")[0] for line in lines]
    return lines[0] if files and all(file and owner_of(file) == "package" for file in files) else ""


@rule("debug-settings", "are JAX's settings for debugging off?", "warning", of="program")
def debug_settings(e: ProgramEvidence) -> Iterable[Match]:
    """Finds JAX's settings for debugging that were left on."""
    for name, where in debugging_settings(e.log).items():
        variable = name.upper()
        source = "set at this line" if where else f"set by {variable}, or by an installed package"
        yield Match(
            f"{name} is on: {DEBUGGING[name]}",
            [f"it was on when the program ended, {source}", "gain not measured: the program runs once, as it is"],
            f"Turn it off once the mistake is found. To look for one again: {variable}=1 python train.py.",
            where=where,
        )


@rule("stale-value", "is every value that changes passed as an argument?", "warning", of="program")
def stale_value(e: ProgramEvidence) -> Iterable[Match]:
    """Finds globals, closures and attributes that have changed since they were compiled in."""
    _ = e.lines  # raises if calls are not seen
    told = set[tuple[str, str]]()
    for event in e.log.of("stale"):
        name, change, call = event.note
        if (event.by, name) in told:
            continue
        told.add((event.by, name))
        yield Match(
            f"{event.by} was compiled with an earlier value of {name}",
            [
                f"{name} changed {change}; seen at call {count(call)} of the program",
                "a compiled function reads globals, closures and attributes once, when it is traced",
            ],
            f"Pass {name} to {event.by} as an argument, and return it if the function changes it. If it must be a "
            "constant of the program, jit the function again (or make it a static argument) when it changes.",
            where=event.where,
        )
