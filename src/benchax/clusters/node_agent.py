"""The agent on a node: an actor of Ray with a pool of workers, the same that calls are made with at home.

The agent itself runs nothing of the user's: functions and inputs pass through it sealed, and are unpickled in its
workers, which can be killed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchax.clusters.agents import Examination, NodeCall
from benchax.machine import doctor
from benchax.machine.pace import read_pace_s
from benchax.measuring.jax_settings import jax_settings
from benchax.model import Failure
from benchax.workers.call_limits import limit_stages
from benchax.workers.pickling import Sealed
from benchax.workers.pool import Pool
from benchax.workers.task import Say, task

THREADS = "OMP_NUM_THREADS"


class NodeAgent:
    """What the driver calls, one call at a time.

    Args:
        folders: of imports, relative to the folder with the user's files, where this process runs.
        jax_config: settings of JAX in the driver.
    """

    def __init__(self, folders: Sequence[str], jax_config: Mapping[str, Any]) -> None:
        # Ray sets it for its workers, to the CPUs of the actor. At home nobody does, and rows tell flags apart.
        os.environ.pop(THREADS, None)
        ours = [str(Path(folder).resolve()) for folder in folders]
        # Ray brings copies of packages, and puts them first.
        others = [path for path in sys.path if path not in ours]
        sys.path[:] = [*ours, *sorted(others, key=_is_of_ray)]
        known = jax_settings()  # another version may have others
        self.pool = Pool(jax_config={name: value for name, value in jax_config.items() if name in known})

    def examine(self, needed: Sealed, limit_s: float) -> Examination | Failure:
        """What this node is; a failure where a worker cannot load what is needed."""
        self.pool.prepare()
        return self.pool.call(examine_node, needed, limit_stages(limit_s), shows_output=False)

    def make_call(self, job: NodeCall) -> tuple[list[dict[str, Any]], Any]:
        """(announcements, outcome)"""
        messages: list[dict[str, Any]] = []
        outcome = job(self.pool, messages.append)
        return messages, outcome

    def close(self) -> None:
        self.pool.close()


def _is_of_ray(path: str) -> bool:
    return f"{os.sep}ray{os.sep}" in path and ("thirdparty_files" in path or "_private" in path)


@task
def examine_node(needed: object, say: Say) -> Examination:
    """In a worker, whose argument has been loaded by now. Takes two seconds."""
    say("environment")
    pace_s = read_pace_s()
    found = doctor.examine()
    return Examination(found.environment, pace_s, found.smallest_effect, found.noise, found.advice)
