"""Places arrays as their specs say: the mesh of JAX's devices, shardings, and the number of devices of a program.

Axes are automatic, whatever the default of the JAX version. So XLA works out the sharding of computed values. Users who
want other axes pass their own mesh, or sharded arrays.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from benchax.errors import UsageError
from benchax.specs import ArraySpec, MeshSpec
from benchax.units import plural

FAKE_DEVICES = "on a CPU JAX can pretend to have more: JAX_NUM_CPU_DEVICES={n}"


def make_mesh(spec: MeshSpec) -> Mesh:
    """Returns the user's own mesh, or a mesh of JAX's first devices in their order. Devices of all processes count.

    Raises:
        UsageError: it needs more devices than there are.
    """
    devices = jax.devices()
    if spec.given is not None:
        return spec.given
    if spec.size > len(devices):
        each = -(-spec.size // jax.process_count())
        hint = FAKE_DEVICES.format(n=each) if devices[0].platform == "cpu" else ""
        raise UsageError(
            f"the mesh {spec} takes {spec.size} devices, and there {_are(len(devices))}",
            f"axes whose product is at most {len(devices)}",
            hint,
        )
    names, shape = tuple(spec.sizes), tuple(spec.sizes.values())
    places = np.asarray(devices[: spec.size]).reshape(shape)
    return Mesh(places, names, axis_types=(AxisType.Auto,) * len(names))


def _are(n: int) -> str:
    return f"{'is' if n == 1 else 'are'} {plural(n, 'device')}"


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


def put(host: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """`host`, which every process has alike, over the devices of all of them."""
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def axes_of(value: Any) -> tuple[tuple[str, ...], ...]:
    """The axes over which each dimension of an array is sharded; () if no such axes exist, or they are not known."""
    sharding = getattr(value, "sharding", None)
    if not isinstance(sharding, NamedSharding) or sharding.num_devices < 2:
        return ()
    parts = [*sharding.spec, *[None] * (value.ndim - len(sharding.spec))]
    axes = tuple(tuple(map(str, part)) if isinstance(part, tuple) else _named(part) for part in parts)
    return axes if any(axes) else ()


def _named(part: Any) -> tuple[str, ...]:
    return (part,) if isinstance(part, str) else ()


def meshes_of(arrays: Iterable[Any]) -> tuple[str, ...]:
    """Returns data=4,model=2 for each mesh that holds some of the arrays."""
    shardings = (getattr(array, "sharding", None) for array in arrays)
    meshes = (s.mesh for s in shardings if isinstance(s, NamedSharding) and s.num_devices > 1)
    return tuple(dict.fromkeys(",".join(f"{name}={size}" for name, size in mesh.shape.items()) for mesh in meshes))
