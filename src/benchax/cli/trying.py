"""`benchax try`: a function as it is, and variants of it, each measured beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchax.errors import UsageError

if TYPE_CHECKING:
    from benchax.case import Case
    from benchax.results.experiment import Experiment


def try_variants(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODULE:FUNCTION [INPUT...]",
            help="A function and its inputs, as for `benchax run`: jax.numpy:sort f32[1000000].",
        ),
    ] = None,
    variants: Annotated[
        str | None, typer.Option(metavar="NAMES", help="donate,bf16,…; default: all that apply (see --list).")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="VARIANT=VALUE", help="What a variant is to be told: --set donate=0."),
    ] = None,
    combine: Annotated[bool, typer.Option("--combine", help="Also all of them at once.")] = False,
    ablation: Annotated[
        bool, typer.Option("--ablation", help="All at once, and each off in turn: what does each contribute?")
    ] = False,
    params: Annotated[list[str] | None, typer.Option("--param", "-p", metavar="NAME=VALUE")] = None,
    eager: Annotated[bool, typer.Option("--eager", help="The function as it is: not jitted.")] = False,
    max_time: Annotated[str | None, typer.Option(help="Begin no further process after this long: 30, 2min.")] = None,
    timeout: Annotated[str | None, typer.Option(help="No stage in a worker may take longer.")] = None,
    memory_limit: Annotated[str | None, typer.Option(help="Memory that a side may take: 4GiB.")] = None,
    seed: Annotated[str | None, typer.Option(help="Seed of the data made from specs.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all of it there, as JSON.")] = None,
    list_them: Annotated[bool, typer.Option("--list", help="List the variants and end.")] = False,
) -> None:
    """Try variants of a function: what does each do to its speed, memory and errors?"""
    if list_them:
        _list()
        return
    from benchax.cli.console import line, show
    from benchax.experiments.experiment import run_experiment
    from benchax.reporting.experiment import document

    if output is not None and (output.is_dir() or not output.absolute().parent.is_dir()):
        raise UsageError(f"cannot write to {str(output)!r}", "a file in a folder that exists")
    names = None if variants is None else [name.strip() for name in variants.split(",") if name.strip()]
    given = {"timeout_s": timeout, "memory_limit_bytes": memory_limit, "seed": seed}
    lab, told = _lab(given, max_time), dict(map(_setting, settings or []))
    case = _case(what or [], params or [], eager)
    found = _stdout_kept(lambda: run_experiment(case, names, lab, told, combine=combine, ablation=ablation))
    plain = _json(found)
    if output is not None:
        output.write_text(plain + "\n", encoding="utf-8")
    if as_json:
        line(plain)
    else:
        show(document(found))
    raise typer.Exit(2 if found.baseline.status == "failed" else 0)


def _list() -> None:
    from benchax.cli.console import line
    from benchax.experiments.variants import VARIANTS

    width = max(map(len, VARIANTS))
    for name, variant in VARIANTS.items():
        line(f"{name:{width}}  {variant.title}{f' (needs {variant.needs})' if variant.needs else ''}")


def _lab(given: dict[str, Any], max_time: str | None) -> Any:
    from benchax.cli.console import note
    from benchax.comparing.sequential import Effort
    from benchax.experiments.lab import WorkerLab
    from benchax.options import resolve
    from benchax.units import parse_seconds

    effort = Effort(max_time_s=None if max_time is None else parse_seconds(max_time))
    return WorkerLab(resolve(command_line=given), effort, note)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise UsageError(f"cannot read --set {text!r}", "VARIANT=VALUE, such as --set donate=0")
    return name, value


def _case(what: list[str], params: list[str], eager: bool) -> Case:
    """Raises `UsageError` unless there is exactly one."""
    from benchax.discovery import collect

    if not what:
        raise UsageError("nothing to try", "MODULE:FUNCTION [INPUT...]", "benchax try jax.numpy:sort f32[1000000]")
    cases, broken = _stdout_kept(lambda: collect(what, "", params))
    if broken:
        raise UsageError(broken[0].failure.message)
    if len(cases) != 1:
        labels = ", ".join(case.id.label for case in cases[:5])
        raise UsageError(f"{what[0]!r} has {len(cases)} cases: {labels}", "one", "choose with -p NAME=VALUE")
    return cases[0].eager() if eager else cases[0]


def _stdout_kept(work: Any) -> Any:
    from benchax.cli.run import printing_to_stderr

    return printing_to_stderr(work)


def _json(found: Experiment) -> str:
    import json

    return json.dumps(found.asdict(), default=str)
