"""The hook of `benchax watch -- python train.py`: watches one process of a program from the import of jax to its end.

Called inside that process, by `benchax.wrapping.startup`. Its report holds plain data, and the text of it, drawn here
where the results are objects. No command itself.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

from benchax.reporting import display as display  # teaches results to show themselves
from benchax.results.watch import Watch
from benchax.watching.cache import watch_cache
from benchax.watching.transfers import watch_transfers
from benchax.watching.watch import watch


def begin(settings: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
    """Watches all threads from now on; what it returns ends that, and gives the report.

    Args:
        settings: transfers: whether these are watched, too.
    """
    block = contextlib.ExitStack()
    parts: dict[str, Any] = {"watch": block.enter_context(watch("all")), "cache": block.enter_context(watch_cache())}
    if settings["transfers"]:
        parts["transfers"] = block.enter_context(watch_transfers())

    def finish() -> dict[str, Any]:
        block.close()
        documents = {name: part.asdict() for name, part in parts.items()}
        texts = {name: str(part) for name, part in parts.items()}
        return documents | {"main_thread_share": main_thread_share(parts["watch"]), "texts": texts}

    return finish


def main_thread_share(found: Watch) -> float | None:
    """Of the time watched, how much the main thread spent in tracing, lowering and compiling; None before the end.

    Threads overlap, so that there is no share of all of them together.
    """
    if not found.wall_s:
        return None
    main = threading.main_thread().name
    spent_s = sum(c.total_s for c in found.compiles if c.thread == main and not c.is_nested)
    return min(1.0, spent_s / found.wall_s)
