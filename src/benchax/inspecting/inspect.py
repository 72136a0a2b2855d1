"""`inspect`: one call as JAX and XLA compile it, built and read, never run.

It accepts the same inputs as `bench`. Specs and `jax.ShapeDtypeStruct`s stay shapes: nothing is allocated for them, so
you can inspect a program that is too big for this machine. A step of JAX can be out of reach: a `Compiled` has no
jaxpr, and some wrappers do not trace. Then that part has the value None, and `absent` gives the reason. A call that
does not build is an error, with the advice that a row of `bench` would have.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jaxlib
import numpy as np

from benchax.case import Case, make_case
from benchax.errors import BenchaxError, NotAvailable, UsageError
from benchax.keywords import guard_keywords
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.inputs import Inputs, fit, put_each, sharding_of, signature, static_arguments
from benchax.measuring.prepare import Prepared
from benchax.measuring.program import program_of
from benchax.model import Absent, Remark
from benchax.printable import cap
from benchax.program import arguments, hlo
from benchax.program.compiled import Assignment, buffer_assignment, buffers, cost, donation, memory_plan, peak_memory
from benchax.program.hlo import Module
from benchax.program.index import index
from benchax.program.jaxpr import jaxpr_facts
from benchax.program.work import collectives, counts, operations, work_by_line
from benchax.progress import Listener, Progress, ProgressEvent, quiet, show_progress
from benchax.results.inspection import Constant, Constants, Inspection, PeakMemory, Place
from benchax.specs import MeshSpec, is_spec, parse_spec
from benchax.units import plural

COMPILED_PARTS = (
    "hlo", "counts", "lines", "operations", "xla_cost", "memory", "buffers", "peak", "donation", "collectives",
)  # fmt: skip

NO_PROGRAM = "this wrapper hides the compiled program"
NO_TEMPORARIES = "the program has no temporaries: it needs only arguments, outputs and constants"


@guard_keywords()
def inspect(
    fn: Callable[..., Any],
    *args: Any,
    name: str | None = None,
    jit: bool = True,
    static: Iterable[int | str] | int | str = (),
    donate: Iterable[int | str] | int | str = (),
    progress: Progress = None,
    **kwargs: Any,
) -> Inspection:
    """Inspects the compiled form of `fn(*args, **kwargs)`. Nothing is run.

    Args:
        fn: a plain function (inspected as `jax.jit(fn)`), a jitted one, a `Compiled`, or a wrapper that holds a jit.
        args, kwargs: its inputs, as for `bench`; for specs and `jax.ShapeDtypeStruct`s only the shape is needed.
        name: default: the function's own.
        jit: False: a call that runs operation by operation has no program, so this is refused.
        static, donate: arguments of a plain function by position or name, as for `jax.jit`.
        progress: as for `bench`.

    Raises:
        UsageError: inputs that cannot be read, or an option that `fn` takes as well.
        BenchaxError: the call does not trace, lower or compile; the message states where and what helps.

    If an argument of `fn` has the name of one of these, pass it through `functools.partial`.

    Example:
        >>> i = benchax.inspect(lambda x: x @ x, "f32[4,4]")
        >>> i.jaxpr.equations, i.memory.output_bytes
        (1, 64)
    """
    case = make_case(fn, args, kwargs, name=name, static=static, donate=donate, jit=jit)
    with show_progress(progress) as report:
        return inspect_case(case, report)


def inspect_case(case: Case, report: Listener = quiet) -> Inspection:
    """The same for a case, such as the command line finds in files."""
    if not case.jit:
        raise UsageError(
            f"{case.id.label!r} is to be inspected eagerly, but operation by operation there is no program",
            "jit=True, which inspects what jax.jit makes of it",
        )
    inputs = abstract_inputs(case)
    prepared = Prepared(
        program_of(case, inputs), inputs, lambda stage: report(ProgressEvent(case.id.label, stage)), forgets=False
    )
    return inspect_prepared(case, prepared)


def inspect_prepared(case: Case, prepared: Prepared) -> Inspection:
    """The same for a case that is to be built, or has been: then what JAX warned of is not told.

    Raises:
        BenchaxError: as `inspect`; the exception of JAX or of the function is its cause.
    """
    warned = _build(case, prepared)
    return _InspectionReader(case, prepared).inspection(warned)


def abstract_inputs(case: Case) -> Inputs:
    """Returns the inputs of a case with shapes instead of specs; arrays stay unchanged.

    Raises:
        UsageError: a spec that cannot be read. Exceptions of the factory pass through.
    """
    args, kwargs = case.inputs()
    static = static_arguments(case, args, kwargs)
    call = put_each(partial(_abstract, mesh=case.mesh), args, kwargs, static)
    return Inputs(*fit(case, call, static), static, signature(*call, static))


def _abstract(leaf: Any, mesh: MeshSpec | None) -> Any:
    if not (isinstance(leaf, str) and is_spec(leaf)):
        return leaf
    spec = parse_spec(leaf)
    if spec.dtype == "key":
        # Only the type matters: `inspect` makes no data, so you can inspect programs that do not fit into memory.
        return jax.eval_shape(
            lambda: jax.random.split(jax.random.key(0), spec.shape) if spec.shape else jax.random.key(0)
        )
    # As JAX would take such an array: 64 bits become 32 unless its x64 mode is on.
    dtype = jax.dtypes.canonicalize_dtype(np.dtype(spec.dtype))
    return jax.ShapeDtypeStruct(spec.shape, dtype, sharding=sharding_of(spec, mesh))


def _build(case: Case, prepared: Prepared) -> tuple[str, ...]:
    """Builds it, and returns JAX's warnings from the build.

    Raises:
        BenchaxError: it cannot be built.
    """
    with warnings.catch_warnings(record=True) as caught:
        # By default, Python shows a warning from one line only once per process. A second inspection would miss it.
        warnings.simplefilter("always")
        try:
            _ = prepared.built
        except Exception as error:
            failure = diagnose(error, prepared.step)
            raise BenchaxError(
                f"{case.id.label} does not {failure.stage}: {failure.message}", hint=failure.advice
            ) from error
    return tuple(str(warning.message) for warning in caught)


class _InspectionReader:
    """Reads the parts of one built program, and notes why those that are missing are missing."""

    def __init__(self, case: Case, prepared: Prepared) -> None:
        self.case, self.inputs, self.built, self.hlo_text = case, prepared.inputs, prepared.built, prepared.hlo
        self.module = hlo.parse(self.hlo_text) if self.hlo_text else None
        self.stage = self.built.traced or self.built.lowered or self.built.compiled
        self.leaves = arguments.inputs(self.stage, self.built.static) if self.stage is not None else []
        self.outputs = arguments.outputs(self.stage) if hasattr(self.stage, "out_info") else None
        self.kept = self._kept_arguments()
        self._refuse_leaked()
        self.absent: list[Absent] = []

    def _refuse_leaked(self) -> None:
        """JAX (0.10.2) makes an input of each tracer of another trace, compiles, and fails when it is called."""
        extra = sum(i >= len(self.leaves) for i in self.kept or ())
        if self.stage is not None and extra:
            raise BenchaxError(
                f"it uses {plural(extra, 'value')} that leaked from the tracing of another function",
                "a function that computes from its arguments and from arrays",
                "return such values from the function that makes them, instead of storing them outside of it",
            )

    def inspection(self, warned: tuple[str, ...]) -> Inspection:
        traced, lowered, module = self.built.traced, self.built.lowered, self.module
        constants = Constants(
            find_captured(traced) if traced is not None else None, baked_in(module) if module is not None else None
        )
        told = (("jaxpr", traced, "trace"), ("stablehlo", lowered, "lower"), ("constants.captured", traced, "trace"))
        self.absent += [Absent(what, self._why(stage)) for what, found, stage in told if found is None]
        if module is None:
            self.absent.append(Absent("constants.baked_in", NO_PROGRAM))
        parts, devices = self._compiled_parts(constants.captured_bytes), jax.devices()
        return Inspection(
            name=self.case.id.label,
            signature=self.inputs.signature,
            place=Place(
                jax=jax.__version__,
                jaxlib=jaxlib.__version__,
                backend=jax.default_backend(),
                device_kind=devices[0].device_kind,
                device_count=len(devices),
            ),
            jaxpr=jaxpr_facts(traced, self.built.static) if traced is not None else None,
            stablehlo=lowered.as_text() if lowered is not None else None,
            constants=constants,
            remarks=tuple(Remark("warned", "warning", f"JAX warned: {cap(text)}") for text in dict.fromkeys(warned)),
            absent=tuple(self.absent),
            **parts,
        )

    def _kept_arguments(self) -> tuple[int, ...] | None:
        if self.built.compiled is None or self.module is None or self.module.entry is None:
            return None
        parameters = sum(each.opcode == "parameter" for each in self.module.entry.instructions)
        return arguments.find_kept(self.built.compiled, self.leaves, parameters)

    def _compiled_parts(self, captured_bytes: int | None) -> dict[str, Any]:
        compiled, module, hlo_text = self.built.compiled, self.module, self.hlo_text
        if compiled is None or module is None:
            self.absent += [Absent(part, NO_PROGRAM) for part in COMPILED_PARTS]
            return {}
        memory = memory_plan(compiled, captured_bytes=captured_bytes, hlo_text=hlo_text)
        plan = buffer_assignment(compiled)
        taken = [self.leaves[i] for i in self.kept or ()]
        found: dict[str, Any] = {
            "hlo": hlo_text,
            "counts": counts(module),
            "lines": work_by_line(module),
            "operations": operations(module),
            "xla_cost": cost(compiled, module.text),
            "memory": memory,
            "buffers": buffers(plan, module, memory, paths=[leaf.path for leaf in taken], outputs=self.outputs or []),
            "peak": self._peak(plan, module),
            "donation": donation(module, self.leaves, self.outputs, self.kept),
            "collectives": collectives(module, arguments.shardings(compiled, self.outputs, taken)),
        }
        told = {absent.what for absent in self.absent}
        missing = [part for part in COMPILED_PARTS if found[part] is None and part not in told]
        self.absent += [Absent(part, "this backend doesn't report it") for part in missing]
        return found

    def _peak(self, plan: Assignment | None, module: Module) -> PeakMemory | None:
        try:
            found, why = peak_memory(plan, module), NO_TEMPORARIES
        except NotAvailable as error:
            found, why = None, error.problem
        self.absent += [Absent("peak", why)] if found is None else []
        return found

    def _why(self, stage: str) -> str:
        """Why a stage of JAX is not there."""
        told = next((a.why for a in self.built.absent if a.what == f"stages.{stage}_s"), None)
        return told or "this wrapper hides JAX's own stage"


# ---- arrays that are not arguments ------------------------------------------------------------------------------
#
# Those that a function closes over, and those that the compiled program holds. The two differ. XLA folds: for
# `a + W.sum(0)` the jaxpr holds W, and the program holds the sums. XLA also adds constants that it needs itself. A
# captured array goes into the program once per compilation, makes the text of the program long, and costs a copy.


def find_captured(traced: jax.stages.Traced) -> tuple[Constant, ...]:
    """Returns the arrays that the function closes over, each once, largest first.

    They are in the jaxpr and in every jaxpr nested in it. From jax 0.10 on, small ones become literals inside the
    equations: scalars are not listed.
    """
    found: list[Constant] = []
    for value in index(traced.jaxpr).consts:
        if hasattr(value.const, "shape") and value.dtype is not None:
            # The first operation that reads it, with the user's line.
            use = f"{value.readers[0].name}{value.readers[0].at}" if value.readers else ""
            found.append(Constant(value.spec, value.size_bytes, use))
    return tuple(sorted(found, key=lambda constant: -constant.size_bytes))


def baked_in(module: Module) -> tuple[Constant, ...]:
    """The constants of the optimised program, the scalars that every program has included; largest first."""
    listed = [
        Constant(each.shape.partition("{")[0], hlo.shape_bytes(each.shape), f"{each.name} {hlo.op_name(each)}".strip())
        for each in module.instructions
        if each.opcode == "constant"
    ]
    return tuple(sorted(listed, key=lambda c: -c.size_bytes))
