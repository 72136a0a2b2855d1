"""The output of a worker: up to a limit it goes to this program's standard error, and it is never kept as a whole.

A function that prints without end cannot fill memory or disk, and cannot delay the waiting program.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import sys
from time import perf_counter

from benchax.workers.channel import wait_readable

PASSED_ON_BYTES = 64 * 2**10
"""Per job."""
TAIL_BYTES = 16 * 2**10
"""Kept to say what a crash was: the fault handler writes up to 100 frames per thread, the innermost ones first."""
LAST_WORDS = 2 * 2**10
_AT_A_TIME = 2**16
_MOST_READS = 16


class Output:
    """The reading end of a worker's output pipe."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.is_open = True
        os.set_blocking(fd, False)
        self.begin(is_passed_on=False)

    def fileno(self) -> int:
        return self.fd

    def begin(self, is_passed_on: bool) -> None:
        """A new job: what was printed since the last one belongs to neither."""
        self.is_passed_on = False
        self.tail = b""
        self.drain()
        self.tail = b""
        self.left = PASSED_ON_BYTES
        self.is_passed_on = is_passed_on
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def pump(self) -> bool:
        """Takes what is there, without waiting. False if there was nothing, or nothing will come any more."""
        if not self.is_open:
            return False
        try:
            data = os.read(self.fd, _AT_A_TIME)
        except (BlockingIOError, InterruptedError):
            return False
        if not data:  # the worker has closed it: from now on it could always be read, and would be empty
            self.close()
            return False
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        self._pass_on(data)
        return True

    def drain(self) -> None:
        """All that is there, up to 1 MiB: something may go on printing."""
        for _ in range(_MOST_READS):
            if not self.pump():
                return

    def _pass_on(self, data: bytes) -> None:
        if not self.is_passed_on or self.left < 0:
            return
        text = self.decoder.decode(data[: self.left])
        self.left -= len(data)
        if self.left < 0:
            text += f"\n[benchax: more than {PASSED_ON_BYTES // 2**10} KiB printed; the rest is dropped]\n"
        # A closed or full standard error is no reason to lose a measurement.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(text)
            sys.stderr.flush()

    def text(self) -> str:
        """The end of the output."""
        return self.tail.decode("utf-8", "replace")

    def stack(self, within_s: float) -> str:
        """Returns the text that the fault handler writes on request; it is not shown elsewhere."""
        until = perf_counter() + within_s
        while self.is_open and (rest := until - perf_counter()) > 0 and not self.text().endswith("<module>\n"):
            if wait_readable([self], rest):
                self.pump()
        return self.text()

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            os.close(self.fd)
