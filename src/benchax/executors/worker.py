"""The child of `fresh.py`: reads one task from standard input, measures it, answers in JSON lines on standard output.

What the user's code prints goes to standard error, so that it cannot be mistaken for an answer. Ctrl-C is left to the
parent, which ends this process: two tracebacks would say the same.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from typing import IO, Any


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = _take_over_stdout()
    paths, settings, task = pickle.loads(sys.stdin.buffer.read())
    sys.path[:] = paths
    _apply(settings)
    case, options, run_id = pickle.loads(task)

    from benchax import codec
    from benchax.measuring.engine import measure

    def progress(stage: str, share: float) -> None:
        _say(answers, {"stage": stage, "share": share})

    measurement = measure(case, options, run_id=run_id, progress=progress, cold="process")
    sys.stdout.flush()  # the parent ends this process as soon as it has the answer
    _say(answers, {"measurement": codec.to_document(measurement)})


def _take_over_stdout() -> IO[str]:
    """The real standard output, for answers alone; file descriptor 1 becomes standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _apply(settings: dict[str, Any]) -> None:
    import jax

    from benchax.environment import jax_config

    here = jax_config(jax.config)
    for name, value in settings.items():
        if here.get(name) != value:
            jax.config.update(name, value)


def _say(answers: IO[str], message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
