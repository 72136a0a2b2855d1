"""What launchers put into the environment of the programs that they start."""

from __future__ import annotations

import pytest

from benchax.errors import UsageError
from benchax.workers import ranks
from benchax.workers.crew import Membership, find_membership, first_host
from benchax.workers.ranks import find_crew

SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "node[007-008,011]",
    "SLURM_JOB_ID": "4097",
    "SLURM_STEP_ID": "2",
}
BY_HAND = {"JAX_COORDINATOR_ADDRESS": "10.0.0.1:7000", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}


def test_a_step_of_slurm_says_who_it_is_and_where_the_first_one_is() -> None:
    assert find_membership(SLURM) == Membership(3, 4, "node007", 61443, "Slurm")


def test_a_batch_script_of_slurm_is_one_program() -> None:
    """It has SLURM_PROCID and SLURM_NTASKS, too (seen with Slurm 22.05)."""
    batch = {name: value for name, value in SLURM.items() if not name.startswith("SLURM_STEP")}

    assert find_membership(batch) is None


def test_one_task_alone_starts_its_ranks_itself() -> None:
    assert find_membership(SLURM | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}) is None


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("vm", "vm"), ("a,b", "a"), ("n[001-015],b", "n001"), ("n[1,7-9]", "n1"), ("gpu-a[02],x", "gpu-a02")],
)
def test_the_first_host_of_a_list_of_slurm(nodes: str, first: str) -> None:
    assert first_host(nodes) == first


def test_open_mpi_says_where_mpirun_is() -> None:
    environ = {
        "OMPI_COMM_WORLD_RANK": "1",
        "OMPI_COMM_WORLD_SIZE": "2",
        "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
    }

    assert find_membership(environ) == Membership(1, 2, "10.96.0.1", 61440 + 1531576320 // 4096 % 4096, "Open MPI")


def test_processes_that_were_started_by_hand() -> None:
    assert find_membership(BY_HAND) == Membership(1, 2, "10.0.0.1", 7000, "JAX_NUM_PROCESSES")


def test_an_address_is_taken_before_the_one_that_a_launcher_gives() -> None:
    found = find_membership(SLURM | {"JAX_COORDINATOR_ADDRESS": "login:9000"})

    assert found is not None
    assert (found.host, found.port) == ("login", 9000)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"JAX_PROCESS_ID": "2"}, "JAX_PROCESS_ID='2' and JAX_NUM_PROCESSES='2' name no process"),
        ({"JAX_PROCESS_ID": "one"}, "JAX_PROCESS_ID='one' and JAX_NUM_PROCESSES='2' name no process"),
        ({"JAX_COORDINATOR_ADDRESS": "10.0.0.1"}, "JAX_COORDINATOR_ADDRESS='10.0.0.1' is no address"),
        ({"JAX_COORDINATOR_ADDRESS": "a:70000"}, "JAX_COORDINATOR_ADDRESS='a:70000' is no address"),
    ],
)
def test_variables_that_cannot_be(change: dict[str, str], problem: str) -> None:
    with pytest.raises(UsageError) as error:
        find_membership(BY_HAND | change)

    assert error.value.problem == problem


def test_another_number_than_the_launcher_has_started_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks.os, "environ", SLURM)

    with pytest.raises(UsageError) as error:
        find_crew(3)

    assert str(error.value) == "nprocs=3 is given, and Slurm has started 4 processes\nexpected --nprocs 4"
