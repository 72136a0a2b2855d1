"""Rules about time that goes into compiling: again, for too many values, in each iteration, or in each process."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import jax

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.rule import Gain, Match, NotApplicable, list_some, rule
from benchax.auditing.syntax import (
    Loop,
    Place,
    declared_at,
    jits_of_new_functions,
    jitted_around,
    kind_of,
    made_at,
    where_of,
)
from benchax.errors import NotMeasured
from benchax.grouping import group_by
from benchax.printable import truncate
from benchax.results.audit import Where
from benchax.results.watch import CachedProgram, Compile, FunctionCount
from benchax.source_files import owner_of
from benchax.units import count, percent, plural, seconds
from benchax.watching.watch import CONTROL_FLOW, main_thread_share

BEGINNINGS = frozenset({"weak type", "committed", "sharding"})
"""How an argument can differ between the first call and the next one, with the same shape and dtype."""
WITH_A_NUMBER = frozenset({"dtype", "shape"})
"""Further differences if a Python number becomes an array."""
MANY_VALUES, MANY_NUMBERS = 3, 8
"""The numbers of values from which a static argument has too many. The limit is higher for whole numbers, which set
shapes: the sizes of three data sets are three programs. One of the 46 clean programs that the tests run
has a second value, and none a third."""
OFTEN_USED = 20
"""Calls of each program: then the values of a static argument are few, however long they take to compile. With half of
it, rules find the same in the clean programs and the programs about recompilations. Twice of it takes parameters of a
model for growing arrays."""
SOME_SIZES = 3
"""Recompilations for other shapes. A second or third size, as for evaluation, is often what is wanted. One of the
46 clean programs has three sizes, and none more."""
GROWING, DOUBLING = 4, 1.5
"""Sizes in a row that grow by less than this factor. With a larger one there are few sizes: 17 from 1 to 1000. With two
sizes, rules find the same in the clean programs and the programs of growing-shapes. With eight, two of these aren't
found."""
LEAST_S = 0.05
"""Compiling that takes less is not worth a line, in however short a program: it takes about as long as `import math`
takes Python 100 times."""
WORTH_S = 5.0
"""Compiling that a cache is worth having for. Starting Python and JAX takes one or two seconds, with or without one."""
LARGE_SHARE = 0.3
"""The share of the main thread's time. A good loop of 1000 steps spent 85 % of its 4 s on compiling three functions
once each: so this alone is an info."""
_SPEC = re.compile(r"(\S+): \w+\[([\d,]*)\]")
_NAMED = re.compile(r"static (.+?): ", re.DOTALL)
_WHOLE = re.compile(r"static .+?: -?\d+ → -?\d+ \(", re.DOTALL)
_OBJECT = re.compile(r"static .+?: <", re.DOTALL)
_FUNCTION = re.compile(r"<(function|bound method|PjitFunction) |functools\.partial\(")
_PATH = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[[^\]]*\])*): ")


@dataclass
class Again:
    """Programs of one function that were compiled after its first, for one kind of reason."""

    rule: str
    compiles: list[Compile]
    of: float | None
    """Seconds of the run; None for a few calls of one function."""
    argument: str = ""
    """The static argument that took other values."""
    sizes: tuple[str, list[int]] | None = None
    """The axis that grew, and its sizes."""

    @property
    def function(self) -> str:
        return self.compiles[-1].function

    @property
    def lost_s(self) -> float:
        return sum(c.total_s for c in self.compiles)

    @property
    def texts(self) -> list[str]:
        return [reason.text for c in self.compiles for reason in c.reasons]

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(reason.kind for c in self.compiles for reason in c.reasons))

    @property
    def places(self) -> Iterator[Place]:
        """Where it is called, what it is given is made, and it is defined."""
        lines = dict.fromkeys(c.where for c in self.compiles if c.where)
        yield from (("called here", line) for line in lines)
        called = next(iter(lines), None)
        for path in dict.fromkeys(_paths(self.texts)):
            yield from made_at(called, self.function, path)
        yield "defined here", self.compiles[-1].defined

    @property
    def seen(self) -> list[str]:
        of_run = f" of {seconds(self.of)} ({percent(self.lost_s / self.of)})" if self.of else ""
        head = f"{plural(len(self.compiles), 'recompile')} took {seconds(self.lost_s)}{of_run}, by JAX's own clock"
        alike = group_by(self.compiles, lambda c: f"{f'{c.where}: ' if c.where else ''}{c.why}").items()
        told = [
            f"{why} ({f'{count(len(same))} times, ' if len(same) > 1 else ''}{seconds(sum(c.total_s for c in same))})"
            for why, same in alike
        ]
        return [head, *list_some(told)]

    def match(
        self, title: str, advice: str, *more: str, related: Iterable[Place] | None = None, info: bool = False
    ) -> Match:
        return Match(
            title,
            [*self.seen, *more],
            advice,
            related=self.places if related is None else related,
            gain=Gain(f"estimated: {seconds(self.lost_s)} of this run, if it is compiled once"),
            lost=(self.lost_s, self.of),
            severity="info" if info else None,
        )


def compiled_again(e: Evidence | ProgramEvidence, rule: str) -> list[Again]:
    """All that a function lost to compiling again, as far as it belongs to one rule; what cost most first."""
    of = e.watch.wall_s if isinstance(e, ProgramEvidence) else None
    found: dict[tuple[str, str, str | None, str], Again] = {}
    growing = {(c.function, c.defined): grown for c, grown in _growing(e.watch.compiles)}
    met = {(c.function, c.defined, c.arguments) for c in e.watch.compiles if c.is_first}
    for c in e.watch.recompiles:
        sizes = growing.get((c.function, c.defined)) if of is not None else None
        id, argument = _rule_of(c, is_growing=sizes is not None, is_program=of is not None)
        given = (c.function, c.defined, c.arguments)
        # Made once, it would be compiled for other arguments all the same.
        if id == "jit-in-loop" and given not in met:
            met.add(given)
            continue
        one = found.setdefault((id, c.function, c.defined, argument), Again(id, [], of, argument, sizes))
        one.compiles.append(c)
    if isinstance(e, ProgramEvidence):
        # One line of the user's dispatches several operations, and other lines use the result.
        resized = [c for again in resized_operations(e).values() for c in again]
        if resized:
            found["growing-shapes", "", None, ""] = Again("growing-shapes", resized, of)
    mine = [one for one in found.values() if one.rule == rule and (of is None or one.lost_s >= LEAST_S)]
    return sorted(mine, key=lambda one: -one.lost_s)


def _rule_of(c: Compile, *, is_growing: bool, is_program: bool) -> tuple[str, str]:
    """(the rule that a recompilation belongs to, the static argument)"""
    kinds = {reason.kind for reason in c.reasons}
    if "new function" in kinds:
        return "jit-in-loop", ""
    if kinds == {"static"}:
        return "static-churn", _NAMED.findall(c.reasons[0].text)[0] if _NAMED.match(c.reasons[0].text) else ""
    if is_growing and "shape" in kinds:
        return "growing-shapes", ""
    is_beginning = bool(kinds & BEGINNINGS) and kinds <= BEGINNINGS | (WITH_A_NUMBER if "weak type" in kinds else set())
    return ("compiled-twice" if is_beginning and is_program else "recompile-hot-spot"), ""


def _growing(compiles: Sequence[Compile]) -> Iterator[tuple[Compile, tuple[str, list[int]]]]:
    jitted = (c for c in compiles if not c.is_eager)
    for found in group_by(jitted, lambda c: (c.function, c.defined)).values():
        if (grown := growth(found)) is not None:
            yield found[0], grown


def resized_operations(e: ProgramEvidence) -> dict[str, list[Compile]]:
    """By line: the programs of eager operations that were compiled for many sizes, without the first program.

    Leaves out lines that use each size again in every step, because they go through the parameters of a model. Also
    leaves out operations of a package, which you cannot change.
    """
    eager = (c for c in e.watch.compiles if c.is_eager and c.where)
    operations = group_by(eager, lambda c: (c.where, c.function)).values()
    again = group_by((c for one in operations if _n_shapes(one) > GROWING for c in one[1:]), lambda c: c.where or "")
    used = Counter(event.where for event in e.log.of("operation"))
    by_package = Counter(event.where for event in e.log.of("operation") if event.caller == "package")
    return {
        where: found
        for where, found in again.items()
        if used[where] < OFTEN_USED * len(found) and 2 * by_package[where] <= used[where]
    }


def _n_shapes(compiles: Sequence[Compile]) -> int:
    """Counts the shapes of the arrays, for the rank that has most.

    Different ranks, and the sizes of random draws, belong to the parameters of a model.
    """
    shapes = {tuple(_SPEC.findall(c.arguments)) for c in compiles}
    return max(Counter(tuple(len(text.split(",")) for _, text in shape) for shape in shapes).values(), default=0)


def growth(compiles: Sequence[Compile]) -> tuple[str, list[int]] | None:
    """(an argument's axis, its sizes) that has grown from program to program; None if no axis has, often enough."""
    series: dict[tuple[str, int], list[int]] = {}
    for c in compiles:
        for path, text in _SPEC.findall(c.arguments):
            for axis, n in enumerate(text.split(",")):
                if n:
                    series.setdefault((path, axis), []).append(int(n))
    for (path, axis), sizes in series.items():
        grows = all(b > a for a, b in pairwise(sizes))
        if len(sizes) > GROWING and grows and not all(b >= DOUBLING * a for a, b in pairwise(sizes)):
            return f"axis {axis} of {path}", sizes
    return None


def _paths(texts: Iterable[str]) -> Iterator[str]:
    """state.tx of "state.tx: 1 → 2"."""
    for text in texts:
        if match := _PATH.match(text.removeprefix("static ")):
            yield match[1]


@rule("recompile-hot-spot", "is a function compiled again and again?", "warning", of="both")
def recompile_hot_spot(e: Evidence | ProgramEvidence) -> Iterable[Match]:
    for one in compiled_again(e, "recompile-hot-spot"):
        n, is_shapes = len(one.compiles), set(one.kinds) <= {"shape"}
        if one.of is None and n < 2:
            continue  # three calls with equal shapes: one recompilation may be its first look at its own results
        yield one.match(
            f"{one.function} was compiled again {plural(n, 'time')}",
            " ".join(dict.fromkeys(ADVICE.get(kind, OTHERWISE) for kind in one.kinds)),
            info=is_shapes and n < SOME_SIZES,
        )


@rule("compiled-twice", "is a function compiled once for the same shapes?", "warning", of="program")
def compiled_twice(e: ProgramEvidence) -> Iterable[Match]:
    for one in compiled_again(e, "compiled-twice"):
        yield one.match(
            f"{one.function} was compiled again: an argument changed after the first call",
            " ".join(BEGIN[kind] for kind in one.kinds if kind in BEGIN),
        )


@rule("growing-shapes", "do arrays keep their size from step to step?", "warning", of="program")
def growing_shapes(e: ProgramEvidence) -> Iterable[Match]:
    for one in compiled_again(e, "growing-shapes"):
        yield _resized(one) if one.compiles[0].is_eager else _grown(one)


def _grown(one: Again) -> Match:
    axis, sizes = one.sizes or ("", [])
    shown = ", ".join(map(str, [*sizes[:3], "…", sizes[-1]]))
    n = count(len(sizes))
    title = f"{one.function} was compiled for {n} sizes, each larger than the one before"
    return one.match(title, GROW, f"{axis}: {shown}")


def _resized(one: Again) -> Match:
    """Eager operations: the first line is the one whose sizes the others follow."""
    operations = group_by(one.compiles, lambda c: (c.where, c.function))
    n = max(map(_n_shapes, operations.values())) + 1
    grown = next((g for found in operations.values() if (g := growth(found)) is not None), None)
    lines = list(dict.fromkeys(where_of(line) for line, _ in operations))
    places = [("called here", line) for line in sorted(lines, key=lambda line: line or ("", 0))]
    return one.match(
        f"operations outside of jit were compiled for {n} sizes",
        GROW if grown else OTHER_SIZES,
        *([f"{grown[0]}: {', '.join(map(str, grown[1][:4]))}, …"] if grown else []),
        related=[*places, *made_at(lines[0], "", "x")],
    )


@rule("static-churn", "does a static argument take many values?", "warning", of="both")
def static_churn(e: Evidence | ProgramEvidence) -> Iterable[Match]:
    for one in compiled_again(e, "static-churn"):
        n, defined = len(one.compiles) + 1, where_of(one.compiles[0].defined)
        if n < MANY_VALUES:
            continue
        is_packages = defined is not None and owner_of(defined[0]) == "package"
        is_function = any(_FUNCTION.search(text) for text in one.texts)
        few = n < MANY_NUMBERS and all(_WHOLE.match(text) for text in one.texts)
        is_object = not is_function and any(_OBJECT.match(text) for text in one.texts)
        used = _calls_of(e, one) >= OFTEN_USED * n
        if is_object and used:
            continue  # several objects with a jitted method, each of them in use
        advice = (
            OF_PACKAGE if is_function and is_packages
            else EQUALITY if any("has no __eq__" in text for text in one.texts)
            else ONE_FUNCTION if is_function
            else OBJECT if is_object
            else AS_ARRAY
        )  # fmt: skip
        declared = declared_at(defined, one.function, "static_arg")
        yield one.match(
            f"static argument {one.argument} of {one.function} took {n} values",
            (advice if declared or advice is not AS_ARRAY else NO_ARRAY).format(
                argument=one.argument, function=one.function
            ),
            related=[*declared, *made_at(one.compiles[0].where, one.function, one.argument), *one.places],
            info=few or used or (is_packages and is_function),
        )


def _calls_of(e: Evidence | ProgramEvidence, one: Again) -> int:
    if not isinstance(e, ProgramEvidence):
        return 0
    return sum(event.by.rpartition(".")[2] == one.function for event in e.log.of("call"))


@rule(
    "jit-in-loop",
    "is a new function jitted in each iteration of a loop?",
    "warning",
    of="both",
    advice=(
        "Make the function once, call jax.jit on it once outside of the loop, and pass changing values as arguments. "
        "JAX keeps programs by the function object, and a lambda, a partial or an inner def is a new object."
    ),
)
def jit_in_loop(e: Evidence | ProgramEvidence) -> Iterable[Match]:
    unseen: NotMeasured | None = None
    told = set[Where | None]()
    try:
        for one in compiled_again(e, "jit-in-loop"):
            is_control = one.function in CONTROL_FLOW.values()
            if len(one.compiles) < 2 and not is_control:
                continue
            last = one.compiles[-1]
            made = [] if is_control else jitted_around(last.where, last.defined, one.function)
            title = "is made and jitted repeatedly, and compiles each time"
            related = [*made, *one.places]
            told.update(where_of(place) for _, place in related)
            yield one.match(
                f"jax.lax.{one.function} outside of jit compiles in each call"
                if is_control
                else f"{one.function} {title}",
                IN_JIT.format(name=one.function) if is_control else "",
                related=related,
            )
    except NotMeasured as error:  # it cannot be called; its source can be read all the same
        unseen = error
    yield from (match for match in _jits_in_source(e) if match.where not in told)
    if unseen is not None:
        raise unseen


def _jits_in_source(e: Evidence | ProgramEvidence) -> Iterator[Match]:
    # Inside a jitted function the loop runs while tracing, and what it jits is part of one program.
    if isinstance(e, ProgramEvidence) or e.is_jitted or e.source is None:
        return
    for loop in (node for node in ast.walk(e.source.tree) if isinstance(node, Loop)):
        for line, call in {call.lineno: call for call in jits_of_new_functions(loop)}.items():
            yield Match(
                f"jits a new function in each iteration of the {kind_of(loop)} at line {loop.lineno}",
                [f"line {line}: {truncate(ast.unparse(call), 100)}", "seen in the source, not in the calls"],
                where=(e.source.file, line),
                severity="info",
            )


@rule("compile-share", "does it run for longer than it compiles?", "warning", of="program")
def compile_share(e: ProgramEvidence) -> Iterable[Match]:
    share, spent_s = main_thread_share(e.watch), e.watch.total_s
    if share is None:
        raise NotMeasured("the program had not ended when it was last seen")
    again = dict[str, float]()
    resized = (c for found in resized_operations(e).values() for c in found)
    for c in (*e.watch.recompiles, *resized):
        name = f"{c.function} at {c.defined or c.where}"
        again[name] = again.get(name, 0.0) + c.total_s
    again_s = sum(again.values())
    is_again = again_s > 0.5 * spent_s
    # If no cache keeps long compilations, cache-off names them.
    is_told = e.cache is not None and e.cache.is_enabled is False
    if share < LARGE_SHARE or spent_s < (1.0 if is_again else 10.0) or (is_told and not is_again):
        return
    lines = ", ".join(f"{name} ({seconds(s)})" for name, s in sorted(again.items(), key=lambda one: -one[1])[:3])
    yield Match(
        f"the main thread spends {percent(share)} of its time on tracing, lowering and compiling",
        [
            f"{seconds(spent_s)} of {seconds(e.watch.wall_s or 0.0)} went into it after the import of JAX",
            f"{seconds(again_s)} of it was for functions that had been compiled before",
            *list_some([_cost(f) for f in e.watch.functions], what="functions"),
        ],
        f"Start with the functions that are compiled again: {lines}. `benchax watch` gives the reason for each program."
        if is_again
        else SHARE_ONCE,
        lost=(spent_s, e.watch.wall_s),
        severity="warning" if is_again else "info",
    )


def _cost(f: FunctionCount) -> str:
    where = f" at {f.defined}" if f.defined else " (an operation outside of jit)" if f.is_eager else ""
    return f"{f.function}{where}: {plural(f.compiles, 'program')}, {seconds(f.total_s)}"


@rule("cache-off", "does a persistent cache keep programs that compile slowly?", "info")
def cache_off(e: Evidence) -> Iterable[Match]:
    stages = e.measurement.stages
    if stages.cache == "hit":
        raise NotApplicable("the compiled program came from the persistent cache")
    if stages.compile_s is None:
        raise NotMeasured(e.measurement.why_absent("compile_s") or "its compilation was not timed")
    if stages.compile_s < WORTH_S:
        state = "off" if stages.cache == "off" else "on"
        raise NotApplicable(f"the persistent cache is {state}, and {seconds(stages.compile_s)} {TOO_LITTLE}")
    seen = [f"compiling takes {seconds(stages.compile_s)} in every process (measured once)"]
    # JAX keeps only programs that took longer than this to compile (default: 1 s).
    least_s = float(jax.config.values["jax_persistent_cache_min_compile_time_secs"])
    keep = _keep(least_s) if least_s > stages.compile_s else ""
    if stages.cache == "off":
        yield _uncached("the persistent cache is off", f"{TURN_ON} {keep}".rstrip(), stages.compile_s, seen)
    elif keep:
        title = f"the persistent cache keeps only programs that take {seconds(least_s)} to compile"
        yield _uncached(title, keep, stages.compile_s, seen)


@cache_off.in_program
def _no_cache_in_program(e: ProgramEvidence) -> Iterable[Match]:
    cache = e.cache
    if cache is None:
        raise NotMeasured("the persistent cache was not watched in this program")
    lost = [p for p in cache.programs if p.fate in ("too quick", "not kept")]
    lost_s, quick_s = sum(p.elapsed_s for p in lost), cache.total_s("too quick")
    if cache.is_enabled is False and lost_s < WORTH_S:
        raise NotApplicable(f"the persistent cache is off, and {seconds(lost_s)} {TOO_LITTLE}")
    if cache.is_enabled is False:
        keeps = cache.min_compile_time_s is None or all(p.elapsed_s > cache.min_compile_time_s for p in lost)
        advice = TURN_ON if keeps else f"{TURN_ON} {_keep(cache.min_compile_time_s or 0.0)}"
        yield _uncached(f"the persistent cache is off ({cache.why_off})", advice, lost_s, _slowest(lost))
    elif quick_s >= WORTH_S and cache.min_compile_time_s is not None:
        quick = cache.of("too quick")
        title = f"the persistent cache does not keep what is quick to compile: {plural(len(quick), 'program')}"
        yield _uncached(title, _keep(cache.min_compile_time_s), quick_s, _slowest(quick))


def _uncached(title: str, advice: str, lost_s: float, seen: list[str]) -> Match:
    gain = Gain(f"estimated: {seconds(lost_s)} of compiling in each start after the first, minus reading the cache")
    return Match(title, seen, advice, gain=gain)


def _keep(least_s: float) -> str:
    setting = "Set JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0"
    return f"{setting}: JAX keeps only programs that took longer than {seconds(least_s)} to compile."


def _slowest(programs: list[CachedProgram]) -> list[str]:
    total_s = sum(p.elapsed_s for p in programs)
    listed = sorted(programs, key=lambda p: -p.elapsed_s)
    return [
        f"compiling {plural(len(programs), 'program')} took {seconds(total_s)}, by JAX's own clock, and none was kept",
        *list_some([f"{p.name or 'a program'}: {seconds(p.elapsed_s)}" for p in listed], what="programs"),
    ]


# ---- texts ------------------------------------------------------------------------------------------------------

ADVICE = {
    "shape": "Pad inputs to a few sizes (buckets), or mask: every new shape compiles a new program.",
    "dtype": "Convert to one dtype before the call.",
    "weak type": "Give Python numbers a dtype before the call: jnp.float32(…).",
    "structure": "Pass the same tree each time, with None or empty arrays where something is missing. A number or "
    "function in the tree compiles for each of its values: make it once before the loop, or make it an "
    "array (an optax schedule, a field that is a leaf).",
    "keyword": "Pass each argument always by name, or always by position.",
    "static": "Pass an argument with many values as an array.",
    "committed": "Place the arguments the same way from the first call on, with jax.device_put.",
    "sharding": "Place the arguments with one sharding from the first call on.",
    "settings": "Call jax.jit once, with one set of settings.",
    "config": "Set JAX's configuration once, before the first call.",
    "cleared": "Clear JAX's caches only if memory is short: compiled programs are lost with them.",
}
"""By the kind of the reason."""
OTHERWISE = "Look at the reasons, and remove the differences between calls."
BEGIN = {
    "weak type": "Begin with an array of its later dtype: jnp.float32(0.0) instead of 0.0, and jnp.zeros(shape, dtype) "
    "instead of an array made from Python numbers.",
    "committed": "From the first call on, place it where it will be later, with jax.device_put.",
    "sharding": "From the first call on, place it with its later sharding, with jax.device_put.",
}
GROW = (
    "Every size compiles a new program. Before the loop, make the array as large as it will be. Then write into it "
    "(x.at[i].set(value), or jax.lax.dynamic_update_slice) with a mask or a length for the part in use. Or double "
    "its size when it is full, or collect in a Python list and stack once at the end."
)
OTHER_SIZES = (
    "Every size compiles a program for each operation. Keep one size: instead of x[condition], use "
    "jnp.where(condition, x, 0) or a mask, or jnp.nonzero(condition, size=n). jax.jit would compile as often. On the "
    "host, NumPy compiles nothing."
)
OF_PACKAGE = (
    "{function} belongs to a package, which makes a new {argument} in each call of yours. Make one call for all of "
    "the data, or look in its documentation for a way to reuse a compiled program."
)
ONE_FUNCTION = (
    "Define the function in {argument} once, and not as a lambda or an inner def that is new each time. "
    "Pass changing values to it as arrays."
)
AS_ARRAY = (
    "Pass {argument} as an array, not as static, unless shapes or Python control flow depend on it. If they do, use "
    "jax.lax.cond or jax.lax.fori_loop inside, or pad to a few values."
)
OBJECT = (
    "Keep {argument} static if these objects are few and each is called often. Otherwise pass its numbers to "
    "{function} as arrays, or register its class as a pytree (jax.tree_util.register_dataclass)."
)
NO_ARRAY = (
    "Pass {argument} as an array, jnp.asarray(…): equinox.filter_jit takes everything else as static, and compiles "
    "for each value."
)
EQUALITY = (
    "Give the class of the argument __eq__ and __hash__, or make it a frozen dataclass: then equal values share one "
    "program."
)
IN_JIT = (
    "The body is a new function in each call, and jax.lax.{name} outside of jit compiles for each. Jit the function "
    "that calls it, or define the body once, outside of it."
)
SHARE_ONCE = (
    "In a longer run, the share is smaller. To keep programs between runs, set JAX_COMPILATION_CACHE_DIR, and "
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 for programs that compile in less than a second."
)
TOO_LITTLE = f"of compiling is too little to be worth one (from {seconds(WORTH_S)} on)"
TURN_ON = "Set JAX_COMPILATION_CACHE_DIR to a folder that outlives the process, and that only you can write to."
