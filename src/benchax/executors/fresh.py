"""Runs a case in a fresh Python process: cold caches, a memory peak of its own, and a crash that costs one row.

The case travels by cloudpickle on standard input, functions of benchmark files by value. The child (`worker.py`)
answers in lines of JSON: progress, and at the end the measurement. A child that dies without one becomes a failed row.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import signal
import subprocess
import sys
from datetime import UTC, datetime
from typing import IO, Any, cast

import jax

from benchax import codec
from benchax.case import Case
from benchax.environment import capture, jax_config
from benchax.errors import UsageError
from benchax.executors import pickling
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.engine import Progress
from benchax.model import Failure, Measurement, Options


class FreshProcess:
    def run(self, case: Case, options: Options, *, run_id: str, progress: Progress) -> Measurement:
        started_at = datetime.now(UTC).isoformat(timespec="microseconds")
        try:
            task = _pickled(case, options, run_id)
        except UsageError as error:  # one case among many: the others still run
            failure = diagnose(error, "start")
            return Measurement(case.id, capture(case.folder), options, run_id, started_at, failure=failure)
        command = [sys.executable, "-m", "benchax.executors.worker"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            try:
                _send(child, task)
                answer, stage = _listen(child.stdout, progress)
            finally:
                child.kill()  # a no-op once it has ended; after Ctrl-C the child must not live on
        if answer is not None:
            return answer
        failure = Failure("crashed", stage, _last_words(child.returncode, stage), _advice(child.returncode))
        return Measurement(case.id, capture(case.folder), options, run_id, started_at, failure=failure)


def _pickled(case: Case, options: Options, run_id: str) -> bytes:
    """Raises `UsageError` where the case cannot travel to another process."""
    try:
        # In two steps: the child must know where to import from before it reads the case.
        return pickle.dumps((sys.path, _jax_settings(), pickling.dumps((case, options, run_id))))
    except Exception as error:
        raise UsageError(
            f"case {case.id.label!r} cannot be sent to a fresh process: {type(error).__name__}: {error}",
            "a function and inputs that cloudpickle can pickle",
            "give inputs as specs (f32[8,128]) or as a function that makes them",
        ) from error


def _jax_settings() -> dict[str, Any]:
    """Settings made in this program, which the child would not know; those from the environment it inherits."""
    # Read without starting a backend: on an accelerator this process would take memory that the child needs.
    return jax_config(jax.config)


def _send(child: subprocess.Popen[bytes], task: bytes) -> None:
    # A child that died at once breaks the pipe; its exit code says why.
    with contextlib.suppress(BrokenPipeError), cast("IO[bytes]", child.stdin) as task_pipe:
        task_pipe.write(task)


def _listen(answers: IO[bytes] | None, progress: Progress) -> tuple[Measurement | None, str]:
    stage = "start"
    for line in answers or ():
        if not line.endswith(b"\n"):  # the child died in the middle of its answer
            break
        message = json.loads(line)
        if "measurement" in message:
            return codec.from_document(message["measurement"]), stage
        stage = message["stage"]
        progress(stage, message["share"])
    return None, stage


def _last_words(code: int | None, stage: str) -> str:
    if code is not None and code < 0:
        return f"the process was killed by {signal.Signals(-code).name} in {stage}"
    return f"the process ended with exit code {code} in {stage}, without an answer"


def _advice(code: int | None) -> str:
    return "The kernel may have run out of memory: see dmesg." if code == -signal.SIGKILL else ""
