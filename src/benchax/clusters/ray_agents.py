"""Agents on the nodes of a Ray cluster, one for each node (`RayAgents`) or for each rank of one program (`RayGang`).

An agent takes all CPUs and GPUs of its node. So no other Ray task runs during a measurement, not even another benchax,
and two of them never disturb one another. A busy node joins when it is free, and a new node when it is available.

A placement group sets aside whole hosts for a gang and distributes the ranks over them. If there are as many hosts as
ranks, each host gets one rank. Ranks on several hosts find one another in the same way as programs that a launcher has
started (`workers/ranks.py`). The first rank makes the row. Ranks that share a host get equal parts of its processors
and GPUs. If there is only one host, its agent starts the ranks as on the user's own machine, since they then have a
common clock.

Tried with Ray 2.60.
"""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from benchax.clusters.agents import (
    AgentEvent,
    CallEnded,
    Examination,
    ItemListener,
    Node,
    NodeCall,
    NodeJoined,
    NodeLost,
    capture_environment,
)
from benchax.environment import FLAG_PREFIXES, FLAGS, at_commit_of, capture, installed
from benchax.errors import UsageError, require
from benchax.machine import doctor
from benchax.machine.noise import read_pace_s
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.jax_settings import apply_settings, jax_settings
from benchax.model import Environment, Failure, Measurement
from benchax.units import plural, seconds
from benchax.workers.pickling import SENT_FROM, Sealed, seal
from benchax.workers.pool import Pool
from benchax.workers.ranks import BY_HAND, free_port, rank_pool
from benchax.workers.task import CallLimits, Say, limit_stages
from benchax.workers.worker import import_paths

LATE_S = 30.0
"""Nodes that are not ready this long after the first one join later."""
NEW_NODES_S = 5.0
"""New nodes are looked for that often."""
MOST_AGENTS = 3
"""On one node: an agent that was killed has a successor, twice."""

Steps = Generator[Any, Any, Any]
"""Work on the cluster: it yields Ray's reference of each value that it needs, and is resumed with that value."""


@dataclass
class Team:
    """Actors that make a call together, one node for the dispatcher: the agent of a node, or the ranks of a program."""

    id: str
    actors: list[Any]
    places: list[str]
    """The name of each actor's place."""
    place: Place = field(default_factory=dict[str, Any])
    """The node that an agent has for itself."""
    node: Node | None = None
    """Once it is ready."""
    item: Any = None
    """The call that it makes is for this; None if it makes none."""


class _OnRay(ABC):
    """The common part of all agents on Ray. They fulfil the contract `Agents`.

    Args:
        ray: connected.
        folder: the folder of the user's files.
    """

    def __init__(self, ray: Any, folder: Path) -> None:
        self.ray, self.folder = ray, folder
        self.strategies = require("ray.util.scheduling_strategies", doing="measuring on a cluster")
        self.teams: dict[str, Team] = {}
        self.events: list[AgentEvent] = []
        """New events, in order."""
        self.listen: ItemListener = lambda item, message: None
        self._waiting: dict[Future[Any], Steps] = {}

    def submit(self, node: Node, item: Any, job: NodeCall) -> None:
        team = self.teams[node.id]
        try:
            sealed = job.seal()
        except UsageError as error:
            self.events.append(CallEnded(item, node, diagnose(error, "start")))
            return
        team.item = item
        for rank in range(len(team.actors)):
            self._begin(self._call(team, rank, sealed))

    def collect(self, listen: ItemListener) -> list[AgentEvent]:
        self.listen = listen
        while not self.events and any(team.item is not None or team.node is None for team in self.teams.values()):
            self._start_missing()
            self._wait(NEW_NODES_S)
        found, self.events = self.events, []
        return found

    def close(self) -> None:
        teams, self.teams = list(self.teams.values()), {}
        for team in teams:
            self._stop(team)

    def _begin(self, steps: Steps) -> None:
        self._go_on(steps, partial(next, steps))

    def _go_on(self, steps: Steps, resume: Callable[[], Any]) -> None:
        with suppress(StopIteration):
            self._waiting[resume().future()] = steps

    def _wait(self, timeout_s: float) -> None:
        """Resumes all work whose values have come; at least one, unless the time is over. Waiting costs nothing."""
        for future in wait(self._waiting, timeout_s, FIRST_COMPLETED).done:
            steps, error = self._waiting.pop(future), future.exception()
            self._go_on(steps, partial(steps.throw, error) if error else partial(steps.send, future.result()))

    def _answer(self, reference: Any) -> Steps:
        """Returns what an agent answers; a failure if the agent itself failed. Raises another error if it is gone."""
        try:
            return (yield reference)
        except self.ray.exceptions.RayTaskError as error:
            return diagnose(error, "start")
        except self.ray.exceptions.RayActorError as error:
            if not error.actor_init_failed:
                raise
            return Failure("error", "start", first_sentence(error))

    def _call(self, team: Team, rank: int, sealed: NodeCall) -> Steps:
        """Has an actor of `team` make a call."""
        try:
            answer = yield from self._answer(team.actors[rank].make_call.remote(sealed))
        except Exception as error:  # the future's own errors have no common type
            why = first_sentence(error)
            if len(team.actors) > 1:
                why = f"rank {rank} of {plural(len(team.actors), 'rank')}: lost on {team.places[rank]}: {why}"
            self._lose(team, why, Failure("node_lost", "start", why))
            return
        # What came of another rank than the first is in the first one's row.
        if rank or team.id not in self.teams or team.node is None or team.item is None:
            return
        messages, outcome = ([], answer) if isinstance(answer, Failure) else answer
        for message in messages:
            self.listen(team.item, message)
        failure = outcome.failure if isinstance(outcome, Measurement) else None
        if failure is not None and failure.kind == "node_lost":
            self._lose(team, failure.message, outcome)
        else:
            self.events.append(CallEnded(team.item, team.node, outcome))
            team.item = None

    def _lose(self, team: Team, why: str, outcome: Any) -> None:
        """Ends `team`, unless it was given up already.

        Args:
            outcome: of its call, if no other can make it.
        """
        if self.teams.pop(team.id, None) is not None:
            self._stop(team)
            self._replace(team, why, outcome)

    @abstractmethod
    def _replace(self, team: Team, why: str, outcome: Any) -> None:
        """Does what is possible after the loss of `team`, which has ended."""

    def _start_missing(self, at_once: bool = False) -> None:
        """Has an agent started on each node that has come, or whose agent was killed. Looks for them now and then."""
        return

    def _find_places(self, needed: Any, limits: CallLimits) -> list[Place]:
        """Keeps what the start needs. Raises `UsageError` if there is no place."""
        self.here = capture(self.folder, with_jax=False)
        self.needed = seal(needed, "what the nodes need")
        self.limit_s = limits.stage_s("start") or START_S
        places = list_places(self.ray)
        if not places:
            raise UsageError("the Ray cluster has no node with a CPU", "at least one node to measure on")
        settings = {name: value for name, value in jax_settings().items() if name != "jax_compilation_cache_dir"}
        self.sent = folders_to_send(self.folder), settings, str(self.folder.resolve())
        return places

    def _make_actor(self, where: Any, cpus: float, gpus: float) -> Any:
        """Starts an actor with this part of a node.

        Args:
            where: the place, as one of Ray's `strategies`.
            gpus: must be given: without any, Ray hides the available GPUs.
        """
        actor = self.ray.remote(NodeAgent).options(
            num_cpus=cpus, num_gpus=gpus, scheduling_strategy=where, max_restarts=0
        )
        return actor.remote(*self.sent)

    def _check(self, name: str, found: Environment | Failure) -> Environment:
        """Returns the environment of a node, as its rows have it. A node can have another JAX: its rows say so.

        Raises:
            UsageError: the node lacks something, or has another benchax.
        """
        if isinstance(found, Failure):
            raise UsageError(
                f"{name} cannot measure this: {found.message}",
                "nodes that can import everything the functions need",
                "install it there, or put it into the folder of your files, which is sent to the nodes",
            )
        if found.benchax != self.here.benchax:
            raise UsageError(
                f"{name} has benchax {found.benchax}, not {self.here.benchax}",
                "the same benchax on each node as here",
                "install benchax on the nodes from the same source, for example in their image",
            )
        return at_commit_of(self.here, found)

    def _stop(self, team: Team) -> None:
        """Ends it; its workers end when the process that started them does. Ray may be gone already."""
        for actor in team.actors:
            with suppress(Exception):
                self.ray.kill(actor, no_restart=True)


class RayAgents(_OnRay):
    """One on each node."""

    def __init__(self, ray: Any, folder: Path) -> None:
        super().__init__(ray, folder)
        self.attempts: Counter[str] = Counter()
        """Agents that there were on each of Ray's nodes."""
        self.problems: list[UsageError] = []
        self._looked = monotonic()

    def start(self, needed: Any, limits: CallLimits) -> list[Node]:
        for place in self._find_places(needed, limits):
            self._begin(self._start_agent(place))
        until = monotonic() + max(START_S, self.limit_s)
        while any(team.node is None for team in self.teams.values()) and (left_s := until - monotonic()) > 0:
            self._wait(left_s)
            if self.problems:
                raise self.problems[0]
            if self.events:  # a node is ready; those that are not soon join later
                until = min(until, monotonic() + LATE_S)
        self.events = []
        nodes = [team.node for team in self.teams.values() if team.node is not None]
        if not nodes:
            listed = ", ".join(team.places[0] for team in self.teams.values()) or "they were lost"
            raise UsageError(
                f"none of {plural(len(self.attempts), 'node')} was ready within {seconds(START_S)}: {listed}",
                "a node with all of its CPUs free, so that nothing disturbs what is measured",
                "`ray status` shows who uses them",
            )
        return nodes

    def _start_agent(self, place: Place) -> Steps:
        """Starts an agent on a node, which joins if it can measure."""
        id, address, resources = place["NodeID"], place["NodeManagerAddress"], place["Resources"]
        self.attempts[id] += 1
        there = self.strategies.NodeAffinitySchedulingStrategy(id, soft=False)
        actor = self._make_actor(there, resources["CPU"], resources.get("GPU", 0))
        name = f"{place['NodeManagerHostname']} ({address}, {id[:6]})"
        team = Team(f"{id[:12]}-{self.attempts[id]}", [actor], [name], place)
        self.teams[team.id] = team
        try:
            found = yield from self._answer(actor.examine.remote(self.needed, self.limit_s))
            environment = self._check(f"node {name}", getattr(found, "environment", found))
        except UsageError as error:  # at the start, it ends the run; later, there is just no such node
            self.problems.append(error)
            del self.teams[team.id]
            self._stop(team)
            return
        except Exception as error:
            self._lose(team, first_sentence(error), None)
            return
        if sum(other.place["NodeManagerAddress"] == address for other in self.teams.values()) > 1:
            address = f"{address}, {id[:6]}"
        team.node = Node(team.id, environment, address, replace(found, environment=environment))
        self.events.append(NodeJoined(team.node))

    def _start_missing(self, at_once: bool = False) -> None:
        if not at_once and monotonic() - self._looked < NEW_NODES_S:
            return
        self._looked = monotonic()
        with suppress(self.ray.exceptions.RayError):  # the next look will do
            taken = {team.place["NodeID"] for team in self.teams.values()}
            for place in list_places(self.ray):
                if place["NodeID"] not in taken and self.attempts[place["NodeID"]] < MOST_AGENTS:
                    self._begin(self._start_agent(place))

    def _replace(self, team: Team, why: str, outcome: Any) -> None:
        self._start_missing(at_once=True)  # it may have been the agent alone that was killed
        if team.node is not None:
            self.events.append(NodeLost(team.node, why))


# ---- ranks of one program --------------------------------------------------------------------------------------------


LOOK_S = 1.0
"""Whether the nodes that are waited for are still there is asked that often."""


@dataclass(frozen=True)
class Slot:
    """The part of its host that a rank gets."""

    bundle: int
    """The host, by its part of the placement group."""
    cpus: float
    gpus: float


def sizes_of(places: Sequence[Place]) -> list[tuple[float, float]]:
    """(GPUs, CPUs) of each, the biggest first."""
    return sorted(((place["Resources"].get("GPU", 0), place["Resources"]["CPU"]) for place in places), reverse=True)


def assign_slots(places: Sequence[Place], count: int) -> list[Slot]:
    """A slot for each agent: neighbours share a host, and the biggest hosts come first.

    Raises:
        UsageError: more ranks than GPUs on a host that has some.
    """
    chosen = sizes_of(places)[:count]
    if len(chosen) == 1 and not chosen[0][0]:
        return [Slot(0, chosen[0][1], 0)]
    slots: list[Slot] = []
    for bundle, (gpus, cpus) in enumerate(chosen):
        share = count // len(chosen) + (bundle < count % len(chosen))
        if 0 < gpus < share:
            raise UsageError(
                f"{plural(share, 'rank')} of nprocs={count} come to a node with {plural(int(gpus), 'GPU')}",
                "at most as many ranks as GPUs",
                f"--nprocs {int(sum(g for g, _ in chosen))} has one on each",
            )
        # Ray allots more than one CPU in whole numbers only.
        slots += [Slot(bundle, cpus // share or cpus / share, gpus // share)] * share
    return slots


class RayGang(_OnRay):
    """`count` ranks of one program. Its only node is the gang, or the next gang if the first is lost."""

    def __init__(self, ray: Any, folder: Path, count: int) -> None:
        super().__init__(ray, folder)
        self.count = count
        self.group: Any = None
        """The part of the cluster that is set aside, from the time of the request."""
        self._number = 0

    def start(self, needed: Any, limits: CallLimits) -> list[Node]:
        places = self._find_places(needed, limits)
        self.slots = assign_slots(places, self.count)
        self.sizes = sizes_of(places)[: len({slot.bundle for slot in self.slots})]
        return [self._form()]

    def close(self) -> None:
        super().close()
        group, self.group = self.group, None
        if group is not None:
            with suppress(Exception):
                self.ray.util.remove_placement_group(group)

    def _form(self) -> Node:
        """Raises `UsageError` if there are no hosts for it, or one of them lacks something that measuring needs."""
        self.close()
        self._number += 1
        self._set_aside()
        in_bundle = partial(self.strategies.PlacementGroupSchedulingStrategy, self.group)
        actors = [
            self._make_actor(in_bundle(placement_group_bundle_index=slot.bundle), slot.cpus, slot.gpus)
            for slot in self.slots
        ]
        # From here on `close` ends them.
        team = self.teams[f"gang-{self._number}"] = Team(f"gang-{self._number}", actors, [])
        loaded = self._ask(actors, "load", self.needed, self.limit_s)
        found = [self._check(f"rank {rank}", each) for rank, each in enumerate(loaded)]
        if len(actors) > 1:
            (address,) = self._ask(actors[:1], "find_address")
            for rank, actor in enumerate(actors):
                self._ask([actor], "join", address, self.count, rank)
        team.places = [each.host for each in found]
        where = f"{plural(self.count, 'rank')} on {plural(len(self.sizes), 'node')}"
        team.node = Node(team.id, found[0], where)
        return team.node

    def _set_aside(self) -> None:
        bundles = [{"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus} for gpus, cpus in self.sizes]
        ask = require("ray.util", doing="measuring on a cluster").placement_group
        self.group = ask(bundles, strategy="STRICT_SPREAD")
        until = monotonic() + START_S
        # Ctrl-C does not interrupt one of Ray's waits before its timeout.
        while not self.group.wait(LOOK_S):
            there = len(list_places(self.ray))
            if there < len(self.sizes) or monotonic() > until:
                self.close()
                are = "there" if there < len(self.sizes) else f"free at once within {seconds(START_S)}"
                raise UsageError(
                    f"{plural(len(self.sizes), 'node')} for {plural(self.count, 'rank')} were not {are}",
                    "nodes with all of their CPUs free, so that nothing disturbs what is measured",
                    "`ray status` shows who uses them",
                )

    def _ask(self, actors: Sequence[Any], method: str, *given: Any) -> list[Any]:
        """Returns the answer of each of the actors. Raises `UsageError` if one does not answer."""
        asked = [getattr(actor, method).remote(*given).future() for actor in actors]
        wait(asked, max(START_S, self.limit_s))
        found = []
        for rank, future in enumerate(asked):
            try:
                found.append(future.result(timeout=0))
            except (self.ray.exceptions.RayError, TimeoutError) as error:
                raise UsageError(
                    f"rank {rank} of {plural(self.count, 'rank')} could not be started: {first_sentence(error)}",
                    f"nodes that answer within {seconds(START_S)}",
                ) from error
        return found

    def _replace(self, team: Team, why: str, outcome: Any) -> None:
        """Another gang takes over if there are hosts for it; if not, what was heard last is what came of the call."""
        assert team.node is not None
        lost = NodeLost(team.node, why)
        try:
            self.events += [lost, NodeJoined(self._form())]
        except UsageError:
            self.close()
            ended = [] if team.item is None else [CallEnded(team.item, team.node, outcome)]
            self.events += [*ended, lost]


# ---- nodes -----------------------------------------------------------------------------------------------------------
#
# The nodes of a Ray cluster: lists them, checks whether they can measure, and manages the agent on each and its calls.


# The agent on a node: a Ray actor with a pool of workers, the same as on one machine.
#
# The agent runs no user code. Functions and inputs pass through it sealed. Its workers unpickle them. They can be
# killed.


class NodeAgent:
    """Receives the driver's calls, one at a time.

    Args:
        folders: of imports, relative to the folder with the user's files, where this process runs.
        jax_config: settings of JAX in the driver.
        sent_from: the folder with the user's files there.
    """

    def __init__(self, folders: Sequence[str], jax_config: Mapping[str, Any], sent_from: str) -> None:
        # Ray sets it to the CPUs of the actor. On the driver it isn't set, and a row records such flags.
        os.environ.pop("OMP_NUM_THREADS", None)
        os.environ[SENT_FROM] = sent_from
        ours = [str(Path(folder).resolve()) for folder in folders]
        # Ray ships copies of packages and puts them first.
        others = [path for path in sys.path if path not in ours]
        of_ray = re.compile(f"{os.sep}ray{os.sep}.*(thirdparty_files|_private)")
        sys.path[:] = [*ours, *sorted(others, key=lambda path: bool(of_ray.search(path)))]
        apply_settings(dict(jax_config))  # workers have those of this process
        self.pool = Pool()

    def examine(self, needed: Sealed, limit_s: float) -> Examination | Failure:
        """Returns the facts about this node; a failure if a worker cannot load what the calls need."""
        return self.pool.call(examine_node, needed, limit_stages(limit_s), shows_output=False)

    def load(self, needed: Sealed, limit_s: float) -> Environment | Failure:
        """Returns the environment here, or a failure as `examine` does, for a rank, which then has this pool."""
        return rank_pool(0).call(capture_environment, needed, limit_stages(limit_s), shows_output=False)

    def make_call(self, job: NodeCall) -> tuple[list[dict[str, Any]], Any]:
        """(announcements, outcome)"""
        messages: list[dict[str, Any]] = []
        return messages, job(self.pool, messages.append)

    def find_address(self) -> str:
        """Where this process can listen, as the first of several that make one program."""
        host = require("ray.util", doing="measuring on a cluster").get_node_ip_address()
        return f"{host}:{free_port(host)}"

    def join(self, address: str, count: int, rank: int) -> None:
        """Makes this process one of `count` for all calls to come, as one is by hand (`workers/ranks.py`)."""
        os.environ.update(zip(BY_HAND, (address, str(count), str(rank)), strict=True))


def examine_node(needed: object, say: Say) -> Examination:
    """In a worker, whose argument has been loaded by now. Takes two seconds."""
    say("environment")
    pace_s = read_pace_s()
    found = doctor.examine()
    return Examination(found.environment, pace_s, found.smallest_effect)


START_S = 120.0
"""For the first node to be ready; starting Ray's processes and JAX on a busy machine takes its time."""

Place = dict[str, Any]
"""A node, as Ray describes it."""


def list_places(ray: Any) -> list[Place]:
    return [place for place in ray.nodes() if place["Alive"] and place["Resources"].get("CPU", 0) > 0]


# ---- the connection --------------------------------------------------------------------------------------------------
#
# A connection to a Ray cluster, or one that is started here: "ray", "HOST:PORT" or "ray://HOST:PORT".
#
# A cluster of ours listens on 127.0.0.1 only and ends with this program, however that ends. The folder of the user's
# files goes to the nodes (Ray's `runtime_env`), without what its .gitignore names. Flags of JAX and XLA go with it.


EXPECTED = "ray, which starts one here, HOST:PORT of a cluster, or ray://HOST:PORT of its client server"
CONNECT_S = 5.0
_ADDRESS = re.compile(r"(?P<client>ray://)?(?P<host>[^\s/:]+|\[[0-9a-fA-F:]+\]):(?P<port>\d{1,5})")
# A property of the machine, not of the program: each node has its own.
_OF_THE_MACHINE = frozenset({"LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "NPROC", "PJRT_NPROC", "JAX_COMPILATION_CACHE_DIR"})
_LEFT_AT_HOME = [".git", ".venv", ".benchmarks", "__pycache__", "node_modules"]

_ON_LOOPBACK = {
    # Ray reads it at import. Without it, Ray on a single machine also listens on its external address.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent anywhere
    "RAY_raylet_start_wait_time_s": "150",  # on a busy machine 30 s are not enough
}


def check_address(on: object) -> str:
    """`on`, if a cluster can be meant. Raises `UsageError`."""
    match = _ADDRESS.fullmatch(on) if isinstance(on, str) else None
    if on == "ray" or (match is not None and 0 < int(match["port"]) < 65536):
        return str(on)
    raise UsageError(f"on={on!r} isn't a cluster", EXPECTED)


@contextmanager
def open_session(on: str, folder: Path) -> Generator[Any, None, None]:
    """Yields Ray, connected. A connection or a cluster started here is closed afterwards; a connection of the caller
    stays.

    Raises:
        UsageError: no cluster answers there, or it has another version of Ray or Python.
        MissingPackage: Ray is not installed.
    """
    check_address(on)
    if on != "ray":
        _check_reachable(on)
    else:
        for name, value in _ON_LOOPBACK.items():
            os.environ.setdefault(name, value)
    ray = require("ray", doing="measuring on a cluster")
    if ray.is_initialized():
        yield ray
        return
    _connect(ray, on, folder)
    try:
        yield ray
    finally:
        ray.shutdown()


def _connect(ray: Any, on: str, folder: Path) -> None:
    runtime_env = {"working_dir": str(folder), "excludes": _LEFT_AT_HOME, "env_vars": flags_to_send()}
    given: dict[str, Any] = {"runtime_env": runtime_env, "log_to_driver": False, "logging_level": "ERROR"}
    given |= {"address": "local", "include_dashboard": False} if on == "ray" else {"address": on}
    try:
        ray.init(**given)
    except KeyboardInterrupt:
        ray.shutdown()
        raise
    # Ray has no common type for errors of an address: ConnectionError, RuntimeError, ValueError, and its own.
    except Exception as error:
        ray.shutdown()
        what = "no Ray could be started here" if on == "ray" else f"cannot join the Ray cluster at {on!r}"
        raise UsageError(f"{what}: {first_sentence(error)}", EXPECTED, _advise(on, str(error))) from error


def _advise(on: str, text: str) -> str:
    if "version" in text.lower():
        here = f"Ray {installed('ray')} with Python {platform.python_version()}"
        return f"the same versions of Ray and Python as here: {here}"
    if "size" in text.lower():
        return "list big files in the folder's .gitignore, so that they are not sent to the nodes"
    if on == "ray":
        return ""
    token = "if the cluster asks for a token, set RAY_AUTH_MODE=token here too"
    if "RAY_AUTH_MODE" not in os.environ and (Path.home() / ".ray" / "auth_token").exists():
        # An earlier Ray on this machine has made it. `--on ray` starts such a Ray, too.
        token = (
            "there is a ~/.ray/auth_token, which `ray start` asks for: set RAY_AUTH_MODE=token here and on the nodes"
        )
    if on.startswith("ray://"):
        return token
    return f"HOST:PORT is for programs on a machine of the cluster; from elsewhere it is ray://HOST:10001; {token}"


def _check_reachable(on: str) -> None:
    """Ray itself tries for a minute."""
    address = urlsplit(on if "//" in on else f"//{on}")
    try:
        with socket.create_connection((address.hostname, address.port), timeout=CONNECT_S):
            pass
    except OSError as error:
        raise UsageError(
            f"nothing answers at {on!r}: {error}",
            "the address of a running Ray cluster",
            "`ray start --head` prints it; 6379 is the usual port, 10001 is the port for ray://",
        ) from error


def flags_to_send() -> dict[str, str]:
    """Variables of this process that change programs or their speed, for the processes on the nodes."""
    return {
        name: value
        for name, value in os.environ.items()
        if (name in FLAGS or name.startswith(FLAG_PREFIXES)) and name not in _OF_THE_MACHINE
    }


def folders_to_send(folder: Path) -> list[str]:
    """Import folders of this process inside `folder`, relative to it; itself first."""
    root = folder.resolve()
    inside = [Path(path).resolve() for path in import_paths()]
    found = [path.relative_to(root).as_posix() for path in inside if path.is_relative_to(root)]
    # An environment inside the project folder is not part of the project.
    return list(dict.fromkeys([".", *(path for path in found if "site-packages" not in path)]))


def first_sentence(error: BaseException) -> str:
    """The first line of an error that says something. If the error holds one of Ray's, it is the line of that error. If
    it holds a traceback of an actor that could not begin, it is the last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if getattr(error, "actor_init_failed", False):
        return lines[-1]
    because = next((line for line in lines if "because" in line), "")
    return because or (lines[0] if lines else type(error).__name__)
