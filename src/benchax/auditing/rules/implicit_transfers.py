"""Finds lines that read results back to the host, or send arrays to the device, without asking for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.rule import Gain, rule
from benchax.auditing.syntax import where_of
from benchax.auditing.wait_notes import SHARE_OF_READS, is_dear
from benchax.errors import NotMeasured
from benchax.measuring.diagnosis import diagnose
from benchax.results.audit import Finding
from benchax.results.transfers import ObservedTransfer, Transfers
from benchax.static_leaves import reveal
from benchax.units import seconds, size
from benchax.watching.transfers import watch_transfers

MOST_LINES = 5
OFTEN = 20
"""A program may well read a result at its end, or after each of some epochs."""
PER_CALL = 0.2
"""Reads of a program for each call of a jitted function: what is read every tenth step is what the advice asks for."""
TO_HOST = (
    "The host waits there for the device. Keep the value on the device (jnp.where, jax.lax.cond), or read it less "
    "often: every hundredth step, or once at the end with jax.device_get."
)
OF_PACKAGE = (
    "Ask the package not to, or less often: mostly it shows how far it is, as by progress_bar=True, or calls what you "
    "gave it after each step."
)
TO_DEVICE = "Make the array once and on the device, outside of the calls: jnp.asarray(...), or jax.device_put."


@rule("implicit-transfers", "does data go to and fro without being asked?", "warning", of="both")
def implicit_transfers(e: Evidence | ProgramEvidence) -> Iterable[Finding]:
    transfers, of_what = _observe(e)
    if "device to host" not in transfers.sees:
        raise NotMeasured("transfers to the host cannot be seen in this JAX")
    is_program = isinstance(e, ProgramEvidence)
    read = [t for t in transfers.of("device to host") if not isinstance(e, ProgramEvidence) or _is_dear(t, e.facts)]
    for t in read[:MOST_LINES]:
        is_packages = isinstance(e, ProgramEvidence) and _is_read_by_package(t, e.facts)
        yield _finding(t, f"reads {t.what} back by {t.by}", TO_HOST, of_what, is_packages=is_packages)
    if is_program:
        return  # its NumPy arguments are another rule's: numpy-inputs
    sent = transfers.of("host to device")
    arrays = [t for t in sent if t.what.startswith("NumPy ") and not t.what.endswith("[]")]
    for t in arrays[:MOST_LINES]:
        yield _finding(t, f"sends {t.what} to the device for {t.by}", TO_DEVICE, of_what)


def _is_dear(t: ObservedTransfer, facts: Mapping[str, Any]) -> bool:
    """Is it read so often in a program that it may cost something?"""
    calls = facts.get("calls", {})
    # What is read one behind the other, as all results at the end, waits once.
    if t.count - t.in_a_row < max(OFTEN, PER_CALL * calls.get("jitted", 0)):
        return False
    # Where the host does next to nothing from one read to the next, as between epochs that are one call each, nothing
    # could run side by side. Where that was not seen, it may.
    seen = [line for line in calls.get("reads", ()) if (line["where"], line["by"]) == (t.where, t.by)]
    return not seen or any(is_dear(line, SHARE_OF_READS) for line in seen)


def _is_read_by_package(t: ObservedTransfer, facts: Mapping[str, Any]) -> bool:
    """Is it read inside of the call of a package that makes all calls of jitted functions, too: of a sampler? A line
    that gives `tqdm` a loss makes none."""
    calls = [line for line in facts.get("lines", ()) if line["where"] == t.where]
    return bool(calls) and all(line.get("inside", 0) == line["count"] for line in calls)


def _observe(e: Evidence | ProgramEvidence) -> tuple[Transfers, str]:
    if isinstance(e, ProgramEvidence):
        if e.transfers is None:
            raise NotMeasured("transfers of the program were not watched")
        return e.transfers, "while it was watched"
    # What compiles is called so, for then constants are part of the program.
    call = e.prepared.program.call if e.failure is None else e.fn
    try:
        _call_once(call, e)  # transfers while it compiles are no part of a call
        with watch_transfers() as transfers:
            _call_once(call, e)
    except NotMeasured:  # it must not be called
        raise
    except Exception as error:
        raise NotMeasured(f"calling it fails: {diagnose(error, 'call').message}") from error
    return transfers, "in one call"


def _finding(t: ObservedTransfer, title: str, advice: str, of_what: str, *, is_packages: bool = False) -> Finding:
    seen = [f"{t.count} × {of_what}, {size(t.size_bytes)} together"]
    if is_packages:
        seen.append("a package that this line calls reads it, and calls the jitted functions, too")
    gain = None
    if t.elapsed_s is not None:
        seen.append(f"the host spent {seconds(t.elapsed_s)} in them, waiting for results included")
        if t.direction == "device to host" and of_what == "in one call":
            gain = Gain(f"estimated: at most {seconds(t.elapsed_s)} per call", t.elapsed_s)
    return implicit_transfers.finding(
        title,
        seen,
        OF_PACKAGE if is_packages else advice,
        where=where_of(t.where),
        gain=gain,
        severity="info" if is_packages else None,
    )


def _call_once(call: Callable[..., Any], e: Evidence) -> None:
    args, kwargs = reveal(e.fresh_inputs()) if call is e.fn else e.fresh_inputs()
    jax.block_until_ready(call(*args, **kwargs))
