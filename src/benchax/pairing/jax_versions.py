"""`benchax compare --jax 0.9.2,0.10.2`: the same cases under several versions of JAX, in environments of their own.

JAX decides all of a process, so that the versions are compared by pairs of processes (`process_pairs.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchax.errors import UsageError
from benchax.model import Comparison, Version
from benchax.pairing.environments import check, environment
from benchax.pairing.partners import Chosen, Launch
from benchax.pairing.process_pairs import compared
from benchax.pairing.session import Progress, SessionStep, quiet

ENOUGH = "two versions or more, such as 0.9.2,0.10.2"


def compare_versions(
    versions: Sequence[str],
    what: Sequence[str],
    pattern: str = "",
    params: Sequence[str] = (),
    *,
    options: Mapping[str, Any] | None = None,
    max_time_s: float | None = None,
    progress: Progress = quiet,
) -> list[Comparison]:
    """All versions with the first.

    Args:
        versions: of JAX, such as "0.9.2". One that is named twice is compared with itself.
        what, pattern, params: as for `benchax run`.
        options: by name, as those of its command line.
        max_time_s: of each of them with the first, begin no further pair of processes after this long.

    Raises:
        UsageError: fewer than two versions, one that does not exist, or nothing to compare.
        NotAvailable: a version cannot be installed.
    """
    if len(versions) < 2 or not all(versions):
        raise UsageError(f"versions={list(versions)!r} is not enough", ENOUGH)
    for version in versions:
        check(version)
    first, *others = [
        launch(version, label, progress) for version, label in zip(versions, labels(versions), strict=True)
    ]
    chosen = Chosen(tuple(what), pattern, tuple(params), options or {})
    return [c for other in others for c in compared((first, other), chosen, max_time_s, progress)]


def labels(versions: Sequence[str]) -> list[str]:
    return [f"jax {v}{' again' * (v in versions[:i])}" for i, v in enumerate(versions)]


def launch(version: str, label: str, progress: Progress) -> Launch:
    """How processes with that JAX are started; makes its environment if there is none."""
    python = environment(version, lambda text: progress(SessionStep(0, "", text, 0, 0)))
    return Launch(Version(label, jax=version), str(python), Path.cwd())
