"""Agents on the nodes of a Ray cluster.

An agent takes all CPUs and GPUs of its node: nothing of Ray's runs beside what is measured, not even another benchax,
and two of them never disturb one another. A node that is busy joins when it is free, and a new one when it is there.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from benchax.clusters.agents import (
    AgentEvent,
    CallEnded,
    Examination,
    Node,
    NodeCall,
    NodeJoined,
    NodeLost,
    TicketListener,
    at_commit_of,
)
from benchax.clusters.node_agent import NodeAgent
from benchax.clusters.node_check import check_nodes, make_probe
from benchax.clusters.ray_session import first_sentence, folders_to_send, open_session
from benchax.environment import capture
from benchax.errors import UsageError, require
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.jax_settings import jax_settings
from benchax.model import Failure
from benchax.units import plural, seconds
from benchax.workers.call_limits import CallLimits
from benchax.workers.pickling import seal

START_S = 120.0
"""For the first node to be ready; starting Ray's processes and JAX on a busy machine takes its time."""
LATE_S = 30.0
"""Nodes that are not ready so long after the first one join later."""
LOOK_S = 5.0
"""New nodes are looked for that often."""
MOST_AGENTS = 3
"""On one node: an agent that was killed has a successor, twice."""


@dataclass
class AgentHandle:
    """An agent as the driver knows it."""

    id: str
    place: dict[str, Any]
    """The node, as Ray describes it."""
    actor: Any
    node: Node | None = None
    """Once it is ready."""
    ticket: int | None = None


class RayAgents:
    """The contract is that of `Agents`.

    Args:
        ray: connected.
        folder: that of the user's files.
    """

    def __init__(self, ray: Any, folder: Path) -> None:
        self.ray = ray
        self.folder = folder
        self.agents: dict[str, AgentHandle] = {}
        self.attempts: dict[str, int] = {}
        """Agents that there were on each of Ray's nodes."""
        self.problems: list[str] = []
        self._events: queue.SimpleQueue[tuple[str, str, Any]] = queue.SimpleQueue()
        """(agent, what has ended, future)"""
        self._looked = monotonic()

    # ---- the contract

    def start(self, needed: Any, limits: CallLimits) -> list[Node]:
        self.here = capture(self.folder, with_jax=False)
        self.needed = seal(needed, "what the nodes need")
        self.limit_s = limits.stage_s("start") or START_S
        places = self._places()
        if not places:
            raise UsageError("the Ray cluster has no node with a CPU", "at least one node to measure on")
        self._check(places)
        for place in places:
            self._start_agent(place)
        return self._await_first()

    def submit(self, node: Node, ticket: int, job: NodeCall) -> None:
        agent = self.agents[node.id]
        agent.ticket = ticket
        try:
            sealed = job.seal()
        except UsageError as error:
            self._events.put((node.id, "call", _Done(([], diagnose(error, "start")))))
            return
        self._follow(agent, "call", lambda: agent.actor.make_call.remote(sealed))

    def collect(self, listen: TicketListener) -> list[AgentEvent]:
        while self.agents and any(agent.ticket is not None or agent.node is None for agent in self.agents.values()):
            self._look_for_nodes()
            found: list[AgentEvent] = []
            for id, what, future in self._wait(LOOK_S):
                found += self._read(id, what, future, listen)
            if found:
                return found
        return []

    def close(self) -> None:
        agents, self.agents = list(self.agents.values()), {}
        for agent in agents:
            # Its workers end when the process that started them does. Ray may be gone already.
            with suppress(Exception):
                self.ray.kill(agent.actor, no_restart=True)

    # ---- nodes

    def _places(self) -> list[dict[str, Any]]:
        return [place for place in self.ray.nodes() if place["Alive"] and place["Resources"].get("CPU", 0) > 0]

    def _check(self, places: Sequence[dict[str, Any]]) -> None:
        probe = self.ray.remote(num_cpus=0, max_retries=0)(make_probe())
        asked = [(place, probe.options(scheduling_strategy=_only(place)).remote()) for place in places]
        self.ray.wait([ref for _, ref in asked], num_returns=len(asked), timeout=START_S)
        found: dict[str, dict[str, str | None] | str] = {}
        for place, ref in asked:
            try:
                found[_name(place)] = self.ray.get(ref, timeout=0.1)
            except self.ray.exceptions.RayError as error:
                found[_name(place)] = first_sentence(error)
        check_nodes(found)

    def _start_agent(self, place: dict[str, Any]) -> None:
        resources = place["Resources"]
        self.attempts[place["NodeID"]] = number = self.attempts.get(place["NodeID"], 0) + 1
        actor = (
            self.ray.remote(NodeAgent)
            .options(
                num_cpus=resources["CPU"],
                num_gpus=resources.get("GPU", 0),  # without any, Ray hides those that there are
                scheduling_strategy=_only(place),
                max_restarts=0,
            )
            .remote(folders_to_send(self.folder), _settings_to_send())
        )
        agent = AgentHandle(f"{place['NodeID'][:12]}-{number}", place, actor)
        self.agents[agent.id] = agent
        self._follow(agent, "examine", lambda: actor.examine.remote(self.needed, self.limit_s))

    def _await_first(self) -> list[Node]:
        """Those that are ready when most are: the others join later."""
        nodes: list[Node] = []
        until = monotonic() + max(START_S, self.limit_s)
        while any(agent.node is None for agent in self.agents.values()) and monotonic() < until:
            for id, what, future in self._wait(until - monotonic()):
                for event in self._read(id, what, future, lambda ticket, message: None):
                    if isinstance(event, NodeJoined):
                        nodes.append(event.node)
                        until = min(until, monotonic() + LATE_S)
            if self.problems:
                raise UsageError(
                    "; ".join(self.problems),
                    "nodes on which everything can be imported that the functions need",
                    "install it there, or put it into the folder of your files, which goes to the nodes",
                )
        if not nodes:
            listed = ", ".join(_name(agent.place) for agent in self.agents.values()) or "they were lost"
            raise UsageError(
                f"none of {plural(len(self.attempts), 'node')} was ready within {seconds(START_S)}: {listed}",
                "a node with all of its CPUs free, so that nothing disturbs what is measured",
                "`ray status` shows who uses them",
            )
        return nodes

    def _look_for_nodes(self) -> None:
        if monotonic() - self._looked > LOOK_S:
            self._start_missing()

    def _start_missing(self) -> None:
        """Has an agent started on each node that has come, or whose agent was killed."""
        self._looked = monotonic()
        with suppress(self.ray.exceptions.RayError):  # the next look will do
            taken = {agent.place["NodeID"] for agent in self.agents.values()}
            for place in self._places():
                if place["NodeID"] not in taken and self.attempts.get(place["NodeID"], 0) < MOST_AGENTS:
                    self._start_agent(place)

    # ---- what comes back

    def _follow(self, agent: AgentHandle, what: str, call: Callable[[], Any]) -> None:
        """Has the end of a call put among the events, at no cost while it lasts."""
        try:
            future = call().future()
        except self.ray.exceptions.RayError as error:  # the agent is known to be gone
            self._events.put((agent.id, what, _Done(error=error)))
            return
        future.add_done_callback(lambda future: self._events.put((agent.id, what, future)))

    def _wait(self, timeout_s: float) -> list[tuple[str, str, Any]]:
        found: list[tuple[str, str, Any]] = []
        with suppress(queue.Empty):
            found.append(self._events.get(timeout=max(0.01, timeout_s)))
            while True:
                found.append(self._events.get_nowait())
        return found

    def _read(self, id: str, what: str, future: Any, listen: TicketListener) -> list[AgentEvent]:
        agent = self.agents.get(id)
        if agent is None:  # given up
            return []
        try:
            value: Any = future.result()
        except self.ray.exceptions.RayTaskError as error:
            # Of the agent itself, not of what it called: this job, and no other, cannot be made there.
            failure = diagnose(error, "start")
            value = failure if what == "examine" else ([], failure)
        except Exception as error:  # the future's own errors have no common type
            found = self._lose(agent, first_sentence(error))
            self._start_missing()  # it may have been the agent alone that was killed
            return found
        if what == "examine":
            return self._take_examination(agent, value)
        messages, outcome = value
        assert agent.node is not None
        assert agent.ticket is not None
        ticket, agent.ticket = agent.ticket, None
        for message in messages:
            listen(ticket, message)
        return [CallEnded(ticket, agent.node, _writable(outcome))]

    def _lose(self, agent: AgentHandle, why: str) -> list[AgentEvent]:
        del self.agents[agent.id]
        with suppress(Exception):
            self.ray.kill(agent.actor, no_restart=True)
        return [NodeLost(agent.node, why)] if agent.node is not None else []

    def _take_examination(self, agent: AgentHandle, found: Examination | Failure) -> list[AgentEvent]:
        if isinstance(found, Failure):
            self.problems.append(f"node {_name(agent.place)} cannot measure this: {found.message}")
            self._lose(agent, found.message)
            return []
        environment = at_commit_of(self.here, found.environment)
        address = agent.place["NodeManagerAddress"]
        same = [other for other in self.agents.values() if other.place["NodeManagerAddress"] == address]
        if len(same) > 1:
            address = f"{address}, {agent.place['NodeID'][:6]}"
        agent.node = Node(agent.id, environment, address, replace(found, environment=environment))
        return [NodeJoined(agent.node)]


@contextmanager
def open_ray_agents(on: str, folder: Path) -> Generator[RayAgents, None, None]:
    """Raises as `open_session` does."""
    with open_session(on, folder) as ray:
        agents = RayAgents(ray, folder)
        try:
            yield agents
        finally:
            agents.close()


@dataclass(frozen=True)
class _Done:
    """A call that has ended before it began; with the method of a future that is asked for."""

    value: Any = None
    error: Exception | None = None

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


def _only(place: dict[str, Any]) -> Any:
    strategies = require("ray.util.scheduling_strategies", doing="measuring on a cluster")
    return strategies.NodeAffinitySchedulingStrategy(place["NodeID"], soft=False)


def _name(place: dict[str, Any]) -> str:
    return f"{place['NodeManagerHostname']} ({place['NodeManagerAddress']}, {place['NodeID'][:6]})"


def _settings_to_send() -> dict[str, Any]:
    plain = (bool, int, float, str, type(None))
    return {
        name: value
        for name, value in jax_settings().items()
        if isinstance(value, plain) and name != "jax_compilation_cache_dir"
    }


def _writable(value: Any) -> Any:
    """Ray gives out arrays over its shared memory, which nobody may write; answers have arrays of their own."""
    if isinstance(value, np.ndarray):
        return value if value.flags.writeable else value.copy()
    return tuple(map(_writable, value)) if type(value) is tuple else value
