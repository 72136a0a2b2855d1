"""The versions that a paired run compares, as they can be built: functions on inputs that they share, or programs.

If all sides are cases, they run as they are. If one is an exported program, the others are exported too: then only the
programs differ. Later processes use the exports of earlier ones (`PairedRequest.programs`).

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchax.case import Case
from benchax.errors import NotMeasured, UsageError
from benchax.measuring.exported import ImportedProgram, exported, is_same_program, leaves_of
from benchax.measuring.inputs import Inputs, amounts_of, fit, make_inputs, make_like, signature, static_arguments
from benchax.measuring.prepare import Prepared
from benchax.measuring.program import CallableProgram, program_of
from benchax.measuring.timers.base import Subject
from benchax.whole_files import write_whole


@dataclass(frozen=True)
class Side:
    """One version: a case, or the exported program of one."""

    label: str
    case: Case | None = None
    program: bytes | None = None
    leaves: tuple[Any, ...] | None = None
    """The inputs of a program: arrays of JAX and numbers, in the order of `exported.leaves_of`."""


@dataclass(frozen=True)
class PairedRequest:
    """The request to one process."""

    sides: tuple[Side, ...]
    """The baseline first. The first case gives the inputs of all sides. Without cases, the first side that has leaves
    gives them. Without both, they are random data, of the shapes that the first program wants."""
    blocks: int = 3
    seed: int = 0
    """The seed of the data, equal in all processes."""
    order_seed: int = 0
    """The seed of the order of things, another one in each process."""
    patience: int = 1
    """Times as many rounds, in as much more time."""
    skips_equal: bool = False
    """Programs that are one are not timed."""
    compares_outputs: bool = True
    """Are the outputs compared with the baseline's? Once is enough: all processes run the same on the same data."""
    programs: str | None = None
    """Folder of the programs and executables of this case. Earlier compilations are read from there. This takes 20 ms
    instead of 50 to 200, and the executable is as fast within 1 %. Only new compilations count as build times."""


class Unfit(Exception):
    """A side that cannot be run; `cause` says why."""

    def __init__(self, side: int, cause: BaseException, stage: str) -> None:
        super().__init__(str(cause))
        self.side, self.cause, self.stage = side, cause, stage


@dataclass
class BuildableVersion:
    """A side, ready to be built."""

    label: str
    make: Callable[[], CallableProgram]
    inputs: Inputs
    is_program: bool
    sha256: str | None = None
    content: bytes | None = None
    """The bytes of a program."""
    case: Case | None = None
    """Runs as it is."""
    work: Mapping[str, float] = field(default_factory=dict[str, float])
    """The work of one call; empty if the author does not state it."""

    @property
    def own_inputs(self) -> Inputs:
        """`inputs`, which the versions share, as this one takes them."""
        return self.inputs if self.case is None else _fit_inputs(self.case, self.inputs)


def _fit_inputs(case: Case, inputs: Inputs) -> Inputs:
    static = static_arguments(case, inputs.args, inputs.kwargs)
    args, kwargs = fit(case, (inputs.args, inputs.kwargs), static)
    return replace(inputs, args=args, kwargs=kwargs, static=static)


def make_versions(request: PairedRequest) -> tuple[list[BuildableVersion], list[str | None]]:
    """Returns the sides as versions, and per side why it runs natively next to a program.

    If all sides are cases, they run as they are. If one is a program, the others are exported too: then only the
    programs differ.
    """
    giver = next((i for i, side in enumerate(request.sides) if side.case is not None), None)
    if giver is None:
        inputs = _inputs_of_programs(request)
        return [_imported(i, side.label, _content(side), inputs) for i, side in enumerate(request.sides)], [None]
    case = _case(request.sides[giver])
    inputs = guarded(giver, "inputs", lambda: make_inputs(case, request.seed))
    if all(side.case is not None for side in request.sides):
        return [native(side, inputs) for side in request.sides], [None]
    cases = {
        i: guarded(i, "build", lambda i=i, side=side: _exportable(side, inputs, _program_file(request, i)))
        for i, side in enumerate(request.sides)
        if side.case is not None
    }
    leaves = guarded(giver, "inputs", lambda: leaves_of(cases[giver].subject))
    made = [_as_program(i, side, cases.get(i), leaves) for i, side in enumerate(request.sides)]
    return [version for version, _ in made], [why for _, why in made]


def _case(side: Side) -> Case:
    if side.case is None:
        raise UsageError(f"{side.label} has no function", "a case or a program")
    return side.case


def _content(side: Side) -> bytes:
    if side.program is None:
        raise UsageError(f"{side.label} has neither a function nor a program", "a case or a program")
    return side.program


def native(side: Side, inputs: Inputs) -> BuildableVersion:
    case = _case(side)
    work = _work(case, inputs)
    # The same tuple for all versions: by it `_renewed` sees that they share their buffers.
    return BuildableVersion(side.label, lambda: program_of(case, inputs), inputs, False, case=case, work=work)


def _work(case: Case, inputs: Inputs) -> Mapping[str, float]:
    try:
        return amounts_of(case, inputs)
    except NotMeasured:  # a comparison is of times; why there are no amounts, the rows say
        return {}


def _inputs_of_programs(request: PairedRequest) -> Inputs:
    leaves = next((side.leaves for side in request.sides if side.leaves is not None), None)
    if leaves is None:
        rng = np.random.default_rng(request.seed)
        specs = guarded(0, "import", lambda: ImportedProgram(_content(request.sides[0])).specs)
        leaves = tuple(make_like(spec, rng) for spec in specs)
    return Inputs(leaves, {}, (), signature(leaves, {}, ()))


@dataclass(frozen=True)
class ExportableCase:
    """A case that is to run as a program."""

    subject: Subject
    file: Path | None
    """Where the program is kept for the processes that follow."""
    content: bytes | None = None
    """The program, where an earlier process has exported it."""

    def export(self) -> bytes:
        """The program. Raises NotMeasured where it cannot be exported."""
        if self.content is not None:
            return self.content
        content = exported(self.subject).content or b""
        if self.file:
            with suppress(OSError):  # no room: the next process exports it too
                self.file.parent.mkdir(parents=True, exist_ok=True)
                write_whole(self.file, json.dumps(self.subject.static).encode() + b"\n" + content)
        return content


def _exportable(side: Side, inputs: Inputs, file: Path | None) -> ExportableCase:
    """Traced, unless an earlier process has exported it: tracing and exporting take 50 ms and more in each process."""
    case = _case(side)
    given = _fit_inputs(case, inputs)
    program = program_of(case, given)
    if file and file.exists():
        static, _, content = file.read_bytes().partition(b"\n")
        return ExportableCase(Subject(program, given, None, tuple(json.loads(static))), file, content)
    prepared = Prepared(program, given)
    try:
        return ExportableCase(prepared.subject_of(prepared.trace()), file)
    except NotMeasured:  # eager, or built already: it runs as it is, and `exported` says why
        return ExportableCase(prepared.subject_of(), file)


def _program_file(request: PairedRequest, i: int) -> Path | None:
    return Path(request.programs, f"{i}.exported") if request.programs else None


def _as_program(i: int, side: Side, case: ExportableCase | None, leaves: Inputs) -> tuple[BuildableVersion, str | None]:
    """The version, and why it runs as it is where it cannot be exported."""
    if case is None:
        return _imported(i, side.label, _content(side), leaves), None
    try:
        version = _imported(i, side.label, case.export(), leaves)
        return replace(version, work=_work(_case(side), case.subject.inputs)), None
    except NotMeasured as error:
        return native(side, case.subject.inputs), error.problem


def _imported(i: int, label: str, content: bytes, leaves: Inputs) -> BuildableVersion:
    found = guarded(i, "import", lambda: ImportedProgram(content))
    guarded(i, "inputs", lambda: _check_inputs(found, leaves))
    return BuildableVersion(label, found.program, leaves, True, hashlib.sha256(content).hexdigest(), content)


def _check_inputs(found: ImportedProgram, leaves: Inputs) -> None:
    given = [jax.numpy.asarray(leaf) if not hasattr(leaf, "dtype") else leaf for leaf in leaves.args]
    wanted = signature(found.specs, {}, ())
    if [(a.shape, a.dtype) for a in given] != [(s.shape, s.dtype) for s in found.specs]:
        raise UsageError(f"the inputs are {leaves.signature}, and this version takes {wanted}")


def guarded(side: int, stage: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (Exception, SystemExit) as error:
        raise Unfit(side, error, stage) from error


def are_one(versions: Sequence[BuildableVersion]) -> bool:
    """Are all of them programs, and the same program? The Python code of a function is in no program."""
    first, *others = (version.content for version in versions)
    return first is not None and all(each is not None and is_same_program(first, each) for each in others)
