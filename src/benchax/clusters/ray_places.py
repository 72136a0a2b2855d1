"""The nodes of a Ray cluster as places to measure on: which there are, whether they can, and an agent on one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchax.clusters.node_agent import NodeAgent
from benchax.clusters.node_check import check_nodes, make_probe
from benchax.clusters.ray_session import first_sentence, folders_to_send
from benchax.errors import UsageError, require
from benchax.measuring.jax_settings import jax_settings

START_S = 120.0
"""For the first node to be ready; starting Ray's processes and JAX on a busy machine takes its time."""

Place = dict[str, Any]
"""A node, as Ray describes it."""


def list_places(ray: Any) -> list[Place]:
    return [place for place in ray.nodes() if place["Alive"] and place["Resources"].get("CPU", 0) > 0]


def name_place(place: Place) -> str:
    return f"{place['NodeManagerHostname']} ({place['NodeManagerAddress']}, {place['NodeID'][:6]})"


def only(place: Place) -> Any:
    """Ray's way to say: there, and nowhere else."""
    return _strategies().NodeAffinitySchedulingStrategy(place["NodeID"], soft=False)


def in_bundle(group: Any, bundle: int) -> Any:
    """Ray's way to say: in this part of what was set aside together."""
    return _strategies().PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=bundle)


def _strategies() -> Any:
    return require("ray.util.scheduling_strategies", doing="measuring on a cluster")


def check_places(ray: Any, places: Sequence[Place]) -> None:
    """Raises `UsageError` where there is no place, or one lacks what measuring takes."""
    if not places:
        raise UsageError("the Ray cluster has no node with a CPU", "at least one node to measure on")
    probe = ray.remote(num_cpus=0, max_retries=0)(make_probe())
    asked = [(place, probe.options(scheduling_strategy=only(place)).remote()) for place in places]
    ray.wait([ref for _, ref in asked], num_returns=len(asked), timeout=START_S)
    found: dict[str, dict[str, str | None] | str] = {}
    for place, ref in asked:
        try:
            found[name_place(place)] = ray.get(ref, timeout=0.1)
        except ray.exceptions.RayError as error:
            found[name_place(place)] = first_sentence(error)
    check_nodes(found)


def start_agent(ray: Any, folder: Path, where: Any, cpus: float, gpus: float) -> Any:
    """An actor with so much of a node.

    Args:
        folder: that of the user's files.
        where: as `only` or `in_bundle` says it.
        gpus: must be given: without any, Ray hides those that there are.
    """
    return (
        ray.remote(NodeAgent)
        .options(num_cpus=cpus, num_gpus=gpus, scheduling_strategy=where, max_restarts=0)
        .remote(folders_to_send(folder), _settings_to_send(), str(folder.resolve()))
    )


def stop_agent(ray: Any, actor: Any) -> None:
    """Ends it; its workers end when the process that started them does. Raises nothing: Ray may be gone already."""
    with suppress(Exception):
        ray.kill(actor, no_restart=True)


def cannot_load(problem: str) -> UsageError:
    """What is raised where nodes lack something of the user's."""
    return UsageError(
        problem,
        "nodes on which everything can be imported that the functions need",
        "install it there, or put it into the folder of your files, which goes to the nodes",
    )


def _settings_to_send() -> dict[str, Any]:
    plain = (bool, int, float, str, type(None))
    return {
        name: value
        for name, value in jax_settings().items()
        if isinstance(value, plain) and name != "jax_compilation_cache_dir"
    }
