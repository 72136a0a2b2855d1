"""The context of a benchmark: its test, its parameters, its files, and its settings.

It is made from pytest's `request`, or from a path for use outside of pytest.

Among the workers of pytest-xdist one measures at a time: two at once would measure each other. They share a lock on a
file, which the system takes back when a process dies. Other tests still run during a measurement.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from benchax.errors import UsageError
from benchax.whole_files import hold_lock
from pytest_jax_bench.csv import files as csv_files
from pytest_jax_bench.options import PluginSettings, marker_of

if TYPE_CHECKING:
    import pytest

LOCK = ".ptjb-lock"


@dataclass(frozen=True)
class BenchContext:
    """`csv` None: nothing can be written."""

    session: str
    nodeid: str = ""
    name: str = "JaxBench"
    """The node id without parameters: the name of the case in the database."""
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    folder: Path | None = None
    """The folder of the test file, where git runs."""
    module: ModuleType | None = None
    csv: Path | None = None
    output_dir: Path | None = None
    settings: PluginSettings = field(default_factory=PluginSettings)
    marker: Mapping[str, Any] = field(default_factory=dict[str, Any])
    keep: Callable[[dict[str, Any]], None] = lambda record: None
    """Takes the record of a measurement for the summary."""
    lock: Callable[[], AbstractContextManager[object]] = nullcontext
    """While it is held, no other worker of xdist measures."""
    hold_open: Callable[[str], None] = lambda place: None
    """Keeps the store at this place open until the session ends, so that each row waits less for the disk."""

    def choose(self, keyword: str, in_call: Any) -> Any:
        """Returns the value from the strongest source: the command line, the call, the marker, or pytest's
        configuration. None if no source has one.
        """
        option = keyword.removesuffix("_s")
        configured = getattr(self.settings, option)
        typed = configured if option in self.settings.typed else None
        values = (typed, in_call, self.marker.get(keyword), configured)
        return next((value for value in values if value is not None), None)


def from_request(request: pytest.FixtureRequest) -> BenchContext:
    """Raises `UsageError` if the request is not that of a test, and in a fork in which JAX cannot work."""
    from pytest_jax_bench import stash  # which needs pytest; the rest works without

    item, config = request.node, request.config
    if not hasattr(item, "runtest"):
        raise UsageError(
            f"JaxBench got the request of a fixture with the scope {request.scope!r}, which belongs to no test",
            "the request of one test: a fixture with the scope 'function', or the fixture jax_bench",
        )
    if os.getpid() != config.stash[stash.PROCESS] and config.stash[stash.STARTED]:
        raise UsageError(
            "JAX had started before this test was forked, and no computation would end here",
            "a test that asks for request, jax_bench or benchmark itself, which runs without the fork then",
            "or no arrays and no computations when test files are imported",
        )
    settings = config.stash[stash.SETTINGS]
    params = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    name = item.nodeid.removesuffix(item.name) + getattr(item, "originalname", item.name)
    attempt = getattr(item, "execution_count", 1)
    is_worker = hasattr(config, "workerinput")
    return BenchContext(
        # Each attempt of a test that pytest-rerunfailures runs again is a run.
        session=config.stash[stash.SESSION] + (f"-{attempt}" if attempt > 1 else ""),
        nodeid=item.nodeid,
        # Items of other plugins can have ids that don't end in their name.
        name=name if item.nodeid.endswith(item.name) else item.nodeid,
        params=params,
        folder=item.path.parent,
        module=getattr(item, "module", None),
        csv=csv_files.file_for(settings.output_dir, item.nodeid, params),
        output_dir=settings.output_dir,
        settings=settings,
        marker=marker_of(item),
        keep=item.stash.setdefault(stash.MEASURED, []).append,
        lock=partial(hold_lock, settings.output_dir / LOCK) if is_worker else nullcontext,
        hold_open=partial(hold_open, config),
    )


def hold_open(config: pytest.Config, place: str) -> None:
    """Holds the store open, once, until `config` is unconfigured, which is after the last test."""
    from benchax import api
    from pytest_jax_bench import stash

    held = config.stash.setdefault(stash.HELD, set())
    # A fork must not use the SQLite connection of its parent, and only the thread that opened it may close it.
    is_ending_here = threading.current_thread() is threading.main_thread()
    if place not in held and is_ending_here and not config.getoption("forked", False):
        held.add(place)
        stack = contextlib.ExitStack()
        config.add_cleanup(stack.close)
        stack.enter_context(api.opened(place).held_open())


def from_path(path: str | os.PathLike[str] | None) -> BenchContext:
    """Outside of pytest. `path` names the CSV file, with or without .csv."""
    if path is None:
        return BenchContext(session=os.urandom(8).hex(), folder=Path.cwd())
    if not os.fspath(path) or os.fspath(path).endswith(("/", os.sep)):
        raise UsageError(f"path={os.fspath(path)!r} names no file", "the path of a CSV file, such as results/fft.csv")
    file = Path(path)
    file = file if file.suffix == ".csv" else file.with_name(file.name + ".csv")
    return BenchContext(
        session=os.urandom(8).hex(),
        nodeid=file.stem,
        name=file.stem,
        folder=Path.cwd(),
        csv=file,
        output_dir=file.parent,
    )


@contextmanager
def by_value(module: ModuleType | None) -> Iterator[None]:
    """Functions of a test file reach another process by value: it cannot import test files by pytest's names."""
    if module is None:
        yield
        return
    import cloudpickle

    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)
