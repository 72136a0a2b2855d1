"""Rules about calls and operations that are many and small: eager operations, small calls, updates, element reads."""

from __future__ import annotations

import ast
import timeit
from collections import Counter
from collections.abc import Collection, Iterable, Iterator

import jax
import jax.numpy as jnp

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.recorder.log import Event, grouped
from benchax.auditing.recorder.views import CallLine, EagerFunction, functions_to_jit
from benchax.auditing.rule import Gain, Match, grade, list_some, rule
from benchax.auditing.rules.compiling import resized_operations
from benchax.auditing.rules.waits import intervals
from benchax.auditing.syntax import (
    NOWHERE,
    Loop,
    Place,
    call_at,
    callee_name,
    calls,
    calls_on,
    def_of,
    holds,
    innermost_loop,
    kind_of,
    path_of,
    readable,
    scopes_around,
    tree_of,
    where_of,
)
from benchax.errors import NotMeasured
from benchax.model import Severity
from benchax.results.audit import Where
from benchax.source_files import without_folders
from benchax.units import count, percent, plural, seconds, size

# Finds values that the user's file hands from one iteration of a loop to the next on the host: for example, the action
# of a policy, which an environment in Python answers with the next observation. JAX sees no array between these calls.

Assigned = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr


def loop_around(tree: ast.AST, line: int) -> Loop | None:
    """The innermost loop around a line, within its function."""
    loop, scopes = innermost_loop(tree, line), scopes_around(tree, line)
    return loop if loop is not None and (not scopes or holds(scopes[0], loop.lineno)) else None


def needs_own_result(tree: ast.AST, line: int, name: str) -> bool:
    """Checks the call of this name on this line. Returns whether it reads a value that the loop around it made from the
    call's earlier result. For a function without a loop, such as a method that acts, its calls are checked instead."""
    if (loop := loop_around(tree, line)) is not None:
        return _is_fed_back(tree, loop, line, name)
    scope = next((one for one in scopes_around(tree, line) if isinstance(one, ast.FunctionDef)), None)
    if scope is None:
        return False
    outside = (call.lineno for call in calls(tree, scope.name) if not holds(scope, call.lineno))
    return any(_is_fed_back(tree, loop, at, scope.name) for at in outside if (loop := innermost_loop(tree, at)))


def _is_fed_back(tree: ast.AST, loop: ast.AST, line: int, name: str) -> bool:
    if not isinstance(loop, ast.For | ast.While):
        return False
    made, on_line = set[str](), list(calls_on(loop, line))
    # A function may be called by a name that is not its own.
    asked = [call for call in on_line if callee_name(call) == name] or on_line[:1]
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    others = {"", *(alias.asname or alias.name for node in imports for alias in node.names)}
    while (more := set(_made_of(loop, asked, made)) - others) - made:
        made |= more
    return any(_reads(argument, made) for call in asked for argument in (*call.args, *call.keywords))


def _made_of(loop: ast.AST, asked: list[ast.Call], made: set[str]) -> Iterator[str]:
    """Names, and paths of attributes, that are given a value, changed by a method, or chosen, by what is made of the
    result so far."""

    def is_of_it(node: ast.AST | None) -> bool:
        return node is not None and (any(one in asked for one in ast.walk(node)) or _reads(node, made))

    for node in ast.walk(loop):
        if isinstance(node, Assigned) and is_of_it(node.value):
            yield from _targets(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            # What a method is given may stay in its object: env.step(action).
            if any(map(is_of_it, (*node.args, *node.keywords))):
                yield path_of(node.func.value)
        elif isinstance(node, ast.If) and is_of_it(node.test):
            for one in ast.walk(node):
                if isinstance(one, Assigned):
                    yield from _targets(one)


def _targets(node: Assigned) -> Iterator[str]:
    """An array that is filled by index is no value that the next iteration needs."""
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        for leaf in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
            yield path_of(leaf.value if isinstance(leaf, ast.Starred) else leaf)


def _reads(node: ast.AST, made: set[str]) -> bool:
    paths = (path_of(one) for one in ast.walk(node) if isinstance(one, ast.Name | ast.Attribute))
    return any(path in made for path in paths)


OUTSIDE = ("stage", "fold_in", "split")
"""Operations whose place is outside of a program: what jnp.asarray sends, and a new random key for each step."""
MANY_OPERATIONS, MANY_INSIDE = 100, 1000
"""Operations from one line; more if a package sends them: one call of it, as to set up a sampler, may take hundreds."""
BY_FAR = 5.0
"""Operations for each call of a jitted function: then operations are most of what the program does."""
MANY_CALLS, MANY_IN_TURN = 200, 2000
"""Calls from one line that could be one, and calls that each need the one before."""
SMALL_BYTES, TINY_BYTES = 1 << 17, 1 << 10
"""Arguments of a call that differ from the call before."""
MANY_READS, READS_PER_CALL = 1000, 20.0
"""Operations of x[i] from one line, and for each call: x[i] takes two or three, and a batch has a few arrays."""
LARGE_BYTES = 1 << 20
"""Copying less takes about as long as sending the operation."""
FASTEST = 50e9
"""Bytes a second: one core of a CPU copies no faster, so that the time is a lower bound."""
ROUNDS = 200
LIBRARIES = {"equinox": "eqx.filter_jit", "flax.nnx": "nnx.jit"}
"""Packages whose objects jax.jit does not take, and what does."""


def operations_of(e: ProgramEvidence) -> list[Event]:
    """Eager operations after the first call of a jitted function, or all if there is no such call.

    Operations before that call set the program up, each line once.
    """
    _ = e.lines  # raises if calls are not seen
    first = next((i for i, event in enumerate(e.log.events) if event.kind == "call"), 0)
    found = (event for event in e.log.events[first:] if event.kind == "operation")
    return [event for event in found if not any(word in event.by for word in OUTSIDE)]


@rule("eager-operations", "are operations sent one at a time?", "warning", of="program")
def eager_operations(e: ProgramEvidence) -> Iterable[Match]:
    operations = [event for event in operations_of(e) if event.note != "index"]
    jitted = e.log.counts["call"]
    if not jitted + len(operations):
        raise NotMeasured("no call was seen")
    # Less than one for each step is what a program does now and then, such as reading or making a key.
    least = max(MANY_OPERATIONS, jitted)
    functions = functions_to_jit(e.log, operations, least)[:3]
    lines = _lines(operations, functions, least, resized_operations(e.watch.compiles))
    is_by_far = len(operations) >= BY_FAR * jitted
    severity: Severity = "warning" if is_by_far else "info"
    within = f"in the {seconds(e.log.seen_s)} in which calls were watched"
    seen = [f"{n} from {where}" for where, n in lines]
    seen.append(f"{len(operations)} operations {within}, and calls of jitted functions: {jitted}")
    for one in functions:
        yield _of_function(e, one, seen, severity)
    if lines and not functions:
        yield Match(
            f"sends operations one at a time: {lines[0][1]} from one line",
            [*seen, *_compiled(e, {line for line, _ in lines})],
            "Put the line into a function under jax.jit, ideally the one that makes its inputs. The operations then "
            "become one program, with one call and no arrays in between.",
            where=where_of(lines[0][0]),
            related=[("also here", where_of(line)) for line, _ in lines[1:]],
            severity=severity,
        )


def _lines(
    operations: Iterable[Event], functions: Iterable[EagerFunction], least: int, resized: Collection[str]
) -> list[tuple[str, int]]:
    """Lines of many operations that are in none of the functions."""
    found, inside = Counter[str](), Counter[str]()
    for event in operations:
        found[event.where] += 1
        inside[event.where] += event.caller == "package"
    for one in functions:
        found.subtract(one.lines)
    # Under jit, operations whose sizes differ each time would be compiled as often: growing-shapes names them.
    rest = [(where, n) for where, n in found.most_common() if where and n >= least and where not in resized]
    return [(where, n) for where, n in rest if n - inside[where] >= least or n >= MANY_INSIDE][:10]


def _compiled(e: ProgramEvidence, lines: Iterable[str]) -> list[str]:
    """How many programs these lines needed."""
    programs = [c for c in e.watch.compiles if c.is_eager and c.where in set(lines)]
    if not programs:
        return []
    return [f"programs for these lines: {len(programs)}, compiled in {seconds(sum(c.total_s for c in programs))}"]


def _of_function(e: ProgramEvidence, one: EagerFunction, seen: list[str], severity: Severity) -> Match:
    tree = readable((where_of(one.where) or NOWHERE)[0])
    node = call_at(tree, one.span)
    name = one.name.rpartition(".")[2] if one.is_users or node is None else ast.unparse(node.func)
    n = plural(len(one.calls), "time")
    return Match(
        f"{name}, called at line {one.where.rpartition(':')[2]}, sends {one.each} operations one at a time each call",
        [
            f"{name} was called {n} at {one.where}: {one.operations} operations",
            *list_some([f"{k} from {where}" for where, k in one.lines.most_common()], what="lines"),
            *seen,
            *_compiled(e, one.lines),
        ],
        _advice(one, name, tree, node),
        related=_places(one),
        severity=severity,
    )


def _places(one: EagerFunction) -> Iterable[Place]:
    defined = where_of(one.defined)
    if defined is not None and one.is_users:
        # Decorators belong to the function, but not to its line.
        node = def_of(readable(defined[0]), defined[1])
        yield "defined here", (defined[0], node.lineno if node is not None else defined[1])
    yield "called here", where_of(one.where)


def _advice(one: EagerFunction, name: str, tree: ast.Module, node: ast.Call | None) -> str:
    jit = _jit_of(tree)
    callee = ast.unparse(node.func) if node is not None and not one.site.is_through_package else name
    at = without_folders(one.where)
    if "." in callee and one.site.callee.co_varnames[:1] == ("self",):
        # jax.jit(object.method) would trace attributes that the method stores or reads: that changes what it does.
        return (
            f"Put what {callee} computes under {jit}: a function that takes arrays and returns arrays, called at {at}. "
            f"{jit}({callee}) itself would freeze the object's attributes, and lose those that the method sets."
        )
    if not one.is_users or "." in one.name:
        how = f"Make {jit}({callee}) once, before the loop, and call that at {at}"
    else:
        how = f"Decorate {name} with {jit}, or call at {at} what {jit}({callee}) gives once"
    read = f" Return what it reads at {one.reads[-1]} as an array, and read it outside." if one.reads else ""
    return f"{how}: its operations become one program, with one call and no arrays in between.{read}"


def _jit_of(tree: ast.Module) -> str:
    """The jit that takes the objects of the libraries that a file imports."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for package, jit in LIBRARIES.items():
            if any(f"{module}{each}".startswith(package) for each in names):
                return jit
    return "jax.jit"


# ---- small-calls ------------------------------------------------------------------------------------------------


@rule("small-calls", "is a function called few times with much data?", "warning", of="program")
def small_calls(e: ProgramEvidence) -> Iterable[Match]:
    if not e.lines:
        raise NotMeasured("no call of a jitted function was seen")
    for line in e.lines:
        where = where_of(line.where)
        if where is None or any(event.note == "batched" for event in line.events):
            continue
        most, large = (MANY_IN_TURN, TINY_BYTES) if line.is_in_turn else (MANY_CALLS, SMALL_BYTES)
        is_small = line.count - _of_packages(line, where) >= most and line.fresh_bytes <= large
        # Equal calls, as of a benchmark, cannot be batched; nor can calls whose arguments Python makes of results.
        is_answered = line.fresh_bytes > 0 and needs_own_result(readable(where[0]), where[1], line.name)
        is_one = line.is_in_turn or (line.fresh_bytes > 0 and not is_answered)
        if is_small and is_one and not _is_timed_each(where):
            yield _small(e, line, where)


def _of_packages(line: CallLine, where: Where) -> int:
    """Calls that a package makes in its loop, by itself or by a function of yours, such as an objective."""
    tree = tree_of(where[0])
    has_loop = tree is None or loop_around(tree, where[1]) is not None
    return line.by_package + (0 if has_loop else line.handed)


def _is_timed_each(where: Where) -> bool:
    """Does the loop around a call read a clock before and after it?"""
    tree = readable(where[0])
    loop = innermost_loop(tree, where[1])
    return loop is not None and any(loop.lineno < each.first <= where[1] <= each.last for each in intervals(tree))


def _small(e: ProgramEvidence, line: CallLine, where: Where) -> Match:
    n, each_s = line.count, call_s()
    # Calls cannot have cost more than the run took.
    saved_s = min(n * each_s, e.watch.wall_s or n * each_s)
    loop = innermost_loop(readable(where[0]), where[1])
    around = f", in the {kind_of(loop)} at line {loop.lineno}" if loop else ""
    is_cheap = line.is_in_turn and grade(saved_s, e.watch.wall_s) != "warning"
    return Match(
        f"calls {line.name} {count(n)} times with little data",
        [
            f"{count(n)} calls{around}, in the {seconds(e.log.seen_s)} in which calls were watched",
            f"at most {size(line.fresh_bytes)} of arguments differ from call to call",
            *([f"at most {line.in_turn} of them needed one another's results"] if line.in_turn > 1 else []),
            f"calling a jitted function that does next to nothing takes {seconds(each_s)} here",
        ],
        IN_TURN if line.is_in_turn else APART,
        where=where,
        gain=Gain(f"estimated: at least {seconds(saved_s)} of these calls, which is what starting them takes"),
        severity="info" if is_cheap else None,
    )


def call_s() -> float:
    """Seconds of a call of a program that adds two numbers: the quickest of some rounds."""
    add, one = jax.jit(lambda a, b: a + b), jnp.ones(())
    add(one, one).block_until_ready()
    return min(timeit.repeat(lambda: add(one, one), number=ROUNDS)) / ROUNDS


# ---- arrays outside of jit --------------------------------------------------------------------------------------


@rule(
    "copied-updates",
    "are large arrays changed in place?",
    "warning",
    of="program",
    advice=(
        "Update it in a jitted function that gets its memory: jax.jit(update, donate_argnums=0). Then it "
        "changes in place. An array that the host fills row by row can be a NumPy array at first."
    ),
)
def copied_updates(e: ProgramEvidence) -> Iterable[Match]:
    # Outside of jit the array that x.at[i].set(value) begins with stays as it is.
    large = (event for event in operations_of(e) if event.size >= LARGE_BYTES and event.where)
    updates = (event for event in large if event.by.startswith("scatter"))
    for where, events in grouped(updates, lambda event: event.where).items():
        total, n = sum(event.size for event in events), len(events)
        lost_s = total / FASTEST
        if n >= 20:
            yield Match(
                f"copies {size(total // n)} for each update, {count(n)} times",
                [
                    f"{size(total)} in the {seconds(e.log.seen_s)} in which calls were watched",
                    "outside of jit x.at[i].set(value) makes a new array of all of x, since the old one stays as it is",
                ],
                where=where_of(where),
                gain=Gain(f"estimated: at least {percent(lost_s / e.log.seen_s)}, at {size(int(FASTEST))} a second"),
                lost=(lost_s, e.log.seen_s),
            )


@rule(
    "element-reads",
    "are arrays read as wholes?",
    "warning",
    of="program",
    advice=(
        "Read the array once, by numpy.asarray(x) or jax.device_get(x), and take its elements from the result. Or "
        "keep it as one array, and select from it in a jitted function."
    ),
)
def element_reads(e: ProgramEvidence) -> Iterable[Match]:
    taken = Counter(event.where for event in operations_of(e) if event.note == "index" and event.where)
    for where, n in taken.most_common():
        if n >= max(MANY_READS, READS_PER_CALL * e.log.counts["call"]):
            yield Match(
                f"takes parts of arrays one at a time: {count(n)} operations from one line",
                [
                    f"in {seconds(e.log.seen_s)}, with {count(e.log.counts['call'])} calls of jitted functions",
                    "each x[i] is a program that is sent to the device, and a new array",
                ],
                where=where_of(where),
            )


# ---- texts ------------------------------------------------------------------------------------------------------

APART = (
    "No call needs the result of another. Stack their arguments, and call jax.vmap(f) once on all of them, "
    "or on a few hundred at a time."
)
IN_TURN = (
    "Each call needs the result of an earlier one. Do many of them in one program, with jax.lax.scan or "
    "jax.lax.fori_loop, and return to Python only to read or print something."
)
