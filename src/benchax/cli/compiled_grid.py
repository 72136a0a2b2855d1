"""`benchax compiled-grid FUNCTION... INPUT...`: runs functions × repetitions inside one compiled call per parameter.

With `--python-loop`, a Python loop also benchmarks the same functions and data. The two run alternately, which shows
the cost of benchmarking. The command stores nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchax.cli.compare import is_function, labels
from benchax.cli.console import line, note, printing_to_stderr, show
from benchax.cli.options import Given, Html, Params, takes_options
from benchax.cli.output_files import check_writable, write_documents
from benchax.discovery import resolve_target, target_cases, values_of
from benchax.errors import UsageError
from benchax.reporting.document import Document, Heading, list_parts

if TYPE_CHECKING:
    from benchax.compiled_grids.compiled import CompiledGrid

EXAMPLE = "benchax compiled-grid model.py:loop model.py:scan 'f32[{n}]' -p n=64,1024"


@takes_options(
    "seed",
    timeout_s="Limit all repetitions of one function: 2.5, 500ms, 2min.",
    total_timeout_s="Limit the whole call: 2.5, 500ms, 2min.",
)
def compiled_grid(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:FUNCTION... INPUT...",
            help="Functions, then inputs for all: specs such as f32[8,128], or f32[{n}] with -p n=4,8.",
        ),
    ],
    *,
    params: Params = None,
    repeats: Annotated[int, typer.Option(metavar="N", help="Repeat each function at most N times.")] = 100,
    python_loop: Annotated[
        bool, typer.Option("--python-loop", help="Also run the same benchmark by a Python loop, alternately.")
    ] = False,
    rounds: Annotated[int, typer.Option(metavar="N", help="Run both loops N times (with --python-loop).")] = 5,
    given: Given,
    html: Html = None,
) -> None:
    """Run functions × repetitions in one compiled call, with the clock and the limits inside.

    Exit codes: 0 fine (time limits are results), 2 an error (a function that does not trace).
    """
    from benchax.compiled_grids.compiled import compiled_grid as make_grid

    check_writable(html)
    seed = given.pop("seed") or 0
    functions, data = printing_to_stderr(lambda: read(what, params or [], seed))
    h = make_grid(functions, repeats=repeats, **given)
    raise typer.Exit(printing(h, data, rounds if python_loop else None, html))


def read(words: list[str], params: list[str], seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns (functions by name, inputs by label)."""
    from benchax.measuring.inputs import make_inputs

    targets = [word for word in words if is_function(word)]
    inputs = [word for word in words if word not in targets]
    if not targets or not inputs:
        missing = "functions" if not targets else "inputs"
        raise UsageError(f"there are no {missing} in {' '.join(words)!r}", "functions, then inputs of all", EXAMPLE)
    cases = target_cases(targets[0], inputs, dict(map(values_of, params)))
    data: dict[str, Any] = {}
    for case in cases:
        made = make_inputs(case, seed)
        if made.static or made.kwargs:
            raise UsageError("a compiled grid with static inputs", "specs of arrays, such as f32[8]", EXAMPLE)
        label = ", ".join(f"{name}={value}" for name, value in case.id.params) or " ".join(inputs)
        data[label] = tuple(made.args)
    return {name: resolve_target(word) for name, word in labels(targets).items()}, data


def printing(h: CompiledGrid, data: dict[str, Any], rounds: int | None, html: Path | None = None) -> int:
    """Measures, shows, and returns the exit code."""
    from benchax.compiled_grids.compiled_result import Status

    if rounds is not None:
        found = printing_to_stderr(lambda: h.compare_python_loop(data, rounds=rounds))
        show(found.document())
        write_documents(html, [found.document()])
        return 0
    code, documents = 0, list[Document]()
    for k, (label, x) in enumerate(data.items()):
        result = printing_to_stderr(lambda x=x: h(x))
        if k:
            line("")
        document = result.document()
        documents.append(Document((Heading(label, 1), *document.blocks)))
        # A spec is its own signature, which stands in the result.
        if result.circumstances is None or result.circumstances.inputs != label:
            line(label)
        show(document)
        code = 2 if (result.status == Status.error).any() else code
    write_documents(html, list_parts("Compiled grid", documents))
    note("nothing is stored of a compiled grid")
    return code
