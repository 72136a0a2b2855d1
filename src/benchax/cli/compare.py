"""`benchax compare`: the benchmarks of now against a stored baseline, another commit, or another JAX."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchax.cli.compare_shown import ComparisonProgress, check_drawable, draw
from benchax.errors import UsageError

if TYPE_CHECKING:
    from benchax.comparing.gate import Gate
    from benchax.comparing.ranking import Comparisons


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
    from benchax.comparing.gate import ERROR, gate_of
    from benchax.options import resolve
    from benchax.paired_runs.versions import compare_jax, compare_ref, compare_stored
    from benchax.stats.verdicts import SAME_WITHIN

    _check(ref, jax, benchmarks, process_pairs, resolution)
    check_drawable(plot)
    gate = gate_of(fail_slower, Path.cwd(), {"unclear": True} if fail_unclear else None)
    options = {"timeout_s": timeout, "seed": seed, "store": store}
    resolve(command_line=options)  # here, so that a slip is said to be in the command line
    suite: dict[str, Any] = {"pattern": pattern, "params": params or [], "max_time_s": max_time, **options}
    metrics = ["run", "compile"] if gate.has_limit("compile") else ["run"]
    fine: dict[str, Any] = {"resolution": SAME_WITHIN if resolution is None else resolution, "metrics": metrics}
    words = what or []
    with ComparisonProgress() as progress:
        if jax is not None:
            call = partial(compare_jax, jax, words or ".")
        elif ref is not None:
            call = partial(compare_ref, ref, words or ".", benchmarks=benchmarks, process_pairs=process_pairs, **fine)
        elif _is_stored(words):
            call = partial(compare_stored, *words, **fine)
        else:
            call = partial(compare_stored, words[0] if words else "last", paths=words[1:] or ".", **fine)
        found = _run(partial(call, progress=progress, **suite))
    if plot is not None:
        draw(found, plot)
    code = _show(found, gate, as_json=as_json)
    raise typer.Exit(ERROR if found.broken else code)


def _check(ref: str | None, jax: str | None, benchmarks: str, process_pairs: bool, resolution: str | None) -> None:
    """In the words of the command line, what the library would refuse in those of Python."""
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
    if jax is not None and (len(jax.split(",")) < 2 or not all(version.strip() for version in jax.split(","))):
        from benchax.paired_runs.versions import ENOUGH

        raise UsageError(f"--jax {jax!r} is not enough", ENOUGH)


def _is_stored(words: list[str]) -> bool:
    """BASELINE CANDIDATE? The second word would else be a path, or a function."""
    return len(words) == 2 and not Path(words[1]).exists() and ":" not in words[1]


def _run(compare: Callable[[], Comparisons]) -> Comparisons:
    """What the user's code prints goes to stderr. What could not be stored is told below, as an error in a line."""
    from benchax.cli.console import note
    from benchax.cli.run import printing_to_stderr
    from benchax.paired_runs.suite import UNSTORED

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", UNSTORED)
        found = printing_to_stderr(compare)
    if found.unstored:
        note(f"error: {UNSTORED}: {found.unstored}")
    return found


def _show(found: Comparisons, gate: Gate, *, as_json: bool) -> int:
    """Shows everything and returns the exit code."""
    from benchax import codec
    from benchax.cli.console import line, note, show
    from benchax.comparing.gate import describe_alarm
    from benchax.reporting.comparisons import document

    if as_json:
        for c in found:
            line(codec.encode_comparison(c))
    elif found:
        show(document(found, has_asides=False))
    else:
        note("nothing was compared: the two versions have no case in common")
    for text in found.unmatched:
        note(text)
    for c, limit in gate.alarms(found):
        note(f"SLOWER {c.case.label}: {describe_alarm(c, limit)}")
    return gate.exit_code(found, found.new, found.missing)
