"""A compiled program as a picture, and whether it is the program of the last picture.

Reads the text that `compiled.as_text()` gives; no JAX, no private interface, no system program. The comparison is of
programs and never of pictures. An additional or missing operation, shape, constant or attribute is a difference.
Another name or source line is not a difference (`normalized.py`). Each picture holds the digest of its program, so that
the next run can see whether the picture is out of date.

Four steps lead from text to picture, and they know little of one another:

    labels      the text in a box, and the kind of work of its operation
    dataflow    text to boxes and arrows
    layered     boxes of given sizes and arrows to places; `columns` finds the horizontal ones
    picture     all of it to SVG
"""

from __future__ import annotations

import re

from benchax.program.graph import dataflow, picture
from benchax.program.normalized import digest as digest

LIMIT = 2000
"""Boxes in one picture."""

_KEPT = re.compile(r"<metadata>benchax graph (\S+)</metadata>")


def svg(
    hlo_text: str, *, title: str = "", stablehlo: str = "", expand_fusions: bool = False, limit: int = LIMIT
) -> str:
    """Draws the optimised program as a self-contained SVG document.

    Args:
        hlo_text: `compiled.as_text()`.
        title: the heading, before the counts; the name of the module by default.
        stablehlo: `lowered.as_text()`: brings the values of large constants into the digest, see `normalized.py`.
        expand_fusions: draws the operations inside each fusion.
        limit: maximum number of boxes; the picture states how many it omits.
    """
    program = dataflow.program(hlo_text, expand_fusions=expand_fusions, limit=limit)
    return picture.svg(
        program,
        title=title or _module_name(hlo_text),
        about=_about(program),
        metadata=f"benchax graph {digest(hlo_text, stablehlo=stablehlo)}",
    )


def read_digest(svg_text: str) -> str | None:
    """The `digest` of the program that a picture shows; None where it is not one of ours."""
    kept = _KEPT.search(svg_text)
    return kept[1] if kept else None


def _module_name(hlo_text: str) -> str:
    named = re.match(r"HloModule ([\w.\-]+)", hlo_text)
    return named[1] if named else "compiled program"


def _about(program: dataflow.ProgramDrawing) -> list[str]:
    counts = f"{program.instructions} instructions in {program.computations} computations, {program.drawn} boxes"
    sentences = [f"{counts}; tuples and scalar constants are not drawn as boxes"]
    if not program.instructions:
        sentences = ["no program to draw: the text has no instruction that can be read"]
    if program.left_out:
        sentences.append(f"cut after {program.drawn} boxes: at least {program.left_out} more are not drawn")
    return sentences
