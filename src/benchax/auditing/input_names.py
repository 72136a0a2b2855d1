"""Names of the inputs of a traced function, as its author wrote them: `state.f`, `batch['x']`."""

from __future__ import annotations

import inspect

import jax

from benchax.auditing.evidence import Evidence


def name_inputs(e: Evidence, n: int) -> list[str]:
    """Names each of `n` inputs. It is "input 3" if arguments do not match the inputs one by one, as under a library's
    jit."""
    if len(e.input_names) == n:
        return list(e.input_names)
    args, kwargs = e.given
    parameters = _parameters(e)
    named = [
        *((parameters[i] if i < len(parameters) else f"argument {i}", value) for i, value in enumerate(args)),
        *sorted(kwargs.items()),
    ]
    static = {*e.case.static, *(parameters[i] for i in e.case.static if isinstance(i, int) and i < len(parameters))}
    paths = [
        name + jax.tree_util.keystr(path)
        for i, (name, value) in enumerate(named)
        if name not in static and not (i < len(args) and i in static)
        for path, _ in jax.tree_util.tree_leaves_with_path(value)
    ]
    return paths if len(paths) == n else [f"input {i}" for i in range(n)]


def _parameters(e: Evidence) -> list[str]:
    try:
        return list(inspect.signature(e.fn).parameters)
    except (TypeError, ValueError):  # builtins have no signature
        return []
