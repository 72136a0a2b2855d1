"""One of every kind of result, with a name of the user's choice wherever a user's text can be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from comparisons_by_hand import HOST, compared, series
from measurement_strategies import RICH

from benchax.comparing.error_rates import ErrorRates, Trial
from benchax.comparing.history import history
from benchax.comparing.ranking import Comparisons, Rank
from benchax.grids.result import Cell, GridResult
from benchax.model import Absent, CaseId, Estimate, Failure, Measurement, Remark, Version
from benchax.results.audit import Audit, Checked, Checklist, Finding, Suppressed, Tick
from benchax.results.experiment import (
    Contribution,
    Curve,
    Errors,
    Experiment,
    Point,
    Scaling,
    ScalingCurve,
    ScalingPoint,
    VariantRow,
)
from benchax.results.inspection import (
    Constant,
    Constants,
    Counts,
    Difference,
    HloOperation,
    HloOperations,
    Inspection,
    JaxprFacts,
    Loop,
    NumberChange,
    Place,
    Primitive,
    TextDifference,
)
from benchax.results.profile import (
    CompileCost,
    Device,
    LiveBuffers,
    OneStep,
    Op,
    OpChange,
    PartLine,
    Profile,
    ProfileChange,
    ProgramsPerStep,
    StepPart,
    StepSplit,
)
from benchax.results.watch import (
    CachedProgram,
    CacheUse,
    Compile,
    Folder,
    FunctionCount,
    ObservedTransfer,
    Reason,
    Transfers,
    Watch,
)


def every_result(name: str) -> dict[str, Any]:
    """By the name of its type."""
    made = (
        _audit(name), _cache(name), _checklist(name), _comparisons(name), _difference(name), _error_rates(name),
        _experiment(name), _grid(name), _history(name), _inspection(name), _measurement(name), _profile(name),
        _profile_change(name), _scaling(name), _transfers(name), _watch(name),
    )  # fmt: skip
    return {type(result).__name__: result for result in made}


def _remark(name: str) -> Remark:
    return Remark("code", "warning", f"a remark about {name}")


def _audit(name: str) -> Audit:
    found = Finding(
        "a-rule", "info", name, (name, "seen"), f"do {name}", f"docs/{name}", (name, 1), f"measured: {name}"
    )
    checked = (
        Checked("a-rule", "?", "finding", name),
        Checked("b-rule", "?", "fine"),
        Checked("c", "?", "not checked", name),
    )
    return Audit(name, name, (found,), checked, (Suppressed(found, name, name),), (_remark(name),), 1.0, HOST)


def _cache(name: str) -> CacheUse:
    programs = [CachedProgram(name, "hit", 0.01), CachedProgram(name, "too quick", 0.25)]
    return CacheUse(
        programs, directory=name, is_enabled=True, is_writable=False, before=Folder(1, 512), after=Folder(3, 2048),
        min_compile_time_s=1.0,
    )  # fmt: skip


def _checklist(name: str) -> Checklist:
    ticks = (
        Tick(name, name, "yes", name),
        Tick("memory", "Donate", "not checked", name),
        Tick("memory", "x", "no", name),
    )
    return Checklist(name, name, ticks, 2.0, HOST)


def _comparisons(name: str) -> Comparisons:
    one = compared(0, 1.1, baseline=Version(name), candidate=Version("b"), remarks=(_remark(name),))
    peak = replace(one, metric="peak", method="counted", baseline_value=1.0, candidate_value=2.0)
    failed = replace(
        compared(0, None), case=CaseId(name), why=name, failure=Failure("error", "build", name, f"mend {name}")
    )
    ranking = (Rank(1, name, 1e-5, 1.0, None, None), Rank(2, "b", 1.1e-5, 1.1, 1.0, 1.2))
    return Comparisons((one, peak, failed), ranking, (), new=(CaseId(name),), notes=(name,))


def _difference(name: str) -> Difference:
    changes = (NumberChange(name, 1, 2),)
    texts = (TextDifference("jaxpr", is_same=True), TextDifference("hlo", is_same=False, added=1, unified=f"+{name}"))
    return Difference(name, f"{name}2", changes, (name,), changes, changes, texts, (Absent("stablehlo", name),))


def _error_rates(name: str) -> ErrorRates:
    return ErrorRates((Trial(name, 0.0, compared(0, 1.0)), Trial(name, 0.05, compared(1, 1.05))), 10.0)


def _grid(name: str) -> GridResult:
    """A cell with a time, and one that failed."""
    absent, failure = Absent("outputs", name), Failure("timeout", "compile", name)
    rows = {"f": replace(RICH, failure=None), name: replace(RICH, failure=failure, samples=())}
    cells = {(function, name): Cell(function, name, row, absent, absent) for function, row in rows.items()}
    return GridResult(name, name, tuple(rows), (name,), 1, cells, 1.0, 2.0, "run")


def _experiment(name: str) -> Experiment:
    baseline = VariantRow("baseline", "as it is", compile_s=0.02, peak_bytes=2**20, sentence=name)
    faster = replace(
        baseline, name=name, comparison=compared(1, 0.5), errors=Errors("float64", 3e-3, 1e-3), facts=((name, name),)
    )
    curve = Curve("batch", name, name, (Point(8, name, 1e-3, 9e-4, 1.1e-3, ((name, name),)),), sentence=name)
    ablation = (Contribution(name, None, None, sentence=name),)
    return Experiment(name, name, baseline, (faster,), (curve,), ablation, (_remark(name),), HOST)


def _history(name: str) -> Any:
    listed = series([1.0, 1.1, None], case=CaseId(name), baseline=Version(name), why=name)
    return history([*listed[:1], *(replace(c, environment=replace(HOST, host=name)) for c in listed[1:])])


def _inspection(name: str) -> Inspection:
    jaxpr = JaxprFacts(f"{{ {name} }}", 4, 1, 3, 2, (Primitive(name, 2, 1, (name,)),), (), ())
    counts = Counts(2e6, 1e3, 4096.0, False, (name,), (Loop(name, 10, name),), 3)
    constants = Constants((Constant(name, 64, name),), ())
    absent = (Absent("memory", name), Absent("stablehlo", name))
    return Inspection(
        name, name, Place(name, name, "cpu", "cpu", 1), jaxpr=jaxpr, hlo=f"HloModule {name}\n\tx", counts=counts,
        constants=constants, remarks=(_remark(name),), absent=absent,
        operations=HloOperations((
            HloOperation(name, "while", "(f32[8], s32[])", f"{name}:3", name, None, "", 10.0, 0.0, None, name),
            HloOperation(f"{name}.2", name, "f32[8]{0}", f"{name}:4", name, 0, "body", 10.0, 0.0, 64.0, "", (0,)),
        )),
    )  # fmt: skip


def _measurement(name: str) -> Measurement:
    return replace(
        RICH, case=CaseId(name, (("n", name),)), signature=name, remarks=(_remark(name), Remark("x", "error", name)),
        failure=Failure("error", name, name, name), not_measured=(Absent("samples.loop", name),),
    )  # fmt: skip


def _profile(name: str) -> Profile:
    op = Op(name, name, "fusion", 30, 0.004, 0.003, 0.75, f"jit(f)/{name}", f"/{name}.py:12", f"%x = {name}")
    line = PartLine(f"/{name}.py:3", name, 0.5, name, 9, 0.1)
    one = OneStep(3, 0.2, (("device", 0.1), ("unseen", 0.1)), "unseen", 0.1, f"/{name}.py:3")
    split = StepSplit(
        "program", name, (0.1, 0.2, 0.1), (StepPart("input", 0.1, 0.7, (line, line)), StepPart("device", 0.05, 0.3)),
        f"/{name}.py:9", one, 2, one, (ProgramsPerStep(name, 2.0),), 0.5, 1, 9, 0.01, 5.0, f"/{name}.py:1", 0.9,
    )  # fmt: skip
    cost = CompileCost(name, f"/{name}.py:1", 2, 0.1, 0.2, 0.3, ((name, 0.1),))
    return Profile(
        name, "cpu", (op,) * 20, split=split, compile_costs=(cost,), devices=(Device(name, 0.004, 0.001),),
        left_over=(LiveBuffers((3,), name, 2, 120),), live_bytes_before=0, live_bytes_after=120,
        files={"xplane": name}, remarks=(_remark(name),),
    )  # fmt: skip


def _profile_change(name: str) -> ProfileChange:
    ops = (OpChange(name, "fusion", f"jit(f)/{name}", name, 1.0, 2.0, 4, 4),)
    return ProfileChange(name, f"{name}2", "run", ops, (_remark(name),))


def _transfers(name: str) -> Transfers:
    found = Transfers(sees=("host to device", "device to host"), remarks=[_remark(name)])
    for n in range(30):
        found.add(ObservedTransfer("host to device", f"{name}.py:{n}", name, name, 1, 4 * n, 0.1))
    return found


def _scaling(name: str) -> Scaling:
    faster = Estimate(1.8, 1.7, 1.9)
    points = (
        ScalingPoint(1, name, name, 0.2),
        ScalingPoint(2, name, name, 0.1, faster, faster.map(lambda factor: factor / 2), faster),
        ScalingPoint(4, name, why=name),
    )
    curves = (ScalingCurve("strong", points), ScalingCurve("weak", points))
    return Scaling(CaseId(name), HOST, name, True, curves, (_remark(name),), (Absent("weak", name),))


def _watch(name: str) -> Watch:
    again = Compile(name, name, name, False, False, 0.1, 0.2, 0.7, name, (Reason("shape", name),), "MainThread")
    w = Watch(compiles=[again], wall_s=10.0, cache_dir=name, remarks=[_remark(name)])
    w.counts = {(name, name, False): FunctionCount(name, name, False, 5, 5, 5, 2, 0.5, 1.0, 3.5, 5.0)}
    return w


# ---- audits without an audit ----------------------------------------------------------------------------------------


def finding(rule: str = "not-jitted", severity="warning", where=None, **more) -> Finding:
    page = f"docs/reference/rules/{rule}.md"
    return Finding(rule, severity, f"the title of {rule}", ("seen one", "seen two"), "do this", page, where, **more)


def audit(folder: Path) -> Audit:
    """One of everything."""
    slow = finding(
        where=(str(folder / "a dir" / "träin.py"), 12), gain="measured: 2 ms → 1 ms per call (2×)", gain_s=1e-3
    )
    grave = finding("branch-on-value", "error", where=("/elsewhere/b.py", 3))
    silent = Suppressed(finding("cache-off", "info"), "new machines", "[tool.benchax.audit] of pyproject.toml")
    in_code = Suppressed(finding("trivial-jit", "info"), "called by others", "b.py:3")
    checked = (
        Checked("not-jitted", "is it jitted?", "finding"),
        Checked("branch-on-value", "does it branch?", "finding", "only one branch was seen"),
        Checked("cache-off", "is the cache on?", "finding"),
        Checked("donation-unused", "is it used?", "fine"),
        Checked("small-batch", "is it large?", "not applicable", "it has no batch"),
        Checked("mesh-mismatch", "does it fit?", "not applicable", "it has no batch"),
        Checked("numpy-inputs", "NumPy?", "not checked", "the time was used up"),
    )
    remarks = (Remark("how", "info", "it was traced"),)
    return Audit("step", "f32[8]", (grave, slow), checked, (silent, in_code), remarks, 31.2)


def clean() -> Audit:
    checked = (
        Checked("not-jitted", "is it jitted?", "fine"),
        Checked("small-batch", "?", "not applicable", "no batch"),
    )
    return Audit("clean", "f32[8]", checked=checked, elapsed_s=2.0)
