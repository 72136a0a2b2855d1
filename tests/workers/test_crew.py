"""How programs on several hosts keep in touch: who does not come, who is of another version, who falls silent."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from benchax.errors import UsageError
from benchax.workers import crew
from benchax.workers.crew import Link, LostContact, Membership, gather, join


@pytest.fixture
def first() -> Membership:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return Membership(0, 2, "127.0.0.1", found.getsockname()[1], "a test")


@pytest.fixture
def beside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture
def pair() -> Iterator[tuple[Link, Link]]:
    here, there = map(Link, connected())
    yield here, there
    here.close()
    there.close()


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = socket.create_connection(server.getsockname())
        return server.accept()[0], there


def test_all_come_and_hear_of_one_another(first: Membership, beside: ThreadPoolExecutor) -> None:
    other: Future[Link] = beside.submit(join, replace(first, rank=1))
    links = gather(first)

    links[1].send(case="f", number=1)

    assert other.result().receive() == {"case": "f", "number": 1}
    assert (links[1].rank, links[1].host) == (1, socket.gethostname())


def test_who_does_not_come_is_named(first: Membership, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "JOIN_S", 0.05)

    with pytest.raises(UsageError) as error:
        gather(replace(first, count=3))

    assert error.value.problem == f"rank 1, rank 2 of 3 ranks did not come within 50.0 ms to 127.0.0.1:{first.port}"


def test_an_address_where_nobody_listens_is_named(first: Membership, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "JOIN_S", 0.0)

    with pytest.raises(UsageError) as error:
        join(replace(first, rank=1))

    assert error.value.problem.startswith(f"rank 1 cannot reach rank 0 at 127.0.0.1:{first.port}: ")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"versions": {"benchax": "9"}}, "rank 1 on h has benchax 9, jax None"),
        ({"rank": 0}, "two processes say that they are rank 0"),
    ],
)
def test_who_cannot_take_part_is_refused_on_both_sides(
    first: Membership,
    beside: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    problem: str,
) -> None:
    own = crew.describe_self(first)
    monkeypatch.setattr(
        crew, "describe_self", lambda m: own if m.rank == 0 else own | {"rank": 1, "host": "h"} | change
    )
    other = beside.submit(join, replace(first, rank=1))

    with pytest.raises(UsageError) as error:
        gather(first)

    with pytest.raises(UsageError) as there:
        other.result()
    assert error.value.problem.startswith(problem)
    assert there.value.problem == error.value.problem


def test_what_is_no_program_of_ours_is_let_go(first: Membership, beside: ThreadPoolExecutor) -> None:
    links = beside.submit(gather, first)

    def knock() -> None:
        while not links.done():
            try:
                with socket.create_connection((first.host, first.port), timeout=1) as stranger:
                    stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    assert stranger.recv(1) == b""
                    return
            except ConnectionResetError:  # how an end looks where some of that was not read
                return
            except OSError:
                continue

    knock()
    other = beside.submit(join, replace(first, rank=1))

    assert list(links.result()) == [1]
    assert other.result().host == socket.gethostname()


def test_a_program_that_has_ended_is_lost_at_once(pair: tuple[Link, Link]) -> None:
    pair[1].close()

    with pytest.raises(LostContact, match="benchax on the other host has ended"):
        pair[0].receive()


def test_a_host_that_falls_silent_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "SILENCE_S", 0.05)
    here, there = connected()

    with there, pytest.raises(LostContact, match=r"nothing was heard of the other host for 50\.0 ms"):
        Link(here).receive()


def test_beats_are_no_messages_and_show_that_somebody_is_there(pair: tuple[Link, Link]) -> None:
    here, there = pair
    heard = here.heard_at
    there.send()
    there.send(over=1)

    assert here.receive() == {"over": 1}
    assert here.heard_at > heard


def test_a_link_beats_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "BEAT_S", 0.01)
    here, there = connected()

    link = Link(there)

    with here:
        assert here.makefile("rb").readline() == b"{}\n"
    link.close()
