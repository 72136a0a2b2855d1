"""`benchax watch -- python train.py`: runs the user's program unchanged. At its end, shows what was compiled and why.

Only the program writes to standard output; the tables go to standard error. The exit code is the program's. There is no
progress bar, because the program can draw in the terminal, and its duration is unknown (`waiting.py`).
"""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchax.cli.console import note, while_read, width_aside
from benchax.cli.options import Given, Html, JsonFile, takes_options
from benchax.cli.output_files import check_writable, write_documents, write_text
from benchax.cli.waiting import at_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchax.hooks.command import EndedCommand, Report
    from benchax.reporting.document import Document

HOOK = "benchax.cli.watch_hook:begin"
TITLES = {"watch": "compilations", "cache": "persistent cache", "transfers": "transfers"}
CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": False}
"""With these settings, all words after the program's name belong to the program, also without --."""


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
    from benchax.hooks.command import run

    check_writable(output, html)
    settings = {"transfers": transfers, "width": width_aside(), "has_page": html is not None}
    ended = run(command, HOOK, settings, limit_s=given["timeout_s"], on_wait=at_terminal("watch"))
    with while_read():
        _tell(command, ended)
    write_documents(html, _make_documents(command, ended) if html else ())
    if output is not None:
        _write(output, command, ended)
    raise typer.Exit(ended.exit_code)


def _tell(command: list[str], ended: EndedCommand) -> None:
    note(f"\nbenchax: {shlex.join(command)} {describe_end(ended)}")
    for report in ended.reports:
        _tell_process(report, is_one_of_many=len(ended.reports) > 1)
    for remark in ended.remarks:
        note(f"note: {remark}")


def describe_end(ended: EndedCommand) -> str:
    """Returns a text such as: ended with 0 after 12.3 s."""
    from benchax.units import seconds

    after = f"after {seconds(ended.elapsed_s)}"
    if ended.is_timed_out:
        return f"was ended {after}, when its time was up"
    if ended.signal is not None:
        return f"was ended by {_signal(ended.signal)} {after}"
    return f"ended with {ended.exit_code} {after}"


def _signal(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"


def _describe_share(report: Report) -> str:
    """Describes the share of tracing and compiling. The text is empty if the share is unknown."""
    from benchax.units import percent

    share = report.result["main_thread_share"]
    if share is None:
        return ""
    return f"the main thread spent {percent(share)} of its time after the import of jax on tracing and compiling"


def _tell_process(report: Report, is_one_of_many: bool) -> None:
    if is_one_of_many:
        note(f"\n---- process {report.pid}: {shlex.join(report.argv)}")
    if share := _describe_share(report):
        note(share)
    for text in report.result["texts"].values():
        note(f"\n{text.strip()}")


def _make_documents(command: list[str], ended: EndedCommand) -> tuple[Document, ...]:
    """Makes a page: it shows how the program ended, then the observations in each process."""
    from benchax.reporting.document import Document, Heading, list_lines

    below = (f"benchax: {shlex.join(command)} {describe_end(ended)}",)
    remarks = [f"note: {remark}" for remark in ended.remarks]
    shares = [text for report in ended.reports if (text := _describe_share(report))]
    head = Document((Heading(f"Watch of {shlex.join(command)}", 1, below), *list_lines([*shares, *remarks])))
    return (head, *(part for report in ended.reports for part in _make_parts(report, len(ended.reports) > 1)))


def _make_parts(report: Report, is_one_of_many: bool) -> Iterator[Document]:
    from benchax.reporting.document import Document, Heading, decode_document

    process = f", process {report.pid}: {shlex.join(report.argv)}" if is_one_of_many else ""
    for name, coded in report.result["shown"].items():
        yield Document((Heading(f"{TITLES[name]}{process}"), *decode_document(coded).blocks))


def _write(output: Path, command: list[str], ended: EndedCommand) -> None:
    write_text(output, json.dumps(document(command, ended), indent=2) + "\n")
    note(f"written to {output}")


def document(command: list[str], ended: EndedCommand) -> dict[str, Any]:
    plain = dataclasses.asdict(ended)
    reports: list[dict[str, Any]] = plain.pop("reports")
    processes = [report | report.pop("result") for report in reports]
    for process in processes:
        del process["texts"], process["shown"]
    return {"command": command, **plain, "processes": processes}
