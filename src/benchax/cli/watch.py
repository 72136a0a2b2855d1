"""`benchax watch -- python train.py`: runs the user's program unchanged. At its end, shows what was compiled and why.

Only the program writes to standard output; the tables go to standard error. The exit code is the program's. There is no
progress bar, because the program can draw in the terminal, and its duration is unknown (`programs.py`).
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from typing import Annotated, Any

import typer

from benchax.cli.console import (
    Given,
    Html,
    JsonFile,
    at_terminal,
    describe_end,
    note,
    show,
    takes_options,
    while_read,
    write_documents,
)
from benchax.hooks.command import EndedCommand, Report, run
from benchax.reporting.document import Document, Heading, decode_document, list_lines
from benchax.units import percent
from benchax.whole_files import write_text

HOOK = "benchax.cli.watch_hook:begin"
TITLES = {"watch": "compilations", "cache": "persistent cache", "transfers": "transfers"}


@takes_options(timeout_s="End the program after this long: 30, 500ms, 2min.")
def watch(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND…", help="The program: python train.py --lr 0.1")],
    *,
    transfers: Annotated[
        bool,
        typer.Option(
            "--transfers",
            help="Also name the lines that move data to and from the device, and the steps that compile; slower.",
        ),
    ] = False,
    output: JsonFile = None,
    html: Html = None,
    given: Given,
) -> None:
    """Run a program unchanged, and show what JAX compiled in it, why, and what its cache kept."""
    ended = run(command, HOOK, {"transfers": transfers}, limit_s=given["timeout_s"], on_wait=at_terminal("watch"))
    with while_read():
        note(f"\n{describe_end(command, ended)}")
        for report in ended.reports:
            if len(ended.reports) > 1:
                note(f"\n---- process {report.pid}: {shlex.join(report.argv)}")
            for text in _describe_share(report):
                note(text)
            for coded in report.result["shown"].values():
                note("")
                show(decode_document(coded), is_aside=True)
        for remark in ended.remarks:
            note(f"note: {remark}")
    write_documents(html, _make_documents(command, ended) if html else ())
    if output is not None:
        write_text(output, json.dumps(document(command, ended), indent=2) + "\n")
        note(f"written to {output}")
    raise typer.Exit(ended.exit_code)


def _describe_share(report: Report) -> list[str]:
    """The share of tracing and compiling as a sentence, if it is known."""
    share = report.result["main_thread_share"]
    if share is None:
        return []
    return [f"the main thread spent {percent(share)} of its time after the import of jax on tracing and compiling"]


def _make_documents(command: list[str], ended: EndedCommand) -> tuple[Document, ...]:
    """Makes a page: it shows how the program ended, then the observations in each process."""
    below = (describe_end(command, ended),)
    remarks = [f"note: {remark}" for remark in ended.remarks]
    shares = [text for report in ended.reports for text in _describe_share(report)]
    documents = [Document((Heading(f"Watch of {shlex.join(command)}", 1, below), *list_lines([*shares, *remarks])))]
    for report in ended.reports:
        process = f", process {report.pid}: {shlex.join(report.argv)}" if len(ended.reports) > 1 else ""
        for name, coded in report.result["shown"].items():
            documents.append(Document((Heading(f"{TITLES[name]}{process}"), *decode_document(coded).blocks)))
    return tuple(documents)


def document(command: list[str], ended: EndedCommand) -> dict[str, Any]:
    plain = dataclasses.asdict(ended)
    reports: list[dict[str, Any]] = plain.pop("reports")
    processes = [report | report.pop("result") for report in reports]
    for process in processes:
        del process["shown"]
    return {"command": command, **plain, "processes": processes}
