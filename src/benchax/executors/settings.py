"""What a program has set and a worker must set too: settings of JAX, made anywhere but in the environment."""

from __future__ import annotations

from typing import Any

import jax


def jax_settings() -> dict[str, Any]:
    """All that JSON has a word for, by name. Starts no backend: on an accelerator this process would take memory that
    a worker needs."""
    # `values` is not documented (jax 0.6.0 to 0.12.0.1 have it); without it just what is set in code stays behind.
    names = getattr(jax.config, "values", {})
    found = {name: getattr(jax.config, name, value) for name, value in dict(names).items()}
    return {name: v for name, v in found.items() if v is None or isinstance(v, str | int | float | bool)}


def apply_settings(wanted: dict[str, Any]) -> None:
    """Passes over those of a part of JAX that is not loaded here, such as Pallas in jax 0.6.2: it brings them along."""
    here = jax_settings()
    for name, value in wanted.items():
        if name in here and here[name] != value:
            jax.config.update(name, value)
