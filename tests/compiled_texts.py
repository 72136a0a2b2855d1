"""Programs compiled here, for tests that read their text."""

from __future__ import annotations

from collections.abc import Callable
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
