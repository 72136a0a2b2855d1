"""Inputs: specs become seeded random data, everything is placed on the device once, donated buffers are renewed.

Data are random, never constant: XLA folds constants, and a constant-filled operand gave wrong results on XLA:CPU
(jaxlib 0.10.2). Python scalars stay Python scalars, because that is what the measured call would be given.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from benchax.case import Case, check_work
from benchax.errors import NotMeasured, UsageError, reason_of
from benchax.keywords import positional_names
from benchax.measuring import state
from benchax.specs import ArraySpec, MeshSpec, is_spec, parse_spec, spec_of
from benchax.static_leaves import hide_argument, is_key, reveal
from benchax.units import plural

Call = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Inputs:
    """The inputs of the function, on the device, and the part of them that was there before."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    static: tuple[int | str, ...]
    signature: str
    numpy_bytes: int = 0
    """Bytes that the caller gave as NumPy arrays."""
    narrowed: tuple[str, ...] = ()
    """Inputs requested in 64 bits and placed in 32, because JAX's x64 mode is off: "float64 to float32"."""
    labels: tuple[str, ...] = ()
    """Names of the positional arguments, where the function has a signature."""
    mutated: dict[int, tuple[Any, tuple[str, ...]]] = field(default_factory=dict, compare=False, repr=False)
    """Found once for each program that takes these inputs (`Subject.mutated`), which costs a trace."""
    anew: Callable[[], Call] | None = field(default=None, compare=False, repr=False)
    """Makes the arguments of each call, if the case has its own setup."""

    @property
    def data(self) -> list[jax.Array]:
        """The array leaves, in order; typed keys are left out."""
        leaves = self.parts.leaves if self.is_stateful else jax.tree.leaves((self.args, self.kwargs))
        return [leaf for leaf in leaves if is_data(leaf)]

    @cached_property
    def is_stateful(self) -> bool:
        """Are there arguments that a call can change in place? Then each call needs its own."""
        return state.is_stateful(without_static(self.args, self.kwargs, self.static))

    @cached_property
    def parts(self) -> state.Parts:
        return state.take_apart(without_static(self.args, self.kwargs, self.static), self.labels)

    def renewed(self, copy: bool = True) -> Call:
        """The same call on fresh buffers, as a donating function needs for every call, and on fresh mutable objects.

        Args:
            copy: False leaves the arrays as they are, which is enough where only objects are changed.
        """
        if not self.is_stateful:
            call = self.args, self.kwargs
            return jax.block_until_ready(jax.tree.map(copied, call)) if copy else call
        leaves = [copied(leaf) for leaf in self.parts.leaves] if copy else self.parts.leaves
        args, kwargs = jax.block_until_ready(self.parts.merge(leaves))
        return self.with_static(args, kwargs, self.static)

    def with_static(self, args: tuple[Any, ...], kwargs: dict[str, Any], static: tuple[int | str, ...]) -> Call:
        """Undoes `without_static`."""
        named = {name: value for name, value in self.kwargs.items() if name in static}
        return tuple(value if i in static else args[i] for i, value in enumerate(self.args)), kwargs | named


def copied(leaf: Any) -> Any:
    """An array on a new buffer; anything else as it is."""
    return leaf.copy() if isinstance(leaf, jax.Array) else leaf


def without_static(args: tuple[Any, ...], kwargs: dict[str, Any], static: tuple[int | str, ...]) -> Call:
    """`None` in the positions of static arguments, their names left out."""
    left = tuple(None if i in static else value for i, value in enumerate(args))
    return left, {name: value for name, value in kwargs.items() if name not in static}


def make_inputs(case: Case, seed: int) -> Inputs:
    """Calls the case's input factory and places the result.

    Raises:
        UsageError: a spec that cannot be read, or not be placed on the mesh of the case; a mesh that no spec mentions.
            Exceptions of the factory pass through.
    """
    args, kwargs = case.inputs()
    static = static_arguments(case, args, kwargs)
    _check_mesh_is_used(case, (args, kwargs))
    random = np.random.default_rng(seed)
    numpy_bytes: list[int] = []
    narrowed: list[str] = []

    def place(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray | np.generic):
            numpy_bytes.append(leaf.nbytes)
        asked, array = _place(leaf, random, case.mesh)
        if asked is not None and asked != array.dtype:
            narrowed.append(f"{asked} to {array.dtype}")
        return array

    given = Inputs(args, dict(kwargs), static, "", labels=tuple(positional_names(case.fn)))
    if given.is_stateful:
        # Don't use the user's own objects again: a call would change them.
        given.parts.leaves[:] = [place(leaf) for leaf in given.parts.leaves]
        new_args, new_kwargs = given.renewed(copy=False)
    else:
        new_args, new_kwargs = put_each(place, args, kwargs, static)
    jax.block_until_ready((new_args, new_kwargs))
    text = signature(new_args, new_kwargs, static)
    what = tuple(dict.fromkeys(narrowed))
    setup = case.calls.setup if case.calls is not None else None
    anew = (
        None if setup is None else lambda: jax.block_until_ready(fit(case, put_each(place, *setup(), static), static))
    )
    call = fit(case, (new_args, new_kwargs), static)
    return Inputs(*call, static, text, sum(numpy_bytes), what, given.labels, anew=anew)


def put_each(place: Callable[[Any], Any], args: tuple[Any, ...], kwargs: Any, static: tuple[int | str, ...]) -> Call:
    """The call with its leaves placed, but for what is static."""
    return map_dynamic(lambda _, value: jax.tree.map(place, value), (args, kwargs), static)


def map_dynamic(change: Callable[[int | str, Any], Any], call: tuple[Any, Any], static: tuple[int | str, ...]) -> Call:
    """The call with `change(position or name, value)` of each argument that is not static."""
    args, kwargs = call
    changed = tuple(value if i in static else change(i, value) for i, value in enumerate(args))
    return changed, {name: value if name in static else change(name, value) for name, value in kwargs.items()}


def fit(case: Case, call: Call, static: tuple[int | str, ...]) -> Call:
    """The call as the program of the case takes it, on the same arrays.

    benchax itself jits a plain function: leaves that are not arrays are hidden from `jax.jit` (`static_leaves`), and so
    is a whole argument, such as a function. A text stays, because it can be a mistyped spec. Other programs take the
    call as their users write it.
    """
    if not is_plain(case):
        return map_dynamic(lambda _, value: reveal(value), call, static)
    return map_dynamic(lambda _, value: value if isinstance(value, str) else hide_argument(value), call, static)


def is_plain(case: Case) -> bool:
    """Does benchax itself jit the function?"""
    # A bound method has the attributes of its jit, which has no instance.
    is_jitted = hasattr(case.fn, "lower") and not isinstance(case.fn, types.MethodType)
    return case.jit and not is_jitted and not isinstance(case.fn, jax.stages.Compiled)


def _check_mesh_is_used(case: Case, call: Any) -> None:
    """Refuses a mesh that holds no array: the row would name a mesh that has no effect."""
    if case.mesh is None:
        return
    specs = [leaf for leaf in jax.tree.leaves(call) if isinstance(leaf, str) and is_spec(leaf)]
    if not any(parse_spec(spec).axes for spec in specs):
        raise UsageError(
            f"no input of {case.id.label!r} names an axis of the mesh {case.mesh}",
            f"a spec such as f32[1024@{case.mesh.axes[0][0]},512]",
        )


def _place(leaf: Any, random: np.random.Generator, mesh: MeshSpec | None) -> tuple[Any, Any]:
    """(dtype that was asked for, leaf on the device); (None, leaf) for what stays as it is."""
    if isinstance(leaf, str) and is_spec(leaf):
        spec = parse_spec(leaf)
        return None if spec.dtype == "key" else np.dtype(spec.dtype), make_array(spec, random, mesh)
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf.dtype, make_like(leaf, random)
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.dtype, jax.device_put(leaf)
    return None, leaf


def make_array(spec: ArraySpec, random: np.random.Generator, mesh: MeshSpec | None = None) -> jax.Array:
    """Standard normal for floats and complex, 0…99 for integers, fair coins for bools, split keys for keys."""
    sharding = sharding_of(spec, mesh)
    if spec.dtype == "key":
        key = jax.random.key(int(random.integers(2**31)))
        keys = jax.random.split(key, spec.shape) if spec.shape else key
        return keys if sharding is None else jax.device_put(keys, sharding)
    host = _host_data(np.dtype(spec.dtype), spec.shape, random)
    if sharding is None:
        return jax.device_put(host)
    # As `device_put` would: 64 bits become 32 unless JAX's x64 mode is on.
    host = host.astype(jax.dtypes.canonicalize_dtype(host.dtype))
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def make_like(struct: jax.ShapeDtypeStruct, random: np.random.Generator) -> jax.Array:
    """Random data of that shape and dtype, with its sharding if it has one."""
    if is_key(struct):
        array = make_array(ArraySpec("key", struct.shape), random)
    else:
        array = jax.device_put(_host_data(struct.dtype, struct.shape, random))
    return array if struct.sharding is None else jax.device_put(array, struct.sharding)


def _host_data(dtype: Any, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    if jax.numpy.issubdtype(dtype, np.bool_):
        return random.integers(0, 2, shape).astype(dtype)
    if jax.numpy.issubdtype(dtype, np.integer):
        return random.integers(0, 100, shape, dtype=np.int64).astype(dtype)
    if jax.numpy.issubdtype(dtype, np.complexfloating):
        return (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(dtype)
    # float32 is drawn directly: half the time and half the memory of drawing float64.
    return np.asarray(random.standard_normal(shape, dtype=np.float32)).astype(dtype)


def is_data(leaf: Any) -> bool:
    """An array on a device that holds plain numbers (typed keys do not)."""
    return isinstance(leaf, jax.Array) and not is_key(leaf)


def static_arguments(case: Case, args: tuple[Any, ...], kwargs: Any) -> tuple[int | str, ...]:
    """Positions and names of the arguments that are static in this call.

    A plain function's are declared with the case. A jitted function knows its own but publishes only the tree of
    those that are not: what is missing there is static.
    """
    declared = {p + len(args) if isinstance(p, int) and p < 0 else p for p in case.static}
    names = positional_names(case.fn)
    by_position = {i for i, name in enumerate(names[: len(args)]) if name in declared}
    by_name = {names[p] for p in declared if isinstance(p, int) and p < len(names) and names[p] in kwargs}
    return tuple(sorted(declared | by_position | by_name, key=str))


def undeclared_static(dynamic: tuple[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int | str, ...]:
    """Which arguments of a jitted function's call are static, given the tree of its dynamic ones.

    Args:
        dynamic: `(args, kwargs)` as in `Traced.args_info`: the static ones are left out.
    """
    names = tuple(name for name in kwargs if name not in dynamic[1])
    missing = len(args) - len(dynamic[0])
    # Only values that are not arrays can be static, and JAX does not say which positions are left out. So find those
    # without which the others fit. Scalars may also be dynamic, and settings usually come last.
    candidates = [i for i, value in enumerate(args) if not any(map(_is_array, jax.tree.leaves(value)))]
    trees, wanted = ([jax.tree.structure(each) for each in values] for values in (args, dynamic[0]))
    found = (
        static
        for static in itertools.combinations(reversed(candidates), missing)
        if [tree for i, tree in enumerate(trees) if i not in static] == wanted
    )
    return (*sorted(next(found, candidates[len(candidates) - missing :])), *names)


def _is_array(leaf: Any) -> bool:
    """A shape stands for an array."""
    return isinstance(leaf, jax.Array | np.ndarray | jax.ShapeDtypeStruct)


def signature(args: tuple[Any, ...], kwargs: dict[str, Any], static: tuple[int | str, ...]) -> str:
    """The call in short: `f32[1024,128], {w: f32[8], b: f32[]}, axis=0`."""
    parts = [_describe(value, i in static) for i, value in enumerate(args)]
    parts += [f"{name}={_describe(value, name in static)}" for name, value in kwargs.items()]
    return ", ".join(parts)


def _describe(value: Any, is_static: bool = False) -> str:
    if is_static:
        return getattr(value, "__name__", None) or repr(value)
    if isinstance(value, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct):
        return spec_of(value, axes_of(value))
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_describe(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        inside = ", ".join(map(_describe, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if state.is_ref(value):
        return f"ref {_describe(value[...])}"
    value = reveal(value)
    leaves, tree = jax.tree.flatten(value)
    if leaves and leaves[0] is value:
        is_number = isinstance(value, bool | int | float | complex | str)
        return repr(value) if is_number else getattr(value, "__name__", type(value).__name__)
    arrays = [leaf for leaf in leaves if _is_array(leaf)]
    return f"{type(value).__name__}({len(arrays)} arrays)" if tree.num_leaves else repr(value)


# ---- meshes ----------------------------------------------------------------------------------------------------------
#
# Places arrays as their specs say: the mesh of JAX's devices, shardings, and the number of devices of a program.
#
# Axes are automatic, whatever the default of the JAX version. So XLA works out the sharding of computed values. Users
# who want other axes pass their own mesh, or sharded arrays.


def fake_devices(count: int) -> str:
    """The hint how to get `count` devices; empty on an accelerator."""
    is_cpu = jax.default_backend() == "cpu"
    return f"on a CPU JAX can pretend to have more: JAX_NUM_CPU_DEVICES={count}" if is_cpu else ""


def make_mesh(spec: MeshSpec) -> Mesh:
    """Returns the user's own mesh, or a mesh of JAX's first devices in their order. Devices of all processes count.

    Raises:
        UsageError: it needs more devices than there are.
    """
    devices = jax.devices()
    if spec.given is not None:
        return spec.given
    if spec.size > len(devices):
        are = "is" if len(devices) == 1 else "are"
        raise UsageError(
            f"the mesh {spec} takes {spec.size} devices, and there {are} {plural(len(devices), 'device')}",
            f"axes whose product is at most {len(devices)}",
            fake_devices(-(-spec.size // jax.process_count())),
        )
    names, shape = tuple(spec.sizes), tuple(spec.sizes.values())
    places = np.asarray(devices[: spec.size]).reshape(shape)
    return Mesh(places, names, axis_types=(AxisType.Auto,) * len(names))


def sharding_of(spec: ArraySpec, mesh: MeshSpec | None) -> NamedSharding | None:
    """Returns the sharding of an array of that spec; None for one device, which means that no mesh is given.

    Raises:
        UsageError: it cannot be placed there (`MeshSpec.check`), or names axes and there is no mesh.
    """
    if mesh is None:
        if not spec.axes:
            return None
        names = list(dict.fromkeys(name for over in spec.axes for name in over))
        sizes = ",".join(f"{name}=4" for name in names)
        raise UsageError(
            f"{str(spec)!r} is sharded over {' and '.join(names)}, and there is no mesh",
            f"--mesh {sizes}, or mesh={sizes!r}",
        )
    mesh.check(spec)
    return NamedSharding(make_mesh(mesh), PartitionSpec(*(over or None for over in spec.axes)))


def axes_of(value: Any) -> tuple[tuple[str, ...], ...]:
    """The axes over which each dimension of an array is sharded; () if no such axes exist, or they are not known."""
    sharding = getattr(value, "sharding", None)
    if not isinstance(sharding, NamedSharding) or sharding.num_devices < 2:
        return ()
    parts = [*sharding.spec, *[None] * (value.ndim - len(sharding.spec))]
    listed = (part if isinstance(part, tuple) else (part,) if isinstance(part, str) else () for part in parts)
    axes = tuple(tuple(map(str, each)) for each in listed)
    return axes if any(axes) else ()


def meshes_of(arrays: Iterable[Any]) -> tuple[str, ...]:
    """Returns data=4,model=2 for each mesh that holds some of the arrays."""
    shardings = (getattr(array, "sharding", None) for array in arrays)
    meshes = (s.mesh for s in shardings if isinstance(s, NamedSharding) and s.num_devices > 1)
    return tuple(dict.fromkeys(",".join(f"{name}={size}" for name, size in mesh.shape.items()) for mesh in meshes))


# ---- work ------------------------------------------------------------------------------------------------------------
#
# The work of one call, as stated by the author of the case: amounts by name, or a function of the inputs that returns
# them.


def amounts_of(case: Case, inputs: Inputs) -> Mapping[str, float]:
    """Returns the work of one call on these inputs; empty if the author states no work.

    Raises:
        NotMeasured: the function for it fails. Only the rates are lost by that, not the row.
    """
    if not callable(case.work):
        return case.work or {}
    try:
        found = case.work(*reveal(inputs.args), **reveal(inputs.kwargs))
        return check_work({} if found is None or callable(found) else found)
    except UsageError as error:
        raise NotMeasured(f"its function returned no valid amounts: {error.problem}") from error
    except Exception as error:
        raise NotMeasured(f"its function raised {reason_of(error)}") from error
