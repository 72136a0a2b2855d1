"""Gives calls to nodes, one at a time to each. Gives the work of a lost node to another one.

Cells that are compared stay together: one node does a batch in its order. Another node gets it only if the first is
lost. Batches are made as nodes become free. So a fast node does more of them, and a slow one delays only its own. A
million cells need no more memory than the cells in progress.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from benchax.clusters.agents import AgentEvent, Agents, CallEnded, Node, NodeCall, NodeJoined, NodeLost
from benchax.model import Failure
from benchax.units import plural

T = TypeVar("T")

MOST_LOSSES = 3
"""The number of lost nodes after which a call is given up. So a call moves to another node twice: it could be the
cause of the losses.
"""


@dataclass
class WorkBatch(Generic[T]):
    """The work of one node, in this order."""

    items: deque[T]
    host: str = ""
    """Where a part of it was done earlier: it goes on there if that host is among the nodes."""
    losses: int = 0
    """Nodes that were lost while they were at its first item."""


@dataclass(frozen=True)
class Ended(Generic[T]):
    """The result of an item."""

    item: T
    node: Node
    outcome: Any


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
    running: dict[int, tuple[T, Node]] = field(default_factory=dict[int, tuple[T, Node]])
    """By ticket."""
    done: Counter[str] = field(default_factory=Counter[str])
    """Calls that have ended, by the id of the node."""
    seen: dict[str, Node] = field(default_factory=dict[str, Node])
    """All nodes that there were, by id."""
    lost: dict[str, str] = field(default_factory=dict[str, str])
    """Why a node is no longer there, by its id."""

    def __post_init__(self) -> None:
        self._source = iter(self.batches)
        self._returned: deque[WorkBatch[T]] = deque()
        self._reserved: dict[str, deque[WorkBatch[T]]] = {}
        self._of_node: dict[str, WorkBatch[T]] = {}
        self._at_work: dict[str, int] = {}
        self._hosts: Counter[str] = Counter()
        self._idle: deque[Node] = deque()
        self._resting: deque[Node] = deque()
        """Nodes for which there is nothing to do any more, unless another one is lost."""
        self._tickets = 0
        for node in self.nodes:
            self._join(node)

    def __iter__(self) -> Iterator[Ended[T]]:
        for group in self.groups():
            yield from group

    def groups(self) -> Iterator[list[Ended[T]]]:
        """Items that ended at about the same time, together: if there are many, they can be stored at once."""
        while True:
            self._hand_out()
            # With nobody at work all is done; unless there is no node, and one may join.
            if not self.running and self._resting:
                return
            events = self.agents.collect(self._tell)
            if not events:
                return
            if ended := [each for event in events for each in self._take(event)]:
                yield ended

    def _take(self, event: AgentEvent) -> Iterator[Ended[T]]:
        match event:
            case CallEnded():
                yield from self._take_answer(event)
            case NodeJoined():
                self._join(event.node)
            case NodeLost():
                yield from self._take_loss(event)

    @property
    def node_count(self) -> int:
        """The number of available nodes."""
        return self._hosts.total()

    # ---- nodes

    def _join(self, node: Node) -> None:
        self.seen[node.id] = node
        self._hosts[node.host] += 1
        self._idle.append(node)

    def _take_answer(self, answer: CallEnded) -> Iterator[Ended[T]]:
        # Of a node that was given up something may still be heard: its call is made elsewhere.
        if self._at_work.get(answer.node.id) != answer.ticket:
            return
        del self._at_work[answer.node.id]
        item, node = self.running.pop(answer.ticket)
        if node.id in self._of_node:
            self._of_node[node.id].losses = 0
        self.done[node.id] += 1
        self._idle.append(node)
        yield Ended(item, node, answer.outcome)

    def _take_loss(self, loss: NodeLost) -> Iterator[Ended[T]]:
        node = loss.node
        if node.id in self.lost or node.id not in self.seen:
            return
        self.lost[node.id] = loss.why
        self._hosts[node.host] -= 1
        # One that had nothing to do is among the idle.
        self._idle.extend(self._resting)
        self._resting.clear()
        self._idle = deque(other for other in self._idle if other.id != node.id)
        batch = self._of_node.pop(node.id, None) or WorkBatch(deque())
        ticket = self._at_work.pop(node.id, None)
        if ticket is not None:
            item, _ = self.running.pop(ticket)
            batch.losses += 1
            if batch.losses < MOST_LOSSES:
                batch.items.appendleft(item)
            else:
                batch.losses = 0
                yield Ended(item, node, _give_up(loss))
        if batch.items:
            self._returned.append(batch)
        if not self._hosts[node.host]:
            self._returned.extend(self._reserved.pop(node.host, ()))

    # ---- batches

    def _hand_out(self) -> None:
        """Each free node gets its next call, as far as there are any."""
        while self._idle:
            node = self._idle.popleft()
            if not self._begin_next(node):
                self._resting.append(node)

    def _begin_next(self, node: Node) -> bool:
        while (batch := self._find_batch(node)) is not None:
            item = batch.items.popleft()
            job = self.make_job(item, node)
            if job is not None:
                self._tickets += 1
                self.running[self._tickets] = item, node
                self._at_work[node.id] = self._tickets
                self.agents.submit(node, self._tickets, job)
                return True
        return False

    def _find_batch(self, node: Node) -> WorkBatch[T] | None:
        """Returns the next batch for `node`; None if there is nothing for it."""
        batch = self._of_node.get(node.id)
        if batch is None or not batch.items:
            self._of_node.pop(node.id, None)
            batch = self._next_batch(node)
            if batch is None:
                return None
            self._of_node[node.id] = batch
        return batch

    def _next_batch(self, node: Node) -> WorkBatch[T] | None:
        if reserved := self._reserved.get(node.host):
            return reserved.popleft()
        if self._returned:
            return self._returned.popleft()
        for batch in self._source:
            if not batch.items:
                continue
            if batch.host in ("", node.host) or not self._hosts[batch.host]:
                return batch
            self._reserved.setdefault(batch.host, deque()).append(batch)
        return None

    def _tell(self, ticket: int, message: dict[str, Any]) -> None:
        if ticket in self.running:
            self.listen(self.running[ticket][0], message)


def _give_up(loss: NodeLost) -> Failure:
    return Failure(
        "node_lost",
        "start",
        f"{plural(MOST_LOSSES, 'node')} were lost while it was measured; the last one, {loss.node.label}: {loss.why}",
        "If it is the function that brings nodes down, limit its memory; then measure it again.",
    )
