"""What all kinds of agents promise (`benchax.clusters.agents.Agents`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from simulated_agents import SimulatedAgents

from benchax.clusters import open_agents
from benchax.clusters.agents import Agents, CallEnded, NodeCall, capture_environment
from benchax.model import Environment, Failure
from benchax.workers.task import UNLIMITED


@dataclass(frozen=True)
class Ask:
    """Asks a worker where it is; the simulated agents have none."""

    def __call__(self, pool: Any, on_message: Any) -> Any:
        if pool is not None:
            return pool.call(capture_environment, None, on_message=on_message)
        on_message({"stage": "environment"})
        return Environment("simulated", "Linux", "3.11")

    def seal(self) -> NodeCall:
        return self


ON_RAY = [pytest.mark.slow, pytest.mark.serial]


@pytest.fixture(
    params=["local", "simulated", *(pytest.param(name, marks=ON_RAY) for name in ("ray", "gang"))], scope="module"
)
def agents(request: pytest.FixtureRequest) -> Iterator[Agents]:
    match request.param:
        case "simulated":
            yield SimulatedAgents(3)
        case "local":
            with open_agents(None) as found:
                yield found
        case _:
            two_nodes = request.getfixturevalue("two_nodes")
            with open_agents(two_nodes.address, nprocs=2 if request.param == "gang" else None) as found:
                yield found


@pytest.fixture(scope="module")
def nodes(agents: Agents) -> list[Any]:
    return agents.start({"needed": abs}, UNLIMITED)


def test_there_is_a_node_with_an_environment_and_its_own_id(nodes: list[Any]) -> None:
    assert nodes
    assert all(node.environment.host and node.environment.python for node in nodes)
    assert len({node.id for node in nodes}) == len(nodes)


def test_with_nothing_under_way_there_is_nothing_to_wait_for(agents: Agents, nodes: list[Any]) -> None:
    assert agents.collect(lambda item, message: None) == []


def test_every_call_ends_once_on_its_node_after_its_announcements(agents: Agents, nodes: list[Any]) -> None:
    heard: list[tuple[int, Any]] = []
    for item, node in enumerate(nodes):
        agents.submit(node, item, Ask())

    def listen(item: int, message: dict[str, Any]) -> None:
        heard.append((item, message["stage"]))

    while len([each for _, each in heard if isinstance(each, CallEnded)]) < len(nodes):
        found = agents.collect(listen)
        assert found
        heard += [(event.item, event) for event in found if isinstance(event, CallEnded)]

    for item, node in enumerate(nodes):
        *stages, ended = [each for number, each in heard if number == item]
        assert ended.node == node
        assert isinstance(ended.outcome, Environment)
        assert stages in (["environment"], [])  # simulated calls announce nothing
    assert agents.collect(lambda item, message: None) == []


def test_a_node_makes_one_call_after_the_other(agents: Agents, nodes: list[Any]) -> None:
    for item in (11, 12):
        agents.submit(nodes[0], item, Ask())

        (ended,) = agents.collect(lambda item, message: None)

        assert isinstance(ended, CallEnded)
        assert ended.item == item
        assert not isinstance(ended.outcome, Failure)
