"""`benchax compare`: the benchmarks of now against a stored baseline, another commit, or another JAX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchax.errors import UsageError

if TYPE_CHECKING:
    from benchax.comparing.gate import Gate
    from benchax.model import CaseId, Comparison, Environment, Metric
    from benchax.pairing.session import Effort, Step
    from benchax.pairing.stored import Pairing
    from benchax.store.database import DatabaseStore


def compare(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[BASELINE] [CANDIDATE | PATH... | MODULE:FUNCTION [INPUT...]]",
            help="BASELINE: a name given by `benchax baseline`, a run, a commit, or last. Compared with a stored "
            "CANDIDATE, or with the benchmarks of now (as for `benchax run`). With --ref or --jax it is left out.",
        ),
    ] = None,
    ref: Annotated[str | None, typer.Option(metavar="REF", help="Compare with this commit, branch or tag.")] = None,
    jax: Annotated[
        str | None,
        typer.Option(metavar="VERSIONS", help="Compare versions of JAX: 0.9.2,0.10.2; the first is the baseline."),
    ] = None,
    benchmarks: Annotated[
        str, typer.Option(metavar="now|ref", help="With --ref: whose benchmark files run there.")
    ] = "now",
    process_pairs: Annotated[
        bool,
        typer.Option("--process-pairs", help="With --ref: whole processes in turns on one core, Python included."),
    ] = False,
    pattern: Annotated[str, typer.Option("--filter", "-k", help="Cases whose name contains this (or matches).")] = "",
    params: Annotated[list[str] | None, typer.Option("--param", "-p", metavar="NAME=VALUES")] = None,
    fail_slower: Annotated[
        str | None,
        typer.Option(metavar="LIMITS", help="Exit with 1 beyond these: 5%, or run=5%+20us,peak=0,compile=20%."),
    ] = None,
    fail_unclear: Annotated[
        bool, typer.Option("--fail-unclear", help="Exit with 3 where a verdict is unclear.")
    ] = False,
    max_time: Annotated[str | None, typer.Option(help="Begin no further process after this long: 30, 2min.")] = None,
    timeout: Annotated[str | None, typer.Option(help="No stage in a worker may take longer.")] = None,
    seed: Annotated[str | None, typer.Option(help="Seed of the data made from specs.")] = None,
    store: Annotated[str | None, typer.Option(help="Folder of the database (default .benchmarks).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document per comparison on stdout.")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the ratios there: .png, .svg, .pdf.")] = None,
) -> None:
    """Run two versions side by side and say which is faster, and how sure that is."""
    from benchax.cli.listing import opened
    from benchax.comparing.gate import ERROR, gate_of

    if ref is not None and jax is not None:
        raise UsageError("--ref and --jax are given together", "one of them")
    if process_pairs and ref is None:
        raise UsageError("--process-pairs is given without --ref", "both: whole processes of two commits")
    if benchmarks not in ("now", "ref"):
        raise UsageError(f"--benchmarks {benchmarks!r} cannot be", "one of: now, ref")
    _check_drawable(plot)
    gate = gate_of(fail_slower, Path.cwd(), {"unclear": True} if fail_unclear else None)
    effort = _effort(max_time, gate)
    given = {"timeout_s": timeout, "seed": seed, "store": store}
    with ExitStack() as stack:
        progress = stack.enter_context(_Shown())
        new: list[CaseId] = []
        missing: list[CaseId] = []
        broken = 0
        if jax is not None:
            from benchax.pairing.jax_versions import compare_versions

            versions = [version.strip() for version in jax.split(",")]
            found = compare_versions(
                versions, what or ["."], pattern, params or [], max_time_s=effort.max_time_s, progress=progress
            )
        elif ref is not None and process_pairs:
            from benchax.pairing.partners import Chosen
            from benchax.pairing.process_pairs import compared
            from benchax.pairing.worktrees import launched

            sides = stack.enter_context(launched(ref, what or ["."], benchmarks == "ref"))
            chosen = Chosen(tuple(what or ["."]), pattern, tuple(params or []))
            found = compared(sides, chosen, effort.max_time_s, progress)
        else:
            pairing = _pairing(stack, what or [], ref, benchmarks, pattern, params or [], given, progress)
            found = _compared(pairing, effort, progress)
            new, missing, broken = pairing.new, pairing.missing, pairing.broken
    _keep(found, opened(store) if store != "off" else None)
    if plot is not None:
        _draw(found, plot)
    code = _show(found, gate, new, missing, as_json=as_json)
    raise typer.Exit(ERROR if broken else code)


def _check_drawable(plot: Path | None) -> None:
    """A slip in a path is told before minutes of measuring, not after them."""
    if plot is None:
        return
    if plot.suffix not in (".png", ".svg", ".pdf") or plot.is_dir() or not plot.absolute().parent.is_dir():
        raise UsageError(f"cannot draw to {str(plot)!r}", "a file in a folder that exists: .png, .svg or .pdf")
    from benchax.errors import require

    require("matplotlib", extra="plot", doing="--plot")


def _draw(found: Sequence[Comparison], plot: Path) -> None:
    from benchax.cli.console import note
    from benchax.comparing.ranking import Comparisons
    from benchax.reporting.comparison_figure import figure

    if not any(c.metric == "run" for c in found):
        note("nothing was drawn: no run times were compared")
        return
    figure(Comparisons(tuple(found))).savefig(plot)
    note(f"figure drawn to {plot}")


def _effort(max_time: str | None, gate: Gate) -> Effort:
    from benchax.pairing.session import RUN, Effort
    from benchax.units import parse_seconds

    metrics: frozenset[Metric] = frozenset({*RUN, "compile"}) if gate.has_limit("compile") else RUN
    return Effort(max_time_s=None if max_time is None else parse_seconds(max_time), metrics=metrics)


def _pairing(
    stack: ExitStack,
    what: Sequence[str],
    ref: str | None,
    benchmarks: str,
    pattern: str,
    params: Sequence[str],
    given: Mapping[str, Any],
    progress: _Shown,
) -> Pairing:
    from benchax.cli.console import note
    from benchax.cli.listing import opened
    from benchax.options import resolve
    from benchax.pairing import stored
    from benchax.pairing.worktrees import built, named
    from benchax.store.baselines import by_case, rows_of

    if ref is not None:
        progress.say(f"building {ref} in a worktree")
        other = stack.enter_context(built(ref, what or ["."], pattern, params, benchmarks == "ref"))
        label = named(ref, other.commit)
        note(f"note: {other.note}" if other.note else f"{label}: with the benchmark files {other.benchmarks}")
        return _beside_now(other.store, label, other.rows, what or ["."], pattern, params, given)
    database = opened(given["store"])
    baseline, rest = (what[0], what[1:]) if what else ("last", [])
    rows = _filtered(by_case(rows_of(database, baseline)), pattern)
    if len(rest) == 1 and not Path(rest[0]).exists() and ":" not in rest[0]:
        options = resolve(command_line=given)
        candidate = _filtered(by_case(rows_of(database, rest[0])), pattern)
        return stored.with_rows(database, (baseline, rest[0]), rows, candidate, _here(given), options)
    return _beside_now(database, baseline, rows, rest or ["."], pattern, params, given)


def _beside_now(
    store: DatabaseStore,
    label: str,
    rows: Mapping[CaseId, Any],
    what: Sequence[str],
    pattern: str,
    params: Sequence[str],
    given: Mapping[str, Any],
) -> Pairing:
    from benchax.cli.run import printing_to_stderr, show_broken
    from benchax.discovery import collect
    from benchax.pairing import stored

    cases, broken = printing_to_stderr(lambda: collect(what, pattern, params))
    show_broken(broken)
    found = stored.with_cases(store, label, rows, cases, _here(given), given)
    found.broken = len(broken)
    return found


def _here(given: Mapping[str, Any]) -> Environment:
    """The store lies in the repository as a rule, and makes no tree dirty."""
    from benchax.environment import capture
    from benchax.options import resolve

    store = resolve(command_line=given).store
    return capture(Path.cwd(), besides=None if store == "off" or "://" in store else Path(store))


def _filtered(rows: Mapping[CaseId, Any], pattern: str) -> dict[CaseId, Any]:
    from benchax.discovery import matches

    return {id: row for id, row in rows.items() if matches(id, pattern)}


def _compared(pairing: Pairing, effort: Effort, progress: _Shown) -> list[Comparison]:
    from benchax.pairing.session import compared

    together = compared(pairing.contests, effort, progress)
    return [*(c for each in together for c in each), *pairing.without]


def _keep(found: Sequence[Comparison], store: DatabaseStore | None) -> None:
    """For `benchax history`. What cannot be kept is still shown."""
    from benchax.cli.console import note
    from benchax.errors import StoreError
    from benchax.store import comparisons

    if store is None or not found:
        return
    try:
        comparisons.append(store, found)
    except StoreError as error:
        note(f"error: the comparisons were not stored: {error}")


def _show(
    found: Sequence[Comparison], gate: Gate, new: Sequence[CaseId], missing: Sequence[CaseId], *, as_json: bool
) -> int:
    """Shows everything and returns the exit code."""
    from benchax import codec
    from benchax.cli.console import line, note, show
    from benchax.comparing.gate import described
    from benchax.comparing.ranking import Comparisons
    from benchax.reporting import comparisons

    if as_json:
        for c in found:
            line(codec.encode_comparison(c))
    elif found:
        show(comparisons.drawn(Comparisons(tuple(found))))
    else:
        note("nothing was compared: the two versions have no case in common")
    for what, ids in (("new", new), ("missing now", missing)):
        if ids:
            note(f"{what}: {', '.join(id.label for id in ids)}")
    for c, limit in gate.alarms(found):
        note(f"SLOWER {c.case.label}: {described(c, limit)}")
    return gate.exit_code(found, new, missing)


class _Shown:
    """Progress on stderr: one line that is replaced on a terminal, a line per process elsewhere."""

    def __init__(self) -> None:
        self.status: Any = None
        self.last = -1

    def __enter__(self) -> _Shown:
        import sys

        if sys.stderr.isatty():
            from rich.console import Console

            self.status = Console(stderr=True).status("")
            self.status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.status is not None:
            self.status.stop()

    def say(self, text: str) -> None:
        from benchax.cli.console import note

        if self.status is not None:
            self.status.update(text)
        else:
            note(text)

    def __call__(self, step: Step) -> None:
        if not step.total:  # something is prepared
            self.say(step.stage)
            return
        text = f"process {step.process + 1}: {step.undecided} of {step.total} undecided"
        if self.status is not None:
            self.status.update(f"{text} · {' '.join(step.case.split())[:40]} · {step.stage}")
        elif step.process != self.last:
            self.last = step.process
            self.say(text)
