"""Budgets: each stage has its own. What workers print, and what the words of a fault handler say about where it was."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import benchax
from benchax.workers import conversation
from benchax.workers.channel import Message
from benchax.workers.conversation import PASSED_ON_BYTES, TAIL_BYTES, Conversation, Job, Output, ZygoteClient
from benchax.workers.worker import warm_up


def test_a_worker_that_says_that_it_knows_old_code_and_ends_at_once_is_replaced() -> None:
    """Its end may be told before its last message is read: then it had looked like a process without an answer."""
    last = Message({"job": 1, "stale": "model.py"})
    channel = SimpleNamespace(pop=lambda: last, send=lambda *_, **__: None)
    worker: Any = SimpleNamespace(jobs=0, output=SimpleNamespace(begin=lambda is_shown: None), channel=channel)
    one = Conversation(Any, worker, Job(warm_up, ()), (), {})  # type: ignore[arg-type]

    conclusion = one._conclude_death()

    assert (conclusion.is_stale, conclusion.doubt) == (True, "model.py")


# ---- what workers print --------------------------------------------------------------------------------------------


OURS = Path(conversation.__file__).parent / "worker.py"


@pytest.fixture
def pipe() -> Iterator[tuple[Output, Callable[[bytes], int]]]:
    reading, writing = os.pipe()
    output = Output(reading)
    yield output, lambda data: os.write(writing, data)
    output.close()
    os.close(writing)


Pipe = tuple[Output, Callable[[bytes], int]]


def test_little_is_passed_on_as_it_is(pipe: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    output, write = pipe
    output.begin(is_passed_on=True)

    for part in ("naïve ".encode()[:3], "naïve ".encode()[3:], b"\xff\n"):  # a letter in two parts, and none at all
        write(part)
        output.pump()

    assert capsys.readouterr().err == "naïve \N{REPLACEMENT CHARACTER}\n"
    write(b"late")
    output.begin(is_passed_on=True)
    output.drain()
    assert (output.text(), capsys.readouterr().err) == ("", ""), "what was printed between jobs belongs to none"


def test_of_much_the_rest_is_dropped_and_that_is_said_once(pipe: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    output, write = pipe
    output.begin(is_passed_on=True)

    for _ in range(40):
        write(b"x" * 4096)
        output.drain()

    err = capsys.readouterr().err
    assert err.count("x") in range(PASSED_ON_BYTES, PASSED_ON_BYTES + 10)
    assert err.endswith("\n[benchax: more than 64 KiB printed; the rest is dropped]\n")
    assert len(output.text()) == TAIL_BYTES


@pytest.mark.parametrize("stderr", [None, "closed"])
def test_without_a_standard_error_nothing_is_lost(pipe: Pipe, stderr: str | None, monkeypatch, tmp_path: Path) -> None:
    closed = (tmp_path / "file").open("w")
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed if stderr else None)
    output, write = pipe
    output.begin(is_passed_on=True)

    write(b"words")
    output.drain()

    assert output.text() == "words"


# ---- stacks -----------------------------------------------------------------------------------------------------

DUMP = f"""
Fatal Python error: Segmentation fault

Thread 0x00007f3a99fe8b80 (most recent call first):
  File "{sys.prefix}/lib/python3/threading.py", line 320 in wait

Current thread 0x00007eff7b44ab80 (most recent call first):
  File "{np.__file__}", line 5 in dot
  File "/home/me/model.py", line 13 in layer
  File "/home/me/model.py", line 40 in model
  File "{OURS}", line 141 in _outcome
  File "{OURS}", line 129 in run

Extension modules: numpy._core (total: 1)
"""


def test_the_stack_is_that_of_the_job_and_the_users_own_line_the_innermost_outside_of_libraries() -> None:
    """Also if garbage is collected, as is often while a long trace is made."""
    collecting = DUMP.replace(f'  File "{np.__file__}"', f'  Garbage-collecting\n  File "{np.__file__}"')

    assert conversation.frames(DUMP) == [
        f'File "{np.__file__}", line 5 in dot',
        'File "/home/me/model.py", line 13 in layer',
        'File "/home/me/model.py", line 40 in model',
    ]
    assert conversation.frames(collecting) == ["Garbage-collecting", *conversation.frames(DUMP)]
    for dump in (DUMP, collecting):
        assert conversation.user_line(conversation.frames(dump)) == "/home/me/model.py:13"


def test_a_story_has_the_users_own_frames_and_counts_the_others() -> None:
    own = [f'File "/home/me/{i}.py", line 3 in f' for i in range(2)]
    stack = [f'File "{jax.__file__}", line 1 in wait', *own, f'File "{benchax.__file__}", line 2 in measure']

    assert conversation._story(stack, "") == (
        "Where it was, innermost first:\n"
        '  File "/home/me/0.py", line 3 in f\n'
        '  File "/home/me/1.py", line 3 in f\n'
        "(2 frames of JAX, benchax and Python left out)"
    )
    assert conversation._story(stack[:1], "") == (
        "No line of your own was running, as in a compiled loop. The innermost of 1 frame of JAX, benchax and Python:\n"
        f'  File "{jax.__file__}", line 1 in wait'
    )


@pytest.mark.parametrize("text", ["", "Segmentation fault", "Thread 0x1 (most recent call first):\n  File"])
def test_without_a_stack_there_is_no_line(text: str) -> None:
    assert (conversation.frames(text), conversation.user_line(conversation.frames(text))) == ([], "")


def test_an_answer_that_is_there_at_once_is_whole(pipe: Pipe) -> None:
    """On a quiet machine the worker writes before anybody reads."""
    output, write = pipe
    write(b"what it had printed before\n")
    dump = 'Current thread 0x1 (most recent call first):\n  File "f.py", line 3 in f\n  File "x", line 1 in <module>\n'
    channel = SimpleNamespace(send=lambda message, timeout_s: write(dump.encode()))

    said = ZygoteClient.request_stack(SimpleNamespace(channel=channel), SimpleNamespace(pid=7, output=output), 10.0)  # pyright: ignore[reportArgumentType]

    assert said == dump
