"""Gradients taken in other ways: with values computed again in the backward pass, and as the mean over micro-batches.

`remat` recomputes what the forward pass would keep (`jax.checkpoint`). The baseline is the gradient of a loss, or a
step that takes gradients. Each way to recompute has a row with the compiler's memory plan and the
time of a call. For a loss, the row also has the values kept between the two passes. Whether any of it saves memory
depends on the compiler: XLA:CPU mostly plans more, not less.

    nothing_saveable, dots_saveable, …   a policy of `jax.checkpoint_policies` around the whole function
    segments, segments=4                 consecutive parts, each under `jax.checkpoint`; sqrt(n) of them, or 4
    only=layer3, only=a+b                these functions of its module alone; or code under such a named scope,
                                         as flax has one for each layer: only=Dense_1
    save=hidden, save=a+b                all of it, but for values marked by `jax.ad_checkpoint.checkpoint_name`

Segments keep only what crosses a cut. sqrt(n) of them for a chain of n operations is the plan of Chen et al. 2016
(Training Deep Nets with Sublinear Memory Cost, section 3). A checkpoint around the whole function recomputes all of it
at once, and so keeps as much at its worst moment. Inner jits are taken apart; bodies of loops are one operation each.

`accumulate-gradients` takes the gradient of one micro-batch after the other: less memory for the same result. Equal
only where the loss is a mean over the rows; of any other loss the outputs differ, and the row says so. Which arguments
hold the batch is given (batch=x), or guessed (`functions.py`), and each row says which it was.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
from jax.core import eval_jaxpr
from jax.extend import core

from benchax.case import Case, floats_of
from benchax.errors import NotAvailable, UsageError, one_of
from benchax.experiments.functions import Arguments, argument_name, find_batch, plain, wrapper
from benchax.experiments.lab import ChangedCase, always
from benchax.experiments.rewriting import crossing, rewritten, run_traced
from benchax.experiments.variant import Asked, Measure, measure_ways, whole_number
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.program.evaluate import bind
from benchax.program.jaxpr import every_equation, scope_of
from benchax.results.experiment import Facts
from benchax.specs import parse_spec
from benchax.static_leaves import as_function_of_arrays
from benchax.units import size
from benchax.wrappers import unwrap

Loss = Callable[..., Any]
USUAL_WAYS = "nothing_saveable,dots_saveable,segments"
_KEPT = re.compile(r"^(?P<what>[a-z][a-z0-9_]*\[[\d,]*\]) (?P<origin>.*)$")


# ---- the gradient of a loss, as a case of its own -----------------------------------------------------------------
#
# The function must be a loss: it returns one float. The gradient is with respect to the first argument that consists of
# floats, as `jax.grad` takes the first.


@dataclass(frozen=True)
class Differentiated:
    """A function whose gradient was made, and its arguments."""

    case: Case
    """The gradient, as it is."""
    loss: Loss
    argument: int
    """The gradient is taken with respect to this one (JAX's `argnums`)."""
    inputs: Inputs
    name: str
    """The argument, as its author calls it."""

    @property
    def title(self) -> str:
        return f"value and gradient in {self.name}, as jax.value_and_grad gives them"


def differentiate(case: Case, seed: int) -> Differentiated:
    """Traces the function, runs nothing.

    Raises:
        NotAvailable: it is no loss, or the function under a jit cannot be reached.
    """
    unjitted = replace(plain(case, seed), jit=True, donate=())
    inputs = make_inputs(unjitted, seed)
    loss = unjitted.fn
    try:
        argument = floats_of(inputs.args, inputs.static)
    except TypeError as error:
        raise NotAvailable(str(error)) from None
    _check_loss(output_shapes(loss, inputs))
    gradient = replace(unjitted, fn=_value_and_gradient(loss, argument=argument))
    return Differentiated(gradient, loss, argument, inputs, argument_name(loss, argument))


@wrapper
def _value_and_gradient(loss: Loss, args: Any, kwargs: Any, argument: int) -> Any:
    """JAX is asked in each call, so that `with_gradients` can change how it is taken."""
    return jax.value_and_grad(loss, argument)(*args, **kwargs)


def output_shapes(fn: Callable[..., Any], inputs: Inputs) -> Any:
    """The shapes that it returns for these inputs. Traces, runs nothing."""
    call, arrays = as_function_of_arrays(fn, inputs.args, inputs.kwargs)
    return jax.eval_shape(call, *arrays)


def _check_loss(returned: Any) -> None:
    leaves = jax.tree.leaves(returned)
    is_array = len(leaves) == 1 and leaves[0] is returned
    if not is_array or returned.shape or not jnp.issubdtype(returned.dtype, jnp.floating):
        what = f"{returned.dtype}{list(returned.shape)}" if is_array else f"{len(leaves)} arrays in a structure"
        raise NotAvailable(
            f"it returns {what}: pass the loss, which returns one float, not the step that differentiates it"
        )


# ---- gradients that a function takes while it is traced ------------------------------------------------------------
#
# A step that differentiates its own loss leaves no mark of that in its program. So code that changes how a gradient is
# taken must be present when the step asks JAX for it. During a trace, a substitute replaces `jax.value_and_grad` in
# every module that refers to it. `jax.grad` calls it (jax 0.6 to 0.10.2), as equinox and flax do.
#
# Two gradients are not seen. One was made before the trace, such as `grad_fn = jax.value_and_grad(loss)` at the top of
# a module. The other is inside a jit that JAX has already traced for the same shapes.

GradientChange = Callable[[Loss, Callable[[Loss], Any]], Any]
"""Another way to take a gradient: (the loss, what makes the function of value and gradient of a loss, as
`jax.value_and_grad` with the arguments that it was given) → the function of value and gradient."""


@wrapper
def with_gradients(fn: Callable[..., Any], args: Any, kwargs: Any, change: GradientChange) -> Any:
    """Calls `fn`, whose gradients are taken in another way."""
    usual = jax.value_and_grad

    def value_and_grad(fun: Callable[..., Any], *given: Any, **named: Any) -> Any:
        return change(fun, lambda loss: usual(loss, *given, **named))

    with replaced(usual, value_and_grad):
        return fn(*args, **kwargs)


@contextmanager
def replaced(original: Any, replacement: Any) -> Iterator[None]:
    """Everything that is called `original` in some module is `replacement`, for a while."""
    # `from jax import value_and_grad` creates a separate name in each module.
    namespaces = [vars(module) for module in list(sys.modules.values()) if hasattr(module, "__dict__")]
    found = [(names, name) for names in namespaces for name, value in list(names.items()) if value is original]
    try:
        for names, name in found:
            names[name] = replacement
        yield
    finally:
        for names, name in found:
            names[name] = original


def takes_gradients(fn: Callable[..., Any], inputs: Inputs) -> bool:
    """Is a gradient taken while it is traced with these inputs?"""
    seen: list[Loss] = []

    def note(loss: Loss, take: Callable[[Loss], Any]) -> Any:
        seen.append(loss)
        return take(loss)

    output_shapes(with_gradients(fn, change=note), inputs)
    return bool(seen)


# ---- recomputed in the backward pass ------------------------------------------------------------------------------


def measure_remat(asked: Asked) -> Measure:
    """The gradient of a loss, or a step that takes gradients, recomputed in each of the ways."""
    ways, whole = _read_ways(asked), None
    title, case, inputs = "the step, with its gradients as it takes them", replace(asked.plain, jit=True), asked.inputs
    try:
        whole = differentiate(asked.case, asked.seed)
        title, case, inputs = whole.title, whole.case, whole.inputs
    except NotAvailable:
        if not takes_gradients(case.fn, inputs):
            raise

    def kept(change: Callable[[Loss], Loss] = lambda loss: loss) -> Facts:
        return saved_residuals(change(whole.loss), inputs) if whole else ()

    def change(way: Recomputation) -> ChangedCase:
        return change_step(case, inputs, way, kept(way.of))

    made = {f"remat:{way.label}": (f"gradient with {way.title}", partial(change, way)) for way in ways}
    return partial(measure_ways, "remat:none", title, case, made, facts=lambda seen: kept())


def remat(asked: Asked) -> ChangedCase:
    """Among other variants: a step that takes gradients, recomputed in the first of the ways."""
    way = _read_ways(asked)[0]
    if not takes_gradients(asked.plain.fn, asked.inputs):
        raise NotAvailable(
            "its trace shows no gradient (jax.grad, jax.value_and_grad), and it isn't a loss, which returns one float"
        )
    return change_step(replace(asked.plain, jit=True), asked.inputs, way, (("recomputed", way.title),))


def change_step(case: Case, inputs: Inputs, way: Recomputation, facts: Facts) -> ChangedCase:
    """The step with its gradients recomputed.

    Raises:
        NotAvailable: it has no such layers or values.
    """
    fn = with_gradients(case.fn, change=lambda loss, take: take(way.of(loss)))
    output_shapes(fn, inputs)
    return ChangedCase(replace(case, fn=fn), facts=always(*facts))


def _read_ways(asked: Asked) -> tuple[Recomputation, ...]:
    return tuple(read_recomputation(asked.text, word) for word in dict.fromkeys(asked.words(USUAL_WAYS)))


def saved_residuals(loss: Loss, inputs: Inputs) -> Facts:
    """Returns the values that the forward pass keeps for the backward one, by JAX's own list. Arguments, which exist
    anyway, are separate. JAX lists nothing for a gradient inside of a function.

    It is empty if JAX prints an unreadable list (0.6 to 0.12 print alike).
    """
    listed = io.StringIO()
    with contextlib.redirect_stdout(listed):
        call, arrays = as_function_of_arrays(loss, inputs.args, inputs.kwargs)
        # The documented function prints; the one that returns a list is private.
        jax.ad_checkpoint.print_saved_residuals(call, *arrays)
    found = [_KEPT.match(line) for line in listed.getvalue().splitlines()]
    kept = [match for match in found if match and not match["origin"].startswith("from the argument")]
    try:
        specs = [parse_spec(match["what"]) for match in kept]
        sizes = [jnp.dtype(spec.dtype).itemsize * math.prod(spec.shape) for spec in specs]
    except (UsageError, TypeError):  # a key, or another type that is none of NumPy's
        return ()
    if not all(found):
        return ()
    if not sizes:
        return (("kept between the passes", "nothing but arguments"),)
    largest = kept[sizes.index(max(sizes))]
    what = f"{largest['what']} {largest['origin']}".strip()
    return (("kept between the passes", f"{len(sizes)} arrays, {size(sum(sizes))}; the largest: {what}"),)


# ---- the ways to recompute ----------------------------------------------------------------------------------------

POLICIES = (
    "nothing_saveable",
    "dots_saveable",
    "dots_with_no_batch_dims_saveable",
    "everything_saveable",
)
SEGMENTS, ONLY, SAVE = "segments", "only", "save"
LEAST_OPERATIONS = 4
"""Fewer can't be cut into two segments of two."""
WHOLE = "a checkpoint around the whole function"


@dataclass(frozen=True)
class Recomputation:
    """A way to recompute."""

    label: str
    """As it is given: segments=4."""
    title: str
    of: Callable[[Loss], Loss]
    """The loss, computed again so."""


def read_recomputation(said: str, word: str) -> Recomputation:
    """Reads one word of the given value: segments=4.

    Raises:
        UsageError: the word is unknown; the message begins with `said`.
    """
    kind, _, value = (part.strip() for part in word.partition("="))
    if word in POLICIES:
        return Recomputation(word, f"{WHOLE}, policy {word}", partial(checkpointed, policy=word))
    if word == SEGMENTS:
        return Recomputation(word, "a checkpoint around each of sqrt(n) segments", segmented)
    count = whole_number(value)
    if kind == SEGMENTS and count > 1:  # more than it has operations is refused when they are known
        of = partial(segmented, count=count)
        return Recomputation(f"{SEGMENTS}={count}", f"a checkpoint around each of {count} segments", of)
    names = tuple(name.strip() for name in value.split("+"))
    label, listed = f"{kind}={'+'.join(names)}", ", ".join(names)
    if kind == ONLY and all(names):
        return Recomputation(label, f"a checkpoint around {listed} alone", partial(only_layers, names=names))
    if kind == SAVE and all(names):
        of = partial(checkpointed_but, names=names)
        return Recomputation(label, f"{WHOLE} that keeps {listed}", of)
    known = (*POLICIES, SEGMENTS, f"{SEGMENTS}=N", f"{ONLY}=LAYER", f"{SAVE}=NAME")
    raise UsageError(f"{said} holds {word!r}", one_of(known, word))


# ---- the ways -----------------------------------------------------------------------------------------------------


@wrapper
def checkpointed(fn: Loss, args: Any, kwargs: Any, policy: str) -> Any:
    """Under one checkpoint. The policy is kept by its name, which another process can look up."""
    call, arrays = as_function_of_arrays(fn, args, kwargs)
    return jax.checkpoint(call, policy=getattr(jax.checkpoint_policies, policy))(*arrays)


@wrapper
def checkpointed_but(fn: Loss, args: Any, kwargs: Any, names: tuple[str, ...]) -> Any:
    """Under one checkpoint that keeps the values of these names."""
    call, arrays = as_function_of_arrays(fn, args, kwargs)
    found = every_equation(jax.make_jaxpr(call)(*arrays))
    marked = sorted({str(each.params["name"]) for each in found if each.primitive.name == "name"})
    if missing := [name for name in names if name not in marked]:
        there = f"marked are {', '.join(marked)}" if marked else "no value is marked"
        raise NotAvailable(f"no value is marked as {missing[0]!r} by jax.ad_checkpoint.checkpoint_name: {there}")
    return jax.checkpoint(call, policy=jax.checkpoint_policies.save_only_these_names(*names))(*arrays)


def segmented(fn: Loss, count: int | None = None) -> Loss:
    """In consecutive segments of as many operations."""

    def cut(operations: Sequence[Any]) -> list[Part]:
        found = len(operations)
        if found < max(LEAST_OPERATIONS, count or 0):
            raise NotAvailable(f"too few operations for segments, outside of loops: {found}")
        # With sqrt(n) segments, the values kept between segments take as much memory as one segment during its
        # recomputation (Chen et al. 2016).
        length = math.ceil(math.sqrt(found) if count is None else found / count)
        return [(operations[start : start + length], True) for start in range(0, found, length)]

    # If equations run one by one, inner jits are not operations; their contents are.
    return in_parts(rewritten(fn, change=bind), cut=cut)


@wrapper
def only_layers(fn: Loss, args: Any, kwargs: Any, names: tuple[str, ...]) -> Any:
    """Layers by their names: functions of the loss's module, each call by itself; else named scopes."""
    own = getattr(unwrap(fn), "__globals__", {})
    found = {name: own[name] for name in names if name in own}
    layers = {name: layer for name, layer in found.items() if callable(layer) and not isinstance(layer, type)}
    scopes = tuple(name for name in names if name not in layers)
    with ExitStack() as stack:
        for layer in layers.values():
            stack.enter_context(replaced(layer, checkpointed(layer, policy="nothing_saveable")))
        return (in_parts(fn, cut=_by_scope(scopes)) if scopes else fn)(*args, **kwargs)


def _by_scope(names: tuple[str, ...]) -> Callable[[Sequence[Any]], list[Part]]:
    def scope(equation: Any) -> str:
        parts = scope_of(equation).split("/")
        at = next((i for i, part in enumerate(parts) if part in names), None)
        return "" if at is None else "/".join(parts[: at + 1])

    def cut(operations: Sequence[Any]) -> list[Part]:
        found = {part for each in operations for part in scope_of(each).split("/") if part}
        for name in names:
            if name not in found:
                listed = f"named scopes are {', '.join(sorted(found)[:8])}" if found else "it has no named scope"
                raise NotAvailable(f"no function of its module and no named scope is called {name!r}: {listed}")
        return [(list(group), bool(key)) for key, group in groupby(operations, scope)]

    return cut


# ---- parts of a program -------------------------------------------------------------------------------------------

Part = tuple[Sequence[Any], bool]
"""(operations, are they under a checkpoint?)"""


@wrapper
def in_parts(fn: Loss, args: Any, kwargs: Any, cut: Callable[[Sequence[Any]], list[Part]]) -> Any:
    """Calls `fn`, its operations in parts that follow one another. Raises `NotAvailable` where `cut` does."""

    def run(closed: Any, arrays: list[Any]) -> list[Any]:
        jaxpr, parts = closed.jaxpr, cut(closed.jaxpr.eqns)
        values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *arrays], strict=True))
        for i, (operations, is_again) in enumerate(parts):
            later = [*(v for other, _ in parts[i + 1 :] for eqn in other for v in eqn.invars), *jaxpr.outvars]
            taken, made = crossing(operations, later)
            part = jaxpr.replace(constvars=[], invars=taken, outvars=made, eqns=list(operations))
            evaluate = partial(eval_jaxpr, part, ())
            results = (jax.checkpoint(evaluate) if is_again else evaluate)(*(values[v] for v in taken))
            values.update(zip(made, results, strict=True))
        return [v.val if isinstance(v, core.Literal) else values[v] for v in jaxpr.outvars]

    return run_traced(fn, args, kwargs, run)


# ---- micro-batches ------------------------------------------------------------------------------------------------


def measure_accumulation(asked: Asked) -> Measure:
    """The gradient as the mean over some numbers of micro-batches."""
    counts = asked.numbers((4,), "numbers of micro-batches above 1, such as 4 or 2,4,8", least=2)
    whole = differentiate(asked.case, asked.seed)
    loss = replace(whole.case, fn=whole.loss)
    try:
        batch = find_batch(loss, whole.inputs, asked.batch, without=(whole.argument,))
    except NotAvailable:
        raise NotAvailable(
            f"no argument but {whole.name} is a batch: an array, or a tree of arrays with as many rows"
        ) from None

    def split(count: int) -> ChangedCase:
        if batch.rows % count:
            rows = f"{batch.rows} rows of {', '.join(batch.names)}"
            raise NotAvailable(f"{rows} do not divide into {count} equal micro-batches")
        facts = ("batch", f"{batch.how}; in {count} parts"), ("equal", "only where the loss is a mean over the rows")
        case = replace(whole.case, fn=micro_batched(whole.case.fn, count=count, batched=batch.arguments))
        return ChangedCase(case, facts=always(*facts))

    name, title = asked.variant.name, asked.variant.title
    ways = {f"{name}:{count}": (title, partial(split, count)) for count in counts}
    return partial(measure_ways, f"{name}:1", whole.title, whole.case, ways)


@wrapper
def micro_batched(gradient: Callable[..., Any], args: Any, kwargs: Any, count: int, batched: Arguments) -> Any:
    """The gradient of the mean over `count` parts of the rows of some arguments."""

    def split(leaf: Any) -> Any:
        return leaf.reshape(count, leaf.shape[0] // count, *leaf.shape[1:])

    parts = [jax.tree.map(split, args[key] if isinstance(key, int) else kwargs[key]) for key in batched]

    def of(part: list[Any]) -> Any:
        now = dict(zip(batched, part, strict=True))
        named = {name: now.get(name, value) for name, value in kwargs.items()}
        return gradient(*(now.get(i, value) for i, value in enumerate(args)), **named)

    def step(total: Any, part: list[Any]) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, of(part)), None

    shapes = jax.eval_shape(of, jax.tree.map(lambda leaf: leaf[0], parts))
    zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    total, _ = jax.lax.scan(step, zeros, parts)
    return jax.tree.map(lambda leaf: leaf / count, total)
