"""Agents on the nodes of a Ray cluster, one for each node (`RayAgents`) or for each rank of one program (`RayGang`).

An agent takes all CPUs and GPUs of its node. So no other Ray task runs during a measurement, not even another benchax,
and two of them never disturb one another. A busy node joins when it is free, and a new node when it is available.

A placement group sets aside whole hosts for a gang and distributes the ranks over them. If there are as many hosts as
ranks, each host gets one rank. Ranks on several hosts find one another in the same way as programs that a launcher has
started (`workers/ranks.py`). The first rank makes the row. Ranks that share a host get equal parts of its processors
and GPUs. If there is only one host, its agent starts the ranks as on the user's own machine, since they then have a
common clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

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
    in_bundle,
    list_places,
    name_place,
    only,
    start_agent,
    stop_agent,
)
from benchax.clusters.ray_session import first_sentence
from benchax.environment import capture
from benchax.errors import UsageError, require
from benchax.measuring.diagnosis import diagnose
from benchax.model import Failure, Measurement
from benchax.units import plural, seconds
from benchax.workers.call_limits import CallLimits
from benchax.workers.pickling import seal

LATE_S = 30.0
"""Nodes that are not ready this long after the first one join later."""
NEW_NODES_S = 5.0
"""New nodes are looked for that often."""
MOST_AGENTS = 3
"""On one node: an agent that was killed has a successor, twice."""


class _OnRay:
    """What all agents on Ray have in common.

    Args:
        ray: connected.
        folder: the folder of the user's files.
    """

    def __init__(self, ray: Any, folder: Path) -> None:
        self.ray, self.folder = ray, folder
        self.calls = RayCalls(ray)

    def _find_places(self, needed: Any, limits: CallLimits) -> list[Place]:
        """Keeps what the start needs. Raises `UsageError` if the places lack something that measuring needs."""
        self.here = capture(self.folder, with_jax=False)
        self.needed = seal(needed, "what the nodes need")
        self.limit_s = limits.stage_s("start") or START_S
        places = list_places(self.ray)
        check_places(self.ray, places)
        return places

    def _call(self, actors: Mapping[Any, Any], job: NodeCall) -> None:
        """Has all these actors make the call."""
        try:
            sealed = job.seal()
        except UsageError as error:
            self.calls.end(next(iter(actors)), "call", ([], diagnose(error, "start")))
            return
        for who, actor in actors.items():
            self.calls.begin(who, "call", lambda actor=actor: actor.make_call.remote(sealed))


@dataclass
class AgentHandle:
    """An agent as the driver knows it."""

    id: str
    place: Place
    actor: Any
    node: Node | None = None
    """Once it is ready."""
    ticket: int | None = None


class RayAgents(_OnRay):
    """One on each node; the contract is that of `Agents`."""

    def __init__(self, ray: Any, folder: Path) -> None:
        super().__init__(ray, folder)
        self.agents: dict[str, AgentHandle] = {}
        self.attempts: dict[str, int] = {}
        """Agents that there were on each of Ray's nodes."""
        self.problems: list[str] = []
        self._looked = monotonic()

    # ---- the contract

    def start(self, needed: Any, limits: CallLimits) -> list[Node]:
        for place in self._find_places(needed, limits):
            self._start_agent(place)
        return self._await_first()

    def submit(self, node: Node, ticket: int, job: NodeCall) -> None:
        agent = self.agents[node.id]
        agent.ticket = ticket
        self._call({agent.id: agent.actor}, job)

    def collect(self, listen: TicketListener) -> list[AgentEvent]:
        while self.agents and any(agent.ticket is not None or agent.node is None for agent in self.agents.values()):
            self._look_for_nodes()
            found: list[AgentEvent] = []
            for ended in self.calls.wait(NEW_NODES_S):
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
        if monotonic() - self._looked > NEW_NODES_S:
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
        return [CallEnded(ticket, agent.node, outcome)]

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


# ---- ranks of one program --------------------------------------------------------------------------------------------


LOOK_S = 1.0
"""Whether the nodes that are waited for are still there is asked that often."""


@dataclass(frozen=True)
class Seat:
    """The part of its host that a rank gets."""

    bundle: int
    """The host, by its part of the placement group."""
    cpus: float
    gpus: float


@dataclass
class Gang:
    """All ranks that were started together: one node, as far as a dispatcher can see."""

    number: int
    node: Node
    hosts: list[str]
    """The host of each actor."""
    ticket: int | None = None


def sizes_of(places: Sequence[Place]) -> list[tuple[float, float]]:
    """(GPUs, CPUs) of each, the biggest first."""
    return sorted(((place["Resources"].get("GPU", 0), place["Resources"]["CPU"]) for place in places), reverse=True)


def deal(places: Sequence[Place], count: int) -> list[Seat]:
    """A seat for each agent: neighbours share a host, and the biggest hosts come first.

    Raises:
        UsageError: more ranks than GPUs on a host that has some.
    """
    chosen = sizes_of(places)[:count]
    if len(chosen) == 1 and not chosen[0][0]:
        return [Seat(0, chosen[0][1], 0)]
    seats: list[Seat] = []
    for bundle, (gpus, cpus) in enumerate(chosen):
        share = count // len(chosen) + (bundle < count % len(chosen))
        if 0 < gpus < share:
            raise UsageError(
                f"{plural(share, 'rank')} of nprocs={count} come to a node with {plural(int(gpus), 'GPU')}",
                "at most as many ranks as GPUs",
                f"--nprocs {int(sum(g for g, _ in chosen))} has one on each",
            )
        # More than one of Ray's processors comes in whole numbers only.
        seats += [Seat(bundle, cpus // share or cpus / share, gpus // share)] * share
    return seats


class RayGang(_OnRay):
    """`count` ranks of one program; the contract is that of `Agents`.

    Its only node is the gang, or the next gang if the first is lost.
    """

    def __init__(self, ray: Any, folder: Path, count: int) -> None:
        super().__init__(ray, folder)
        self.count = count
        self.gang: Gang | None = None
        self.group: Any = None
        """The part of the cluster that is set aside, from the time of the request."""
        self.actors: list[Any] = []
        """The actors of the current gang, or of the gang in formation, by rank; one actor if the gang has one host."""
        self._number = 0

    # ---- the contract

    def start(self, needed: Any, limits: CallLimits) -> list[Node]:
        places = self._find_places(needed, limits)
        self.seats = deal(places, self.count)
        self.sizes = sizes_of(places)[: len({seat.bundle for seat in self.seats})]
        return [self._form().node]

    def submit(self, node: Node, ticket: int, job: NodeCall) -> None:
        gang = self.gang
        assert gang is not None
        gang.ticket = ticket
        self._call({(gang.number, i): actor for i, actor in enumerate(self.actors)}, job)

    def collect(self, listen: TicketListener) -> list[AgentEvent]:
        while self.gang is not None and self.gang.ticket is not None:
            for ended in self.calls.wait(LOOK_S):
                if found := self._read(ended, self.gang, listen):
                    return found
        return []

    def close(self) -> None:
        actors, self.actors, group, self.group, self.gang = self.actors, [], self.group, None, None
        for actor in actors:
            stop_agent(self.ray, actor)
        if group is not None:
            with suppress(Exception):
                self.ray.util.remove_placement_group(group)

    # ---- the gang

    def _form(self) -> Gang:
        """Raises `UsageError` if there are no hosts for it, or one of them lacks something that measuring needs."""
        self.close()
        self._number += 1
        self._set_aside()
        self.actors = [
            start_agent(self.ray, self.folder, in_bundle(self.group, seat.bundle), seat.cpus, seat.gpus)
            for seat in self.seats
        ]
        found: list[Examination] = self._ask("examine", [(self.needed, self.limit_s)] * len(self.seats))
        for rank, each in enumerate(found):
            if isinstance(each, Failure):
                raise cannot_load(f"rank {rank} cannot measure this: {each.message}")
        if len(self.actors) > 1:
            (address,) = self._ask("find_address", [()])
            self._ask("join", [(address, self.count, rank) for rank in range(self.count)])
        environment = at_commit_of(self.here, found[0].environment)
        where = f"{plural(self.count, 'rank')} on {plural(len(self.sizes), 'node')}"
        node = Node(f"gang-{self._number}", environment, where)
        hosts = [each.environment.host for each in found]
        self.gang = Gang(self._number, node, hosts)
        return self.gang

    def _set_aside(self) -> None:
        bundles = [{"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus} for gpus, cpus in self.sizes]
        ask = require("ray.util", doing="measuring on a cluster").placement_group
        self.group = ask(bundles, strategy="STRICT_SPREAD")
        until = monotonic() + START_S
        # A wait of Ray's own is not ended by Ctrl-C before its time is over.
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

    def _ask(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Returns the answers of the first actors, one for each of the `arguments`. Raises `UsageError` if an actor
        does not answer.
        """
        asked = [getattr(actor, method).remote(*each) for actor, each in zip(self.actors, arguments, strict=False)]
        self.ray.wait(asked, num_returns=len(asked), timeout=max(START_S, self.limit_s))
        found = []
        for rank, reference in enumerate(asked):
            try:
                found.append(self.ray.get(reference, timeout=0.1))
            except self.ray.exceptions.RayError as error:
                raise UsageError(
                    f"rank {rank} of {plural(self.count, 'rank')} could not be started: {first_sentence(error)}",
                    f"nodes that answer within {seconds(START_S)}",
                ) from error
        return found

    # ---- what comes back

    def _read(self, ended: EndedCall, gang: Gang, listen: TicketListener) -> list[AgentEvent]:
        number, actor = ended.who
        assert gang.ticket is not None
        if number != gang.number:  # was given up
            return []
        try:
            messages, outcome = ended.result()
        except self.ray.exceptions.RayTaskError as error:
            messages, outcome = [], diagnose(error, "start")
        except Exception as error:  # the future's own errors have no common type
            why = f"rank {actor} of {plural(self.count, 'rank')}: lost on {gang.hosts[actor]}: {first_sentence(error)}"
            return self._lose(gang, gang.ticket, Failure("node_lost", "start", why), why)
        if actor:  # what came of another rank than the first is in the first one's row
            return []
        for message in messages:
            listen(gang.ticket, message)
        failure = outcome.failure if isinstance(outcome, Measurement) else None
        if failure is not None and failure.kind == "node_lost":
            return self._lose(gang, gang.ticket, outcome, failure.message)
        ticket, gang.ticket = gang.ticket, None
        return [CallEnded(ticket, gang.node, outcome)]

    def _lose(self, gang: Gang, ticket: int, outcome: Any, why: str) -> list[AgentEvent]:
        """Another gang takes over if there are hosts for it; if not, what was heard last is what came of the call."""
        lost = NodeLost(gang.node, why)
        try:
            return [lost, NodeJoined(self._form().node)]
        except UsageError:
            self.close()
            return [CallEnded(ticket, gang.node, outcome), lost]
