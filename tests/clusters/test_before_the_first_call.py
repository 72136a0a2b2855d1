"""Addresses, versions and packages of nodes, what is sent: all that is an error before the first call."""

from __future__ import annotations

import pickle
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchax.case import make_case
from benchax.clusters import open_agents, ray_agents
from benchax.clusters.cases import CaseJob, SealedCase
from benchax.clusters.ray_agents import RayAgents, _advise, check_address, flags_to_send, folders_to_send
from benchax.environment import capture
from benchax.errors import MissingPackage, UsageError
from benchax.options import resolve
from benchax.workers import pickling


def test_an_address_is_a_cluster() -> None:
    given = ["ray", "10.0.0.1:6379", "ray://head:10001", "[::1]:6379", "ray://a-b.c:1"]

    assert [check_address(on) for on in given] == given


@pytest.mark.parametrize(
    "on", ["", "auto", "head", "head:port", "http://head:1", "head:0", "head:65536", "ray://", 3, " "]
)
def test_what_is_no_address_is_quoted_and_what_is_one_is_told(on: Any) -> None:
    with pytest.raises(UsageError) as error:
        check_address(on)

    assert error.value.problem == f"on={on!r} isn't a cluster"
    assert error.value.expected.startswith("ray, which starts one here, HOST:PORT of a cluster, or ray://HOST:PORT")


def test_an_address_where_nothing_answers_is_told_at_once() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        on = f"127.0.0.1:{unused.getsockname()[1]}"

    with pytest.raises(UsageError, match=f"^nothing answers at '{on}': ") as error, open_agents(on):
        pass

    assert "`ray start --head` prints it" in error.value.hint


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)

    with pytest.raises(MissingPackage) as error, open_agents("ray"):
        pass

    assert error.value.problem == "measuring on a cluster needs the package 'ray', which is not installed"
    assert error.value.hint == "pip install 'ray[client]'"


def test_a_node_with_another_benchax_is_named_with_both_and_another_jax_is_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_agents, "require", lambda *_, **__: None)
    agents = RayAgents(None, tmp_path)
    agents.here = capture(with_jax=False)

    agents._check("node a", replace(agents.here, jax="0.1"))
    with pytest.raises(UsageError) as error:
        agents._check("node b", replace(agents.here, benchax="0.0"))

    assert error.value.problem == f"node b has benchax 0.0, not {agents.here.benchax}"
    assert "install benchax on the nodes" in error.value.hint


def test_flags_of_the_program_and_its_import_folders_are_sent_and_those_of_the_machine_are_not(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XLA_FLAGS", "JAX_ENABLE_X64", "CUDA_VISIBLE_DEVICES", "JAX_COMPILATION_CACHE_DIR", "HOME"):
        monkeypatch.setenv(name, "1")

    sent = flags_to_send()

    assert {"XLA_FLAGS", "JAX_ENABLE_X64"} <= sent.keys()
    assert not {"CUDA_VISIBLE_DEVICES", "JAX_COMPILATION_CACHE_DIR", "HOME"} & sent.keys()
    for folder in (project / "src", project / ".venv/lib/site-packages", "/elsewhere"):
        monkeypatch.syspath_prepend(folder)
    assert folders_to_send(project) == [".", "src"]


def test_what_is_sealed_stays_so_in_any_pickle_but_that_for_a_worker() -> None:
    value = {"f": lambda x: x + 1, "big": np.arange(2**18), "small": np.ones(3)}
    sealed = pickling.seal(value, "it")

    travelled = pickle.loads(pickle.dumps(sealed))
    beside: list[pickle.PickleBuffer] = []
    content = pickling.dumps((1, travelled), beside.append)
    one, arrived = pickling.loads(content, [buffer.raw() for buffer in beside])

    assert travelled == sealed
    assert (one, arrived["f"](1)) == (1, 2)
    np.testing.assert_array_equal(arrived["big"], value["big"])
    assert len(beside) >= 1
    case = make_case(lambda x: x, ("f32[4]",), name="mine")
    job = CaseJob(case, resolve({"store": "off"}, environ={}), "run").seal()
    assert isinstance(job.case, SealedCase)
    arrived = pickling.loads(pickling.dumps(job.case))
    assert (job.case.id, arrived.id, arrived.fn(3)) == (case.id, case.id, 3)


@pytest.mark.parametrize(
    ("mode", "has_token", "is_named"), [(None, True, True), (None, False, False), ("token", True, False)]
)
def test_a_token_that_nobody_mentioned_is_named_where_a_cluster_refuses(
    mode: str | None, has_token: bool, is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray says only that it failed to connect."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    if mode is not None:
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
    if has_token:
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").touch()

    assert ("there is a ~/.ray/auth_token" in _advise("10.0.0.1:6379", "Failed to connect")) is is_named
