"""Names and shapes of a program's inputs and outputs, as the user wrote them: args[0]['w'], result[1].

From `args_info` and `out_info` of `jax.stages`, which are trees like the call's own, but for static arguments: JAX
leaves those out, and the positions behind them move. Whoever knows which they are gets the user's positions back.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from benchax.specs import spec_of


class ArgumentLeaf(NamedTuple):
    """One array of the call. `donated` is what was asked; None of an output."""

    path: str
    shape: tuple[int, ...]
    dtype: Any
    donated: bool | None = None

    @property
    def spec(self) -> str:
        return spec_of(self)

    @property
    def size_bytes(self) -> int:
        return size_bytes(self.shape, self.dtype)


def inputs(stage: Any, static: Sequence[int | str] = ()) -> list[ArgumentLeaf]:
    """The arrays that the program takes, in the order of its inputs, unused ones included.

    Args:
        stage: a `Traced`, `Lowered` or `Compiled`.
        static: positions of the static arguments, which are not among `args_info`; names do no harm.
    """
    args, kwargs = stage.args_info
    positions = (i for i in itertools.count() if i not in static)
    named = [(f"args[{i}]", value) for value, i in zip(args, positions, strict=False)]
    named += [(f"kwargs[{name!r}]", kwargs[name]) for name in sorted(kwargs)]  # as JAX flattens a dict
    return [leaf for name, value in named for leaf in leaves(name, value)]


def outputs(stage: Any) -> list[ArgumentLeaf]:
    """The arrays that the program returns, in its order."""
    return leaves("result", stage.out_info)


def leaves(name: str, tree: Any) -> list[ArgumentLeaf]:
    """`name` followed by the place in the tree, for each leaf that has a shape."""
    # Don't treat arrays as leaves here: a sparse matrix or a module may have a shape and a dtype, but consists of
    # arrays.
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [
        ArgumentLeaf(
            name + jax.tree_util.keystr(path), tuple(leaf.shape), leaf.dtype, bool(getattr(leaf, "donated", False))
        )
        for path, leaf in flat
        if hasattr(leaf, "shape") and hasattr(leaf, "dtype")
    ]  # fmt: skip


def size_bytes(shape: Sequence[int], dtype: Any) -> int:
    """Returns the bytes of the contiguous elements. A typed key has the size of its base array."""
    return math.prod(shape) * dtype.itemsize


def shardings(
    compiled: jax.stages.Compiled, outputs: Sequence[ArgumentLeaf] | None, taken: Sequence[ArgumentLeaf]
) -> dict[str, str]:
    """How each input and output is laid out over devices, by its path.

    Args:
        taken: the inputs that the compiled program takes, in order.
    """
    found: dict[str, str] = {}
    for leaves_, which in ((taken, "input_shardings"), (outputs or (), "output_shardings")):
        try:
            told = getattr(compiled, which)
        except ValueError:  # JAX counts references that the program changes as outputs, and finds none (0.12.0.1)
            continue
        every = jax.tree.leaves(told, is_leaf=lambda leaf: isinstance(leaf, jax.sharding.Sharding))
        flat = [each for each in every if isinstance(each, jax.sharding.Sharding)]
        if len(flat) == len(leaves_):
            found |= {leaf.path: _sharding(each) for leaf, each in zip(leaves_, flat, strict=True)}
    return found


def _sharding(sharding: jax.sharding.Sharding) -> str:
    """PartitionSpec('d', None) over d=4, m=2; other kinds by their own text."""
    if not isinstance(sharding, jax.sharding.NamedSharding):
        return str(sharding)
    axes = ", ".join(f"{name}={size}" for name, size in sharding.mesh.shape.items())
    parts = ", ".join(map(repr, sharding.spec))
    return f"P({parts}) over {axes}"


def find_kept(compiled: jax.stages.Compiled, leaves: Sequence[ArgumentLeaf], parameters: int) -> tuple[int, ...] | None:
    """Returns the positions in `leaves` of the inputs that the compiled program really takes: parameter i of the HLO is
    `leaves[kept[i]]`.

    JAX drops inputs that a program does not use, and only a private interface shows which (tried on jax 0.6.2 to
    0.12.0.1).

    Args:
        parameters: number of parameters of the HLO.

    Returns:
        None if JAX dropped some and this version does not show which.
    """
    if parameters == len(leaves):
        return tuple(range(parameters))
    positions = getattr(getattr(compiled, "_executable", None), "_kept_var_idx", None)
    if positions is None or len(positions) != parameters:
        return None
    return tuple(sorted(positions))  # a set; what is kept stays in its order
