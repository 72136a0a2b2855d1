"""A case whose ranks run under programs that a launcher has started, each on its host (`crew.py`).

The first program leads: `lead` is the counterpart of `RankLaunch.collect`. The others follow: each runs its rank of the
same case, and has nothing to store or to show.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache
from time import monotonic
from typing import Any

from benchax.errors import UsageError
from benchax.json_values import decode_value, encode_value
from benchax.model import Failure
from benchax.workers import crew
from benchax.workers.crew import BEAT_S, Link
from benchax.workers.launch import RankEnd, RankLaunch, StepListener
from benchax.workers.membership import Membership, find_membership
from benchax.workers.rank import RankAnswer, RankJob

GRACE_S = 4.0
"""As that of `launch.py`; longer than it takes to miss the beats of a host."""
SILENT_S = 3 * BEAT_S
JobMaker = Callable[[int, str, str], RankJob]
"""Makes the job of a rank, from its number, the address where JAX connects them, and the address of the start line."""


class Leader:
    """The first of the programs, and its links to the others."""

    def __init__(self, member: Membership) -> None:
        self.member = member
        self.links = crew.gather(member)
        self.lost: dict[int, str] = {}
        self._launch: RankLaunch | None = None
        self._number = 0
        self._lock = threading.Lock()
        for rank, link in self.links.items():
            crew.listen(link, self._taking(rank), self._losing(rank))

    def lead(self, name: str, make_job: JobMaker, on_step: StepListener) -> list[RankEnd]:
        """Returns the result of each rank of this case; no rank runs on afterwards."""
        jax_at, line_at = (f"{self.member.host}:{crew.free_port()}" for _ in range(2))
        launch = RankLaunch([make_job(0, jax_at, line_at)], self.member.count, name, on_step, GRACE_S)
        with self._lock:
            self._number += 1
            self._launch = launch
            for rank, why in self.lost.items():
                launch.end(rank, self._failure(rank, why))
        self._send(case=name, number=self._number, jax=jax_at, line=line_at)
        try:
            ended = launch.collect()
            return [*ended, *self._silent(launch, {each.rank for each in ended})]
        finally:
            with self._lock:
                self._launch = None
            self._send(over=self._number)

    def _send(self, **message: Any) -> None:
        for link in self.links.values():
            link.send(**message)

    def _silent(self, launch: RankLaunch, ended: set[int]) -> list[RankEnd]:
        """Ranks of hosts that say nothing any more, where others have complained of that already."""
        silent = [link for rank, link in self.links.items() if rank not in ended | set(self.lost)]
        return [
            RankEnd(
                link.rank,
                self._failure(link.rank, f"nothing is heard of {link.host}"),
                launch.steps[link.rank],
                monotonic(),
            )
            for link in silent
            if monotonic() - link.heard_at > SILENT_S
        ]

    def _taking(self, rank: int) -> Callable[[dict[str, Any]], None]:
        def take(message: dict[str, Any]) -> None:
            with self._lock:
                if self._launch is None or message.get("number") != self._number:
                    return
                if "step" in message:
                    self._launch.note(rank, message["step"])
                elif "failure" in message:
                    self._launch.end(rank, decode_value(message["failure"], Failure))
                elif "answer" in message:
                    self._launch.end(rank, decode_value(message["answer"], RankAnswer))

        return take

    def _losing(self, rank: int) -> Callable[[str], None]:
        def lose(why: str) -> None:
            with self._lock:
                self.lost[rank] = why
                if self._launch is not None:
                    self._launch.end(rank, self._failure(rank, why))

        return lose

    def _failure(self, rank: int, why: str) -> Failure:
        step = "start" if self._launch is None else self._launch.steps[rank]
        return Failure("node_lost", step, f"lost in {step}: {why}")


class Follower:
    """Any other of the programs, and its link to the first."""

    def __init__(self, member: Membership) -> None:
        self.member = member
        self.link: Link = crew.join(member)

    def follow(self, name: str, make_job: JobMaker) -> None:
        """Runs the rank of this program, until the first one says that the case is over.

        Raises:
            UsageError: the first one is lost, or has another case.
        """
        try:
            order = self.link.receive()
            while "case" not in order:
                order = self.link.receive()
        except crew.LostContact as error:
            raise _left_alone(str(error)) from error
        rank, number = self.member.rank, order["number"]
        if order["case"] != name:
            problem = UsageError(f"rank {rank} is at {name}, and rank 0 at {order['case']}", "the same command in each")
            self.link.send(number=number, failure=encode_value(Failure("error", "start", problem.problem), Failure))
            raise problem
        launch = RankLaunch(
            [make_job(rank, order["jax"], order["line"])],
            1,
            name,
            lambda rank, step: self.link.send(number=number, step=step),
        )
        ends = _End(self.link, launch)
        answer = launch.collect()[0].answer
        kind, hint = ("failure", Failure) if isinstance(answer, Failure) else ("answer", RankAnswer)
        self.link.send(number=number, **{kind: encode_value(answer, hint)})
        ends.wait()


class _End:
    """Waits for the end of a case while its rank runs, and then ends the rank."""

    def __init__(self, link: Link, launch: RankLaunch) -> None:
        self._link, self._launch, self._why = link, launch, ""
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        self._thread.join()
        if self._why:
            raise _left_alone(self._why)

    def _listen(self) -> None:
        try:
            while "over" not in self._link.receive():
                pass
        except crew.LostContact as error:
            self._why = str(error)
        self._launch.close()


def _left_alone(why: str) -> UsageError:
    return UsageError(f"rank 0 is lost: {why}", "a first process that stays until the end")


def find_crew(count: int) -> Leader | Follower | None:
    """None if the ranks are all started here.

    Raises:
        UsageError: a launcher has started another number of processes, or not all of them come.
    """
    member = find_membership(os.environ)
    if member is None:
        return None
    if member.count != count:
        raise UsageError(
            f"nprocs={count} is given, and {member.launcher} has started {member.count} processes",
            f"--nprocs {member.count}",
        )
    return _crew_of(member)


@cache
def _crew_of(member: Membership) -> Leader | Follower:
    return Follower(member) if member.rank else Leader(member)


def is_follower() -> bool:
    """Has a launcher started this program together with others, and is it not the first?"""
    member = find_membership(os.environ)
    return member is not None and member.rank > 0
