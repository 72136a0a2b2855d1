"""The data types of benchax, all frozen. Read this first.

    CaseId        which case a row belongs to                                          identity.py
    Environment   where it ran
    Program       the measured function, kept so that it can run again
    WorkPerCall   the work of one call, as its author states it
    Stages        the one-time steps: transfer, trace, lower, compile, ...             measurement.py
    Samples       raw clock readings of one timer
    Census        the operations in a timer's interval, and those of the function's own executable
    Memory, Cost  bytes and operations, each with its origin
    Numerics      how far the compiled outputs are from a reference
    Noise         the machine's load by other processes at the same time
    EarlierRuns   readings of earlier runs of the same program
    Devices       on how many devices a program ran, and how busy each was
    Ranks         the processes of a program, and the time of each
    Remark        a sentence that explains the numbers
    Failure       why there is no number
    Rate          how much work is done in a second
    Measurement   one case, one environment, one run: one row
    Block         samples of two versions, taken alternately
    Comparison    two versions of a case, judged by one metric

Seconds and bytes everywhere. `None` means *not measured*, never zero, and `Measurement.not_measured` says why.
Raw readings are kept; everything else (`per_call_s`, summaries) is derived when asked for.
"""

from benchax.model.identity import (
    NOT_COMPARED,
    CaseId,
    Environment,
    Opaque,
    Program,
    Scalar,
    WorkPerCall,
)
from benchax.model.measurement import (
    METRICS,
    OTHER_PROCESSES,
    TIMERS,
    Absent,
    Block,
    Cache,
    CallFloor,
    Census,
    Cold,
    Comparison,
    Cost,
    Devices,
    DeviceShare,
    EarlierRuns,
    Estimate,
    Failure,
    FailureKind,
    Form,
    Measurement,
    Memory,
    Method,
    Metric,
    Noise,
    Numerics,
    Ranks,
    RankTimes,
    Rate,
    Remark,
    Samples,
    Severity,
    Stages,
    Stop,
    Transfer,
    Version,
    find_why,
)
from benchax.options import Options

__all__ = [
    "METRICS",
    "NOT_COMPARED",
    "OTHER_PROCESSES",
    "TIMERS",
    "Absent",
    "Block",
    "Cache",
    "CallFloor",
    "CaseId",
    "Census",
    "Cold",
    "Comparison",
    "Cost",
    "DeviceShare",
    "Devices",
    "EarlierRuns",
    "Environment",
    "Estimate",
    "Failure",
    "FailureKind",
    "Form",
    "Measurement",
    "Memory",
    "Method",
    "Metric",
    "Noise",
    "Numerics",
    "Opaque",
    "Options",
    "Program",
    "RankTimes",
    "Ranks",
    "Rate",
    "Remark",
    "Samples",
    "Scalar",
    "Severity",
    "Stages",
    "Stop",
    "Transfer",
    "Version",
    "WorkPerCall",
    "find_why",
]
