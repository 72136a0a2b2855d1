"""The hook of `benchax audit -- python train.py`: watches one process of a program, and audits it when it has ended.

Called inside that process, by `benchax.hooks.startup`. Compilations and the cache are watched from the import of JAX to
the end, which costs nothing on a warm call. Calls and transfers are watched for some seconds from the first call on,
then for a short while every ten seconds. Everything goes into one log (`recorder/log.py`).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchax.auditing.recorder.functions import FunctionRecorder
from benchax.auditing.recorder.hooks import CallWindows, HostHooks
from benchax.auditing.recorder.log import Log
from benchax.environment import capture
from benchax.json_values import encode_value
from benchax.results.audit import Audit
from benchax.watching.compiles import watch_cache
from benchax.watching.watch import watch


def begin(settings: Mapping[str, Any]) -> Callable[[str], dict[str, Any]]:
    """Watches all threads from now on. The function that it returns ends that, asks the rules, and gives the audit.

    Args:
        settings: calls_s: for how long calls and transfers are watched, in seconds from the first call; rules: the ids
            to ask.
    """
    block = contextlib.ExitStack()
    found, cache = block.enter_context(watch("all")), block.enter_context(watch_cache())
    log = Log()
    functions = FunctionRecorder(log)
    windows, hooks = CallWindows(log, functions, settings["calls_s"]), HostHooks(log)

    folder = Path.cwd()

    def finish(how: str) -> dict[str, Any]:
        windows.close()
        hooks.close()
        block.close()
        kept = functions.close()
        # This imports all the rules, which should not delay the start of a program.
        from benchax.auditing.audit import MOST_BUILT, audit_run  # noqa: PLC0415
        from benchax.auditing.evidence import ProgramEvidence  # noqa: PLC0415

        evidence = ProgramEvidence(found, log, windows.transfers, cache, hooks.sees_methods)
        # Python sets `sys.last_type` if an uncaught exception ends the program. Then the user waits for the traceback.
        is_whole = how == "exit" and getattr(sys, "last_type", None) is None
        # Paths are relative to the folder in which the program began.
        with contextlib.chdir(folder):
            # Whoever ends the program from outside does not wait for long, so only a few functions are read.
            read = kept if how == "exit" else kept[:MOST_BUILT]
            audit = audit_run(evidence, read, settings["rules"], is_built=is_whole)
            # Devices are asked for only if the program has used some: the question would start a backend.
            audit = replace(audit, environment=capture(with_jax=bool(found.compiles)))
        return {"audit": encode_value(audit, Audit), "seen_s": log.seen_s}

    return finish
