"""`benchax compare`: two or more of what should do the same, side by side. What they are, the words say:

    compare FUNCTION FUNCTION... [INPUT...]   functions, on the same inputs                → compare_functions.py
    compare [BASELINE] [PATH...]              a stored run, and the benchmarks of now      → benchax.compare_stored
    compare BASELINE CANDIDATE                two stored runs
    compare --ref REF [PATH...]               another commit                               → benchax.compare_ref
    compare --jax VERSIONS [PATH...]          versions of JAX                              → benchax.compare_jax

A function is a word with a colon, module:function; no baseline's name has one.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchax.cli.console import line, note, printing_to_stderr, show
from benchax.cli.options import (
    COMMAND_LINE,
    Html,
    MaxTime,
    MemoryLimit,
    NoJit,
    Params,
    Pattern,
    Plot,
    Resolution,
    Seed,
    Store,
    Timeout,
)
from benchax.cli.output_files import check_drawable, check_writable, write_figure, write_page
from benchax.errors import UsageError
from benchax.units import read_duration

if TYPE_CHECKING:
    from benchax.comparing.gate import Gate
    from benchax.comparing.ranking import Comparisons


def compare(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FUNCTION FUNCTION... [INPUT...] | BASELINE [CANDIDATE | PATH...]]",
            help="Functions as MODULE:FUNCTION or FILE.py:FUNCTION, and the inputs of all, as for `benchax run`. Or a "
            "BASELINE: a name given by `benchax baseline`, a run, a commit, or last; compared with a stored CANDIDATE, "
            "or with the benchmarks of now. With --ref or --jax it is left out.",
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
    pattern: Pattern = "",
    params: Params = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="FUNCTION", help="Of functions: whose result and time the others are held to.")
    ] = None,
    no_jit: NoJit = False,
    fail_slower: Annotated[
        str | None,
        typer.Option(metavar="LIMITS", help="Exit with 1 beyond these: 5%, or run=5%+20us,peak=0,compile=20%."),
    ] = None,
    fail_unclear: Annotated[
        bool | None,
        typer.Option(
            "--fail-unclear/--ignore-unclear",
            help="Exit with 3 if any verdict is unclear, or never (default: if a limit judged no case).",
        ),
    ] = None,
    resolution: Resolution = None,
    max_time: MaxTime = None,
    timeout: Timeout = None,
    memory_limit: MemoryLimit = None,
    seed: Seed = None,
    store: Store = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON on stdout: a document for each comparison.")] = False,
    plot: Plot = None,
    html: Html = None,
) -> None:
    """Run functions, or two versions of benchmarks, side by side: which is faster, and how sure is that?

    Exit codes: 0 fine, 1 a regression beyond --fail-slower or another result, 2 an error (also a function that failed),
    3 no case was judged by a limit, or, with --fail-unclear, a verdict is unclear.
    """
    from benchax.options import resolve

    words = what or []
    check_drawable(plot)
    check_writable(html)
    write = partial(_write, plot=plot, html=html)
    options = {"timeout_s": timeout, "seed": seed, "store": store, "memory_limit_bytes": memory_limit}
    resolve(command_line=options)  # here, so that a slip is said to be in the command line
    limit_s = read_duration("max_time_s", max_time, COMMAND_LINE)
    of_versions = {
        "--benchmarks": benchmarks if benchmarks != "now" else None, "--process-pairs": process_pairs,
        "--filter": pattern, "--param": params, "--fail-slower": fail_slower, "--fail-unclear": fail_unclear,
        "--ignore-unclear": fail_unclear is False, "--store": store,
    }  # fmt: skip
    of_functions = {"--baseline": baseline, "--no-jit": no_jit, "--memory-limit": memory_limit}
    if ref is None and jax is None and _are_functions(words):
        _refuse(of_versions, "functions", "one of them")
        code = _compare_functions(words, options, baseline, no_jit, resolution, limit_s, as_json=as_json, write=write)
    else:
        _refuse(of_functions, "versions of benchmarks", "it with functions: benchax compare a.py:f a.py:g f32[8]")
        _check(ref, jax, benchmarks, process_pairs, resolution)
        gate = _read_gate(fail_slower, fail_unclear)
        suite = {"filter": pattern, "params": params or [], "max_time_s": limit_s, "progress": True, **options}
        del suite["memory_limit_bytes"]
        fine = {"resolution": resolution, "metrics": ["run", "compile"] if gate.has_limit("compile") else ["run"]}
        call = _choose(words, ref, jax, {"benchmarks": benchmarks, "process_pairs": process_pairs}, fine)
        code = _compare_versions(partial(call, **suite), gate, as_json=as_json, write=write)
    raise typer.Exit(code)


def _are_functions(words: list[str]) -> bool:
    from benchax.cli.compare_functions import is_function

    return bool(words) and is_function(words[0])


def _refuse(given: Mapping[str, Any], beside: str, expected: str) -> None:
    for option, value in given.items():
        if value:
            raise UsageError(f"{option} is given with {beside}", expected)


# ---- functions --------------------------------------------------------------------------------------------------


def _compare_functions(
    words: list[str],
    options: Mapping[str, Any],
    baseline: str | None,
    no_jit: bool,
    resolution: str | None,
    limit_s: float | None,
    *,
    as_json: bool,
    write: Callable[[Comparisons], None],
) -> int:
    """Compares, shows, and returns the exit code."""
    from benchax.cli.compare_functions import compare_functions, differs
    from benchax.reporting.comparisons import document

    found = compare_functions(
        words, options, baseline=baseline, is_jitted=not no_jit, resolution=resolution, max_time_s=limit_s
    )
    if as_json:
        line(json.dumps(found.asdict()))
    else:
        show(document(found, has_asides=False))
    write(found)
    return 2 if any(c.failure for c in found) else int(differs(found))


# ---- versions of benchmarks -------------------------------------------------------------------------------------


def _read_gate(fail_slower: str | None, fail_unclear: bool | None) -> Gate:
    from benchax.comparing.gate import gate_of

    return gate_of(fail_slower, Path.cwd(), None if fail_unclear is None else {"unclear": fail_unclear})


def _choose(
    words: list[str], ref: str | None, jax: str | None, of_ref: Mapping[str, Any], fine: Mapping[str, Any]
) -> Callable[..., Comparisons]:
    """The function of the library that was meant, with what is its own.

    Args:
        of_ref: options of another commit.
        fine: how finely is compared, which pairs of whole processes of versions of JAX have no choice of.
    """
    from benchax.paired_runs.versions import compare_jax, compare_ref, compare_stored
    from benchax.stats.verdicts import SAME_WITHIN

    if jax is not None:
        return partial(compare_jax, jax, words or ".")
    fine = {**fine, "resolution": SAME_WITHIN if fine["resolution"] is None else fine["resolution"]}
    if ref is not None:
        return partial(compare_ref, ref, words or ".", **of_ref, **fine)
    if _is_stored(words):
        return partial(compare_stored, *words, **fine)
    return partial(compare_stored, words[0] if words else "last", paths=words[1:] or ".", **fine)


def _compare_versions(
    call: Callable[[], Comparisons], gate: Gate, *, as_json: bool, write: Callable[[Comparisons], None]
) -> int:
    """Compares, shows, and returns the exit code."""
    from benchax.comparing.gate import ERROR

    found = _run(call)
    write(found)
    code = _show(found, gate, as_json=as_json)
    return ERROR if found.broken else code


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
    from benchax.comparing.gate import UNCLEAR, describe_alarm
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
    code = gate.exit_code(found, found.new, found.missing)
    if code == UNCLEAR and (unjudged := gate.unjudged(found, found.new, found.missing)):
        way_out = "--max-time 15min, --resolution 10%, or --ref REF --process-pairs" if found else "another baseline"
        metrics = ", ".join(unjudged)
        note(f"UNCLEAR: the limit for {metrics} judged no case; try {way_out}, or accept it: --ignore-unclear")
    return code


def _write(found: Comparisons, plot: Path | None, html: Path | None) -> None:
    write_page(html, found)
    if plot is None:
        return
    from benchax.reporting.comparison_figure import figure

    if not found.of("run"):
        note("nothing was drawn: no run times were compared")
        return
    write_figure(plot, figure(found))
    note(f"figure drawn to {plot}")
