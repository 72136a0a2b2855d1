"""Case: a function, its inputs and its name. And `@benchmark`, which makes cases from parameters.

Nothing here runs or imports JAX. A factory makes the inputs, and the engine calls it when the case begins. So a file
with forty benchmarks allocates one case's data at a time.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from benchax.environment import clean
from benchax.errors import UsageError, one_of
from benchax.keywords import NAMES_OF_JIT, check_kinds, check_places, check_text, positions, takes
from benchax.model import CaseId, EarlierRuns, Opaque, Program
from benchax.options import Given, Options
from benchax.printable import drop_addresses
from benchax.specs import DTYPES, MeshSpec, long_dtype, read_mesh
from benchax.wrappers import name_of

FORWARD = "forward"
MODES = (FORWARD, "grad", "forward_and_grad")
"""A loss as it is, its gradient, or both in one call. The mode is a parameter of the case (`attention[mode=grad]`), so
that its rows, histories, and baselines are its own."""

Positions = tuple["int | str", ...]
Amounts = "Mapping[str, float] | Callable[..., Mapping[str, float]]"
"""What one call gets done: {"samples": 32}, or a function of the inputs that returns such a dict."""

# The path differs between folders, but an identity must not.
_FILE_MODULE = re.compile("^benchax_file_[0-9a-f]+_")


@dataclass(frozen=True)
class ExactCalls:
    """How often a function is called, where that matters (it has side effects): each count is kept to exactly.

    The first run is the first of the warm-up calls. Without any it's the first sample, if a sample is one call.
    """

    per_sample: int
    warmup: int
    setup: Callable[[], tuple[tuple[Any, ...], Mapping[str, Any]]] | None = None
    """Makes the arguments of each call, before it and outside of its time; None: all are given the case's inputs."""


@dataclass(frozen=True)
class Case:
    """A function with concrete inputs and a name.

    `inputs()` gives `(args, kwargs)`: arrays, NumPy arrays, scalars, pytrees of them, `jax.ShapeDtypeStruct`s, or
    specs such as "f32[8,128]", for which seeded random data are made. `static` and `donate` list arguments of `fn`
    by position or name; they are for plain functions (a jitted one carries its own).
    """

    fn: Callable[..., Any]
    inputs: Callable[[], tuple[tuple[Any, ...], Mapping[str, Any]]]
    id: CaseId
    static: Positions = ()
    donate: Positions = ()
    jit: bool = True
    """False: the call is measured as it stands, operation by operation for a plain function."""
    options: Given = field(default_factory=dict[str, Any])
    folder: Path | None = None
    """Where the benchmark lives: its git state is recorded, whatever the working directory is."""
    reference: Callable[[], Any] | None = None
    """Gives the outputs that verification by "eager" compares with, where they are known without another call."""
    calls: ExactCalls | None = None
    """None: as many as the times need, in warming up and in each sample."""
    listen: Callable[[str, Any], None] | None = None
    """Callback for by-products that are not stored in the row. It receives ("lowered", stage of JAX), ("hlo", text),
    ("outputs", of the first call) and ("error", the exception that became the row's failure). Like `reference`, it
    exists in this process only."""
    find_program: Callable[[str], Program | None] | None = None
    """Finds a program by the digest of its source, so that it need not be exported again. It exists in this process
    only.
    """

    find_earlier_runs: Callable[[str, str], EarlierRuns] | None = None
    """Finds what earlier runs read, by the digest of the program and the fingerprint of the environment. For this
    process only."""

    work: Any = None
    """`Amounts`, or None if the author gives no amounts."""
    mode: str = FORWARD
    """Says whether `fn` is the given function itself, or its gradient."""
    mesh: MeshSpec | None = None
    """The devices over which specs such as "f32[8@data]" are sharded."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "reference": None, "listen": None, "find_program": None, "find_earlier_runs": None}

    def eager(self) -> Case:
        """The same case, measured without jit."""
        return replace(self, jit=False, id=replace(self.id, variant="eager"))

    def with_mode(self, mode: str) -> Case:
        """Returns the same case in that mode; the mode becomes a parameter.

        Raises:
            UsageError: the case is in another mode already, has a parameter of that name, or was compiled already.
        """
        if check_mode(mode) == self.mode:
            return self
        if self.mode != FORWARD or any(name == "mode" for name, _ in self.id.params):
            raise UsageError(f"{self.id.label!r} cannot be measured in mode {mode!r}", "a benchmark without a mode")
        if not hasattr(self.fn, "trace") and hasattr(self.fn, "cost_analysis"):
            raise UsageError(f"{self.id.label!r} was compiled already: it has no gradient", "the function itself")
        fn = in_mode(self.fn, mode, self.static)
        return replace(self, fn=fn, id=replace(self.id, params=(*self.id.params, ("mode", mode))), mode=mode)

    def with_mesh(self, given: Any) -> Case:
        """Returns the same case on that mesh, which becomes a parameter. Without `given`, returns the case itself.

        Raises:
            UsageError: it is not a mesh (`specs.read_mesh`), or the benchmark has a parameter of that name.
        """
        if given is None:
            return self
        mesh = read_mesh(given)
        params = self.id.params if self.mesh is None else tuple(p for p in self.id.params if p[0] != "mesh")
        if any(name == "mesh" for name, _ in params):
            raise UsageError(f"{self.id.label!r} cannot be put on the mesh {mesh}", "a benchmark without a mesh")
        return replace(self, id=replace(self.id, params=(*params, ("mesh", str(mesh)))), mesh=mesh)


def make_case(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    tag: str = "",
    static: Iterable[int | str] | int | str = (),
    donate: Iterable[int | str] | int | str = (),
    jit: bool = True,
    mode: str | None = None,
    work: Any = None,
    mesh: Any = None,
) -> Case:
    """Makes a case from a function and its arguments.

    Among the arguments, `static_argnums`, `static_argnames`, `donate_argnums` and `donate_argnames` mean what they mean
    to `jax.jit`, unless `fn` takes such an argument. A benchmark or a workload of benchax has its own inputs, which are
    used if none are given.

    Raises:
        UsageError: `fn` cannot be called, lacks an argument with a given position or name, or is a benchmark with
            several cases. Or a name cannot be stored.
    """
    if not callable(fn):
        raise UsageError(
            f"cannot measure {fn!r}, a {type(fn).__name__}",
            "a function: plain, jitted, compiled, or a wrapper that holds a jit",
            "pass the function and its arguments separately: bench(f, x), not bench(f(x))",
        )
    check_kinds(make_case, {"jit": jit})
    mode = FORWARD if mode is None else mode  # not `or`: it can be anything, also an array
    label = check_text(name_of(fn) if name is None else name, "name")
    case_id = CaseId(label, variant="" if jit else "eager", tag=check_text(tag, "tag"))
    named = {"static": positions(static, "static"), "donate": positions(donate, "donate")}
    given = (tuple(args), take_names_of_jit(fn, kwargs or {}, named))
    for what, places in named.items():
        check_places(fn, places, what)
    own = (_own_case(fn) if given == ((), {}) else None) or Case(fn, lambda: given, case_id)
    case = replace(
        own,
        fn=own.fn if isinstance(fn, Benchmark) else fn,
        id=case_id,
        static=named["static"] or own.static,
        donate=named["donate"] or own.donate,
        jit=jit and own.jit,
        work=check_work(work) or own.work,
        mode=FORWARD,
        mesh=None,
    )
    return case.with_mode(mode).with_mesh(own.mesh if mesh is None else mesh)


BENCHMARK_OF = "_benchax_benchmark"
"""The attribute of a function with its own inputs, such as a workload: its `Benchmark`."""


def benchmark_of(fn: Callable[..., Any]) -> Benchmark | None:
    """The benchmark that `fn` is, or that has its inputs, as a workload has; None for any other function."""
    found = fn if isinstance(fn, Benchmark) else getattr(fn, BENCHMARK_OF, None)
    return found if isinstance(found, Benchmark) else None


def _own_case(fn: Callable[..., Any]) -> Case | None:
    """The case of `fn` if no inputs are given; None if `fn` does not have its own inputs."""
    own = benchmark_of(fn)
    if own is None:
        return None
    cases = own.cases()
    if len(cases) > 1:
        raise UsageError(
            f"benchmark {own.name!r} has {len(cases)} cases, one for each combination of {', '.join(own.params)}",
            "its function with inputs, or one case",
            "benchax run FILE measures them all",
        )
    return cases[0]


def take_names_of_jit(
    fn: Callable[..., Any] | None, kwargs: Mapping[str, Any], named: dict[str, Positions]
) -> dict[str, Any]:
    """`kwargs` without what `jax.jit` calls static and donated, which is added to `named`."""
    rest = dict(kwargs)
    for theirs, ours in NAMES_OF_JIT.items():
        if theirs in rest and not (fn is not None and takes(fn, theirs)):
            named[ours] += positions(rest.pop(theirs), theirs)
    return rest


@dataclass(frozen=True)
class Benchmark:
    """The result of `@benchmark`: it can still be called as the function, and it makes cases."""

    template: Case
    """A case without parameters, mode, and mesh. Its inputs count only if `args` is `...`."""
    args: Any
    params: Mapping[str, tuple[Any, ...]]
    mode: str = FORWARD
    mesh: MeshSpec | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.template.fn(*args, **kwargs)

    @property
    def name(self) -> str:
        return self.template.id.name

    __name__ = name  # `name_of` asks for it, as it asks a function

    def cases(self, chosen: Mapping[str, Iterable[Any]] | None = None) -> list[Case]:
        """One case for each combination of the parameters; `chosen` replaces the values of some.

        Raises:
            UsageError: `chosen` names a parameter that this benchmark does not have.
        """
        for unknown in set(chosen or {}) - set(self.params):
            raise UsageError(f"benchmark {self.name!r} has no parameter {unknown!r}", one_of(self.params, unknown))
        values = {**self.params, **{k: tuple(v) for k, v in (chosen or {}).items()}}
        combinations = itertools.product(*values.values())
        return [self._case(dict(zip(values, combination, strict=True))) for combination in combinations]

    def _case(self, params: dict[str, Any]) -> Case:
        case_id = replace(self.template.id, params=tuple((k, param_value(v)) for k, v in params.items()))
        case = replace(self.template, inputs=functools.partial(_inputs, self.args, params), id=case_id)
        return case.with_mode(self.mode).with_mesh(self.mesh)


def benchmark(
    fn: Callable[..., Any] | None = None,
    *inputs: Any,
    args: Any = (),
    name: str | None = None,
    tag: str = "",
    static: Iterable[int | str] | int | str = (),
    donate: Iterable[int | str] | int | str = (),
    jit: bool = True,
    options: Options | Mapping[str, Any] | None = None,
    mode: Any = None,
    work: Any = None,
    mesh: Any = None,
    **params: Iterable[Any],
) -> Any:
    """Marks a function as a benchmark, in a file `bench_*.py` that `benchax run` finds.

    Example:
        >>> @benchax.benchmark(args=lambda n, dtype: (jnp.ones((n, n), dtype),), n=[128, 256], dtype=["f32", "bf16"])
        ... def matmul(x):
        ...     return x @ x

    Args:
        args: a tuple of inputs, or a function of the parameters that returns one (or a dict of keyword arguments).
            Inputs can be arrays, pytrees, or specs such as "f32[128,128]".
        name: default: the function's name.
        static, donate: arguments by position or name, as for `jax.jit`. The names that `jax.jit` uses work, too.
        jit: False measures the call as it is.
        options: options for this benchmark, such as {"max_time_s": 2}, or an `Options` with all of them.
        mode: "forward", "grad" or "forward_and_grad", of a loss; a list of values is a parameter of that name.
        work: the work of one call: {"samples": 32}, or a function of the inputs that returns it. Rows then have samples
            per second. A list of values is a parameter of that name.
        mesh: "data=4,model=2", a dict, or a `jax.sharding.Mesh`, for specs such as "f32[1024@data,512]". A list of
            values is a parameter of that name, which `args` can use as it likes.
        params: values of each parameter; every combination is a case. If a parameter is called `dtype` (or `…_dtype`),
            short names such as "bf16" reach `args` as "bfloat16".

    Raises:
        UsageError: a parameter without a list of values, `args` that cannot be used, or inputs that are not given by
            name.
    """
    if inputs:
        given = ", ".join(map(repr, (fn, *inputs)))
        raise UsageError(f"@benchmark({given}) gives inputs by position", f"@benchmark(args=({given}))")
    if fn is None:
        return lambda f: benchmark(
            f, args=args, name=name, tag=tag, static=static, donate=donate, jit=jit, options=options, mode=mode,
            work=work, mesh=mesh, **params
        )  # fmt: skip
    if not callable(fn):
        raise UsageError(
            f"cannot make a benchmark of {fn!r}, a {type(fn).__name__}",
            "a function",
            f"inputs are given by name: @benchmark(args=({fn!r},))",
        )
    check_kinds(benchmark, {"name": name, "jit": jit, "options": options})
    label = check_text(name or name_of(fn), "name")
    # A parameter can have this name. A list of values shows that it is a parameter.
    for key, given in (("mode", mode), ("work", work), ("mesh", mesh)):
        if isinstance(given, list | tuple | range):
            params[key] = cast("Iterable[Any]", given)
    mode = FORWARD if mode is None or "mode" in params else check_mode(mode)
    work = None if "work" in params else check_work(work)
    mesh = None if mesh is None or "mesh" in params else read_mesh(mesh)
    named = {"static": positions(static, "static"), "donate": positions(donate, "donate")}
    # Not passed as a parameter, even if the function has one of this name: `args` makes all arguments of a benchmark.
    lists = {key: _values(key, given, label) for key, given in take_names_of_jit(None, params, named).items()}
    if lists and not callable(args):
        raise UsageError(
            f"benchmark {label!r} has parameters {', '.join(lists)}, but its inputs do not depend on them",
            "args= as a function of the parameters, such as args=lambda n: (f'f32[{n}]',)",
            "" if args else "inputs that are the same in every case are args=(x, y)",
        )
    case_id = CaseId(label, variant="" if jit else "eager", tag=check_text(tag, "tag"))
    template = Case(fn, lambda: ((), {}), case_id, named["static"], named["donate"], jit, options or {}, work=work)
    return Benchmark(template, args, lists, mode, mesh)


def param_value(value: Any) -> Any:
    """Returns a parameter in its stored form. JSON's own values and tuples of them stay unchanged; a text identifies
    anything else.

    Distinct values stay distinct: True and "True" differ, arrays carry a digest of their bytes. Some values have no
    distinct text that is the same in every process (two lambdas). `@benchmark` refuses them.
    """
    if isinstance(value, list | tuple):
        return tuple(param_value(v) for v in value)
    if isinstance(value, str):
        return check_text(value, "parameter")
    if value is None or type(value) in (bool, int):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else Opaque("float", repr(value))
    return Opaque(type(value).__name__, _identify(value))


def storable_param(value: Any) -> Any:
    """As `param_value`, of any value at all: texts that are not valid Unicode are cleaned."""
    try:
        return param_value(value)
    except UsageError:
        return Opaque(type(value).__name__, clean(repr(value)))


def _identify(value: Any) -> str:
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{_FILE_MODULE.sub('', str(value.__module__))}.{value.__qualname__}"
    if hasattr(value, "dtype") and hasattr(value, "tobytes"):
        if value.shape == ():
            return f"{value.dtype}({value.item()!r})"
        digest = hashlib.sha256(value.tobytes()).hexdigest()[:12]
        return f"{value.dtype}{list(value.shape)}#{digest}"
    return check_text(drop_addresses(repr(value)), "parameter")


def _values(name: str, given: Any, benchmark_name: str) -> tuple[Any, ...]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise UsageError(
            f"parameter {name!r} of benchmark {benchmark_name!r} is {given!r}",
            f"a list of values, such as {name}=[{given!r}]",
            "args=... takes the function that makes the inputs" if callable(given) else "",
        )
    values = tuple(given)
    if not values:
        raise UsageError(f"parameter {name!r} of benchmark {benchmark_name!r} has no values", "at least one")
    stored = [param_value(v) for v in values]
    for i, one in enumerate(stored):
        if isinstance(one, Opaque) and one in stored[:i]:
            raise UsageError(
                f"two values of parameter {name!r} of benchmark {benchmark_name!r} are both stored as {one.text!r}",
                "values with different labels",
                "give functions a name with def, or list texts and look them up in args=",
            )
    return values


def _inputs(args: Any, params: Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    made = args(**{k: _for_factory(k, v) for k, v in params.items()}) if callable(args) else args
    if isinstance(made, Mapping):
        return (), made
    # For a function of one argument, people return a single array or spec.
    return (tuple(made) if isinstance(made, tuple | list) else (made,)), {}


def _for_factory(name: str, value: Any) -> Any:
    is_dtype = (name == "dtype" or name.endswith("_dtype")) and isinstance(value, str) and value in DTYPES
    return long_dtype(value) if is_dtype else value


# ---- modes -----------------------------------------------------------------------------------------------------------


def check_mode(mode: object) -> str:
    """Raises UsageError if `mode` is not a mode."""
    if not isinstance(mode, str) or mode not in MODES:
        raise UsageError(f"invalid mode={mode!r}", one_of(MODES, mode if isinstance(mode, str) else ""))
    return mode


def in_mode(fn: Callable[..., Any], mode: str, static: tuple[int | str, ...] = ()) -> Callable[..., Any]:
    """Returns `fn`, or a function of the same arguments that returns its gradient, as `jax.grad` and
    `jax.value_and_grad` do.

    The gradient is taken with respect to the first argument that is an array of floats, or a tree of them. Leaves that
    `jax.jit` does not take, such as functions inside a module, have no gradient. A function that is not a loss raises
    JAX's error when it is traced.

    Args:
        static: arguments by position or name, with respect to which no gradient is taken.
    """
    if mode == FORWARD:
        return fn

    # Don't copy the attributes, because a jitted function's attributes would make this look like one.
    @functools.wraps(fn, assigned=("__name__", "__doc__", "__module__"), updated=())
    def gradient(*args: Any, **kwargs: Any) -> Any:
        import jax

        from benchax.static_leaves import hide, reveal

        def loss(*args: Any, **kwargs: Any) -> Any:
            return fn(*reveal(args), **reveal(kwargs))

        transform = jax.grad if mode == "grad" else jax.value_and_grad
        args = tuple(map(hide, args))
        return transform(loss, floats_of(args, static))(*args, **kwargs)

    return gradient


def floats_of(args: tuple[Any, ...], static: tuple[int | str, ...]) -> int:
    """The position of the first argument that is a tree of floats: a gradient is taken with respect to it.

    Raises:
        TypeError: there is no such tree. This happens inside a trace, where JAX raises the same for a function that is
            not a loss.
    """
    import jax

    for i, tree in enumerate(args):
        leaves = jax.tree.leaves(tree)
        # Python's own floats count: under jit, they are arrays as well.
        are_floats = [jax.numpy.issubdtype(getattr(x, "dtype", type(x)), jax.numpy.floating) for x in leaves]
        if i not in static and leaves and all(are_floats):
            return i
    raise TypeError("no positional argument consists of floats, which a gradient needs")


# ---- work ------------------------------------------------------------------------------------------------------------


def check_work(work: Any) -> Any:
    """`work`, if it can be the amounts of one call.

    Raises:
        UsageError: neither a function nor amounts by name, each a finite number above 0.
    """
    if work is None or callable(work):
        return work
    expected = 'amounts of one call by name, such as {"samples": 32}, or a function of the inputs that returns them'
    if not isinstance(work, Mapping) or not work:
        raise UsageError(f"invalid work={work!r}", expected)
    for what, amount in cast("Mapping[Any, Any]", work).items():
        is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
        if not isinstance(what, str) or not what or not is_number or not 0 < amount < math.inf:
            raise UsageError(f"work={work!r} holds {what!r}: {amount!r}", f"{expected}; each above 0")
        check_text(what, "the name in work")
    return {what: float(amount) for what, amount in cast("Mapping[str, float]", work).items()}
