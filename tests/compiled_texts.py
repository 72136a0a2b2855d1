"""Programs compiled here or written by hand, for tests that read their text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from benchax.program.hlo import Module, parse


def text_of(fun: Callable[..., Any], *args: Any, **options: Any) -> str:
    """The text of the optimised program of `jax.jit(fun, **options)`."""
    return jax.jit(fun, **options).lower(*args).compile().as_text() or ""


def module_of(fun: Callable[..., Any], *args: Any, **options: Any) -> Module:
    return parse(text_of(fun, *args, **options))


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def hlo_text(*main: str, header: str = "HloModule jit_f", **computations: Sequence[str]) -> str:
    """A program by hand: the instructions of its entry and of its other computations, of which the last is the root."""
    parts = [header]
    for name, lines in {**computations, "main": main}.items():
        parts.append(f"\n{'ENTRY ' if name == 'main' else ''}%{name} () -> f32[] {{")
        parts += [f"  %{line}" for line in lines[:-1]]
        parts += [f"  ROOT %{lines[-1]}", "}"]
    return "\n".join(parts) + "\n"
