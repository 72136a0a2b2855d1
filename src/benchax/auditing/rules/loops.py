"""Loops: written out in Python, over items that could be computed at once, or stacking what is not read.

A loop that Python runs while JAX traces leaves a copy of its body in the program for each iteration. An equation
belongs to the innermost loop of your source that contains one of the frames behind it. The position of each frame in
the byte code distinguishes the places of the body, also two on one line. A place that occurs n times was traced n
times. This needs `eqn.source_info` and `Traceback.raw_frames`, which JAX does not document (tried on 0.6.2, 0.10.2,
0.11.2 and 0.12.0.1). If they are missing or different, no loop is found.
"""

from __future__ import annotations

import ast
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import jax

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Gain, Instead, Match, NotApplicable, list_some, rule
from benchax.auditing.syntax import (
    Repeat,
    calls,
    check_readable,
    holds,
    innermost_repeat,
    kind_of,
    loops_around,
    readable,
)
from benchax.errors import NotMeasured
from benchax.grouping import group_by
from benchax.measuring import program as programs
from benchax.program.index import BACKWARD, COSTLY, ELEMENTWISE, TracedOp, Value, list_ahead
from benchax.program.jaxpr import equations, every_equation, nested_in, open_program, scope_of
from benchax.results.audit import Where
from benchax.source_files import owner_of
from benchax.units import count, percent, seconds, size

# Below these frames is the caller of the audit, who may be in a loop. jax 0.6.2 reports such frames.
_END = str(Path(programs.__file__).parent)
JOINS = (
    "add", "mul", "max", "min", "and", "or", "scatter", "dynamic_update_slice", "concatenate", "stack",
)  # fmt: skip
"""Operations that can join several iterations that could still run side by side: a sum, or one result of all."""

Site = tuple[Any, ...]
"""A place in the body: byte code positions from the loop inwards, and the primitive."""


class ArrayElement(NamedTuple):
    """One element of one axis of an array, which is a variable of the jaxpr."""

    array: Any
    axis: int
    start: int


class LoopKey(NamedTuple):
    """Which loop it is: two calls of one function have two."""

    where: Where
    kind: str
    around: Site
    """The calls around it."""


class Slices(NamedTuple):
    """One array whose parts each iteration takes separately."""

    spec: str
    axis: int
    starts: int
    """Different parts that are taken."""


@dataclass
class Unrolled:
    """One loop. `own` are the equations of its body, in order, each with its place."""

    where: Where
    loop: Repeat
    rows: Mapping[int, ArrayElement] = field(default_factory=dict[int, ArrayElement])
    """The values from before the loop that are taken apart for it: the id of a variable → the part that it is."""
    within: Sequence[LoopKey] = ()
    """The loops that call the code around it, from it outwards."""
    own: list[tuple[Site, Any]] = field(default_factory=list[tuple[Site, Any]])
    inner: list[tuple[Site, Any]] = field(default_factory=list[tuple[Site, Any]])
    """Equations of loops inside of it that belong to it."""

    @property
    def equations(self) -> list[tuple[Site, Any]]:
        return self.own + self.inner

    @property
    def kind(self) -> str:
        return kind_of(self.loop)

    @property
    def iterations(self) -> int:
        """How often the body was traced: as often as half of its places occur, or some times as often."""
        counts = Counter(Counter(site for site, _ in self.own).values())
        # A place occurs several times per iteration if the loop runs forward and backward, or if a package has a loop
        # inside. Sums over iterations occur once less.
        fits = {n: sum(k for c, k in counts.items() if c % n == 0 or (n > 2 and c % (n - 1) == 0)) for n in counts}
        found = max((n for n, k in fits.items() if 2 * k >= counts.total()), default=min(counts, default=0))
        # A package and its derivative can run most places twice. Then the parts of the array give the number of
        # iterations.
        parts = self.slices.starts if self.slices is not None else 0
        return parts if found == 2 * parts and fits.get(parts, 0) > fits[found] else found

    @property
    def size(self) -> int:
        """Equations, nested ones included."""
        return sum(1 + sum(1 for j in nested_in(eqn) for _ in equations(j)) for _, eqn in self.equations)

    @property
    def is_uniform(self) -> bool:
        """Returns whether every iteration has the same shapes, as scan and vmap need it. The first and the last can
        differ: the first begins with values that have no batch yet, and the last is not differentiated further."""
        iterations = self.iterations
        sites: dict[Site, Counter[str]] = {}
        for site, eqn in self.equations:
            sites.setdefault(site, Counter())[str([str(v.aval) for v in eqn.outvars])] += 1
        # Operations that occur only a few times are not part of an iteration. They are arguments of the repeated call,
        # on the same line.
        often = [found for found in sites.values() if 2 * found.total() >= iterations]
        if self.inner:
            # Iterations of an inner loop can differ from each other if they do so in the same way each time.
            few, least = iterations // 2, iterations - 2
            often = [found for found in often if len(found) > few or min(found.values()) < least]
        return all(_count_odd(found, iterations) <= 2 for found in often)

    @property
    def is_independent(self) -> bool:
        """Does nothing come of two parts of one array, but what sums or gathers what came of each?"""
        parts: dict[int, dict[int, int]] = {}
        joined: dict[int, str] = {}
        for _, eqn in self.equations:
            own, has_two = self._parts_behind(eqn, parts)
            name = eqn.primitive.name.removesuffix("_any")
            joins = {joined[id(v)] for v in eqn.invars if id(v) in joined}
            if not has_two and not joins:
                parts |= dict.fromkeys(map(id, eqn.outvars), own)
            elif name in JOINS and joins <= {name}:  # a decaying sum is no sum: each iteration needs the one before
                joined |= dict.fromkeys(map(id, eqn.outvars), name)
            else:
                return False
        return True

    def _parts_behind(self, eqn: Any, parts: Mapping[int, Mapping[int, int]]) -> tuple[dict[int, int], bool]:
        """Returns the parts of arrays that it is made from, and whether it is made from two parts of one array."""
        own: dict[int, int] = {}
        found = [(id(part.array), part.start) for part in self._taken(eqn)]
        found += [item for v in eqn.invars for item in parts.get(id(v), {}).items()]
        return own, any(own.setdefault(array, start) != start for array, start in found)

    def _taken(self, eqn: Any) -> list[ArrayElement]:
        """The parts of arrays that an equation takes out, or reads as a row that was taken before the loop."""
        taken = (_part(eqn), *(self.rows.get(id(v)) for v in eqn.invars))
        return [part for part in taken if part is not None]

    @property
    def is_batch(self) -> bool:
        """Is each iteration the same work on its own part of an array, apart from all others?"""
        return self.slices is not None and self.is_uniform and self.is_independent and not self.has_own_arrays

    @property
    def has_own_arrays(self) -> bool:
        """Returns whether each iteration reads arrays that no other one does, like the layers of a model. One call of
        vmap would need them stacked."""
        iterations = self.iterations
        made = {id(v) for _, eqn in self.equations for v in eqn.outvars} | set(self.rows)
        reads: Counter[int] = Counter()
        for _, eqn in self.equations:
            given = (v for v in eqn.invars if not hasattr(v, "val") and getattr(v.aval, "ndim", 0))
            reads.update({id(v) for v in given} - made)
        return sum(n < iterations for n in reads.values()) >= iterations

    @property
    def slices(self) -> Slices | None:
        """The array that is taken apart, if it is so in half of its length at least."""
        starts: dict[tuple[Any, int], set[int]] = {}
        for part in (part for _, eqn in self.equations for part in self._taken(eqn)):
            starts.setdefault((part.array, part.axis), set()).add(part.start)
        # Fewer parts are a selection, such as x[0] and x[-1]. vmap would compute results that nothing uses.
        half = [(len(found), *key) for key, found in starts.items() if 2 * len(found) >= key[0].aval.shape[key[1]]]
        n, array, axis = max(half, key=lambda one: one[0], default=(0, None, 0))
        return Slices(str(array.aval.str_short(short_dtypes=True)), axis, n) if array is not None else None


def _count_odd(shapes: Counter[str], iterations: int) -> float:
    """In how many iterations a place of the body had other shapes than in most."""
    # A package runs several operations of different shapes for one place in the user's code. Sums over iterations occur
    # once less, and twice less in a derivative.
    usual = [n for n in shapes.values() if n >= iterations - 2] or [max(shapes.values())]
    return (shapes.total() - sum(usual)) * iterations / shapes.total()


def _part(eqn: Any) -> ArrayElement | None:
    """Returns the element that an equation takes from one axis: x[3] and x[:, 3]."""
    if eqn.primitive.name == "slice":
        taken, starts = eqn.outvars[0].aval.shape, eqn.params["start_indices"]
    elif eqn.primitive.name == "dynamic_slice" and all(hasattr(v, "val") for v in eqn.invars[1:]):
        taken, starts = eqn.params["slice_sizes"], [int(v.val) for v in eqn.invars[1:]]
    else:
        return None
    axes = [axis for axis, n in enumerate(taken) if n == 1 and eqn.invars[0].aval.shape[axis] > 1]
    return ArrayElement(eqn.invars[0], axes[0], int(starts[axes[0]])) if len(axes) == 1 else None


def find_unrolled(jaxpr: Any) -> list[Unrolled]:
    """Returns the loops behind a jaxpr, longest first. Loops of nested jaxprs are separate, and so are loops of two
    calls of one function."""
    loops_at = functools.cache(_loops_at)  # an equation has dozens of frames
    found: list[Unrolled] = []
    nested = (each for eqn in every_equation(jaxpr) for each in nested_in(eqn))
    # Each once: a function that is called often is one.
    levels = {id(level): level for level, _ in map(open_program, (jaxpr, *nested))}
    for level in levels.values():
        # `for row in x` takes all its parts at once (since jax 0.11).
        unstacked = (eqn for eqn in level.eqns if eqn.primitive.name == "unstack")
        rows = {
            id(row): ArrayElement(eqn.invars[0], eqn.params["axis"], i)
            for eqn in unstacked
            for i, row in enumerate(eqn.outvars)
        }
        loops: dict[LoopKey, Unrolled] = {}
        for eqn in level.eqns:
            places = list(_places_of(eqn, loops_at))  # innermost first
            for loop, key, site in places[:1]:
                within = [around for _, around, _ in places[1:]]
                loops.setdefault(key, Unrolled(key.where, loop, rows, within)).own.append((site, eqn))
        for loop in loops.values():
            # Code that ran once, such as the head of the loop, is not part of its body.
            often = Counter(site for site, _ in loop.own)
            loop.own = [(site, eqn) for site, eqn in loop.own if often[site] > 1]
        found += _with_short_inner_loops({key: loop for key, loop in loops.items() if loop.own})
    return sorted(found, key=lambda loop: -loop.size)


def _with_short_inner_loops(loops: Mapping[LoopKey, Unrolled]) -> list[Unrolled]:
    """Adds a loop with fewer iterations than the loop around it to that loop's body. For example, two layers of a model
    that is called in a loop of 16 were traced 32 times."""
    left = dict(loops)
    for key, inner in loops.items():
        outer = next((left[around] for around in inner.within if around in left), None)
        if outer is not None and outer.iterations**2 > inner.iterations:
            outer.inner += left.pop(key).equations
    return list(left.values())


def _loops_at(file: str, line: int) -> list[Repeat]:
    """The loops around a line in its function, innermost first."""
    tree = readable(file)
    inner = innermost_repeat(tree, line)
    if inner is None:
        return []
    outer = [one for one in loops_around(tree, line) if one is not inner and holds(one, inner.lineno)]
    return [inner, *sorted(outer, key=lambda one: -one.lineno)]


def _places_of(eqn: Any, loops_at: Callable[[str, int], list[Repeat]]) -> Iterator[tuple[Repeat, LoopKey, Site]]:
    """(loop, its key, the place of an equation in it) of the loops around it and of those that call the code around it,
    outwards."""
    inwards: list[tuple[Any, int]] = []
    frames = list(takewhile(lambda frame: not frame[0].co_filename.startswith(_END), _frames(eqn)))
    for i, (code, at, line) in enumerate(frames):
        owner = owner_of(code.co_filename)
        if owner not in ("user", "package"):
            continue
        inwards.append((code, at))
        # Users cannot change the loops of installed packages (diffrax has one of 100 iterations).
        for loop in loops_at(code.co_filename, line) if owner == "user" else ():
            around = tuple((code, at) for code, at, _ in frames[i + 1 :] if owner_of(code.co_filename) == "user")
            key = LoopKey((code.co_filename, loop.lineno), kind_of(loop), around)
            # A derivative repeats the work of a line and adds its transpose, which makes two places of the body.
            yield loop, key, (*inwards, eqn.primitive.name, BACKWARD in scope_of(eqn))


def _frames(eqn: Any) -> list[tuple[Any, int, int]]:
    """(code, position in it, line), innermost first; nothing where it is not told."""
    try:
        traceback = eqn.source_info.traceback
        codes, positions = traceback.raw_frames()
        # Both are needed: byte-code positions distinguish two places on one line, and line numbers find the loop in the
        # source.
        lines = [frame.line_num for frame in traceback.frames]
        return list(zip(codes, positions, lines, strict=True))
    except (AttributeError, ValueError):  # not documented, see above
        return []


def loops_of(e: Evidence) -> list[Unrolled]:
    """The loops of the function that is audited.

    Raises:
        NotMeasured: it is a wrapper without a separate step of tracing, or its loops cannot be read.
    """
    found = find_unrolled(e.closed_jaxpr)
    if not found:
        check_readable(e.fn)
    return found


# ---- unrolled-loop ---------------------------------------------------------------------------------------------------

MANY_ITERATIONS, LARGE, LARGE_SHARE = 8, 40, 0.5
"""Iterations; operations, and their share of the program. 20, 40, and 100 operations written out take 0.06, 0.09, and
0.14 s longer to build than a loop (jaxlib 0.12.0, CPU, two busy cores)."""
LONG, SHARE_OF_LONG = 50, 0.1
"""This many iterations make a program long with a smaller share: what a library makes of each can follow the loop, as
numpyro's densities do. With half or twice of both, rules find the same in the clean programs and the programs of
unrolled-loop."""
UNIFORM_SHARE = 0.25
"""Operations of a loop that are in a copy of it with the same shapes in each iteration. With half or twice of it, rules
find the same in the clean programs and the programs of unrolled-loop."""
SAVED_S = 2.0
"""The share of building that a short loop could save. Below it, the finding is an info: a warning for one second of
building was no help (docs/about/field-notes.md)."""


@rule(
    "unrolled-loop",
    "is a Python loop unrolled in the program?",
    "warning",
    traced=True,
    advice=(
        "Use jax.lax.fori_loop, or jax.lax.scan if each iteration has its own data (stack the layers' parameters "
        "along a new first axis). The program is then as long as one iteration. An unrolled loop can run faster: "
        "scan has unroll= to write out a few iterations; compare both before you decide."
    ),
)
def unrolled_loop(e: Evidence) -> Iterable[Match]:
    """Finds a Python loop that the program contains iteration by iteration, so that each is compiled."""
    total = _count_equations(e)
    # Under a gradient a loop occurs twice, forward and backward, and in one of them the first iteration differs.
    for loops in group_by(loops_of(e), lambda loop: loop.where).values():
        n, loop = sum(loop.size for loop in loops), max(loops, key=lambda loop: loop.iterations)
        share = SHARE_OF_LONG if loop.iterations >= LONG else LARGE_SHARE
        is_large = loop.iterations >= MANY_ITERATIONS and n >= max(LARGE, share * total)
        # scan needs iterations of one shape. Loops that vmap could replace are left to python-loop-vmap.
        uniform = sum(loop.size for loop in loops if loop.is_uniform)
        if not is_large or uniform < UNIFORM_SHARE * n or any(loop.is_batch for loop in loops):
            continue
        try:
            build_s = e.measurement.stages.build_s
        except (NotMeasured, NotApplicable):  # the loop is there all the same
            build_s = e.recorded.compile_s if e.recorded else None
        seen = [
            (
                f"its body was traced {loop.iterations} times: {n} of the program's {total} operations "
                f"({percent(n / total)})"
            )
        ]
        gain, saved_s = None, (build_s or 0.0) * n / total * (1 - 1 / loop.iterations)
        if build_s is not None:
            seen.append(f"tracing, lowering and compiling took {seconds(build_s)} (measured once)")
            gain = Gain(f"estimated: at most {seconds(saved_s, 2)} of building")
        yield Match(
            f"the {loop.kind} is unrolled {loop.iterations} times",
            seen,
            where=loop.where,
            gain=gain,
            severity="info" if build_s is not None and saved_s < SAVED_S else None,
        )


def _count_equations(e: Evidence) -> int:
    return sum(1 for _ in equations(e.closed_jaxpr))


# ---- python-loop-vmap ------------------------------------------------------------------------------------------------

FEW, SOME = 4, 8
"""Iterations; below the second it is an info. Up to 8 products of 64 × 64 with a vector take as long written out as
under vmap. 16 and 64 take 3.8 and 2.6 times as long (float32, jaxlib 0.12.0, CPU, two busy cores)."""


@rule("python-loop-vmap", "does a Python loop do what vmap could?", "warning", traced=True)
def python_loop_vmap(e: Evidence) -> Iterable[Match]:
    """Finds a Python loop over the parts of an array, each iteration by itself: one `jax.vmap` would do them all."""
    for loop in loops_of(e):
        slices = loop.slices
        if slices is None or loop.iterations < FEW or not loop.is_batch:
            continue
        axes = "" if slices.axis == 0 else f", in_axes={slices.axis}"
        # jax.vmap cannot map sample sites of numpyro.
        is_plate = any(ast.unparse(call.func) == "numpyro.sample" for call in calls(loop.loop, "sample"))
        yield Match(
            f"the {loop.kind} splits an array and does the same with each of {loop.iterations} parts",
            [
                f"{slices.starts} parts are taken out of an array {slices.spec} along axis {slices.axis}",
                (
                    f"{loop.size} of the program's {_count_equations(e)} operations are {loop.iterations} copies of "
                    "its body"
                ),
                "no iteration needs another's result, apart from sums",
            ],
            "Replace them with one site in a plate: with numpyro.plate(name, n): x = numpyro.sample(...), and "
            "compute with the whole array. The program is then as long as one iteration."
            if is_plate
            else f"Write the body as a function of one part, and call jax.vmap(body{axes}) on the whole array: the "
            "program is then as long as one iteration, and the device sees the whole batch. If the loop adds up "
            "results, sum them afterwards.",
            where=loop.where,
            severity="info" if loop.iterations < SOME else None,
        )


# ---- sequential-map --------------------------------------------------------------------------------------------------

LEAST_FLOPS, MOST_FLOPS, MOST_FLOPS_DERIVED = 1 << 11, 1 << 21, 1 << 16
"""FLOP of one product of one item; smaller ones do not count. With 1000 items, `jax.lax.map` took 0.17 to 1.6 µs longer
for each than `jax.vmap`, 1.6 to 10 times as long in all. With 256 items with products of 0.26 to 2 MFLOP, it took 2.2
to 4 times as long. With their derivative both took about as long (float32, jaxlib 0.10.2, CPU, two cores). Without
products, items of a few operations were no slower in a loop than at once."""
LOST_S, LEAST_LOST_S = 0.17e-6, 2e-4
"""Lost at least with each product of each item, by the same measurement; and of a call."""
MOST_BYTES = 32 << 20
"""All that is made for all items: with more, a loop can be there to save memory."""
LEAST_SHARE = 0.5
"""Operations of an item that are in such products. With half of it, rules find the same in the clean programs and the
programs of sequential-map."""


@rule(
    "sequential-map",
    "are small independent items computed at once?",
    "info",
    traced=True,
    known_on="cpu",
    advice=(
        "Compute them at once: jax.vmap(f)(xs) instead of jax.lax.map(f, xs), or jax.lax.map(f, xs, "
        "batch_size=256) to make at most that many at a time."
    ),
)
def sequential_map(e: Evidence) -> Iterator[Match]:
    """Finds loops over many small items that do not depend on each other, which `jax.vmap` would compute at once."""
    is_derived = any(op.name == "scan" and op.is_backward for op in e.program.ops)
    most = MOST_FLOPS_DERIVED if is_derived else MOST_FLOPS
    for op in e.program.find("scan"):
        body, n = op.bodies[0], op.params["length"]
        if op.equation.effects or body.carries:
            continue
        # XLA hoists work that is the same for all items out of the loop.
        varying = list_ahead(body.inputs[body.constants :])
        each = [one for one in body.ops if varying.intersection(one.reads)]
        products = [one.work for one in each if one.name == "dot_general"]
        # Nested loops and branches, factorizations and sorts are no cheaper for a batch.
        is_plain = not any(one.bodies or one.name in COSTLY - {"dot_general"} for one in each)
        flops, made = sum(one.work for one in each), sum(v.size_bytes for one in each for v in one.makes) * n
        is_small = all(one <= most for one in products) and made <= MOST_BYTES
        products = [one for one in products if one >= LEAST_FLOPS]
        lost_s = LOST_S * n * len(products) * (op.body.trips or 1)
        if is_plain and is_small and sum(products) >= LEAST_SHARE * flops and lost_s >= LEAST_LOST_S:
            yield Match(
                f"loops over {n} small items one by one",
                [
                    (
                        f"each takes {count(flops, 'FLOP')}, most of them in {count(len(products))} small "
                        f"product{'s' if len(products) > 1 else ''}, and none needs another's result"
                    ),
                    f"all at once, they make at most {size(made)}",
                    (
                        "in loops of this kind that were measured on a CPU, each such product lost "
                        f"{seconds(LOST_S)} or more, about {seconds(lost_s)} of a call here; not measured in this "
                        "function"
                    ),
                ],
                op=op,
            )


# ---- stacked-outputs -------------------------------------------------------------------------------------------------

FEW_NEEDED = 8
"""At most one byte in eight of a stack is needed. With one in four, rules find the same in the clean programs and the
programs of stacked-outputs. One in 16 misses a use of every tenth row."""
ACCUMULATED = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or")
"""Reductions that a carry can hold from step to step."""
REDUCTIONS = (*ACCUMULATED, "argmax", "argmin")
STACKED_BYTES, SHARE_OF_ALL = 8 << 20, 0.5
"""Bytes of the stacks of one loop, and their share of all arguments and results. Stacking 300 arrays of 1 MiB, and
reading them once, takes 0.3 s on two cores. The same loop without it takes 0.02 s. With 16 KiB, the times are 0.6 ms
and 0.2 ms (jaxlib 0.10.2, CPU)."""
MOST_WORK = 256.0
"""Operations of the loop for each byte that it stacks. Writing a byte to fresh memory and reading it takes about a
nanosecond, less than a twentieth of these operations. With more work, only memory is saved."""
HOW = {
    "rows": "Read the last step's value from the carry after the loop; for every k-th step, use a scan over the k "
    "steps inside of a scan. ",
    "total": "Accumulate it in the carry: carry, total + y. ",
    "each": "Compute that in the body, and return it instead of the whole: return carry, small(y). ",
}


class Need(NamedTuple):
    """The part of a stack that is read, in the end."""

    kind: str
    """"rows": some of them; "total": a reduction over them; "each": something small of each."""
    op: TracedOp | None
    """The operation that makes it: a slice, a reduction; None if it is the output itself."""
    value: Value


@rule("stacked-outputs", "do loops stack only what is read?", "warning", traced=True)
def stacked_outputs(e: Evidence) -> Iterator[Match]:
    """Finds scans that stack an output of each step where a few rows, or something small of each, would do."""
    held = sum(value.size_bytes for value in (*e.program.inputs, *e.program.outputs))
    for op in e.program.find("scan"):
        found = {stack: (needs, _needed_bytes(needs)) for stack, needs in needs_of(op).items()}
        stacks = {one: pair for one, pair in found.items() if FEW_NEEDED * pair[1] <= one.size_bytes}
        total, needed = sum(stack.size_bytes for stack in stacks), sum(n for _, n in stacks.values())
        if total < max(STACKED_BYTES, SHARE_OF_ALL * held):
            continue
        kinds = {need.kind for needs, _ in stacks.values() for need in needs}
        read = "nothing else reads them, and the function doesn't return them"
        inputs = (f"float32[{max(1, total // op.params['length'] // 4)}]", op.params["length"])
        largest = sorted(stacks, key=lambda stack: -stack.size_bytes)
        yield Match(
            f"stacks {size(total)} in a scan; {size(needed)} would be enough",
            [
                *list_some([_describe(stack, stacks[stack][0]) for stack in largest], 3, "outputs"),
                f"{f'the scan is{op.at}' if op.line else 'a scan'}; {read}",
            ],
            "".join(text for kind, text in HOW.items() if kind in kinds).rstrip(),
            op=op,
            instead=Instead(
                "reduced in the body",
                "a loop that does nothing else with rows of this size",
                lambda x, n: jax.lax.scan(lambda x, _: (0.9 * x + 1.0, x), x, None, length=n)[1].mean(axis=1),
                lambda x, n: jax.lax.scan(lambda x, _: (0.9 * x + 1.0, x.mean()), x, None, length=n)[1],
                inputs,
                (1,),
            ),
            gain=Gain(f"estimated: at most {size(total - needed)} of memory", bytes=total - needed),
            severity=None if op.work < MOST_WORK * total else "info",
            related=[("its body begins here", _where_defined(op))],
        )


def needs_of(scan: TracedOp) -> dict[Value, list[Need]]:
    """The parts of each stacked output of a scan that are read. Outputs that are needed as a whole, or not read, are
    left out."""
    body, carried = scan.body, len(scan.bodies[0].carries)
    axes, late = dict.fromkeys(scan.makes[carried:], 0), set(scan.makes[:carried])
    """Where the rows are in what is made row by row; values that depend on the loop otherwise."""
    needs: dict[Value, list[Need | None]] = {stack: [] for stack in axes}
    ends: list[tuple[Value, Need | None]] = []
    for op in body.ops[body.ops.index(scan) + 1 :]:
        read, is_late = [value for value in op.reads if value in axes], bool(late.intersection(op.reads))
        axis = _axis_after(op, read[0], axes, scan.params["length"]) if read and not is_late else None
        if axis is not None:
            axes[op.makes[0]] = axis
            continue
        late.update(op.makes if read or is_late else ())
        kind = None if is_late else _kind(op, read)
        ends += [(value, Need(kind, op, op.makes[0]) if kind else None) for value in read]
    for value, need in (*ends, *((value, None) for value in body.outputs if value in axes)):
        for stack in (one for one in value.behind() if one in needs):
            is_small = FEW_NEEDED * value.size_bytes <= stack.size_bytes
            needs[stack].append(need or (Need("each", value.maker, value) if is_small else None))
    return {stack: list(filter(None, found)) for stack, found in needs.items() if found and None not in found}


def _axis_after(op: TracedOp, source: Value, rows: Mapping[Value, int], length: int) -> int | None:
    """Where the rows are in what an operation makes row by row; None if it does something else."""
    axes = {rows[value] for value in op.reads if value in rows}
    if len(op.makes) != 1 or len(axes) != 1:
        return None
    (axis,), params, made = axes, op.params, op.makes[0]
    match op.name:
        case name if name in ELEMENTWISE:
            return axis if made.shape[axis : axis + 1] == (length,) else None
        case name if name in REDUCTIONS or name == "squeeze":
            gone = params["dimensions" if name == "squeeze" else "axes"]
            return None if axis in gone else axis - sum(1 for one in gone if one < axis)
        case "broadcast_in_dim":
            return params["broadcast_dimensions"][axis]
        case "transpose":
            return tuple(params["permutation"]).index(axis)
        case "reshape":  # None if the axis is merged with others
            ahead = math.prod(source.shape[:axis])
            fits = (i for i, n in enumerate(made.shape) if n == length and math.prod(made.shape[:i]) == ahead)
            return next(fits, None)
        case "slice" | "dynamic_slice":
            return axis if made.shape[axis] == length else None
    return None


def _kind(op: TracedOp, read: list[Value]) -> str | None:
    """The need of an operation that takes some rows or reduces all of them; None for any other."""
    if op.name in ("slice", "dynamic_slice", "gather"):
        # The selection of the rows is known before the loop, because no other operand belongs to the loop.
        is_chosen = read == [op.reads[0]] and FEW_NEEDED * op.makes[0].size_bytes <= op.reads[0].size_bytes
        return "rows" if is_chosen else None
    return "total" if op.name in ACCUMULATED else None


def _needed_bytes(needs: Sequence[Need]) -> int:
    return sum(value.size_bytes for value in {need.value for need in needs})


def _describe(stack: Value, needs: Sequence[Need]) -> str:
    made = [(f"{one.value.spec}, {size(one.value.size_bytes)}", one.op) for one in needs]
    used = list_some([f"{what} ({op.name}{op.at})" if op is not None else what for what, op in made], 3)
    return f"{stack.spec}, {size(stack.size_bytes)}, is read only for {', '.join(dict.fromkeys(used))}"


def _where_defined(scan: TracedOp) -> str:
    """The first line of the body; empty in a JAX that doesn't report it (0.6 to 0.10.2 do)."""
    info = getattr(scan.params["jaxpr"].jaxpr, "debug_info", None)
    return str(getattr(info, "func_src_info", "")).rpartition(" at ")[2]
