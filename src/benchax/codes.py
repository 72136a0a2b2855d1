"""The registry of codes: what each remark and each kind of failure means. `benchax explain` and the reference read it.

A rule of `benchax audit` is registered with its check (`auditing/rules`), and an error is a class (`errors.py`).
"""

from __future__ import annotations

from typing import NamedTuple


class RemarkCode(NamedTuple):
    """The meaning of a remark with this code."""

    said_by: str
    """The verbs and commands that say it."""
    severity: str
    """info, warning, or error; several if it depends."""
    text: str


_RUN = "run, bench, grid"

REMARKS: dict[str, RemarkCode] = {
    # The function and its result
    "changed-by-tracing": RemarkCode(_RUN, "info",
        "Each trace changes an object of Python, and a compiled call does not. Python does this when the "
        "program is built."),
    "donation-unused": RemarkCode(_RUN, "warning",
        "No output has the shape, dtype, and layout of a donated argument, so the donation saves nothing."),
    "folded": RemarkCode(_RUN, "warning",
        "The compiled program does not depend on its inputs, or XLA computed a part of it at compile time. The time "
        "doesn't measure the work you wrote."),
    "fresh-copies": RemarkCode(_RUN, "info",
        "Each timed call gets fresh copies of the arguments that it donates, which no cache holds. A loop that "
        "keeps its data in a cache takes less."),
    "host-callbacks": RemarkCode(_RUN, "warning",
        "Each call runs Python on the host, or those that take a certain branch or loop do. Their time includes that."),
    "impure": RemarkCode(_RUN, "error",
        "Two traces of the function differ: it reads a value that changes on its own, and a compiled program "
        "keeps the first value. Pass such values as arguments."),
    "loop-counted-once": RemarkCode(_RUN, "info",
        "Operations and bytes count the body of each loop once, however often it runs."),
    "narrowed": RemarkCode(_RUN, "warning",
        "Inputs of 64 bits became inputs of 32 bits, because JAX's 64-bit mode is off."),
    "no-inputs": RemarkCode(_RUN, "warning",
        "The function takes no arrays, so XLA can compute the result at compile time. Pass the data as arguments."),
    "no-outputs": RemarkCode(f"{_RUN}, compare", "warning",
        "The function returns nothing. There is nothing to check, and XLA removes all work without side effects. "
        "Return the result."),
    "nonfinite-result": RemarkCode(_RUN, "warning",
        "The result holds NaN or infinities. Equal ones count as agreement. Check the inputs."),
    "not-jitted": RemarkCode(_RUN, "info",
        "You passed a function without jit, and benchax measured it with jit. To measure it without, use --no-jit "
        "(jit=False)."),
    "not-verified": RemarkCode(_RUN, "warning",
        "The result could not be checked against a reference. The remark gives the reason."),
    "numpy-inputs": RemarkCode(_RUN, "warning",
        "Inputs came as NumPy arrays and were put on the device once, before timing. A call with NumPy arrays "
        "moves them every time."),
    "page-faults": RemarkCode(_RUN, "warning",
        "The system maps large arrays again in every call on CPU, which can be most of the time."),
    "reads-clock": RemarkCode(_RUN, "warning",
        "The function reads the clock while it is traced, and a compiled call keeps that reading. To time a part "
        "of it, use benchax.clock."),
    "state-dropped": RemarkCode(_RUN, "error",
        "The eager call changes an object in place, and the compiled call neither changes it nor does the work "
        "for it. Return the new state, or use flax.nnx.jit."),
    "stateful": RemarkCode(_RUN, "info",
        "Each call changes an object in place. Every timer times these changes, and every call starts from the "
        "same values."),
    "undetermined-state": RemarkCode(_RUN, "warning",
        "The compiled and the eager run differ by as much as rounding alone changes this state, so it can't be "
        "verified."),
    "wrong-result": RemarkCode(_RUN, "error",
        "The compiled result differs from the reference by more than rounding explains."),
    # Times
    "busy": RemarkCode(f"{_RUN}, doctor", "warning",
        "Other processes used the CPU at the same time. Times come out long, and differ from run to run."),
    "coarse-clock": RemarkCode(_RUN, "warning",
        "One sample lasts few steps of the clock, so its reading is inexact."),
    "dispatch-bound": RemarkCode(_RUN, "warning",
        "Most of the time is the cost of a call, not the work inside it. Inside a bigger program, you don't pay "
        "that on each call."),
    "inline-limit": RemarkCode(f"{_RUN}, compare", "info, warning",
        "XLA:CPU runs programs above a number of operations in its thread pool, where a call costs more. Two "
        "versions can lie on different sides of that limit."),
    "more-than-a-call": RemarkCode(_RUN, "warning",
        "A call reads shorter than the work inside it. The machine changed its speed, or XLA compiles the "
        "function differently for the timers. Measure again."),
    "no-interval": RemarkCode(_RUN, "warning",
        "The median has no interval: there are too few readings, or the machine kept changing its pace. Sample "
        "for longer, or in several processes."),
    "not-steady": RemarkCode(_RUN, "warning",
        "Times still changed when warming up ended. The first samples can be slower than the last."),
    "one-at-a-time": RemarkCode(_RUN, "info",
        "The device timer records runs one at a time, with Python in between. Without a pause, a run can take "
        "another time."),
    "recompiled": RemarkCode(_RUN, "error",
        "A program compiled while a timer sampled, so the times contain compiling. A shape, dtype, static value, "
        "or function object changes from call to call."),
    "resident-far-below-wall": RemarkCode(_RUN, "warning, info",
        "A call takes much longer than the work inside it plus the cost of a call. For the latency of calls, use "
        "wall."),
    "timers-apart": RemarkCode(_RUN, "warning",
        "Two timers disagree about the same work. Measure again, and trust what repeats."),
    "uneven-calls": RemarkCode(_RUN, "info",
        "The shortest call takes much less than the mean: some calls wait until a thread of XLA's pool wakes."),
    # Several devices and processes
    "fake-devices": RemarkCode(_RUN, "warning",
        "One CPU pretends to be several devices. Counts, bytes, and results are those of real devices, times are "
        "not."),
    "late-rank": RemarkCode("run", "warning",
        "One process of the program ended last in most samples."),
    "ranks-share-cores": RemarkCode("run", "warning",
        "The processes of the program share cores, and wait for one another."),
    "start-skew": RemarkCode("run", "warning",
        "In some samples the processes began far apart. These samples are marked."),
    # Grids
    "output-shape": RemarkCode("grid", "info",
        "The structure, shapes, and types of the outputs of this cell."),
    "outputs-differ": RemarkCode("grid, compare", "info, error",
        "Two functions give different results for the same inputs."),
    # Comparisons
    "alone-differs": RemarkCode("compare", "warning",
        "Called in a row, the versions compare differently than called alternately: each leaves caches and memory in "
        "another state. Use the figure that matches your program."),
    "baseline-failed": RemarkCode("compare", "warning",
        "The baseline failed, and another function is the baseline instead."),
    "not-exported": RemarkCode("compare", "warning",
        "One version ran as it is, next to an exported program, because it can't be exported."),
    "not-pinned": RemarkCode("compare", "warning",
        "This system can't pin processes to a core, so more verdicts are unclear."),
    "one-core": RemarkCode("compare", "info",
        "Each version ran in separate processes on one core. Its speed on several cores was not measured."),
    "other-device": RemarkCode("compare", "info",
        "The row was measured on another device than the one on which both versions ran."),
    "other-jax": RemarkCode("compare", "info",
        "The stored program was made by another JAX, and both versions ran under this one. Neither shows the "
        "changes in JAX."),
    "outputs-not-compared": RemarkCode("compare", "warning",
        "The results of the versions were not compared. The remark gives the reason."),
    "random-data": RemarkCode("compare", "info",
        "Both versions ran on random data of the shapes that they take."),
    # Experiments
    "advice": RemarkCode("experiment, show", "info",
        "Advice about these results."),
    "chaotic": RemarkCode("experiment", "warning",
        "The function amplifies rounding until nothing of its result is left. Errors of variants are meaningless "
        "here; times are valid."),
    "no-ablation": RemarkCode("experiment", "warning",
        "The variants could not be tried all together, so nothing can be left out in turn."),
    "no-combination": RemarkCode("experiment", "warning, info",
        "The variants could not be tried all together."),
    "not-combined": RemarkCode("experiment", "warning",
        "One variant is off where all others are tried together."),
    "nothing-tried": RemarkCode("experiment", "warning",
        "No variant was tried. The remark gives the reason."),
    "without-wrapper": RemarkCode("experiment", "info",
        "All rows are measured without the Python of your function's wrapper, which each of your calls also "
        "takes."),
    "wrapper-stays": RemarkCode("experiment", "warning",
        "The wrapper can't be taken away from the function, so no variant that changes the function is tried."),
    # Audits
    "calls-window": RemarkCode("audit", "info",
        "Calls and transfers of the program were watched for a limited time. Compilations were watched to the "
        "end."),
    "how": RemarkCode("audit", "info",
        "How often the function was called for the audit, and where."),
    "not-built": RemarkCode("audit", "error, warning",
        "The function could not be traced or compiled, so rules about its program have no answer."),
    "not-called": RemarkCode("audit", "error, warning",
        "The function could not be called, so rules about calls have no answer."),
    "not-called-unjitted": RemarkCode("audit", "error, warning",
        "The function could not be called without jit, so rules about that call have no answer."),
    "not-read": RemarkCode("audit", "info",
        "One function of the program was not looked at. The remark gives the reason."),
    "process": RemarkCode("audit", "warning",
        "An event in one process of the program."),
    "ran-once": RemarkCode("audit", "info",
        "The program ran once, unchanged."),
    "read": RemarkCode("audit", "info",
        "Functions of the program were traced and compiled again at its end, and not called."),
    "without-limit": RemarkCode("audit", "warning",
        "The function was called in this process without a limit of time, because it can't go to another process."),
    # Inspections
    "warned": RemarkCode("inspect", "warning",
        "JAX gave a warning while it traced or compiled."),
    # Watching
    "cache-off": RemarkCode("watch", "info",
        "The compilation cache is off, so the next process compiles all of this again. JAX_COMPILATION_CACHE_DIR "
        "switches it on."),
    "cache-threshold": RemarkCode("watch", "warning",
        "Programs that compile faster than a threshold are not kept, and compile again in the next process."),
    "cache-unwritable": RemarkCode("watch", "warning",
        "The folder of the compilation cache can't be written to, so nothing is kept."),
    "functions": RemarkCode("watch", "info",
        "There are more functions than the table shows."),
    "lost-events": RemarkCode("watch", "warning",
        "The program removed JAX's listeners, so compilations can be missing."),
    "threads": RemarkCode("watch, doctor", "info",
        "Several Python threads are alive. Their times overlap, and while one computes, the others wait."),
    "transfers-in-place": RemarkCode("watch", "info",
        "On CPU, NumPy reads JAX's arrays where they are. That is no transfer, and is not listed."),
    "transfers-unseen": RemarkCode("watch", "warning",
        "This JAX does not show one direction of transfers, so none is listed."),
    "watch-failed": RemarkCode("watch", "warning",
        "An event could not be read, and is missing."),
    # Profiles
    "command-buffers": RemarkCode("profile", "warning",
        "Command buffers (CUDA graphs) are on, and kernels inside them can lack their HLO names."),
    "disk-full": RemarkCode("profile", "error",
        "The disk has too little free space for a trace."),
    "events-dropped": RemarkCode("profile", "error",
        "Events are missing from the trace, so all sums are too small."),
    "exposed-unknown": RemarkCode("profile", "info",
        "It isn't known what ran at the same time as communication: XLA:CPU reports the end of an "
        "operation of several threads late."),
    "half-communications": RemarkCode("profile", "warning",
        "The trace has only the beginning or the end of some communications. They took at least what is counted."),
    "maybe-cut": RemarkCode("profile", "warning",
        "The trace doesn't end as JAX's traces do. Perhaps it was cut."),
    "no-command-buffers": RemarkCode("profile", "info",
        "Command buffers (CUDA graphs) are off, so that each kernel shows. Starting a program takes longer."),
    "no-communication": RemarkCode("profile", "warning",
        "The communication of some devices isn't known, because the trace lacks their programs."),
    "no-folder": RemarkCode("profile", "error",
        "The trace can't be written to this folder."),
    "no-gpu-permission": RemarkCode("profile", "error",
        "Only root can see kernels on this machine. The remark says how to change that."),
    "no-operations": RemarkCode("profile", "error",
        "The trace has no operation of a compiled program."),
    "no-profile-options": RemarkCode("profile", "warning",
        "This JAX can't leave Python frames out of a trace, which slows the program and fills the trace."),
    "no-programs": RemarkCode("profile", "warning",
        "The trace lacks the programs, so scopes, lines, and communication are not known."),
    "no-verdict": RemarkCode("profile", "info",
        "Two recordings can't tell noise from a change. For a verdict, use `benchax compare`."),
    "open-calls": RemarkCode("profile", "warning",
        "Some operations had no end when the recording ended. They took at least what is counted."),
    "other-backend": RemarkCode("profile", "warning",
        "The two recordings are of different backends."),
    "profiler": RemarkCode("profile", "warning",
        "A message of JAX's profiler."),
    "profiler-running": RemarkCode("profile", "error",
        "Another profiler has the GPU's counters for itself. Profile with one of the two."),
    "profiler-warning": RemarkCode("profile", "warning",
        "A warning that the profiler wrote into the trace."),
    "recording": RemarkCode("profile", "warning",
        "A property of this recording, such as an early end."),
    "unverified": RemarkCode("profile", "warning",
        "benchax reads traces of this device as XLA's source describes them, and was not tried on one."),
    "viewer-cut": RemarkCode("profile", "warning",
        "Viewers show fewer events than the trace has, because JAX cuts them there."),
    # The machine
    "clock": RemarkCode("doctor", "warning",
        "The clock has coarse steps or is slow to read, so short samples are inexact."),
    "compile-cache": RemarkCode("doctor", "info",
        "JAX's compilation cache is on. A compile time may be the time of reading the cache; each row says so."),
    "confined": RemarkCode("doctor", "info",
        "This process may use some of the cores only. Compare only with runs confined in the same way."),
    "flags": RemarkCode("doctor", "info",
        "Environment variables change programs or their speed. Compare only with runs that had the same."),
    "gaps": RemarkCode("doctor", "warning",
        "Something keeps a process that never waits from running. Quote medians, and no single times."),
    "governor": RemarkCode("doctor", "warning",
        "The clock rate follows the load, so the first milliseconds of work run slower."),
    "inline-dispatch": RemarkCode("doctor", "info",
        "Asynchronous dispatch is off: a call returns when it is done. Compare only with runs that have it off "
        "too."),
    "interpreted-clock": RemarkCode("doctor", "warning",
        "The clock inside compiled code runs in Python. A C compiler makes it fast enough for short functions."),
    "jax-debugging": RemarkCode("doctor", "error",
        "JAX looks for errors in each call, so times do not hold for the program that users run."),
    "loaded": RemarkCode("doctor", "warning",
        "In the last minute, processes had to wait for cores."),
    "no-compiled-clock": RemarkCode("doctor", "warning",
        "There is no clock inside compiled code here. A slope times short functions instead, and deadlines inside "
        "jit are not available."),
    "noise-floor": RemarkCode("doctor", "warning",
        "A small slowdown would often be missed at the moment. Look for bigger effects, or wait until the machine "
        "is quiet."),
    "quota": RemarkCode("doctor", "warning",
        "The container may use fewer cores than XLA's thread pools assume, and pauses when its share is used up."),
    "slow-python": RemarkCode("doctor", "error",
        "This Python is slow, for example a debug build, or one under a debugger or coverage."),
    "small-pages": RemarkCode("doctor", "info",
        "Transparent huge pages are off, so calls that return big arrays pay for more page faults."),
    "smt": RemarkCode("doctor", "info",
        "Two hardware threads share each core, and work on one slows the other."),
    "stolen": RemarkCode("doctor", "warning",
        "The hypervisor gave CPU time to other machines."),
    "turbo": RemarkCode("doctor", "info",
        "The processor raises its clock rate while it is cool. Long and parallel runs are slower than short ones."),
    "unsteady": RemarkCode("doctor", "warning",
        "The same piece of work takes different times. Do not compare times of two runs."),
    "virtual-machine": RemarkCode("doctor", "info",
        "This is a virtual machine, where neighbours and clock rates can't be seen."),
    # Imported rows
    "imported": RemarkCode("import", "info",
        "The row comes from pytest-benchmark. How it waited for its calls is not known."),
    "imported-statistics": RemarkCode("import", "info",
        "Statistics that pytest-benchmark stored without the readings."),
}  # fmt: skip

FAILURES = {
    "error": "The function raised; `message` has the exception, `advice` what to do, if that is known.",
    "out_of_memory": "It asked for more than the device, or `memory_limit_bytes`, has.",
    "wrong_output": "Its result differs from the reference, and you asked for a failure then.",
    "wrong_shape": "Its outputs do not look like those of the first function of the grid, or `check` refused them.",
    "crashed": "The process died: a signal or an exit code, and the stage in which it was.",
    "timeout": "A stage took longer than its limit; the process was killed.",
    "not_run": "The total time was spent before it could run.",
    "node_lost": "Its node of a cluster was lost, and so were the nodes that measured it after that.",
    "interrupted": "Ctrl-C came while it was measured.",
}
"""Why a row has no numbers, by the kind of its failure."""
