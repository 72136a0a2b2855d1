"""Do nodes have what measuring takes? Asked before the first call, so that it is an error and not a thousand rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from benchax.environment import installed
from benchax.errors import UsageError
from benchax.units import plural

NEEDED = ("benchax", "jax", "jaxlib", "numpy", "cloudpickle")

Versions = Mapping[str, str | None]
"""By package, and of "python"; None is not installed."""


def make_probe() -> Callable[[], dict[str, str | None]]:
    """A function that a node can run without having anything: it is made in here, and so travels by value."""
    packages = NEEDED

    def probe() -> dict[str, str | None]:
        import importlib.metadata  # over there
        import platform

        found: dict[str, str | None] = {"python": platform.python_version()}
        for package in packages:
            try:
                found[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                found[package] = None
        return found

    return probe


def check_nodes(found: Mapping[str, Versions | str], here: Versions | None = None) -> None:
    """Another JAX on a node is no error: its rows say so, and are compared with none of another one.

    Args:
        found: by node what its probe said, or why that did not come back.
        here: versions of this process, for tests.

    Raises:
        UsageError: packages that a node lacks, another benchax, or another Python, whose functions cannot travel.
    """
    here = here or {"python": ".".join(map(str, sys.version_info[:3])), "benchax": installed("benchax")}
    problems = [f"node {node} {problem}" for node, versions in found.items() for problem in _problems(versions, here)]
    if problems:
        listed = "; ".join(problems[:5]) + (f"; and {len(problems) - 5} more" if len(problems) > 5 else "")
        raise UsageError(
            f"{plural(len(problems), 'reason')} not to begin: {listed}",
            f"on each node {', '.join(NEEDED)}, the same Python (two numbers) and the same benchax as here",
            "install benchax on the nodes from where this one came, for instance in their image",
        )


def _problems(versions: Versions | str, here: Versions) -> list[str]:
    if isinstance(versions, str):
        return [f"did not answer: {versions}"]
    missing = [package for package in NEEDED if versions.get(package) is None]
    if missing:
        return [f"has no {', '.join(missing)}"]
    found = []
    if _minor(versions["python"]) != _minor(here["python"]):
        found.append(f"has Python {versions['python']}, not {here['python']}")
    if versions["benchax"] != here["benchax"]:
        found.append(f"has benchax {versions['benchax']}, not {here['benchax']}")
    return found


def _minor(version: str | None) -> list[str]:
    return (version or "").split(".")[:2]
