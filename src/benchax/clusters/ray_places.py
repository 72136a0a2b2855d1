"""The nodes of a Ray cluster: which there are, whether they can measure, the agent on each, and its calls."""

from __future__ import annotations

import os
import queue
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchax.clusters.agents import Examination, NodeCall
from benchax.clusters.ray_session import first_sentence, folders_to_send
from benchax.environment import installed
from benchax.errors import UsageError, require
from benchax.machine import doctor
from benchax.machine.pace import read_pace_s
from benchax.measuring.jax_settings import apply_settings, jax_settings
from benchax.model import Failure
from benchax.units import plural
from benchax.workers.call_limits import limit_stages
from benchax.workers.pickling import SENT_FROM, Sealed
from benchax.workers.pool import Pool
from benchax.workers.ranks import BY_HAND, free_port
from benchax.workers.task import Say, task

# The agent on a node: a Ray actor with a pool of workers, the same as on one machine.
#
# The agent runs no user code. Functions and inputs pass through it sealed. Its workers unpickle them. They can be
# killed.

THREADS = "OMP_NUM_THREADS"


class NodeAgent:
    """Receives the driver's calls, one at a time.

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
        """Returns the facts about this node; a failure if a worker cannot load what the calls need."""
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
        """Makes this process one of `count` for all calls to come, as one is by hand (`workers/ranks.py`)."""
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
    return Examination(found.environment, pace_s, found.smallest_effect)


# Asks nodes before the first call for the packages that measuring needs. So a missing one is an error, not a thousand
# rows.

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


START_S = 120.0
"""For the first node to be ready; starting Ray's processes and JAX on a busy machine takes its time."""

Place = dict[str, Any]
"""A node, as Ray describes it."""


def list_places(ray: Any) -> list[Place]:
    return [place for place in ray.nodes() if place["Alive"] and place["Resources"].get("CPU", 0) > 0]


def name_place(place: Place) -> str:
    return f"{place['NodeManagerHostname']} ({place['NodeManagerAddress']}, {place['NodeID'][:6]})"


def only(place: Place) -> Any:
    """Ray's way to say: there, and nowhere else."""
    return _strategies().NodeAffinitySchedulingStrategy(place["NodeID"], soft=False)


def in_bundle(group: Any, bundle: int) -> Any:
    """Returns Ray's scheduling strategy for one part of the resources that were set aside together."""
    return _strategies().PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)


def _strategies() -> Any:
    return require("ray.util.scheduling_strategies", doing="measuring on a cluster")


def check_places(ray: Any, places: Sequence[Place]) -> None:
    """Raises `UsageError` if there is no place, or a place lacks something that measuring needs."""
    if not places:
        raise UsageError("the Ray cluster has no node with a CPU", "at least one node to measure on")
    probe = ray.remote(num_cpus=0, max_retries=0)(make_probe())
    asked = [(place, probe.options(scheduling_strategy=only(place)).remote()) for place in places]
    ray.wait([ref for _, ref in asked], num_returns=len(asked), timeout=START_S)
    found: dict[str, dict[str, str | None] | str] = {}
    for place, ref in asked:
        try:
            found[name_place(place)] = ray.get(ref, timeout=0.1)
        except ray.exceptions.RayError as error:
            found[name_place(place)] = first_sentence(error)
    check_nodes(found)


def start_agent(ray: Any, folder: Path, where: Any, cpus: float, gpus: float) -> Any:
    """Starts an actor with this part of a node.

    Args:
        folder: the folder of the user's files.
        where: the place, from `only` or `in_bundle`.
        gpus: must be given: without any, Ray hides the available GPUs.
    """
    return (
        ray.remote(NodeAgent)
        .options(num_cpus=cpus, num_gpus=gpus, scheduling_strategy=where, max_restarts=0)
        .remote(folders_to_send(folder), _settings_to_send(), str(folder.resolve()))
    )


def stop_agent(ray: Any, actor: Any) -> None:
    """Ends it; its workers end when the process that started them does. Raises nothing: Ray may be gone already."""
    with suppress(Exception):
        ray.kill(actor, no_restart=True)


def cannot_load(problem: str) -> UsageError:
    """The error if nodes lack some of the user's files or packages."""
    return UsageError(
        problem,
        "nodes on which everything can be imported that the functions need",
        "install it there, or put it into the folder of your files, which goes to the nodes",
    )


def _settings_to_send() -> dict[str, Any]:
    plain = (bool, int, float, str, type(None))
    return {
        name: value
        for name, value in jax_settings().items()
        if isinstance(value, plain) and name != "jax_compilation_cache_dir"
    }


# ---- calls that are under way ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EndedCall:
    """The call that has ended, and its actor; with the method of a future that Ray calls."""

    who: Any
    what: str
    result: Callable[[], Any]
    """Its value. Raises `RayTaskError` if the call failed, and another error if the actor is gone."""


class RayCalls:
    """While nothing ends, waiting costs nothing."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self._ended: queue.SimpleQueue[EndedCall] = queue.SimpleQueue()

    def begin(self, who: Any, what: str, call: Callable[[], Any]) -> None:
        """`call` returns the reference of the value that Ray should bring."""
        try:
            future = call().future()
        except self.ray.exceptions.RayError as error:  # the actor is known to be gone
            self._ended.put(EndedCall(who, what, _raising(error)))
            return
        future.add_done_callback(lambda future: self._ended.put(EndedCall(who, what, future.result)))

    def end(self, who: Any, what: str, value: Any) -> None:
        """Ends a call that ended before it began."""
        self._ended.put(EndedCall(who, what, lambda: value))

    def wait(self, timeout_s: float) -> list[EndedCall]:
        """All that has ended; at least one, unless the time is over."""
        found: list[EndedCall] = []
        with suppress(queue.Empty):
            found.append(self._ended.get(timeout=max(0.01, timeout_s)))
            while True:
                found.append(self._ended.get_nowait())
        return found


def _raising(error: Exception) -> Callable[[], Any]:
    def result() -> Any:
        raise error

    return result
