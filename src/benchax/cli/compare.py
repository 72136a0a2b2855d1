"""`benchax compare`: compares functions or versions side by side. The words decide what it compares:

    compare FUNCTION FUNCTION... [INPUT...]   functions, on the same inputs                → compare_functions
    compare [BASELINE] [PATH...]              a stored run, and the current benchmarks     → benchax.compare_stored
    compare BASELINE CANDIDATE                two stored runs
    compare --ref REF [PATH...]               another commit                               → benchax.compare_ref
    compare --jax VERSIONS [PATH...]          versions of JAX                              → benchax.compare_jax

A function is a word with a colon, module:function. The name of a baseline has no colon.

`benchax bisect`: finds the commit, or the version of JAX, that made a case slower.

`benchax history`: shows a case commit by commit, against one baseline.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchax import codec
from benchax.case import Case, benchmark_of, make_case
from benchax.checkouts.launch import ENOUGH, Selection
from benchax.cli.console import (
    MAX_TIME_OF_ALL,
    Given,
    Html,
    NoJit,
    Params,
    Pattern,
    Plot,
    Resolution,
    Store,
    line,
    note,
    printing_to_stderr,
    refuse,
    show,
    takes_options,
    with_progress,
    write_documents,
    write_figure,
    write_page,
)
from benchax.cli.store import open_listed_store
from benchax.codec import encode_params
from benchax.comparing.gate import ERROR, UNCLEAR, Gate, describe_alarm, gate_of
from benchax.comparing.history import History
from benchax.comparing.history import history as make_history
from benchax.comparing.judging import resolution_of
from benchax.comparing.ranking import Comparisons
from benchax.comparing.sequential import Effort, effort_for
from benchax.discovery import literal, resolve_target, target_cases
from benchax.errors import UsageError, one_of
from benchax.model import METRICS
from benchax.options import resolve
from benchax.progress import ProgressEvent, show_progress
from benchax.reporting import history as reporting_of
from benchax.reporting.comparisons import document, figure
from benchax.reporting.document import Document
from benchax.specs import is_spec
from benchax.stats.verdicts import SAME_WITHIN, Verdict
from benchax.store.comparisons import Series, list_series
from benchax.store.comparisons import history as stored
from benchax.store.database import DatabaseStore, name_matcher
from benchax.units import plural

if TYPE_CHECKING:
    from benchax.paired_runs.bisect import Bisected


@takes_options("timeout_s", "memory_limit_bytes", "seed", "store", max_time_s=MAX_TIME_OF_ALL)
def compare(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FUNCTION FUNCTION... [INPUT...] | BASELINE [CANDIDATE | PATH...]]",
            help="Functions as MODULE:FUNCTION or FILE.py:FUNCTION, then inputs for all, as for `benchax run`. Or a "
            "BASELINE: a name from `benchax baseline`, a run, a commit, or last. benchax compares it with a stored "
            "CANDIDATE, or with the current benchmarks. Omit it with --ref or --jax.",
        ),
    ] = None,
    *,
    ref: Annotated[str | None, typer.Option(metavar="REF", help="Compare with this commit, branch or tag.")] = None,
    jax: Annotated[
        str | None,
        typer.Option(metavar="VERSIONS", help="Compare versions of JAX: 0.9.2,0.10.2; the first is the baseline."),
    ] = None,
    benchmarks: Annotated[
        str, typer.Option(metavar="now|ref", help="With --ref: run this version of the benchmark files there.")
    ] = "now",
    process_pairs: Annotated[
        bool,
        typer.Option(
            "--process-pairs", help="With --ref: run whole processes, Python included, alternately on one core."
        ),
    ] = False,
    pattern: Pattern = "",
    params: Params = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="FUNCTION", help="Compare the other functions with this one.")
    ] = None,
    no_jit: NoJit = False,
    fail_slower: Annotated[
        str | None,
        typer.Option(metavar="LIMITS", help="Exit with 1 above these limits: 5%, or run=5%+20us,peak=0,compile=20%."),
    ] = None,
    fail_unclear: Annotated[
        bool | None,
        typer.Option(
            "--fail-unclear/--ignore-unclear",
            help="Exit with 3 if any verdict is unclear, or never (default: if a limit judged no case).",
        ),
    ] = None,
    resolution: Resolution = None,
    given: Given,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON to stdout, one document per comparison.")] = False,
    plot: Plot = None,
    html: Html = None,
) -> None:
    """Compare functions, or two versions of benchmarks: which is faster, and how sure is it?

    Exit codes: 0 fine; 1 slower than --fail-slower permits, or a different result; 2 an error, or a failed function.
    The exit code is 3 if a limit judged no case. With --fail-unclear, it is also 3 if a verdict is unclear.
    """
    words = what or []
    limit_s = given.pop("max_time_s")
    of_versions = {
        "--benchmarks": benchmarks if benchmarks != "now" else None, "--process-pairs": process_pairs,
        "--filter": pattern, "--param": params, "--fail-slower": fail_slower, "--fail-unclear": fail_unclear,
        "--ignore-unclear": fail_unclear is False, "--store": given["store"],
    }  # fmt: skip
    of_functions = {"--baseline": baseline, "--no-jit": no_jit, "--memory-limit": given["memory_limit_bytes"]}
    if ref is None and jax is None and words and is_function(words[0]):
        expected = "it with versions of benchmarks: --ref REF, --jax VERSIONS, or a baseline"
        refuse(*((value, f"{option} is given with functions", expected) for option, value in of_versions.items()))
        found = compare_functions(words, given, baseline, is_jitted=not no_jit, resolution=resolution, limit_s=limit_s)
        show(json.dumps(found.asdict()) if as_json else document(found, has_asides=False))
        code = 2 if any(c.failure for c in found) else int(any(c.differs for c in found))
        _write(found, plot, html)
        raise typer.Exit(code)
    expected = "it with functions: benchax compare a.py:f a.py:g f32[8]"
    refuse(
        *((value, f"{option} is given with versions of benchmarks", expected) for option, value in of_functions.items())
    )
    _check(ref, jax, benchmarks, process_pairs, resolution)
    from benchax.paired_runs.compare import UNSTORED, compare_jax, compare_ref, compare_stored

    gate = gate_of(fail_slower, Path.cwd(), None if fail_unclear is None else {"unclear": fail_unclear})
    suite = {"filter": pattern, "params": params or [], "max_time_s": limit_s, "progress": True, **given}
    del suite["memory_limit_bytes"]
    fine = {
        "resolution": SAME_WITHIN if resolution is None else resolution,
        "metrics": ["run", "compile"] if gate.has_limit("compile") else ["run"],
    }
    call: Callable[..., Comparisons]
    if jax is not None:
        call = partial(compare_jax, jax, words or ".")
    elif ref is not None:
        call = partial(compare_ref, ref, words or ".", benchmarks=benchmarks, process_pairs=process_pairs, **fine)
    # Otherwise, the second word is a path or a function.
    elif len(words) == 2 and not Path(words[1]).exists() and ":" not in words[1]:
        call = partial(compare_stored, *words, **fine)
    else:
        call = partial(compare_stored, words[0] if words else "last", paths=words[1:] or ".", **fine)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", UNSTORED)
        found = printing_to_stderr(partial(call, **suite))
    if found.unstored:
        note(f"error: {UNSTORED}: {found.unstored}")
    _write(found, plot, html)
    code = _show(found, gate, as_json=as_json)
    raise typer.Exit(ERROR if found.broken else code)


# ---- versions of benchmarks -------------------------------------------------------------------------------------


def _check(ref: str | None, jax: str | None, benchmarks: str, process_pairs: bool, resolution: str | None) -> None:
    """Refuses the same options as the library, but names them as on the command line."""
    has_too_few = jax is not None and ("," not in jax or not all(version.strip() for version in jax.split(",")))
    pairs = "one of them: pairs of processes differ by 1 to 10 % on unchanged code, so they resolve 5 % at best"
    whole = f"--resolution {resolution} is given with {'--process-pairs' if process_pairs else '--jax'}"
    refuse(
        (ref is not None and jax is not None, "--ref and --jax are given together", "one of them"),
        (
            process_pairs and ref is None,
            "--process-pairs is given without --ref",
            "both: whole processes of two commits",
        ),
        (resolution is not None and (process_pairs or jax is not None), whole, pairs),
        (benchmarks not in ("now", "ref"), f"invalid --benchmarks {benchmarks!r}", "one of: now, ref"),
        (has_too_few, f"--jax {jax!r} names too few versions", ENOUGH),
    )


def _show(found: Comparisons, gate: Gate, *, as_json: bool) -> int:
    """Shows everything and returns the exit code."""

    if as_json:
        for c in found:
            show(codec.encode(c))
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
        if any(c.verdict == "same" and c.metric in unjudged for c in found):
            way_out = "a --resolution as small as the limit, or a limit of 5 %"
        metrics = ", ".join(unjudged)
        note(f"UNCLEAR: the limit for {metrics} judged no case; try {way_out}, or accept it: --ignore-unclear")
    return code


def _write(found: Comparisons, plot: Path | None, html: Path | None) -> None:
    write_page(html, found)
    if plot is not None and not found.of("run"):
        note("nothing was drawn: no run times were compared")
    else:
        write_figure(plot, "figure", lambda: figure(found))


# ---- functions by name -----------------------------------------------------------------------------------------------


EXAMPLE = "benchax compare model.py:loop model.py:vectorised f32[1000000]"


def compare_functions(
    words: Sequence[str],
    options: Mapping[str, Any],
    baseline: str | None = None,
    *,
    is_jitted: bool = True,
    resolution: str | None = None,
    limit_s: float | None = None,
) -> Comparisons:
    """Compares functions like `benchax.compare`, but takes their names.

    Args:
        words: the functions, and the inputs for all of them.
        options: options of the workers, from the command line.
    """
    from benchax.paired_runs.compare import side_by_side

    resolved, effort = resolve(command_line=options), effort_for(resolution_of(resolution), limit_s)
    functions, inputs = split_words(words)
    names = labels(functions)
    first = next((label for label, word in names.items() if baseline in (None, label, word)), None)
    if first is None:
        raise UsageError(f"--baseline {baseline!r} isn't one of the functions", one_of(names, baseline))
    cases = printing_to_stderr(lambda: {label: _case(word, inputs, is_jitted) for label, word in names.items()})
    ordered = {first: cases[first]} | cases
    return with_progress(lambda report: side_by_side(ordered, resolved, effort, report))


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns (functions, inputs). A function is a word with a colon that is neither a literal nor a keyword."""
    functions = [word for word in words if is_function(word)]
    if len(functions) < 2:
        listed = f"{functions[0]!r} with" if functions else "here"
        raise UsageError(f"there is nothing to compare {listed}", "at least two functions, then their inputs", EXAMPLE)
    return functions, [word for word in words if word not in functions]


def is_function(word: str) -> bool:

    key, equals, _ = word.partition("=")
    is_keyword = bool(equals) and key.isidentifier()
    return ":" in word and not is_keyword and not is_spec(word) and literal(word) == word


def labels(functions: Sequence[str]) -> dict[str, str]:
    """Returns words by label. A label is the name of the function, or the whole word if two functions have that name.

    Raises:
        UsageError: a word is given twice.
    """
    names = [word.rpartition(":")[2] for word in functions]
    found = {name if names.count(name) == 1 else word: word for name, word in zip(names, functions, strict=True)}
    if len(found) < len(functions):
        twice = next(word for word in functions if functions.count(word) > 1)
        raise UsageError(f"the function {twice!r} is given twice", "functions that differ", EXAMPLE)
    return found


def _case(word: str, inputs: Sequence[str], is_jitted: bool) -> Case:

    if inputs:
        (case,) = target_cases(word, inputs)
    else:
        fn: Any = resolve_target(word)
        if benchmark_of(fn):
            raise UsageError(f"{word!r} brings its own inputs", "inputs for all functions, after them", EXAMPLE)
        case = make_case(fn, name=word.rpartition(":")[2])
    return case if is_jitted else case.eager()


# ---- benchax bisect --------------------------------------------------------------------------------------------------


FOUND, SEVERAL_LEFT = 0, 3
"""These are exit codes."""


@takes_options(max_time_s="Start no process of a comparison after this time: 2min.")
def bisect(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[GOOD BAD] [PATH... | MODULE:FUNCTION [INPUT...]]",
            help="Two commits: GOOD is fast enough, BAD is slower. Then what to measure, as for `benchax run`. With "
            "--jax, give no commits.",
        ),
    ] = None,
    *,
    pattern: Pattern = "",
    params: Params = None,
    jax: Annotated[
        str | None,
        typer.Option(metavar="VERSIONS", help="Search between two versions of JAX, or in a list: 0.9.0,0.10.2."),
    ] = None,
    given: Given,
) -> None:
    """Find the commit, or the version of JAX, that made cases slower."""
    from benchax.paired_runs import bisect

    max_time_s = given["max_time_s"]
    if jax is not None:
        name, row, words = "jax {}".format, _versions(jax), what
    elif what is None or len(what) < 2:
        raise UsageError(f"bisect {' '.join(what or [])!r} is not enough", "GOOD BAD, two commits, or --jax A,B")
    else:
        name, row, words = bisect.describe_commit, bisect.list_commits(what[0], what[1]), what[2:]
        note(f"{plural(len(row) - 1, 'commit')} from {what[0]} to {what[1]}")
    selection = Selection(tuple(words or ["."]), pattern, tuple(params or []))
    with show_progress(True) as report, ExitStack() as stack:
        if jax is not None:
            judge = bisect.make_jax_judge(row[0], selection, max_time_s, report)
        else:
            effort = Effort(max_time_s=max_time_s)
            judge = stack.enter_context(bisect.make_commit_judge(row[0], selection, effort, report))

        def judge_and_report(one: str) -> Verdict:
            verdict = judge(one)
            report(ProgressEvent(f"{verdict:8} {name(one)}", is_lasting=True))
            return verdict

        found = bisect.bisect(row, judge_and_report)
    raise typer.Exit(show_bisected(found, name))


def _versions(text: str) -> list[str]:
    from benchax.paired_runs import bisect

    listed = [version.strip() for version in text.split(",")]
    if len(listed) < 2 or len(set(listed)) < len(listed) or not all(listed):
        raise UsageError(f"--jax {text!r} cannot be searched", "two versions or more, all different: 0.9.0,0.10.2")
    return bisect.list_releases(*listed) if len(listed) == 2 else listed


def show_bisected(found: Bisected, name: Callable[[str], str]) -> int:
    if found.first_bad is not None:
        line(f"{name(found.first_bad)} is the first that is slower")
        return FOUND
    line(f"one of these {len(found.left)} is the first that is slower; these gave no clear verdict:")
    for one in found.left:
        line(f"  {name(one)}")
    return SEVERAL_LEFT


# ---- benchax history -------------------------------------------------------------------------------------------------
#
# Shows a case commit by commit, against one baseline. It measures nothing.


def history(
    case: Annotated[
        str | None, typer.Argument(help="Name or label of a case; it can contain * and ?. Default: all.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Show comparisons with this baseline (default: the newest).")
    ] = None,
    metric: Annotated[str, typer.Option(help="Show run, compile, peak, constants or flops.")] = "run",
    store: Store = None,
    plot: Plot = None,
    html: Html = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object per history to stdout.")] = False,
) -> None:
    """Show comparisons with a baseline from commit to commit, and where the level changed."""

    database = open_listed_store(store)
    every, chosen = _choose_series(database, case, baseline, metric)
    if plot is not None and len(chosen) > 1:
        raise UsageError(
            f"--plot {str(plot)!r} draws one case, and these are {len(chosen)}", one_of({s.case.label for s in chosen})
        )
    histories = [make_history(stored(database, s.case, s.metric, s.baseline)) for s in chosen]
    if as_json:
        for found in histories:
            show(json.dumps(plain_history(found), allow_nan=False))
    elif len(histories) == 1:
        show(reporting_of.document(histories[0]))
        shown = chosen[0]
        if others := [s.baseline for s in every if s.case == shown.case and s.baseline != shown.baseline]:
            note(f"also compared with: {', '.join(others)}; choose by --baseline")
    else:
        show(Document((reporting_of.overview(histories),)))
    write_figure(plot, "history", lambda: reporting_of.figure(histories[0]))
    write_documents(html, reporting_of.documents_of_all(histories) if html else ())


def _choose_series(
    store: DatabaseStore, case: str | None, baseline: str | None, metric: str
) -> tuple[list[Series], list[Series]]:
    """Returns (all series by that metric, one of each chosen case): with the requested baseline, or the baseline of its
    newest comparison.

    Raises:
        UsageError: there is no such metric, no comparison by it, no such case, or it was never compared with that
            baseline.
    """
    if metric not in METRICS:
        raise UsageError(f"there is no metric {metric!r}", one_of(METRICS, metric))
    known = list_series(store)
    if not known:
        raise UsageError(
            f"no comparisons yet in {store.where}",
            "comparisons with a baseline",
            "name a run with `benchax baseline set NAME`, then run `benchax compare NAME` at each commit",
        )
    every = [series for series in known if series.metric == metric]
    if not every:
        raise UsageError(f"nothing in {store.where} was compared by {metric!r}", one_of({s.metric for s in known}))
    meant = [series for series in every if case is None or _is_meant(series, case)]
    if not meant:
        raise UsageError(
            f"no comparison of a case {case!r} by {metric!r}",
            one_of({s.case.label for s in every} | {s.case.name for s in every}, case),
            "`benchax compare NAME` compares the cases that NAME, a baseline, has",
        )
    found = [series for series in meant if baseline in (None, series.baseline)]
    if not found:
        raise UsageError(
            f"{case or 'no case'} was {'never ' if case else ''}compared with a baseline {baseline!r}",
            one_of({series.baseline for series in meant}, baseline),
        )
    newest = {series.case: series for series in found}  # the last of each case: listed oldest first
    return every, sorted(newest.values(), key=lambda series: series.case.label)


def _is_meant(series: Series, case: str) -> bool:

    matches = name_matcher(case)
    return case == series.case.label or matches(series.case.name) or matches(series.case.label)


def plain_history(h: History) -> dict[str, Any]:
    """Returns a history for programs. Places are indices of `points`."""

    case = {"name": h.case.name, "params": json.loads(encode_params(h.case.params)), "variant": h.case.variant}
    return {
        "case": {**case, "tag": h.case.tag, "label": h.case.label},
        "metric": h.metric,
        "baseline": h.baseline,
        "points": [
            {
                "compared_at": c.compared_at, "commit": c.candidate.commit, "is_dirty": c.candidate.is_dirty,
                "ratio": c.ratio, "low": c.low, "high": c.high, "verdict": c.verdict, "why": c.why,
                "confirmed": c.confirmed, "value": c.candidate_value, "work": dict(c.work), "method": c.method,
                "jax": c.candidate.jax,
                "fingerprint": c.environment.fingerprint if c.environment else None,
            }
            for c in h.points
        ],
        "breaks": [vars(found) for found in h.breaks],
        "stretches": [vars(stretch) for stretch in h.stretches],
        "changes": [vars(change) | {"factor": change.factor} for change in h.changes],
        "jump": h.jump,
    }  # fmt: skip
