"""Audits programs, each in a fork of a process that has imported JAX and benchax already: imports take seconds.

Reads a line of JSON for each program, {"path": …, "rules": […], "devices": 1}, and answers with its audit.
"""

from __future__ import annotations

import dataclasses
import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp  # noqa: F401  # so that no program imports it again
import numpy as np  # noqa: F401

from benchax.auditing import recording
from benchax.auditing.rules import rules
from benchax.json_values import decode_value
from benchax.results.audit import Audit


def serve() -> None:
    rules()
    for line in sys.stdin:
        read, write = os.pipe()
        if os.fork() == 0:
            os.close(read)
            found = run(**json.loads(line))
            with os.fdopen(write, "w") as answer:
                json.dump(found, answer, default=str)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            sys.stdout.write(f"{answer.read()}\n")
        os.wait()
        sys.stdout.flush()


def run(path: str, rules: list[str], devices: int = 1) -> dict[str, Any]:
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.chdir(Path(path).parent)
    sys.path.insert(0, str(Path(path).parent))
    sys.argv = [path]
    finish = recording.begin({"calls_s": 20.0, "rules": rules})
    try:
        runpy.run_path(path, run_name="__main__")
        return dataclasses.asdict(decode_value(finish("exit")["audit"], Audit))
    except BaseException:
        return {"error": traceback.format_exc()}


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    serve()
