"""Where calls are made: in the pool of this program, or by agents on the nodes of a Ray cluster."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from benchax.clusters.agents import Agents, LocalAgents
from benchax.workers.pool import shared_pool


@contextmanager
def open_agents(on: str | None, folder: Path | None = None, nprocs: int | None = None) -> Generator[Agents, None, None]:
    """Those who make calls; what was started for them has ended afterwards, the pool of this program excepted.

    Args:
        on: "ray", "HOST:PORT" or "ray://HOST:PORT"; None: the pool of this program.
        folder: with the users' files, which go to the nodes; default: the working folder.
        nprocs: ranks of one program that all calls are made in; None: calls are made on one node each.

    Raises:
        UsageError: no cluster is meant by `on`, or none is there.
        MissingPackage: Ray is not installed.
    """
    if on is None:
        yield LocalAgents(shared_pool())
        return
    folder = folder or Path.cwd()
    # Uses Ray, which is imported on demand.
    from benchax.clusters.ray_agents import RayAgents, RayGang, open_session

    with open_session(on, folder) as ray:
        agents = RayAgents(ray, folder) if nprocs is None else RayGang(ray, folder, nprocs)
        with closing(agents):
            yield agents
