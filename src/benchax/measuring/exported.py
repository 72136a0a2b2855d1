"""A measured function as a program that can be kept and run again: StableHLO, exported by `jax.export`.

It is a function of the array leaves alone: static arguments and other objects are part of it. So it runs without custom
pytrees and without the user's code. It donates the leaves that the function donates. It leaves out the user's Python:
tracing, wrappers, dispatch of static arguments.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import hashlib
import re
from functools import cached_property
from typing import Any

import jax
import jaxlib
from jax import export

from benchax.errors import NotMeasured
from benchax.measuring import program as programs
from benchax.measuring.inputs import Inputs, signature
from benchax.measuring.jax_settings import with_settings
from benchax.measuring.timers.base import Subject
from benchax.measuring.timers.embedding import function_of_leaves
from benchax.model import Program
from benchax.printable import drop_addresses
from benchax.units import size

MOST_BYTES = 64 * 2**20
MOST_CONSTANTS = 2**16
"""Bytes of arrays that a program holds, each of which would be written out as text."""
_LOCATIONS = "jax_traceback_in_locations_limit"
_MAIN = re.compile(r"func\.func public @main\((.*?)\) -> ", re.DOTALL)
_ARGUMENT = re.compile(r"%arg\d+: ")
_DONATED = ("tf.aliasing_output", "jax.buffer_donor")
"""The attributes of an argument of StableHLO by which JAX says that it is donated; jax.export keeps them, but its
`Exported.call` ignores them. Seen with jax 0.6.0 to 0.12.0.1."""
_CUSTOM_CALL = re.compile(r"custom_call @([\w.$-]+)")


def exported(subject: Subject) -> Program:
    """The program of `subject`.

    Raises:
        NotMeasured: it cannot be exported, or would not be the same program.
    """
    if any(len(leaf.sharding.device_set) > 1 for leaf in subject.inputs.data):
        raise NotMeasured("its inputs are on several devices")
    # Takes and returns flat leaves: a serialized program does not know the user's classes, and must be readable without
    # them.
    body, leaves = function_of_leaves(subject)
    flat: Any = jax.jit(lambda *values: tuple(jax.tree.leaves(body(list(values)))), donate_argnums=subject.donated)
    # With locations, a new line above the function, or another folder, would make a different program. Locations also
    # contain the user's paths.
    with programs.as_reason("it cannot be exported"), with_settings({_LOCATIONS: 0}):
        content = _serialized(flat, leaves)
    if len(content) > MOST_BYTES:
        raise NotMeasured(f"its program takes {size(len(content))}, more than the {size(MOST_BYTES)} that are kept")
    return Program(hashlib.sha256(content).hexdigest(), len(content), content)


def digest_source(traced: jax.stages.Traced | None, lowered: jax.stages.Lowered | None) -> str:
    """Returns a digest of all that determines the result of `exported`. Empty if it is not known, or takes long to
    compute.

    The text of the lowered program does not show which arguments are unused. The text of the jaxpr does not show which
    numbers are part of it. Neither names files or lines.
    """
    if traced is None or lowered is None or sum(getattr(c, "nbytes", 0) for c in traced.jaxpr.consts) > MOST_CONSTANTS:
        return ""
    jaxpr = drop_addresses(str(traced.jaxpr))
    parts = (jax.__version__, jaxlib.__version__, jaxpr, str(traced.jaxpr.in_avals), lowered.as_text())
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _serialized(flat: Any, leaves: list[Any]) -> bytes:
    try:
        return bytes(export.export(flat)(*leaves).serialize())
    except ValueError:
        # Calls of libraries whose interface JAX does not guarantee. The program runs again under the same jaxlib; under
        # another one, a label names the original.
        custom = set(_CUSTOM_CALL.findall(flat.lower(*leaves).as_text()))
        if not custom:
            raise
        checks = [export.DisabledSafetyCheck.custom_call(name) for name in sorted(custom)]
        return bytes(export.export(flat, disabled_checks=checks)(*leaves).serialize())


def leaves_of(subject: Subject) -> Inputs:
    """The inputs of `exported(subject)`, which also a subject has that cannot be exported."""
    leaves = tuple(subject.dynamic_leaves)
    return Inputs(leaves, {}, (), signature(leaves, {}, ()))


def is_same_program(one: bytes, other: bytes) -> bool:
    """Are they equal but for names of files and numbers of lines? Under one JAX that is the same executable."""
    if one == other:
        return True
    imported = [ImportedProgram(content) for content in (one, other)]
    # StableHLO without locations.
    first, second = (programs.trace(each.program(), each.specs, {}).lower().as_text() for each in imported)
    return first == second


class ImportedProgram:
    """A program that was exported. Raises `ValueError` (of jax.export) for bytes that are not such a program."""

    def __init__(self, content: bytes) -> None:
        self._exported = export.deserialize(bytearray(content))

    def __call__(self, *leaves: Any) -> Any:
        return self._exported.call(*leaves)

    @property
    def specs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """The specs of its inputs."""
        return tuple(jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in self._exported.in_avals)

    def program(self) -> programs.CallableProgram:
        """Returns it in a form that can be built and timed: a new function each time, so that it is compiled again."""
        call = self._exported.call
        jitted = jax.jit(lambda *leaves: call(*leaves), donate_argnums=self._donated)
        return programs.CallableProgram("plain", jitted, None, None)

    @cached_property
    def _donated(self) -> tuple[int, ...]:
        found = _MAIN.search(self._exported.mlir_module())
        arguments = _ARGUMENT.split(found[1])[1:] if found else []
        # The program has no argument for a leaf that it does not use.
        kept = zip(self._exported.module_kept_var_idx, arguments, strict=False)
        return tuple(leaf for leaf, argument in kept if any(name in argument for name in _DONATED))
