"""The contract of those who make calls: one agent on each node, which makes one call at a time.

    nodes = agents.start(needed, limits)
    agents.submit(nodes[0], item, job)
    events = agents.collect(listen)        # [CallEnded(item, nodes[0], outcome)]

Its members are `LocalAgents` (the pool of this program: one node) and `RayAgents`; the tests have a simulated one. Who
gets what, and what becomes of a call whose node is lost, is decided by `Dispatcher`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from benchax.environment import capture
from benchax.model import Environment, Failure
from benchax.units import plural
from benchax.workers.conversation import Listener
from benchax.workers.pool import Pool
from benchax.workers.task import CallLimits, Say


class NodeCall(Protocol):
    """A call that an agent makes with its pool."""

    def __call__(self, pool: Pool, on_message: Listener) -> Any:
        """Returns the result. Never raises errors of the user's function."""
        ...

    def seal(self) -> NodeCall:
        """The same in the form that travels to another machine (`pickling.py`).

        Raises:
            UsageError: something of it cannot travel.
        """
        ...


@dataclass(frozen=True)
class Examination:
    """The facts that a node reports about itself before its first call."""

    environment: Environment
    """As its workers have it."""
    pace_s: float
    """Seconds of a fixed piece of work (`machine/noise.py`)."""
    smallest_effect: float | None
    """As `doctor` finds it: the least change, a share, that is mostly noticed there. None: its clock is too coarse."""


@dataclass(frozen=True)
class Node:
    """A place with one measuring slot."""

    id: str
    environment: Environment
    address: str = ""
    """Empty at home."""
    examination: Examination | None = None

    @property
    def host(self) -> str:
        return self.environment.host

    @property
    def label(self) -> str:
        """node-17 (10.0.0.2): names of hosts may repeat."""
        return f"{self.host} ({self.address})" if self.address else self.host


@dataclass(frozen=True)
class CallEnded:
    """The call for an item has ended. Its announcements were passed on before."""

    item: Any
    node: Node
    outcome: Any


@dataclass(frozen=True)
class NodeJoined:
    """A node is ready."""

    node: Node


@dataclass(frozen=True)
class NodeLost:
    """A node is gone, and with it the call that it was making. Nothing will be heard of it any more."""

    node: Node
    why: str


AgentEvent = CallEnded | NodeJoined | NodeLost
ItemListener = Callable[[Any, dict[str, Any]], None]
"""Told the item and each announcement of its call."""


class Agents(Protocol):
    """One on each node."""

    def start(self, needed: Any, limits: CallLimits) -> list[Node]:
        """Returns the nodes that are ready; at least one. Others can join later.

        Args:
            needed: the values that the calls will need, such as the users' functions: a node that cannot load them is
                an error now.
            limits: the limits of the nodes' work during the start.

        Raises:
            UsageError: a node that cannot do the calls, or no node at all.
        """
        ...

    def submit(self, node: Node, item: Any, job: NodeCall) -> None:
        """Has `node`, which is ready and makes no call now, make the one for `item`. Raises nothing: `collect`
        reports whatever goes wrong."""
        ...

    def collect(self, listen: ItemListener) -> list[AgentEvent]:
        """Returns the new events, in order; waits until there is one. Empty if nothing is in progress, so that no event
        can come. KeyboardInterrupt passes through."""
        ...

    def close(self) -> None:
        """Ends all agents and what they have started, whatever they are doing. Does nothing a second time."""
        ...


# ---- at home ---------------------------------------------------------------------------------------------------------


class LocalAgents:
    """The contract is that of `Agents`. The pool belongs to the caller, who closes it."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._submitted: tuple[Node, Any, NodeCall] | None = None

    def start(self, needed: Any, limits: CallLimits) -> list[Node]:
        self.pool.prepare()
        found = self.pool.call(capture_environment, None, limits)
        return [Node("home", capture(with_jax=False) if isinstance(found, Failure) else found)]

    def submit(self, node: Node, item: Any, job: NodeCall) -> None:
        self._submitted = node, item, job

    def collect(self, listen: ItemListener) -> list[AgentEvent]:
        if self._submitted is None:
            return []
        (node, item, job), self._submitted = self._submitted, None
        return [CallEnded(item, node, job(self.pool, lambda message: listen(item, message)))]

    def close(self) -> None:
        self._submitted = None


def capture_environment(needed: object, say: Say) -> Environment:
    """Where calls are made, seen from a worker, which has loaded its argument by now."""
    say("environment")
    return capture()


# ---- who gets what ---------------------------------------------------------------------------------------------------
#
# Gives calls to nodes, one at a time to each. Gives the work of a lost node to another one.
#
# Cells that are compared stay together: one node does a batch in its order. Another node gets it only if the first is
# lost. Batches are made as nodes become free. So a fast node does more of them, and a slow one delays only its own. A
# million cells need no more memory than the cells in progress.


T = TypeVar("T")

MOST_LOSSES = 3
"""The number of lost nodes after which a call is given up. So a call moves to another node twice: it could be the
cause of the losses.
"""


@dataclass(eq=False)
class WorkBatch(Generic[T]):
    """The work of one node, in this order."""

    items: deque[T]
    host: str = ""
    """Where a part of it was done earlier: it goes on there if that host is among the nodes."""
    losses: int = 0
    """Nodes that were lost while they were at its first item."""


@dataclass
class Dispatcher(Generic[T]):
    """Iterate over it: each item that has ended is given out before its node gets the next one.

    Args:
        agents: have been started.
        nodes: that are ready.
        batches: taken one by one, as nodes become free.
        make_job: asked right before the call is made; None leaves the item out.
        listen: told each item's announcements.
    """

    agents: Agents
    nodes: Iterable[Node]
    batches: Iterable[WorkBatch[T]]
    make_job: Callable[[T, Node], NodeCall | None]
    listen: Callable[[T, dict[str, Any]], None]
    running: dict[str, T] = field(default_factory=dict[str, T])
    """The item that a node is at, by its id."""
    done: Counter[str] = field(default_factory=Counter[str])
    """Calls that have ended, by the id of the node."""
    seen: dict[str, Node] = field(default_factory=dict[str, Node])
    """All nodes that there were, by id."""
    lost: dict[str, str] = field(default_factory=dict[str, str])
    """Why a node is no longer there, by its id."""

    def __post_init__(self) -> None:
        self._source = iter(self.batches)
        # Batches that lost nodes have left, or that belong to another host.
        self._aside: deque[WorkBatch[T]] = deque()
        self._of_node: dict[str, WorkBatch[T]] = {}
        self._hosts: Counter[str] = Counter()
        self._idle: list[Node] = []
        # There is nothing for these nodes, unless another one is lost: a thousand of them aren't asked after each call.
        self._resting: list[Node] = []
        for node in self.nodes:
            self._join(node)

    def __iter__(self) -> Iterator[CallEnded]:
        for group in self.groups():
            yield from group

    def groups(self) -> Iterator[list[CallEnded]]:
        """Items that ended at about the same time, together: if there are many, they can be stored at once."""
        while True:
            free, self._idle = self._idle, []
            self._resting += [node for node in free if not self._begin_next(node)]
            # Without a busy agent all is done, unless there is no node and one may join.
            if not self.running and self._resting:
                return
            events = self.agents.collect(self.listen)
            if not events:
                return
            if ended := [each for event in events for each in self._take(event)]:
                yield ended

    @property
    def node_count(self) -> int:
        """The number of available nodes."""
        return self._hosts.total()

    # ---- nodes

    def _take(self, event: AgentEvent) -> Iterator[CallEnded]:
        node = event.node
        if isinstance(event, NodeJoined):
            self._join(node)
        elif isinstance(event, NodeLost):
            yield from self._take_loss(node, event.why)
        # A node that was given up can still answer; its call has moved to another node.
        elif node.id in self.running and self.running[node.id] == event.item:
            del self.running[node.id]
            self._of_node[node.id].losses = 0
            self.done[node.id] += 1
            self._idle.append(node)
            yield event

    def _join(self, node: Node) -> None:
        self.seen[node.id] = node
        self._hosts[node.host] += 1
        self._idle.append(node)

    def _take_loss(self, node: Node, why: str) -> Iterator[CallEnded]:
        if node.id in self.lost or node.id not in self.seen:
            return
        self.lost[node.id] = why
        self._hosts[node.host] -= 1
        self._idle = [other for other in (*self._idle, *self._resting) if other.id != node.id]
        self._resting = []
        batch = self._of_node.pop(node.id, WorkBatch(deque()))
        if node.id in self.running:
            item = self.running.pop(node.id)
            batch.losses += 1
            if batch.losses < MOST_LOSSES:
                batch.items.appendleft(item)
            else:
                batch.losses = 0
                text = f"{plural(MOST_LOSSES, 'node')} were lost while it was measured; the last one, {node.label}: "
                advice = "If the function brings nodes down, limit its memory; then measure it again."
                yield CallEnded(item, node, Failure("node_lost", "start", text + why, advice))
        if batch.items:
            self._aside.append(batch)

    # ---- batches

    def _begin_next(self, node: Node) -> bool:
        """Has `node` make its next call; False if there is nothing for it."""
        while True:
            batch = self._of_node.get(node.id)
            if batch is None or not batch.items:
                batch = self._next_batch(node)
                if batch is None:
                    return False
                self._of_node[node.id] = batch
            item = batch.items.popleft()
            job = self.make_job(item, node)
            if job is not None:
                self.running[node.id] = item
                self.agents.submit(node, item, job)
                return True

    def _next_batch(self, node: Node) -> WorkBatch[T] | None:
        for batch in self._aside:
            if self._can_do(node, batch):
                self._aside.remove(batch)
                return batch
        for batch in self._source:
            if batch.items and self._can_do(node, batch):
                return batch
            if batch.items:
                self._aside.append(batch)
        return None

    def _can_do(self, node: Node, batch: WorkBatch[T]) -> bool:
        return batch.host in ("", node.host) or not self._hosts[batch.host]
