"""Agents on the nodes of a Ray cluster.

An agent takes all CPUs and GPUs of its node. So no other Ray task runs during a measurement, not even another benchax,
and two of them never disturb one another. A busy node joins when it is free, and a new node when it is available.
"""

from __future__ import annotations

from collections.abc import Generator
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
from benchax.clusters.ray_places import (
    START_S,
    EndedCall,
    Place,
    RayCalls,
    cannot_load,
    check_places,
    list_places,
    name_place,
    only,
    start_agent,
    stop_agent,
)
from benchax.clusters.ray_session import first_sentence, open_session
from benchax.environment import capture
from benchax.errors import UsageError
from benchax.measuring.diagnosis import diagnose
from benchax.model import Failure
from benchax.units import plural, seconds
from benchax.workers.call_limits import CallLimits
from benchax.workers.pickling import seal

LATE_S = 30.0
"""Nodes that are not ready this long after the first one join later."""
LOOK_S = 5.0
"""New nodes are looked for that often."""
MOST_AGENTS = 3
"""On one node: an agent that was killed has a successor, twice."""


@dataclass
class AgentHandle:
    """An agent as the driver knows it."""

    id: str
    place: Place
    actor: Any
    node: Node | None = None
    """Once it is ready."""
    ticket: int | None = None


class RayAgents:
    """Follows the contract of `Agents`.

    Args:
        ray: connected.
        folder: the folder of the user's files.
    """

    def __init__(self, ray: Any, folder: Path) -> None:
        self.ray = ray
        self.folder = folder
        self.agents: dict[str, AgentHandle] = {}
        self.attempts: dict[str, int] = {}
        """Agents that there were on each of Ray's nodes."""
        self.problems: list[str] = []
        self.calls = RayCalls(ray)
        self._looked = monotonic()

    # ---- the contract

    def start(self, needed: Any, limits: CallLimits) -> list[Node]:
        self.here = capture(self.folder, with_jax=False)
        self.needed = seal(needed, "what the nodes need")
        self.limit_s = limits.stage_s("start") or START_S
        places = list_places(self.ray)
        check_places(self.ray, places)
        for place in places:
            self._start_agent(place)
        return self._await_first()

    def submit(self, node: Node, ticket: int, job: NodeCall) -> None:
        agent = self.agents[node.id]
        agent.ticket = ticket
        try:
            sealed = job.seal()
        except UsageError as error:
            self.calls.end(node.id, "call", ([], diagnose(error, "start")))
            return
        self.calls.begin(agent.id, "call", lambda: agent.actor.make_call.remote(sealed))

    def collect(self, listen: TicketListener) -> list[AgentEvent]:
        while self.agents and any(agent.ticket is not None or agent.node is None for agent in self.agents.values()):
            self._look_for_nodes()
            found: list[AgentEvent] = []
            for ended in self.calls.wait(LOOK_S):
                found += self._read(ended, listen)
            if found:
                return found
        return []

    def close(self) -> None:
        agents, self.agents = list(self.agents.values()), {}
        for agent in agents:
            stop_agent(self.ray, agent.actor)

    # ---- nodes

    def _start_agent(self, place: dict[str, Any]) -> None:
        self.attempts[place["NodeID"]] = number = self.attempts.get(place["NodeID"], 0) + 1
        resources = place["Resources"]
        actor = start_agent(self.ray, self.folder, only(place), resources["CPU"], resources.get("GPU", 0))
        agent = AgentHandle(f"{place['NodeID'][:12]}-{number}", place, actor)
        self.agents[agent.id] = agent
        self.calls.begin(agent.id, "examine", lambda: actor.examine.remote(self.needed, self.limit_s))

    def _await_first(self) -> list[Node]:
        """Those that are ready when most are: the others join later."""
        nodes: list[Node] = []
        until = monotonic() + max(START_S, self.limit_s)
        while any(agent.node is None for agent in self.agents.values()) and monotonic() < until:
            for ended in self.calls.wait(until - monotonic()):
                for event in self._read(ended, lambda ticket, message: None):
                    if isinstance(event, NodeJoined):
                        nodes.append(event.node)
                        until = min(until, monotonic() + LATE_S)
            if self.problems:
                raise cannot_load("; ".join(self.problems))
        if not nodes:
            listed = ", ".join(name_place(agent.place) for agent in self.agents.values()) or "they were lost"
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
            for place in list_places(self.ray):
                if place["NodeID"] not in taken and self.attempts.get(place["NodeID"], 0) < MOST_AGENTS:
                    self._start_agent(place)

    # ---- what comes back

    def _read(self, ended: EndedCall, listen: TicketListener) -> list[AgentEvent]:
        agent = self.agents.get(ended.who)
        if agent is None:  # given up
            return []
        try:
            value: Any = ended.result()
        except self.ray.exceptions.RayTaskError as error:
            # Of the agent itself, not of what it called: this job, and no other, cannot be made there.
            failure = diagnose(error, "start")
            value = failure if ended.what == "examine" else ([], failure)
        except Exception as error:  # the future's own errors have no common type
            found = self._lose(agent, first_sentence(error))
            self._start_missing()  # it may have been the agent alone that was killed
            return found
        if ended.what == "examine":
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
        stop_agent(self.ray, agent.actor)
        return [NodeLost(agent.node, why)] if agent.node is not None else []

    def _take_examination(self, agent: AgentHandle, found: Examination | Failure) -> list[AgentEvent]:
        if isinstance(found, Failure):
            self.problems.append(f"node {name_place(agent.place)} cannot measure this: {found.message}")
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


def _writable(value: Any) -> Any:
    """Ray returns read-only arrays over its shared memory; answers have their own arrays."""
    if isinstance(value, np.ndarray):
        return value if value.flags.writeable else value.copy()
    return tuple(map(_writable, value)) if type(value) is tuple else value
