"""For all tests: the CPU unless a GPU is asked for, none of the caller's BENCHAX_* settings, one hypothesis profile."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

ON_GPU = os.environ.get("TEST_ON_GPU") == "1"
HAS_DIST = "BENCHAX_TEST_DIST" in os.environ

# Before anything imports JAX; child processes inherit it.
if not ON_GPU:
    os.environ["JAX_PLATFORMS"] = "cpu"

# A shell without job control starts background commands with Ctrl-C ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: a compilation inside an example takes what it takes. In CI the same examples every time;
# elsewhere each run has others.
IN_CI = "CI" in os.environ
settings.register_profile("benchax", deadline=None, derandomize=IN_CI, max_examples=25)
settings.load_profile("benchax")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reasons = {}
    if not ON_GPU:
        reasons["gpu"] = "needs a GPU; where there is one, ask for it with TEST_ON_GPU=1"
    if not HAS_DIST:
        reasons["dist"] = "needs the archives of `make dist`, which runs these tests"
    for item in items:
        for marker in filter(item.get_closest_marker, reasons):  # keywords also have the names of folders
            item.add_marker(pytest.mark.skip(reason=reasons[marker]))


def pytest_collection_finish() -> None:
    """Ten thousand collected tests are a million objects, which every collection of garbage would look at again: that
    of a test that asks for one, and those that come by themselves."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options come from BENCHAX_* variables too, and an unknown one is an error: a test sets those that it means.

    BENCHAX_TEST_* are gone as well, and are therefore read when a module is imported.
    """
    for name in [name for name in os.environ if name.startswith("BENCHAX_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def optimized() -> Iterator[None]:
    """To the end of the file programs are compiled as users have them; `make test` does so at the lowest level."""
    import jax

    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="module")
def kept_pools() -> Iterator[None]:
    """Pools that commands and comparisons open live as long as the file: importing JAX takes each of them a second."""
    from benchax.paired_runs import session
    from benchax.workers import pool

    class KeptPool(pool.Pool):
        def __exit__(self, *_: object) -> None:
            self.renew()

    kept: dict[str, KeptPool] = {}

    def keep(**options: Any) -> KeptPool:
        return kept.setdefault(repr(options), KeptPool(**options))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "Pool", keep)
        patch.setattr(pool, "Pool", keep)
        yield
    for each in kept.values():
        each.close()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the working directory for the length of the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
