"""`benchax compare`: the benchmarks of now against a stored baseline, another commit, or another JAX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchax.cli.compare_shown import ComparisonProgress, check_drawable, draw
from benchax.comparing.ranking import Comparisons
from benchax.errors import UsageError

if TYPE_CHECKING:
    from benchax.comparing.gate import Gate
    from benchax.model import CaseId, Comparison, Environment, Metric
    from benchax.pairing.session import Effort
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
    resolution: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Same means within this: 1% finds +2 %, and takes longer (5%)."),
    ] = None,
    max_time: Annotated[str | None, typer.Option(help="Begin no further process after this long: 30, 2min.")] = None,
    timeout: Annotated[str | None, typer.Option(help="No stage in a worker may take longer.")] = None,
    seed: Annotated[str | None, typer.Option(help="Seed of the data made from specs.")] = None,
    store: Annotated[str | None, typer.Option(help="Folder of the database (default .benchmarks).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document per comparison on stdout.")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the ratios there: .png, .svg, .pdf.")] = None,
) -> None:
    """Run two versions side by side and say which is faster, and how sure that is.

    Exit codes: 0 fine, 1 a regression beyond --fail-slower or another result, 2 an error,
    3 unclear with --fail-unclear.
    """
    from benchax.cli.listing import open_listed_store
    from benchax.comparing.gate import ERROR, gate_of

    _check(ref, jax, benchmarks, process_pairs, resolution)
    check_drawable(plot)
    gate = gate_of(fail_slower, Path.cwd(), {"unclear": True} if fail_unclear else None)
    given = {"timeout_s": timeout, "seed": seed, "store": store}
    asked = _Asked(what or [], pattern, params or [], benchmarks == "ref", given, _effort(max_time, gate, resolution))
    with ExitStack() as stack:
        progress = stack.enter_context(ComparisonProgress())
        found = _find_comparisons(stack, asked, ref, jax, process_pairs, progress)
    _keep(found.comparisons, open_listed_store(store) if store != "off" else None)
    if plot is not None:
        draw(Comparisons(tuple(found.comparisons)), plot)
    code = _show(found, gate, as_json=as_json)
    raise typer.Exit(ERROR if found.broken else code)


@dataclass(frozen=True)
class _Asked:
    """What is compared, and how: the words and options that all ways of comparing have in common."""

    what: Sequence[str]
    pattern: str
    params: Sequence[str]
    theirs: bool
    """With --ref: the benchmark files of there, not those of now."""
    given: Mapping[str, Any]
    effort: Effort

    @property
    def paths(self) -> Sequence[str]:
        return self.what or ["."]


@dataclass
class _ComparisonsFound:
    comparisons: list[Comparison]
    new: Sequence[CaseId] = ()
    missing: Sequence[CaseId] = ()
    broken: int = 0
    """Files that could not be imported."""


def _check(ref: str | None, jax: str | None, benchmarks: str, process_pairs: bool, resolution: str | None) -> None:
    if ref is not None and jax is not None:
        raise UsageError("--ref and --jax are given together", "one of them")
    if process_pairs and ref is None:
        raise UsageError("--process-pairs is given without --ref", "both: whole processes of two commits")
    if resolution is not None and (process_pairs or jax is not None):
        whole = "--jax" if process_pairs is False else "--process-pairs"
        raise UsageError(
            f"--resolution {resolution} is given with {whole}",
            "one of them: pairs of processes differ by 1 to 10 % on unchanged code, and see no less than 5 %",
        )
    if benchmarks not in ("now", "ref"):
        raise UsageError(f"--benchmarks {benchmarks!r} cannot be", "one of: now, ref")


def _find_comparisons(
    stack: ExitStack, asked: _Asked, ref: str | None, jax: str | None, process_pairs: bool, progress: ComparisonProgress
) -> _ComparisonsFound:
    if jax is not None:
        return _ComparisonsFound(_of_versions(jax, asked, progress))
    if ref is not None and process_pairs:
        return _ComparisonsFound(_of_processes(stack, ref, asked, progress))
    from benchax.pairing.session import compared

    pairing = _pairing(stack, ref, asked, progress)
    together = compared(pairing.paired_runs, asked.effort, progress)
    found = [*(c for each in together for c in each), *pairing.without]
    return _ComparisonsFound(found, pairing.new, pairing.missing, pairing.broken)


def _of_versions(jax: str, asked: _Asked, progress: ComparisonProgress) -> list[Comparison]:
    from benchax.pairing.jax_versions import compare_versions

    versions = [version.strip() for version in jax.split(",")]
    limit = asked.effort.max_time_s
    return compare_versions(versions, asked.paths, asked.pattern, asked.params, max_time_s=limit, progress=progress)


def _of_processes(stack: ExitStack, ref: str, asked: _Asked, progress: ComparisonProgress) -> list[Comparison]:
    from benchax.pairing.partners import Chosen
    from benchax.pairing.process_pairs import compared
    from benchax.pairing.worktrees import launched

    sides = stack.enter_context(launched(ref, asked.paths, asked.theirs))
    chosen = Chosen(tuple(asked.paths), asked.pattern, tuple(asked.params))
    return compared(sides, chosen, asked.effort.max_time_s, progress)


def _effort(max_time: str | None, gate: Gate, resolution: str | None) -> Effort:
    from benchax.comparing.resolution import resolution_of
    from benchax.pairing.session import RUN, effort_for
    from benchax.units import parse_seconds

    metrics: frozenset[Metric] = frozenset({*RUN, "compile"}) if gate.has_limit("compile") else RUN
    max_time_s = None if max_time is None else parse_seconds(max_time)
    return effort_for(resolution_of(resolution), max_time_s, metrics)


def _pairing(stack: ExitStack, ref: str | None, asked: _Asked, progress: ComparisonProgress) -> Pairing:
    from benchax.cli.listing import open_listed_store
    from benchax.options import resolve
    from benchax.pairing import stored
    from benchax.store.baselines import by_case, rows_of

    if ref is not None:
        return _with_ref(stack, ref, asked, progress)
    database = open_listed_store(asked.given["store"])
    baseline, rest = (asked.what[0], asked.what[1:]) if asked.what else ("last", [])
    rows = _filter_rows(by_case(rows_of(database, baseline)), asked.pattern)
    if len(rest) == 1 and not Path(rest[0]).exists() and ":" not in rest[0]:
        options = resolve(command_line=asked.given)
        candidate = _filter_rows(by_case(rows_of(database, rest[0])), asked.pattern)
        return stored.with_rows(database, (baseline, rest[0]), rows, candidate, _here(asked.given), options)
    return _beside_now(database, baseline, rows, replace(asked, what=rest))


def _with_ref(stack: ExitStack, ref: str, asked: _Asked, progress: ComparisonProgress) -> Pairing:
    from benchax.cli.console import note
    from benchax.pairing.worktrees import built, named

    progress.say(f"building {ref} in a worktree")
    other = stack.enter_context(built(ref, asked.paths, asked.pattern, asked.params, asked.theirs))
    label = named(ref, other.commit)
    note(f"note: {other.note}" if other.note else f"{label}: with the benchmark files {other.benchmarks}")
    return _beside_now(other.store, label, other.rows, asked)


def _beside_now(store: DatabaseStore, label: str, rows: Mapping[CaseId, Any], asked: _Asked) -> Pairing:
    from benchax.cli.run import printing_to_stderr, show_broken
    from benchax.discovery import collect
    from benchax.pairing import stored

    cases, broken = printing_to_stderr(lambda: collect(asked.paths, asked.pattern, asked.params))
    show_broken(broken)
    found = stored.with_cases(store, label, rows, cases, _here(asked.given), asked.given)
    found.broken = len(broken)
    return found


def _here(given: Mapping[str, Any]) -> Environment:
    """The store lies in the repository as a rule, and makes no tree dirty."""
    from benchax.environment import capture
    from benchax.options import resolve

    store = resolve(command_line=given).store
    return capture(Path.cwd(), besides=None if store == "off" or "://" in store else Path(store))


def _filter_rows(rows: Mapping[CaseId, Any], pattern: str) -> dict[CaseId, Any]:
    from benchax.discovery import matches

    return {id: row for id, row in rows.items() if matches(id, pattern)}


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


def _show(found: _ComparisonsFound, gate: Gate, *, as_json: bool) -> int:
    """Shows everything and returns the exit code."""
    from benchax import codec
    from benchax.cli.console import line, note, show
    from benchax.comparing.gate import described
    from benchax.reporting import comparisons

    if as_json:
        for c in found.comparisons:
            line(codec.encode_comparison(c))
    elif found.comparisons:
        show(comparisons.render_comparisons(Comparisons(tuple(found.comparisons))))
    else:
        note("nothing was compared: the two versions have no case in common")
    for what, ids in (("new", found.new), ("missing now", found.missing)):
        if ids:
            note(f"{what}: {', '.join(id.label for id in ids)}")
    for c, limit in gate.alarms(found.comparisons):
        note(f"SLOWER {c.case.label}: {described(c, limit)}")
    return gate.exit_code(found.comparisons, found.new, found.missing)
