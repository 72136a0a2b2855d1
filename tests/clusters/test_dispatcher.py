"""Who gets what: batches stay together, what a lost node was doing goes elsewhere, nothing is lost or done twice."""

from __future__ import annotations

import tracemalloc
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_agents import SimulatedAgents, simulate_node

from benchax.clusters.agents import MOST_LOSSES, CallEnded, Dispatcher, Node, NodeLost, WorkBatch
from benchax.model import Failure
from benchax.workers.task import UNLIMITED


@dataclass(frozen=True)
class Named:
    """A job that returns its name."""

    name: Any

    def __call__(self, pool: Any, on_message: Any) -> Any:
        return self.name

    def seal(self) -> Named:
        return self


def dispatcher(agents: Any, batches: Iterable[Iterable[Any]], hosts: Iterable[str] = ()) -> Dispatcher[Any]:
    where = [*hosts]
    listed = (WorkBatch(deque(items), where[i] if i < len(where) else "") for i, items in enumerate(batches))
    return Dispatcher(agents, agents.start(None, UNLIMITED), listed, lambda item, node: Named(item), lambda *_: None)


def dispatch(agents: Any, batches: Iterable[Iterable[Any]], hosts: Iterable[str] = ()) -> list[CallEnded]:
    return list(dispatcher(agents, batches, hosts))


def test_each_item_ends_once_and_a_batch_stays_on_its_node_in_its_order() -> None:
    batches = [[(b, i) for i in range(5)] for b in range(20)]

    ended = dispatch(SimulatedAgents(4), batches)

    assert Counter(each.item for each in ended) == Counter(item for batch in batches for item in batch)
    assert all(each.item == each.outcome for each in ended)
    for batch in batches:
        mine = [each for each in ended if each.item in batch]
        assert [each.item for each in mine] == batch
        assert len({each.node.id for each in mine}) == 1


def test_a_fast_node_does_more_and_a_slow_one_delays_only_its_own() -> None:
    agents = SimulatedAgents(10, slow_share=0.1)

    ended = dispatch(agents, [[i] for i in range(1000)])

    done = Counter(each.node.id for each in ended)
    (slow,) = agents.slow
    assert done[f"n{slow}"] <= 4 < 80 < min(n for id, n in done.items() if id != f"n{slow}")
    assert agents.now_s < 1.6 * 1000 / 9  # as nine do it, and the last one of the slow node


def test_nodes_for_which_there_is_nothing_are_not_asked_after_each_call() -> None:
    asked = Counter[str]()

    class Asking(Dispatcher[Any]):
        def _next_batch(self, node: Node) -> WorkBatch[Any] | None:
            asked[node.id] += 1
            return super()._next_batch(node)

    agents = SimulatedAgents(100)
    batch = WorkBatch(deque(range(500)))

    ended = [*Asking(agents, agents.start(None, UNLIMITED), [batch], lambda item, _: Named(item), lambda *_: None)]

    assert len(ended) == 500
    assert asked.total() <= 102


def test_a_call_that_loses_three_nodes_is_given_up_and_says_so() -> None:
    agents = SimulatedAgents(5)
    # Whatever node has it: "bad" brings it down.
    agents.lose = lambda node, item: item == "bad"

    ended = dispatch(agents, [["bad", "next"], *([i] for i in range(20))])

    (bad,) = [each.outcome for each in ended if each.item == "bad"]
    assert isinstance(bad, Failure)
    assert (bad.kind, bad.stage) == ("node_lost", "start")
    assert bad.message.startswith("3 nodes were lost while it was measured; the last one, node-00")
    assert bad.message.endswith("): its node has died")
    assert agents.begun.count("bad") == MOST_LOSSES
    assert [each.outcome for each in ended if each.item == "next"] == ["next"]
    assert len(ended) == 22


def test_what_was_begun_on_a_host_goes_on_there_and_elsewhere_if_that_is_gone() -> None:
    hosts = ["node-0002"] * 5 + ["node-0001"] * 2 + ["node-gone"]

    ended = dispatch(SimulatedAgents(3), [[i] for i in range(8)], hosts)

    where = {each.item: each.node.host for each in ended}
    assert [where[i] for i in range(7)] == hosts[:7]
    assert 7 in where


def test_what_is_heard_of_a_node_that_was_given_up_counts_for_nothing() -> None:
    class Late(SimulatedAgents):
        """Tells of an end, and then of the answer of the same node."""

        def collect(self, listen: Callable[..., None]) -> list[Any]:
            events = super().collect(listen)
            if len(self.begun) == 1 and events:
                event = events[0]
                self.alive.pop("n0")
                self.busy.clear()
                return [NodeLost(event.node, "it did not answer"), event]
            return events

    agents = Late(1)
    agents.start(None, UNLIMITED)
    spare = simulate_node(7)
    agents.alive[spare.id] = spare
    found = Dispatcher(
        agents, [simulate_node(0)], [WorkBatch(deque(["a"]))], lambda item, node: Named(item), lambda *_: None
    )

    assert list(found) == []
    assert found.lost == {"n0": "it did not answer"}


def test_an_item_without_a_job_is_left_out_and_others_are_given_out_before_their_node_gets_the_next() -> None:
    agents = SimulatedAgents(1)
    make_job = lambda item, node: Named(item) if item % 2 else None  # noqa: E731
    batches = [WorkBatch(deque(range(8)))]
    found = Dispatcher(agents, agents.start(None, UNLIMITED), batches, make_job, lambda *_: None)

    seen = [(each.item, len(agents.begun)) for each in found]

    assert seen == [(1, 1), (3, 2), (5, 3), (7, 4)]


@given(
    st.integers(1, 12),
    st.lists(st.integers(0, 6), max_size=30),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 10**6),
)
def test_whatever_is_lost_nothing_ends_twice_and_all_of_it_ends_while_a_node_is_there(
    nodes: int, sizes: list[int], lost: float, slow: float, seed: int
) -> None:
    agents = SimulatedAgents(nodes, lost_share=lost, slow_share=slow, lifetime_s=20, seed=seed)
    batches = [[(b, i) for i in range(size)] for b, size in enumerate(sizes)]

    found = dispatcher(agents, batches)
    answers = list(found)
    ended = [each.item for each in answers]

    assert len(ended) == len(set(ended))
    assert all(each.outcome == each.item or isinstance(each.outcome, Failure) for each in answers)
    if found.node_count:
        assert len(ended) == sum(sizes)
    else:
        assert len(found.lost) == len(found.seen)


def test_memory_does_not_grow_with_the_number_of_items() -> None:
    """What is under way is all that there is: 20,000 items through 100 nodes leave nothing."""

    def peak(count: int) -> int:
        agents = SimulatedAgents(100, lost_share=0.01, slow_share=0.01)
        agents.begun = deque(maxlen=1)  # type: ignore[assignment]
        tracemalloc.start()
        n = sum(1 for _ in dispatcher(agents, ([(b, i) for i in range(10)] for b in range(count // 10))))
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert n == count
        return size

    assert peak(20_000) < 1.5 * peak(4_000)


@pytest.mark.parametrize("event", [CallEnded(99, simulate_node(0), "x"), NodeLost(simulate_node(99), "unknown")])
def test_words_of_strangers_are_ignored(event: Any) -> None:
    class Strange(SimulatedAgents):
        def collect(self, listen: Callable[..., None]) -> list[Any]:
            return [event, *super().collect(listen)]

    ended = dispatch(Strange(1), [[1, 2]])

    assert [each.item for each in ended] == [1, 2]
