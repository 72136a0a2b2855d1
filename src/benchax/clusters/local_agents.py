"""The pool of this program as a single node. A call is made when its answer is collected, in the caller's thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from benchax.clusters.agents import AgentEvent, CallEnded, Node, NodeCall, TicketListener
from benchax.environment import capture
from benchax.model import Environment, Failure
from benchax.workers.call_limits import CallLimits
from benchax.workers.task import A, R, Say, Task, task


class Runner(Protocol):
    """The parts of `workers.pool.Pool` that are needed here."""

    def call(
        self,
        task: Task[A, R],
        argument: A,
        limits: CallLimits = ...,
        *,
        shows_output: bool = ...,
        on_message: Callable[[dict[str, Any]], None] = ...,
    ) -> R | Failure: ...
    def prepare(self) -> None: ...


class LocalAgents:
    """The contract is that of `Agents`. The pool belongs to the caller, who closes it."""

    def __init__(self, pool: Runner) -> None:
        self.pool: Any = pool
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
