"""`benchax experiment`: measures variants of a function, each together with the unchanged function."""

from __future__ import annotations

import json
from time import monotonic
from typing import Annotated

import typer

from benchax.case import Case
from benchax.cli.console import (
    MAX_TIME_OF_ALL,
    Given,
    Html,
    JsonFile,
    NoJit,
    Params,
    printing_to_stderr,
    show,
    show_list,
    takes_options,
    with_progress,
    write_page,
)
from benchax.comparing.sequential import Effort
from benchax.discovery import collect, split_setting
from benchax.errors import UsageError
from benchax.options import resolve, split_names
from benchax.reporting.experiment import document
from benchax.whole_files import write_text

EXAMPLE = "benchax experiment jax.numpy:sort f32[1000000]"


@takes_options("timeout_s", "memory_limit_bytes", "seed", max_time_s=MAX_TIME_OF_ALL)
def experiment(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODULE:FUNCTION [INPUT...]",
            help="A function and its inputs, as for `benchax run`: jax.numpy:sort f32[1000000].",
        ),
    ] = None,
    *,
    variants: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Try donate,bf16,…; default: all that can help, in 60 s (see --list)."),
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            metavar="VARIANT=VALUE",
            help="Set a value for a variant: donate=state. For all: batch=x names the batch arguments.",
        ),
    ] = None,
    combine: Annotated[bool, typer.Option("--combine", help="Also try all of them at once.")] = False,
    ablation: Annotated[
        bool, typer.Option("--ablation", help="Try all at once, then without each one: what does each contribute?")
    ] = False,
    params: Params = None,
    no_jit: NoJit = False,
    options: Given,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON document to stdout.")] = False,
    output: JsonFile = None,
    html: Html = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the variants and end.")] = False,
) -> None:
    """Try variants of a function, and show how each changes its speed, memory and errors."""
    if list_them:
        from benchax.experiments.variants import VARIANTS

        show_list([(name, v.title + (f" (needs {v.needs})" if v.needs else "")) for name, v in VARIANTS.items()])
        return
    begun_s = monotonic()  # importing JAX and the file is a part of the time that it may take
    from benchax.experiments.experiment import run_experiment, time_limit
    from benchax.experiments.lab import WorkerLab

    names = split_names(variants)
    settings = dict(split_setting(each, "--given", "VARIANT=VALUE, such as --given donate=0") for each in given or [])
    effort = Effort(max_time_s=time_limit(options.pop("max_time_s"), names))
    case = _case(what or [], params or [], no_jit)
    resolved = resolve(command_line=options)

    found = with_progress(
        lambda report: run_experiment(
            case,
            names,
            WorkerLab(resolved, effort, report, begun_s),
            settings,
            combine=combine,
            ablation=ablation,
        )
    )
    plain = json.dumps(found.asdict(), default=str)  # parameters of a case may be anything
    if output is not None:
        write_text(output, plain + "\n")
    write_page(html, found)
    show(plain if as_json else document(found))
    raise typer.Exit(2 if found.baseline.status == "failed" else 0)


def _case(what: list[str], params: list[str], no_jit: bool) -> Case:
    """Returns the only case. Raises `UsageError` unless there is exactly one."""

    if not what:
        raise UsageError("nothing to try", "MODULE:FUNCTION [INPUT...]", EXAMPLE)
    cases, broken = printing_to_stderr(lambda: collect(what, "", params))
    if broken:
        raise UsageError(broken[0].message)
    if len(cases) != 1:
        labels = ", ".join(case.id.label for case in cases[:5])
        raise UsageError(f"{what[0]!r} has {len(cases)} cases: {labels}", "one", "choose with -p NAME=VALUE")
    return cases[0].eager() if no_jit else cases[0]
