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
from benchax.program.compiled import buffer_assignment, buffers, cost, donation, memory_plan, peak_memory
from benchax.program.hlo import Module
from benchax.program.index import index
from benchax.program.jaxpr import jaxpr_facts
from benchax.program.work import collectives, counts, operations, work_by_line
from benchax.progress import Listener, Progress, ProgressEvent, quiet, show_progress
from benchax.results.inspection import Constant, Constants, Inspection, Place
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
        dtype = jax.eval_shape(lambda: jax.random.key(0)).dtype
    else:  # as JAX would take such an array: 64 bits become 32 unless its x64 mode is on
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


def inspect_prepared(case: Case, prepared: Prepared) -> Inspection:
    """The same for a case that is to be built, or has been: then what JAX warned of is not told.

    Raises:
        BenchaxError: as `inspect`; the exception of JAX or of the function is its cause.
    """
    warned, built = _build(case, prepared), prepared.built
    traced, lowered, devices = built.traced, built.lowered, jax.devices()
    module = hlo.parse(prepared.hlo) if prepared.hlo else None
    constants = Constants(
        None if traced is None else find_captured(traced), None if module is None else baked_in(module)
    )
    absent: dict[str, str] = {}
    for part, stage, found in (
        ("jaxpr", "trace", traced), ("stablehlo", "lower", lowered), ("constants.captured", "trace", traced),
    ):  # fmt: skip
        if found is None:
            told = (each.why for each in built.absent if each.what == f"stages.{stage}_s")
            absent[part] = next(told, "this wrapper hides JAX's own stage")
    if module is None or built.compiled is None:
        absent |= dict.fromkeys(("constants.baked_in", *COMPILED_PARTS), NO_PROGRAM)
        parts: dict[str, Any] = {}
    else:
        parts = _read_compiled(built, built.compiled, module, constants.captured_bytes, absent)
    return Inspection(
        name=case.id.label,
        signature=prepared.inputs.signature,
        place=Place(
            jax=jax.__version__,
            jaxlib=jaxlib.__version__,
            backend=jax.default_backend(),
            device_kind=devices[0].device_kind,
            device_count=len(devices),
        ),
        jaxpr=None if traced is None else jaxpr_facts(traced, built.static),
        stablehlo=None if lowered is None else lowered.as_text(),
        constants=constants,
        remarks=tuple(Remark("warned", "warning", f"JAX warned: {cap(text)}") for text in dict.fromkeys(warned)),
        absent=tuple(Absent(part, why) for part, why in absent.items()),
        **parts,
    )


def _read_compiled(
    built: Prepared,
    compiled: jax.stages.Compiled,
    module: Module,
    captured_bytes: int | None,
    absent: dict[str, str],
) -> dict[str, Any]:
    """Returns the parts that come from the compiled program, and notes in `absent` why some are missing."""
    stage = built.traced or built.lowered or compiled
    leaves = arguments.inputs(stage, built.static)
    outputs = arguments.outputs(stage) if hasattr(stage, "out_info") else None
    parameters = sum(each.opcode == "parameter" for each in module.entry.instructions) if module.entry else 0
    kept = arguments.find_kept(compiled, leaves, parameters)
    # JAX (0.10.2) makes an input of each tracer of another trace, compiles, and fails when it is called.
    if extra := sum(i >= len(leaves) for i in kept or ()):
        raise BenchaxError(
            f"it uses {plural(extra, 'value')} that leaked from the tracing of another function",
            "a function that computes from its arguments and from arrays",
            "return such values from the function that makes them, instead of storing them outside of it",
        )
    memory = memory_plan(compiled, captured_bytes=captured_bytes, hlo_text=module.text)
    plan, taken = buffer_assignment(compiled), [leaves[i] for i in kept or ()]
    try:
        peak, why = peak_memory(plan, module), NO_TEMPORARIES
    except NotAvailable as error:
        peak, why = None, error.problem
    absent |= {} if peak else {"peak": why}
    work = counts(module)
    if work and work.opaque_calls:
        why = f"{', '.join(repr(name) for name, _ in work.opaque_calls)} can't be inspected"
        absent |= dict.fromkeys(("counts.flops", "counts.transcendentals", "counts.bytes_accessed"), why)
    found: dict[str, Any] = {
        "hlo": module.text,
        "counts": work,
        "lines": work_by_line(module),
        "operations": operations(module),
        "xla_cost": cost(compiled, module.text),
        "memory": memory,
        "buffers": buffers(plan, module, memory, paths=[leaf.path for leaf in taken], outputs=outputs or []),
        "peak": peak,
        "donation": donation(module, leaves, outputs, kept),
        "collectives": collectives(module, arguments.shardings(compiled, outputs, taken)),
    }
    for part in COMPILED_PARTS:
        if found[part] is None:
            absent.setdefault(part, "this backend doesn't report it")
    return found


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
    found = [
        # The first operation that reads it, with the user's line.
        Constant(value.spec, value.size_bytes, "".join(f"{one.name}{one.at}" for one in value.readers[:1]))
        for value in index(traced.jaxpr).consts
        if hasattr(value.const, "shape") and value.dtype is not None
    ]
    return tuple(sorted(found, key=lambda constant: -constant.size_bytes))


def baked_in(module: Module) -> tuple[Constant, ...]:
    """The constants of the optimised program, the scalars that every program has included; largest first."""
    listed = [
        Constant(each.shape.partition("{")[0], hlo.shape_bytes(each.shape), f"{each.name} {hlo.op_name(each)}".strip())
        for each in module.instructions
        if each.opcode == "constant"
    ]
    return tuple(sorted(listed, key=lambda c: -c.size_bytes))
