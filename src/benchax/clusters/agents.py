"""The contract of those who make calls: one agent on each node, which makes one call at a time.

    nodes = agents.start(needed, limits)
    agents.submit(nodes[0], 1, job)
    events = agents.collect(listen)        # [CallEnded(1, nodes[0], outcome)]

Its members are `LocalAgents` (the pool of this program: one node) and `RayAgents`; the tests have a simulated one. Who
gets what, and what becomes of a call whose node is lost, is decided in `dispatcher.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from benchax.environment import capture
from benchax.model import Environment, Failure
from benchax.workers.call_limits import CallLimits
from benchax.workers.conversation import Listener
from benchax.workers.pool import Pool
from benchax.workers.task import Say, task


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
    """Seconds of a fixed piece of work (`machine/pace.py`)."""
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


def at_commit_of(here: Environment, there: Environment) -> Environment:
    """`there` with the commit of `here`: what went to the node is no repository."""
    return replace(there, commit=here.commit, branch=here.branch, is_dirty=here.is_dirty)


@dataclass(frozen=True)
class CallEnded:
    """A call has ended. Its announcements were passed on before."""

    ticket: int
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
TicketListener = Callable[[int, dict[str, Any]], None]
"""Told the ticket and each announcement of its call."""


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

    def submit(self, node: Node, ticket: int, job: NodeCall) -> None:
        """Has `node`, which is ready and makes no call now, make this one. Raises nothing: what goes wrong is heard of
        by `collect`."""
        ...

    def collect(self, listen: TicketListener) -> list[AgentEvent]:
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
        self._submitted: tuple[Node, int, NodeCall] | None = None

    def start(self, needed: Any, limits: CallLimits) -> list[Node]:
        self.pool.prepare()
        found = self.pool.call(capture_environment, None, limits)
        return [Node("home", capture(with_jax=False) if isinstance(found, Failure) else found)]

    def submit(self, node: Node, ticket: int, job: NodeCall) -> None:
        self._submitted = node, ticket, job

    def collect(self, listen: TicketListener) -> list[AgentEvent]:
        if self._submitted is None:
            return []
        (node, ticket, job), self._submitted = self._submitted, None
        return [CallEnded(ticket, node, job(self.pool, lambda message: listen(ticket, message)))]

    def close(self) -> None:
        self._submitted = None


@task
def capture_environment(argument: None, say: Say) -> Environment:
    """Where calls are made, seen from a worker."""
    say("environment")
    return capture()
