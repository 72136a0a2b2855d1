"""Checks for every array that was to be donated: did an output reuse its memory, which one, and if not, why not?

`args_info` shows which arrays were to be donated. The header of the optimised program shows which were reused, by
numbers of outputs and of parameters: `input_output_alias={ {0}: (1, {}, may-alias) }`. An array whose memory no output
reuses stays alive and valid, and JAX warns once, while it lowers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchax.program import hlo
from benchax.program.arguments import ArgumentLeaf, size_bytes
from benchax.program.hlo_module import Module
from benchax.results.inspection import DonatedArgument, Donation


def donation(
    module: Module, inputs: Sequence[ArgumentLeaf], outputs: Sequence[ArgumentLeaf] | None, kept: Sequence[int] | None
) -> Donation:
    """Reports the result for each donated input.

    Args:
        module: the optimised program.
        inputs, outputs: inputs and outputs of the call, in order; None for unknown outputs.
        kept: see `arguments.find_kept`.
    """
    asked = [i for i, leaf in enumerate(inputs) if leaf.donated]
    if kept is None:
        why = "the program does not use every input, and this JAX does not tell which it dropped"
        return Donation(tuple(_one(inputs[i], None, None, why) for i in asked))
    taken = {
        kept[parameter]: output for output, parameter in hlo.output_aliases(module.header) if parameter < len(kept)
    }
    judged = tuple(_judge(i, inputs, outputs, kept, taken) for i in asked)
    return Donation(judged, None if outputs is None else _possible_bytes(inputs, outputs, kept, taken))


def _possible_bytes(
    inputs: Sequence[ArgumentLeaf], outputs: Sequence[ArgumentLeaf], kept: Sequence[int], taken: dict[int, int]
) -> int:
    """Sums the bytes of arguments that are not donated, if there are outputs like them that do not reuse an argument's
    memory."""
    free = Counter((leaf.shape, leaf.dtype) for n, leaf in enumerate(outputs) if n not in taken.values())
    given = Counter((inputs[i].shape, inputs[i].dtype) for i in kept if not inputs[i].donated)
    return sum(size_bytes(*like) * number for like, number in (free & given).items())


def _one(leaf: ArgumentLeaf, is_aliased: bool | None, output: str | None, why_not: str) -> DonatedArgument:
    return DonatedArgument(leaf.path, leaf.spec, leaf.size_bytes, is_aliased, output, why_not)


def _judge(
    i: int,
    inputs: Sequence[ArgumentLeaf],
    outputs: Sequence[ArgumentLeaf] | None,
    kept: Sequence[int],
    taken: dict[int, int],
) -> DonatedArgument:
    if i in taken:
        return _one(inputs[i], True, _path(outputs, taken[i]), "")
    return _one(inputs[i], False, None, _why_not(i, inputs, outputs, kept, taken))


def _path(outputs: Sequence[ArgumentLeaf] | None, number: int) -> str:
    return outputs[number].path if outputs and number < len(outputs) else f"output {number}"


def _why_not(
    i: int,
    inputs: Sequence[ArgumentLeaf],
    outputs: Sequence[ArgumentLeaf] | None,
    kept: Sequence[int],
    taken: dict[int, int],
) -> str:
    leaf = inputs[i]
    if i not in kept:
        return "the program does not use it, so it is not passed on at all"
    if outputs is None:
        return "no output took it over; what the outputs are is not known here"
    alike = [n for n, output in enumerate(outputs) if (output.shape, output.dtype) == (leaf.shape, leaf.dtype)]
    if not alike:
        return f"no output has its shape and dtype, {leaf.spec}"
    holder = {output: inputs[parameter].path for parameter, output in taken.items()}
    free = [n for n in alike if n not in holder]
    if not free:
        listed = ", ".join(dict.fromkeys(holder[n] for n in alike))
        return f"every output of its shape and dtype, {leaf.spec}, takes over another argument: {listed}"
    return (
        f"the compiler did not use it for {_path(outputs, free[0])}, which has its shape and dtype: another layout, "
        "sharding or kind of memory, or that output is an input or a constant as it stands"
    )
