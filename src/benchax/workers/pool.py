"""Workers that are ready before they are needed, and can be killed at any time.

One worker does the jobs, and a standby waits: when the worker is killed, the standby takes over at once. Both are "deep
warm": they have traced, compiled and run something tiny, which costs a process 50 to 200 ms once. A new standby is made
on request (`prepare`), or if a worker is needed and not there. It is never made during a job, because it would take the
processor from the timed work.

A worker is used again unless there is doubt: it was killed, it crashed, memory ran out, it left threads or processes
behind, or it has imported code that was edited since.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchax.environment import memory_on_demand
from benchax.errors import UsageError
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.jax_settings import jax_settings
from benchax.model import Failure
from benchax.workers import pickling
from benchax.workers.channel import Closed, Garbled
from benchax.workers.conversation import (
    CannotStart,
    Conclusion,
    Conversation,
    Job,
    Listener,
    Start,
    Worker,
    ZygoteClient,
    ignore,
)
from benchax.workers.task import UNLIMITED, A, CallLimits, R, Task
from benchax.workers.worker import WARM_UP_S, capture_state, check_environ, check_jax_config, start_flags, warm_up

# A worker may end while it waits, or find that code has changed: the next one gets the job.
_ATTEMPTS = 3


class Pool:
    """Calls tasks, one at a time, in its own workers. It is a context manager and starts nothing before it is needed.

    Args:
        warm: workers have compiled and run something tiny before their first job.
        reuse: a worker can do several jobs; False gives each job a new process.
        start: "spawn" starts workers without forking, as on systems that cannot fork.
        preload: modules that every worker imports; forked workers share one import. The modules must start neither
            threads nor a backend.
        environ: environment variables of the workers from their start on, in addition to those of this process.
        jax_config: settings of JAX for the workers, by name, as `jax.config.update` takes them. This process keeps its
            own.

    Raises:
        UsageError: a variable or a setting is not possible (`worker.check_environ`).
    """

    def __init__(
        self,
        *,
        warm: bool = True,
        reuse: bool = True,
        start: Start = "auto",
        preload: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        jax_config: Mapping[str, Any] | None = None,
    ) -> None:
        self.warm = warm
        self.reuse = reuse
        self.preload = tuple(preload)
        self.environ = memory_on_demand() | check_environ(environ or {})
        self.jax_config = check_jax_config(jax_config or {})
        self.how: Start = start
        self._lock = threading.Lock()
        self._keeper: ZygoteClient | None = None
        self._ready: list[Worker] = []
        self._conditions: Any = None
        self._has_killed = False
        self._modules: set[str] = set()
        _pools.add(self)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(
        self,
        task: Task[A, R],
        argument: A,
        limits: CallLimits = UNLIMITED,
        *,
        name: str = "the argument",
        shows_output: bool = True,
        on_message: Listener = ignore,
        worker: int = 0,
    ) -> R | Failure:
        """Returns the result of `task(argument)` in a worker, or the reason for its failure. Never raises errors of the
        task.

        Args:
            name: names the argument in the message if it can't be sent.
            shows_output: its output appears on this program's standard error, up to a limit.
            on_message: receives each announcement, {"stage": ..., **facts}. Its exceptions pass through, as
                KeyboardInterrupt does, and leave no process.
            worker: the number of the pool's worker; one that isn't there yet is started, and stays.
        """
        with self._lock, self._release_on_error():
            return self._run(Job(task, argument, limits, shows_output), name, on_message, worker)

    def prepare(self) -> None:
        """Makes sure that a worker and a standby are ready. To be called when nothing is timed."""
        with self._lock, self._release_on_error(), contextlib.suppress(CannotStart):  # the next call says so
            self._fill(2 if self.reuse else 1)

    def renew(self) -> None:
        """The next job gets a new process, whatever the last one was like."""
        with self._lock:
            for worker in list(self._ready):
                self._discard(worker)

    def close(self) -> None:
        """Ends all processes. A job that another thread is running fails."""
        # Do this before taking the lock, which a job on another thread holds until this makes it fail.
        if (keeper := self._keeper) is not None:
            keeper.stop()
        with self._lock:
            self._let_go()

    @contextlib.contextmanager
    def _release_on_error(self) -> Iterator[None]:
        """No process is left by what passes through, such as KeyboardInterrupt."""
        try:
            yield
        except BaseException:
            self._let_go()
            raise

    def _run(self, job: Job, name: str, on_message: Listener, place: int) -> Any:
        try:
            sections = pickling.pack_argument(job.argument, name)
        except UsageError as error:
            return diagnose(error, "start")
        self._modules.add(job.task.function.__module__)
        conclusion = Conclusion()
        for _ in range(_ATTEMPTS):
            try:
                self._fill(place + 1)
            except CannotStart as error:
                return Failure("crashed", "start", error.problem, error.hint)
            conclusion = self._converse(self._ready[place], job, sections, on_message)
            if not conclusion.is_stale:
                return conclusion.outcome
        text = f"no worker could begin, {_ATTEMPTS} times in a row; the last time because of {conclusion.doubt}"
        return Failure("error", "start", text)

    def _converse(self, worker: Worker, job: Job, sections: list[Any], on_message: Listener) -> Conclusion:
        assert self._keeper is not None
        conclusion = Conversation(self._keeper, worker, job, sections, self._state(), on_message).finish()
        if conclusion.doubt or not self.reuse:
            self._has_killed = self._has_killed or bool(conclusion.doubt)
            self._discard(worker)
        else:
            self._keeper.kill()
        return conclusion

    def _state(self) -> dict[str, Any]:
        return capture_state(self._conditions[1], self.environ, self.jax_config)

    def _discard(self, worker: Worker) -> None:
        assert self._keeper is not None
        self._ready.remove(worker)
        if worker.pid in self._keeper.workers:
            self._keeper.kill(worker)

    def _fill(self, count: int) -> None:
        """At least `count` workers are ready. Where one was killed already, also its successor: warming two up takes
        hardly longer than one. Raises `CannotStart`."""
        self._drop_what_does_not_serve()
        if len(self._ready) >= count:
            return
        if self._keeper is None:
            self._keeper = ZygoteClient(self.how, self.preload, self.environ)
        wanted = max(2, count) if self._has_killed and self.reuse else count
        new = [self._keeper.start() for _ in range(wanted - len(self._ready))]
        if self.warm:
            self._warm_up(new)
        self._ready += new

    def _warm_up(self, workers: list[Worker]) -> None:
        """All at the same time."""
        assert self._keeper is not None
        job = Job(warm_up, tuple(sorted(self._modules)), CallLimits(lambda stage: WARM_UP_S))
        content, state = [pickling.dumps(job.argument)], self._state()
        conversations = [Conversation(self._keeper, worker, job, content, state) for worker in workers]
        conclusions = [conversation.finish() for conversation in conversations]
        if stale := next((c.doubt for c in conclusions if c.is_stale), ""):
            raise CannotStart(f"a worker process could not begin: {stale}")
        failure = next((c.outcome for c in conclusions if isinstance(c.outcome, Failure)), None)
        if failure is not None:
            words = failure.traceback.strip().splitlines()
            last = f"; its last output: {words[-1]}" if words else ""
            raise CannotStart(f"a worker process could not do its first computation: {failure.message}{last}")

    def _drop_what_does_not_serve(self) -> None:
        """Workers that have ended while they waited, or that were born under other conditions than those of now."""
        flags, settings = start_flags(), jax_settings()
        if self._keeper is not None and self._conditions not in (None, (flags, settings)):
            if self._conditions[0] == flags:
                for worker in list(self._ready):
                    self._discard(worker)
            else:
                self._let_go()
        self._conditions = flags, settings
        if self._keeper is None:
            return
        try:
            self._keeper.read_events()
        except (Closed, Garbled):
            self._let_go()
        for worker in [worker for worker in self._ready if worker.status is not None]:
            self._discard(worker)

    def _let_go(self) -> None:
        keeper, self._keeper = self._keeper, None
        self._ready = []
        if keeper is not None:
            keeper.close()

    def _abandon(self) -> None:
        """In a fork of this program: the processes belong to the other one."""
        keeper, self._keeper = self._keeper, None
        self._ready, self._lock = [], threading.Lock()
        if keeper is not None:
            keeper.detach()


def spawned_pool(environ: Mapping[str, str] | None = None, jax_config: Mapping[str, Any] | None = None) -> Pool:
    """A pool that gives each job its own interpreter. JAX has read these variables and settings there, and has done
    nothing yet. Use it for values that hold from the start of a process: flags of XLA, the number of devices, dispatch.
    """
    return Pool(start="spawn", warm=False, reuse=False, environ=environ, jax_config=jax_config)


def shared_pool(warm: bool = True) -> Pool:
    """The pool of this program: the workers of one call serve the next. With `warm=False` one that gives each job a
    process in which JAX has done nothing yet. Closed at exit."""
    with _sharing:
        if warm not in _shared:
            _shared[warm] = Pool(warm=warm, reuse=warm)
        return _shared[warm]


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_shared: dict[bool, Pool] = {}
_sharing = threading.Lock()


def _close_all() -> None:
    for pool in list(_pools):
        pool.close()
    _shared.clear()


def _abandon_all() -> None:
    global _sharing
    _sharing = threading.Lock()
    _shared.clear()
    for pool in list(_pools):
        pool._abandon()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
