"""The stored parts of a measurement: its row in the CSV file, its graph, its record for the summary, and the result.

The row comes first. A later step can fail without losing the row, and without failing the test: then a note says so.

A row of the CSV file has milliseconds, bytes, NaN, and -1 for values that were not measured. These exist only here and
in `pytest_jax_bench.csv.files`; the rest of benchax has seconds and None.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

import jax

from benchax import codec
from benchax.errors import reason_of
from benchax.model import Environment, Measurement, Remark
from benchax.whole_files import write_whole
from pytest_jax_bench import baseline, measure
from pytest_jax_bench.context import BenchContext
from pytest_jax_bench.csv import files as csv_files
from pytest_jax_bench.csv.lines import complete
from pytest_jax_bench.data import BenchData
from pytest_jax_bench.measure import MeasureCall, StepResults

if TYPE_CHECKING:
    from pytest_jax_bench import fail_slower

# --ptjb-save-graph writes the compiled program as an SVG next to the CSV file, if it differs from the last one.
#
# The normalized program decides whether it differs; each picture holds its digest. So a newer benchax can draw the same
# program in another way. A graph that cannot be drawn is a note, and costs nothing else.

_READABLE_TAG = re.compile(r"[a-z0-9_][a-z0-9_.=-]{0,39}")


def _save_graph(measured: StepResults, row: dict[str, Any]) -> list[str]:
    """Notes, most often none."""
    call, context = measured.call, measured.context
    wanted = context.choose("save_graph", measured.overrides.save_graph)
    if not wanted or measured.jit is None or measured.error is not None or context.csv is None:
        return []
    try:
        _draw_graph(call, measured.heard, context.csv, row, f"{context.nodeid} {call.tag}")
    except Exception as error:  # whatever it is: the row is there, and a picture is no reason to fail
        return [f"the graph was not saved ({reason_of(error)})"]
    return []


def _draw_graph(call: MeasureCall, heard: Mapping[str, Any], csv: Path, row: dict[str, Any], title: str) -> None:
    """Writes `main-3-base.svg` (file, run, tag), unless the last graph of this tag shows the same program."""
    from benchax.program import graph

    lowered, hlo = heard.get("lowered"), heard.get("hlo")
    if not hlo:  # another process compiled it
        fn: Any = call.fn_jit if hasattr(call.fn_jit, "lower") else jax.jit(call.fn_jit)  # pyright: ignore
        lowered = fn.lower(*call.args, **call.kwargs)
        hlo = lowered.compile().as_text()
    stablehlo = lowered.as_text() if lowered is not None else ""
    tag = row["tag"]
    # It can't be part of a file's name on every system, alone under that name.
    if not _READABLE_TAG.fullmatch(tag) or tag.endswith("."):
        tag = hashlib.sha256(tag.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    runs = re.compile(re.escape(csv.stem) + r"-(\d+)-" + re.escape(tag) + r"\.svg")
    found = {int(match[1]): path for path in csv.parent.glob("*.svg") if (match := runs.fullmatch(path.name))}
    last = found[max(found)].read_text(encoding="utf-8", errors="replace") if found else ""
    if graph.read_digest(last) != graph.digest(hlo, stablehlo=stablehlo):
        picture = graph.svg(hlo, title=title, stablehlo=stablehlo)
        # Half of it would hold the digest, so that the program would never be drawn again.
        write_whole(csv.with_name(f"{csv.stem}-{row['run_id']}-{tag}.svg"), picture)


COMMIT_DIGITS = 7
UNKNOWN = "unknown"
KEPT_NOTE = (
    "JAX kept the compiled program, so this is the time to look it up. benchmark.compilation(f, x) times each build. "
    "The Compile column of benchmark(f, x) shows one"
)


def keep_measurement(measured: StepResults, *, write: bool) -> BenchData:
    """Raises `StoreError` where the CSV file cannot be written."""
    row, context = _make_row(measured), measured.context
    notes = [text for text in (*measured.notes, _doubts(measured), *_other_timers(measured)) if text]
    notes += [KEPT_NOTE] if measured.observed and measured.observed.is_lookup else []
    # One process of a JAX cluster writes: all of them run the test.
    if write and context.csv is not None and jax.process_index() == 0:
        device = jax.devices()[0]
        with measure.warnings_into(notes):
            row = csv_files.append(
                context.csv, row, nodeid=context.nodeid, backend=device.platform, device=device.device_kind
            )
            old = baseline.find_reference(row, context.csv, context.settings)
        notes += _save_graph(measured, row)
        verdicts, gated = _compare(measured, old, row) if old else ({}, None)
        notes += gated.notes if gated else ()
        context.keep(_make_record(measured, row, old, verdicts, gated, notes))
    return BenchData(complete(row), measured.jit, measured.eager, context.nodeid, tuple(notes))


def make_unmeasured(call: MeasureCall, context: BenchContext) -> BenchData:
    note = "not measured, because it was not requested (--ptjb-disable, --ptjb-only, --ptjb-skip)"
    return BenchData(complete({"tag": call.tag}), name=context.nodeid, notes=(note,))


def _compare(
    measured: StepResults, old: dict[str, Any], new: dict[str, Any]
) -> tuple[dict[str, baseline.MetricVerdict], fail_slower.GateResult | None]:
    """The verdict on each metric, and the result of --ptjb-fail-slower, if it was asked for.

    Without it, the two programs decide on the run time, if they may run. Compiling the same program isn't slower or
    faster either.
    """
    verdicts, settings = baseline.judge_metrics(old, new), measured.context.settings
    # The imports are here, because comparing needs more than measuring does, and few sessions compare.
    if settings.fail_slower:
        if new["status"] != "ok":
            return verdicts, None
        from pytest_jax_bench import fail_slower

        case = measure.make_case_of(measured.call, measured.context) if measured.call.fn_jit is not None else None
        gated = fail_slower.check(old, new, measured.jit, case, settings.fail_slower)
        if gated.verdict:
            verdicts["jit"] = baseline.MetricVerdict(gated.verdict, gated.text, gated.change)
        return verdicts, gated
    is_left_out = settings.no_judge or measured.rounds.calls_per_round is not None or measured.error
    if "jit" in verdicts and measured.jit is not None and not is_left_out:
        from pytest_jax_bench import side_by_side

        judged = side_by_side.judge(old, measured.jit, measured.heard.get("leaves"), verdicts["jit"])
        if judged == side_by_side.SAME and "compile" in verdicts and verdicts["compile"].verdict != "unclear":
            verdicts["compile"] = judged
        verdicts["jit"] = judged
    return verdicts, None


def _make_record(
    measured: StepResults,
    row: dict[str, Any],
    old: dict[str, Any] | None,
    verdicts: dict[str, baseline.MetricVerdict],
    gated: fail_slower.GateResult | None,
    notes: list[str],
) -> dict[str, Any]:
    """Returns the data for the summary, in plain values, because the summary can be in another process."""
    context, wanted = measured.context, measured.context.settings.benchmark
    is_exported = context.settings.json is not None or wanted.keeps_documents
    return {
        "nodeid": context.nodeid,
        "csv": str(context.csv),
        "row": row,
        "reference": old,
        "verdicts": {metric: [judged.verdict, judged.why] for metric, judged in verdicts.items()},
        "changes": {metric: judged.change for metric, judged in verdicts.items() if judged.change},
        "gate": asdict(gated) if gated else None,
        "notes": notes,
        "codes": _codes(measured, context.folder),
        "is_run": measured.call.is_observed,
        "ranges": _ranges(measured, row["eager_peak_bytes"]),
        "readings": _readings(measured) if wanted.shows_statistics or context.settings.fixture else None,
        "only_last": bool(context.marker.get("only_last")),
        "plots": _pack_plots(context) if context.settings.plot else {},
        "measurements": [codec.to_document(m) for m in measured.rows] if is_exported else [],
    }


def _pack_plots(context: BenchContext) -> dict[str, str]:
    from pytest_jax_bench.plots.draw_all import pack

    return pack(context.marker, context.module)


def _make_row(measured: StepResults) -> dict[str, Any]:
    """All columns but `run_id` and `commit_run`, which depend on what the file holds. None: not measured."""
    call, rounds, context = measured.call, measured.rounds, measured.context
    environment = measured.rows[0].environment if measured.rows else None
    failure = next((m.failure for m in measured.rows if m.failure is not None), None)
    jit, timed = measured.jit, measured.timed
    eager, first = timed.get("eager"), next(iter(timed.values()), None)
    rise = eager.memory.eager_rise_bytes if eager else None
    return {
        "commit": _commit_of(environment) if environment else UNKNOWN,
        "tag": call.tag,
        "parameters": context.params,
        "compile_ms": _ms(jit.stages.build_s if jit else None),
        "jit_peak_bytes": jit.memory.predicted_peak_bytes if jit else None,
        "jit_constants_bytes": jit.memory.constant_bytes if jit else None,
        "jit_temporary_bytes": jit.memory.temp_bytes if jit else None,
        **_time_columns("jit", timed.get("jit"), rounds.jit_rounds),
        **_time_columns("eager", eager, rounds.eager_rounds),
        # Arguments and the observed rise above them, as in the compiler's plan of the jitted function.
        "eager_peak_bytes": None if rise is None else bytes_of((call.args, call.kwargs)) + rise,
        "jit_warmup": rounds.jit_warmup,
        "eager_warmup": rounds.eager_warmup,
        "first_run_ms": _ms(first.stages.first_run_s if first else None),
        "status": failure.kind if failure else "ok",
        "message": f"{failure.stage}: {failure.message}" if failure else _doubts(measured),
        "created": measured.rows[0].started_at if measured.rows else None,
        "session": context.session,
        "environment": environment.fingerprint if environment else "",
        "jax": environment.jax if environment else "",
    }


def bytes_of(tree: Any) -> int:
    """Adds up the bytes of the arrays in `tree`. An array that is given twice is there once."""
    return sum({id(leaf): leaf.nbytes for leaf in jax.tree.leaves(tree) if hasattr(leaf, "nbytes")}.values())


def _time_columns(kind: str, m: Measurement | None, asked: int) -> dict[str, Any]:
    """The times of the first timer that could serve."""
    samples = m.headline if m else None
    if samples is None or not samples.elapsed_s:
        return {f"{kind}_rounds": asked}
    summary, per_call_s = samples.summary, samples.per_call_s
    found = {
        f"{kind}_mean_ms": fmean(per_call_s) * 1e3,
        f"{kind}_std_ms": pstdev(per_call_s) * 1e3,
        f"{kind}_median_ms": _ms(summary.median_s),
        f"{kind}_low_ms": _ms(summary.low_s),
        f"{kind}_high_ms": _ms(summary.high_s),
        f"{kind}_min_ms": _ms(summary.min_s),
        f"{kind}_rounds": len(per_call_s),
    }
    return found | ({"jit_loops": samples.iterations, "timer": samples.timer} if kind == "jit" else {})


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _commit_of(environment: Environment) -> str:
    """6bc9501; 6bc9501+ if anything differs from it, or if that is unknown; "unknown" without git."""
    if environment.commit is None:
        return UNKNOWN
    return environment.commit[:COMMIT_DIGITS] + ("" if environment.is_dirty is False else "+")


def _doubts(measured: StepResults) -> str:
    """Returns the facts that cast doubt on the numbers themselves."""
    return "; ".join(r.message for r in _doubtful(measured))


def _doubtful(measured: StepResults) -> list[Remark]:
    # Where the compilation itself is timed, one is no doubt.
    found = [r for m in measured.rows for r in m.remarks if r.severity == "error"]
    return [r for r in found if not (measured.overrides.is_build and r.code == "recompiled")]


def _codes(measured: StepResults, folder: Path | None) -> list[str]:
    """Returns the codes that `table.DOUBTS` and `session_summary.SAID_ONCE` have words for."""
    found = [r.code for r in _doubtful(measured)]
    found += [r.code for m in measured.rows for r in m.remarks if r.code == "busy"]
    # Git says nothing about the repository.
    if folder and measured.rows and measured.rows[0].environment.commit is None and shutil.which("git"):
        found += ["no-commit"] if any((each / ".git").exists() for each in (folder, *folder.parents)) else []
    if observed := measured.observed:
        # This JAX reports no jitted calls; JAX kept the program, so that nothing was compiled.
        found += ["no-dispatches"] * observed.is_blind + ["kept-program"] * bool(observed.is_lookup)
    return list(dict.fromkeys(found))


def _ranges(measured: StepResults, most_bytes: int) -> dict[str, list[float]]:
    """Returns the least and the greatest reading in milliseconds, if there are too few for an interval of the median.
    The same of peaks of eager runs in bytes, if they differ; the file holds the greatest."""
    found = {kind: m.headline for kind, m in measured.timed.items()}
    few = {kind: s.per_call_s for kind, s in found.items() if s is not None and s.summary.low_s is None}
    ranges = {kind: [min(times_s) * 1e3, max(times_s) * 1e3] for kind, times_s in few.items() if times_s}
    memory = measured.timed["eager"].memory if "eager" in measured.timed else None
    if memory and memory.eager_rise_low_bytes is not None and memory.eager_rise_bytes is not None:
        least_bytes = most_bytes - memory.eager_rise_bytes + memory.eager_rise_low_bytes
        ranges["eager_peak_bytes"] = [float(least_bytes), float(most_bytes)]
    return ranges


def _readings(measured: StepResults) -> dict[str, Any] | None:
    """Returns seconds per call of the jitted function, else of the eager one, and how many calls a reading holds."""
    m = next(iter(measured.timed.values()), None)
    samples = m.headline if m is not None and m.failure is None else None
    return {"times_s": list(samples.per_call_s), "iterations": samples.iterations} if samples is not None else None


def _other_timers(measured: StepResults) -> list[str]:
    """Where the first timer that was asked for could not serve: which one is shown, and why."""
    m = measured.timed.get("jit")
    if m is None or m.failure is not None or m.options.stages != "samples" or m.options.timer == "auto":
        return []
    asked = m.options.timer.split(",")[0]
    if m.headline is not None and m.headline.timer == asked:
        return []
    shown = f"timed by {m.headline.timer}" if m.headline else "no run time"
    return [f"{shown}, because {asked} could not serve: {m.why_absent(f'samples.{asked}')}"]
