"""Agents that measure nothing: nodes of a simulated clock, some of them slow, some of them lost on the way."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from benchax.clusters.agents import (
    AgentEvent,
    CallEnded,
    Examination,
    ItemListener,
    Node,
    NodeCall,
    NodeJoined,
    NodeLost,
)
from benchax.model import Environment
from benchax.workers.conversation import Listener
from benchax.workers.task import CallLimits


def simulate_node(i: int) -> Node:
    environment = Environment(host=f"node-{i:04}", os="Linux", python="3.11", backend="cpu", jax="0.10.2")
    return Node(f"n{i}", environment, f"10.0.{i // 256}.{i % 256}", Examination(environment, 2e-4, 0.02))


class SimulatedAgents:
    """Args:
    count: of nodes.
    answer: what comes of a call, without making it; default: the job is made, with no pool.
    lost_share: of the nodes are lost at a random moment; of those half come back as another node.
    slow_share: of the nodes take fifty times as long.
    call_s: mean seconds of a call.
    lose: is this node lost with the call for this item?
    window_s: what happens within as many seconds is heard of at once, as where the driver was busy meanwhile.
    """

    def __init__(
        self,
        count: int,
        *,
        answer: Callable[[NodeCall, Listener], Any] | None = None,
        lost_share: float = 0.0,
        slow_share: float = 0.0,
        call_s: float = 1.0,
        lifetime_s: float = 100.0,
        lose: Callable[[Node, Any], bool] = lambda node, item: False,
        window_s: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.rng = random.Random(seed)
        self.answer = answer or (lambda job, on_message: job(None, on_message))  # type: ignore[arg-type]
        self.call_s, self.lose, self.window_s = call_s, lose, window_s
        self.now_s, self.number, self.count = 0.0, 0, count
        self.events: list[tuple[float, int, AgentEvent, NodeCall | None]] = []
        self.alive: dict[str, Node] = {}
        self.busy: dict[str, Any] = {}
        self.begun: list[Any] = []
        self.slow = set(self.rng.sample(range(count), int(count * slow_share)))
        self.doomed = {
            i: self.rng.uniform(0, lifetime_s) for i in self.rng.sample(range(count), int(count * lost_share))
        }
        self.is_closed = False

    def start(self, needed: Any, limits: CallLimits) -> list[Node]:
        nodes = [simulate_node(i) for i in range(self.count)]
        for i, node in enumerate(nodes):
            self.alive[node.id] = node
            if i in self.doomed:
                self._plan(self.doomed[i], NodeLost(node, "its node has died"), None)
        return nodes

    def submit(self, node: Node, item: Any, job: NodeCall) -> None:
        assert node.id not in self.busy, "one call at a time"
        if node.id not in self.alive:  # its end is among the events
            return
        self.busy[node.id] = item
        self.begun.append(item)
        if self.lose(node, item):
            self._plan(self.now_s + self.call_s / 2, NodeLost(node, "its node has died"), None)
            return
        factor = 50.0 if int(node.id.strip("n+")) in self.slow else 1.0
        took_s = factor * self.rng.uniform(0.5, 1.5) * self.call_s
        self._plan(self.now_s + took_s, CallEnded(item, node, None), job)

    def collect(self, listen: ItemListener) -> list[AgentEvent]:
        found = self._next(listen)
        until_s = self.now_s + self.window_s
        while found and self.window_s and self.events and self.events[0][0] < until_s:
            found += self._next(listen)
        return found

    def _next(self, listen: ItemListener) -> list[AgentEvent]:
        while self.events and (self.busy or not self.alive):
            self.now_s, _, event, job = heapq.heappop(self.events)
            if isinstance(event, NodeLost):
                if self.alive.pop(event.node.id, None) is None:
                    continue
                self.busy.pop(event.node.id, None)
                if self.rng.random() < 0.5 and "+" not in event.node.id:
                    again = Node(
                        event.node.id + "+", event.node.environment, event.node.address, event.node.examination
                    )
                    self._plan(self.now_s + 10 * self.call_s, NodeJoined(again), None)
            elif isinstance(event, NodeJoined):
                self.alive[event.node.id] = event.node
            else:
                if event.node.id not in self.alive:  # it came to its end before that
                    continue
                del self.busy[event.node.id]
                assert job is not None
                outcome = self.answer(job, partial(listen, event.item))
                event = CallEnded(event.item, event.node, outcome)
            return [event]
        return []

    def close(self) -> None:
        self.is_closed = True
        self.events, self.busy, self.alive = [], {}, {}

    def _plan(self, at_s: float, event: AgentEvent, job: NodeCall | None) -> None:
        self.number += 1
        heapq.heappush(self.events, (at_s, self.number, event, job))
