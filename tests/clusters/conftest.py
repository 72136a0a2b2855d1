"""A Ray cluster of two nodes on loopback, started once for the tests that need it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psutil
import pytest

from benchax.clusters.ray_agents import _ON_LOOPBACK

# Ray notices a dead node soon, and starts no process before something asks for it.
SYSTEM = {
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 3,
    "prestart_worker_first_driver": False,
}


@dataclass
class TwoNodes:
    cluster: Any
    second: Any

    @property
    def address(self) -> str:
        return self.cluster.address

    def kill_second(self) -> None:
        # Ray kills the node's own processes. Its workers would go on for a second, and could end their call.
        workers = psutil.Process(self.second.all_processes["raylet"][0].process.pid).children(recursive=True)
        self.cluster.remove_node(self.second, allow_graceful=False)
        for worker in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()

    def replace_second(self) -> None:
        self.second = self.cluster.add_node(num_cpus=1)


@pytest.fixture(scope="session")
def two_nodes() -> Iterator[TwoNodes]:
    pytest.importorskip("ray", reason="needs Ray: pip install 'ray[client]'")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _ON_LOOPBACK.items():
            patch.setenv(name, value)
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 1, "include_dashboard": False, "_system_config": SYSTEM}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            yield TwoNodes(cluster, cluster.add_node(num_cpus=1))
        finally:
            cluster.shutdown()
