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
from benchax.errors import require
from benchax.machine import doctor
from benchax.machine.pace import read_pace_s
from benchax.measuring.jax_settings import apply_settings
from benchax.model import Failure
from benchax.workers.call_limits import limit_stages
from benchax.workers.crew import free_port
from benchax.workers.membership import BY_HAND
from benchax.workers.pickling import SENT_FROM, Sealed
from benchax.workers.pool import Pool
from benchax.workers.task import Say, task

THREADS = "OMP_NUM_THREADS"


class NodeAgent:
    """What the driver calls, one call at a time.

    Args:
        folders: of imports, relative to the folder with the user's files, where this process runs.
        jax_config: settings of JAX in the driver.
        sent_from: the folder with the user's files there.
    """

    def __init__(self, folders: Sequence[str], jax_config: Mapping[str, Any], sent_from: str) -> None:
        # Ray sets it for its workers, to the CPUs of the actor. At home nobody does, and rows tell flags apart.
        os.environ.pop(THREADS, None)
        os.environ[SENT_FROM] = sent_from
        ours = [str(Path(folder).resolve()) for folder in folders]
        # Ray brings copies of packages, and puts them first.
        others = [path for path in sys.path if path not in ours]
        sys.path[:] = [*ours, *sorted(others, key=_is_of_ray)]
        apply_settings(dict(jax_config))  # workers have those of this process
        self.pool = Pool()

    def examine(self, needed: Sealed, limit_s: float) -> Examination | Failure:
        """What this node is; a failure where a worker cannot load what is needed."""
        self.pool.prepare()
        return self.pool.call(examine_node, needed, limit_stages(limit_s), shows_output=False)

    def make_call(self, job: NodeCall) -> tuple[list[dict[str, Any]], Any]:
        """(announcements, outcome)"""
        messages: list[dict[str, Any]] = []
        outcome = job(self.pool, messages.append)
        return messages, outcome

    def find_address(self) -> str:
        """Where this process can listen, as the first of several that make one program."""
        host = require("ray.util", doing="measuring on a cluster").get_node_ip_address()
        return f"{host}:{free_port(host)}"

    def join(self, address: str, count: int, rank: int) -> None:
        """Makes this process one of `count` for all calls to come, as one is by hand (`workers/membership.py`)."""
        os.environ.update(zip(BY_HAND, (address, str(count), str(rank)), strict=True))

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
