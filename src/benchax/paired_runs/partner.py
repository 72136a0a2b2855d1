"""One of two processes that take turns: it loads the cases in its own environment, and answers requests.

Requests come over its standard input, which is a socket. Output of the user's code goes elsewhere and disturbs nothing.

                                 unasked   ⇒   {"cases", "broken", "environment", "jax"} or {"refused"}
    {"do": "prepare", "case": i}           ⇒   {"stage"} …, {"facts", "iterations", "call_ns"} or {"failure"}
    {"do": "sample", "iterations": n}      ⇒   {"ns", "compiles"} or {"failure"}
    {"do": "outputs"}                      ⇒   {"leaves"} with their bytes, or {"failure"}
    {"do": "agree", "leaves"} with bytes   ⇒   {"agreement"} or {"failure"}

It ends when the connection ends, or when the process that started it ends.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchax import codec
from benchax.case import Case
from benchax.discovery import Broken, collect
from benchax.environment import capture
from benchax.errors import BenchaxError, UsageError
from benchax.machine.noise import paused_gc
from benchax.measuring import turns
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.jax_settings import without_cache
from benchax.measuring.turns import Turns
from benchax.options import resolve
from benchax.workers import process_tree
from benchax.workers.answers import describe_array, rebuild_array
from benchax.workers.channel import Channel, Closed, Message


def begin(argument: dict[str, Any]) -> None:
    """Serves until the connection ends.

    Args:
        argument: what, pattern, params, options as for `benchax run`; parent, the process that has started this one.
    """
    process_tree.die_with_parent()
    # It may have ended before we asked to end with it.
    if os.getppid() != argument["parent"]:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which then ends this
    channel = _take_over_stdin()
    faulthandler.enable(2)
    try:
        _serve(channel, argument)
    except Closed:
        pass  # the ordinary end: whoever asked has enough samples, or has died; there is nobody left to tell
    finally:
        sys.stdout.flush()


def _take_over_stdin() -> Channel:
    """Descriptor 0 becomes /dev/null: a function that asks for input gets none, instead of our messages."""
    channel = Channel(socket.socket(fileno=os.dup(0)))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return channel


def _serve(channel: Channel, argument: dict[str, Any]) -> None:
    try:
        cases, broken = collect(argument["what"], argument["pattern"], argument["params"])
    except UsageError as error:
        channel.send({"refused": [error.problem, error.expected, error.hint]})
        return
    channel.send(_listing(cases, broken, argument["options"]))
    with paused_gc(), without_cache():
        service = Service(cases, lambda stage: channel.send({"stage": stage}), argument["options"])
        while (message := channel.receive()) is not None:
            channel.send(*service.answer(message))


def _listing(cases: Sequence[Case], broken: Sequence[Broken], given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "cases": [
            [
                case.id.name,
                codec.encode_params(case.id.params),
                case.id.variant,
                case.id.tag,
                _options(case, given).timeout_s,
            ]
            for case in cases
        ],
        "broken": [dataclasses.asdict(each.failure) for each in broken],
        "environment": dataclasses.asdict(capture()),
        "jax": turns.imported_jax(),
    }


def _options(case: Case, given: Mapping[str, Any]) -> Any:
    return resolve(None, case.options, given, project=case.folder)


class Service:
    """Answers requests, about one case at a time."""

    def __init__(
        self, cases: Sequence[Case], enter: Callable[[str], None], options: Mapping[str, Any] | None = None
    ) -> None:
        self.cases = cases
        self.options = options or {}
        self.enter = enter
        self.stage = ""
        self.turns: Turns | None = None

    def answer(self, message: Message) -> tuple[dict[str, Any], Sequence[Any]]:
        request = message.document
        if request["do"] == "sample" and self.turns is not None:  # first, since it is asked for in the rounds
            return self._guarded("rounds", lambda turns: _sample(turns, request["iterations"]))
        if request["do"] == "prepare":
            return self._prepare(self.cases[request["case"]])
        if request["do"] == "outputs":
            return self._guarded("outputs", _outputs)
        return self._guarded("outputs", lambda turns: _agreement(turns, message))

    def _prepare(self, case: Case) -> tuple[dict[str, Any], Sequence[Any]]:
        self.turns = None
        gc.collect()
        try:
            self.turns = turns.prepare(case, _options(case, self.options).seed, self._enter)
        except (Exception, SystemExit) as error:
            return _failed(error, self.stage)
        ready = self.turns
        return {"facts": ready.facts, "iterations": ready.iterations, "call_ns": ready.call_ns}, ()

    def _enter(self, stage: str) -> None:
        self.stage = stage
        self.enter(stage)

    def _guarded(self, stage: str, call: Callable[[Turns], Any]) -> tuple[dict[str, Any], Sequence[Any]]:
        try:
            if self.turns is None:
                raise BenchaxError("no case was prepared")
            return call(self.turns)
        except (Exception, SystemExit) as error:
            return _failed(error, stage)


def _failed(error: BaseException, stage: str) -> tuple[dict[str, Any], Sequence[Any]]:
    return {"failure": dataclasses.asdict(diagnose(error, stage))}, ()


def _sample(ready: Turns, iterations: int) -> tuple[dict[str, Any], Sequence[Any]]:
    """With the programs that it compiled in this sample and those before it."""
    ns = ready.sample(iterations)
    return {"ns": ns, "compiles": ready.facts["compiles"]}, ()


def _outputs(ready: Turns) -> tuple[dict[str, Any], Sequence[Any]]:
    both = [describe_array(leaf) for leaf in ready.outputs]
    return {"leaves": [description for description, _ in both]}, [content for _, content in both]


def _agreement(ready: Turns, message: Message) -> tuple[dict[str, Any], Sequence[Any]]:
    leaves = tuple(map(rebuild_array, message.document["leaves"], message.sections))
    return {"agreement": dataclasses.asdict(ready.agreement(leaves))}, ()
