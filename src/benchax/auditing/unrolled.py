"""Python loops as a trace contains them: each iteration left its own copy of the body in the program.

An equation belongs to the innermost loop of the user's source that contains one of the frames behind it. The position
of each frame in the byte code distinguishes the places of the body, also two on one line. A place that occurs n times
was traced n times. The module reads `eqn.source_info` and `Traceback.raw_frames`, which JAX does not document (tried on
0.6.2, 0.10.2, 0.11.2 and 0.12.0.1). If they are missing or different, it finds no loop.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from benchax.auditing.syntax import (
    Repeat,
    carried_names,
    check_readable,
    holds,
    innermost_repeat,
    kind_of,
    loops_around,
    tree_of,
)
from benchax.measuring import program as programs
from benchax.program.index import BACKWARD
from benchax.program.jaxpr import equations, nested_in, scope_of
from benchax.results.audit import Where
from benchax.source_files import owner_of

if TYPE_CHECKING:
    from benchax.auditing.evidence import Evidence

_JAX = str(Path(jax.__file__).parent)
# Behind these frames stands whoever asked for the audit, maybe in a loop of his own. jax 0.6.2 tells of them.
_END = str(Path(programs.__file__).parent)
JOINS = (
    "add", "add_any", "mul", "max", "min", "and", "or", "scatter", "dynamic_update_slice", "concatenate", "stack",
)  # fmt: skip
"""Operations that can join several iterations that could still run side by side: a sum, or one result of all."""
ODD_ITERATIONS = 1.5
"""The number of iterations that can have other shapes."""

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


class LoopPlace(NamedTuple):
    """The place of an equation in a loop."""

    loop: Repeat
    key: LoopKey
    site: Site


@dataclass(frozen=True)
class Slices:
    """One array whose parts each iteration takes separately."""

    spec: str
    axis: int
    starts: int
    """Different parts that are taken."""


@dataclass
class Unrolled:
    """One loop. `equations` are those of its body, in order, each with its place."""

    where: Where
    loop: Repeat
    rows: Mapping[int, ArrayElement] = field(default_factory=dict[int, ArrayElement])
    """The values from before the loop that are taken apart for it: the id of a variable → the part that it is."""
    within: Sequence[LoopKey] = ()
    """The loops that call the code around it, from it outwards."""
    equations: list[tuple[Site, Any]] = field(default_factory=list[tuple[Site, Any]])
    turns: int = 0
    """The number of iterations, if known; 0: read it from its equations."""
    has_inner: bool = False
    """Do the equations of loops inside of it belong to it?"""

    @property
    def kind(self) -> str:
        return kind_of(self.loop)

    def settle(self) -> None:
        """Drops what ran once, such as the head of the loop."""
        often = Counter(site for site, _ in self.equations)
        self.equations = [(site, eqn) for site, eqn in self.equations if often[site] > 1]

    @property
    def iterations(self) -> int:
        """How often the body was traced: as often as half of its places occur, or some times as often."""
        if self.turns:
            return self.turns
        counts = Counter(Counter(site for site, _ in self.equations).values())
        # Forwards and backwards, and in loops of packages, a place occurs several times in a turn; sums of what each
        # turn came to are one fewer.
        fits = {n: sum(k for c, k in counts.items() if c % n == 0 or (n > 2 and c % (n - 1) == 0)) for n in counts}
        found = max((n for n, k in fits.items() if 2 * k >= counts.total()), default=min(counts, default=0))
        # A package and its derivative can run most places twice. The parts of the array then number the iterations.
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
        sites: dict[Site, Counter[str]] = {}
        for site, eqn in self.equations:
            sites.setdefault(site, Counter())[str([str(v.aval) for v in eqn.outvars])] += 1
        # What occurs a few times is no part of an iteration: arguments of the call that repeats, on its line.
        often = [found for found in sites.values() if 2 * found.total() >= self.iterations]
        if self.has_inner:
            # Turns of a loop inside may differ, if they do so in the same way each time.
            often = [found for found in often if not _is_repeated(found, self.iterations)]
        return all(_count_odd(found, self.iterations) <= ODD_ITERATIONS for found in often)

    @property
    def is_independent(self) -> bool:
        """Does nothing come of two parts of one array, but what sums or gathers what came of each?"""
        parts: dict[int, dict[int, int]] = {}
        joined: set[int] = set()
        for _, eqn in self.equations:
            if joined.intersection(map(id, eqn.invars)) and eqn.primitive.name not in JOINS:
                return False
            own, is_joined = self._parts_behind(eqn, parts)
            if is_joined and eqn.primitive.name not in JOINS:
                return False
            if is_joined or joined.intersection(map(id, eqn.invars)):
                joined.update(map(id, eqn.outvars))
            else:
                parts |= dict.fromkeys(map(id, eqn.outvars), own)
        return True

    def _parts_behind(self, eqn: Any, parts: Mapping[int, Mapping[int, int]]) -> tuple[dict[int, int], bool]:
        """Returns the parts of arrays that it is made from, and whether it is made from two parts of one array."""
        own: dict[int, int] = {}
        taken = (_part(eqn), *(self.rows.get(id(v)) for v in eqn.invars))
        found = [(id(part.array), part.start) for part in taken if part is not None]
        found += [item for v in eqn.invars for item in parts.get(id(v), {}).items()]
        return own, any(own.setdefault(array, start) != start for array, start in found)

    @property
    def is_batch(self) -> bool:
        """Is each iteration the same work on its own part of an array, apart from all others?"""
        is_apart = self.slices is not None and self.is_uniform and self.is_independent and not self.has_own_arrays
        # A derivative is made in parts, and in one of them what iterations hand on may not be seen.
        return is_apart and not carried_names(self.loop)

    @property
    def has_own_arrays(self) -> bool:
        """Returns whether each iteration reads arrays that no other one does, like the layers of a model. One call of
        vmap would need them stacked."""
        made = {id(v) for _, eqn in self.equations for v in eqn.outvars} | set(self.rows)
        reads: Counter[int] = Counter()
        for _, eqn in self.equations:
            given = (v for v in eqn.invars if not hasattr(v, "val") and getattr(v.aval, "ndim", 0))
            reads.update({id(v) for v in given} - made)
        return sum(n < self.iterations for n in reads.values()) >= self.iterations

    @property
    def slices(self) -> Slices | None:
        """The array that is taken apart, if it is so in half of its length at least."""
        starts: dict[tuple[int, int], set[int]] = {}
        arrays: dict[int, Any] = {}
        for _, eqn in self.equations:
            for part in (_part(eqn), *(self.rows.get(id(v)) for v in eqn.invars)):
                if part is not None:
                    arrays[id(part.array)] = part.array.aval
                    starts.setdefault((id(part.array), part.axis), set()).add(part.start)
        for (array, axis), found in sorted(starts.items(), key=lambda item: -len(item[1])):
            # Fewer parts are a choice of some, as x[0] and x[-1] are: vmap would compute what nobody wants.
            if 2 * len(found) >= arrays[array].shape[axis]:
                return Slices(str(arrays[array].str_short(short_dtypes=True)), axis, len(found))
        return None


def _is_repeated(shapes: Counter[str], iterations: int) -> bool:
    return len(shapes) <= iterations // 2 and min(shapes.values()) >= iterations - 2


def _count_odd(shapes: Counter[str], iterations: int) -> float:
    """In how many iterations a place of the body had other shapes than in most."""
    # What a package does behind one place of the user's are several operations with shapes of their own. Sums of what
    # each iteration came to are one fewer, in a derivative two.
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


def _rows(jaxpr: Any) -> dict[int, ArrayElement]:
    """The parts that `for row in x` takes at once (since jax 0.11), by the ids of their variables."""
    return {
        id(row): ArrayElement(eqn.invars[0], eqn.params["axis"], i)
        for eqn in jaxpr.eqns
        if eqn.primitive.name == "unstack"
        for i, row in enumerate(eqn.outvars)
    }


def find_unrolled(jaxpr: Any) -> list[Unrolled]:
    """Returns the loops behind a jaxpr, longest first. Loops of nested jaxprs are separate, and so are loops of two
    calls of one function."""
    source = _Source()
    found: list[Unrolled] = []
    for level in _levels(jaxpr):
        rows = _rows(level)
        loops: dict[LoopKey, Unrolled] = {}
        for eqn in level.eqns:
            places = _places_of(eqn, source)
            for loop, key, site in places[:1]:
                within = [place.key for place in places[1:]]
                loops.setdefault(key, Unrolled(key.where, loop, rows, within)).equations.append((site, eqn))
        for loop in loops.values():
            loop.settle()
        found += _with_short_inner_loops({key: loop for key, loop in loops.items() if loop.equations})
    return sorted(found, key=lambda loop: -loop.size)


def _with_short_inner_loops(loops: Mapping[LoopKey, Unrolled]) -> list[Unrolled]:
    """Adds a loop with fewer iterations than the loop around it to that loop's body. For example, two layers of a model
    that is called in a loop of 16 were traced 32 times."""
    left = dict(loops)
    for key, inner in loops.items():
        outer = next((left[around] for around in inner.within if around in left), None)
        if outer is not None and outer.iterations**2 > inner.iterations:
            outer.turns = outer.iterations  # places of the inner one occur more often
            outer.equations += left.pop(key).equations
            outer.has_inner = True
    return list(left.values())


def _levels(jaxpr: Any) -> Iterator[Any]:
    """It and the nested ones, each once: a function that is called often is one."""
    seen: set[int] = set()
    waiting = [jaxpr]
    while waiting:
        level = waiting.pop()
        level = getattr(level, "jaxpr", level)
        if id(level) not in seen:
            seen.add(id(level))
            yield level
            waiting += [nested for eqn in level.eqns for nested in nested_in(eqn)]


class _Source:
    """The user's files, each read once, and each line looked up once: an equation has dozens of frames."""

    def __init__(self) -> None:
        self._trees: dict[str, ast.Module | None] = {}
        self._loops: dict[Where, Sequence[Repeat]] = {}

    def loops(self, file: str, line: int) -> Sequence[Repeat]:
        """Those around a line in its function, innermost first."""
        if (file, line) not in self._loops:
            if file not in self._trees:
                self._trees[file] = tree_of(file)
            tree = self._trees[file]
            self._loops[file, line] = list(_loops_at(tree, line)) if tree is not None else ()
        return self._loops[file, line]


def _loops_at(tree: ast.Module, line: int) -> Iterator[Repeat]:
    inner = innermost_repeat(tree, line)
    if inner is not None:
        yield inner
        outer = (one for one in loops_around(tree, line) if one is not inner and holds(one, inner.lineno))
        yield from sorted(outer, key=lambda one: -one.lineno)


def _places_of(eqn: Any, source: _Source) -> list[LoopPlace]:
    """Returns the places in the loop around it, in outer loops, and in loops that call the code around it, outwards."""
    found: list[LoopPlace] = []
    inwards: list[tuple[Any, int]] = []
    frames = _frames(eqn)  # innermost first
    for i, (code, at, line) in enumerate(frames):
        file = code.co_filename
        if file.startswith(_END):
            break
        owner = owner_of(file)
        if owner not in ("user", "package") or file.startswith(_JAX):
            continue
        inwards.append((code, at))
        # Nobody who asks can change the loops of installed packages (diffrax has one of 100 iterations).
        if owner == "package":
            continue
        for loop in source.loops(file, line):
            around = tuple((code, at) for code, at, _ in frames[i + 1 :] if owner_of(code.co_filename) == "user")
            key = LoopKey((file, loop.lineno), kind_of(loop), around)
            # A derivative does in one line what that did, and its transpose, which are two places of the body.
            found.append(LoopPlace(loop, key, (*inwards, eqn.primitive.name, BACKWARD in scope_of(eqn))))
    return found


def _frames(eqn: Any) -> list[tuple[Any, int, int]]:
    """(code, position in it, line), innermost first; nothing where it is not told."""
    try:
        traceback = eqn.source_info.traceback
        codes, positions = traceback.raw_frames()
        # Byte-code positions tell two places of one line apart, line numbers find the loop in the source: both are
        # needed.
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
