"""The hook of `benchax watch -- python train.py`: watches one process of a program from the import of jax to its end.

`benchax.hooks.startup` calls it inside that process. Its report holds plain data, and documents that show it. The hook
makes the documents here, because here the results are objects. This module is not a command.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from benchax.reporting.display import document_of
from benchax.reporting.document import encode_document
from benchax.watching.compiles import watch_cache
from benchax.watching.transfers import watch_transfers
from benchax.watching.watch import StepCalls, main_thread_share, watch


def begin(settings: Mapping[str, Any]) -> Callable[[str], dict[str, Any]]:
    """Watches all threads from now on. Returns a function that ends this and returns the report.

    Args:
        settings: transfers: whether to watch them, too.
    """
    block = contextlib.ExitStack()
    parts: dict[str, Any] = {"watch": block.enter_context(watch("all")), "cache": block.enter_context(watch_cache())}
    calls: StepCalls | None = None
    if settings["transfers"]:
        calls = StepCalls(parts["watch"])
        parts["transfers"] = block.enter_context(watch_transfers(hear=calls.hear))

    def finish(how: str) -> dict[str, Any]:
        block.close()
        parts["watch"].steps = calls.find() if calls else None
        documents = {name: part.asdict() for name, part in parts.items()}
        shown = {name: encode_document(document_of(part)) for name, part in parts.items()}
        return documents | {"main_thread_share": main_thread_share(parts["watch"]), "shown": shown}

    return finish
