"""Audits programs with one planted pitfall each, and others without any: what is found, and what following it gains.

    pip install optax equinox flax diffrax numpyro blackjax
    python benchmarks/audit_planted.py                   # audits all; takes about an hour
    python benchmarks/audit_planted.py --only key        # those whose name contains it
    python benchmarks/audit_planted.py --gains           # also times each planted program with and without its remedy

A pitfall is found if a finding of one of the expected rules names one of the lines marked `# here` or `# or here`, as
its own line or a related one, and the program with its remedy no longer has that finding. Times are of the program
after its imports, the best of three runs that alternate.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from planted.clean import CLEAN
from planted.fresh import FRESH
from planted.fresh_clean import FRESH_CLEAN
from planted.held_out import HELD_OUT
from planted.newcomers import NEWCOMERS
from planted.newcomers_clean import NEWCOMERS_CLEAN
from planted.planted import TUNED, Planted, is_found
from planted.strangers import STRANGERS
from planted.strangers_clean import STRANGERS_CLEAN
from planted.unseen import UNSEEN

from benchax.auditing.audited_program import audit_program
from benchax.results.audit import Finding

PLANTED = {
    "tuned": TUNED,
    "held-out": HELD_OUT,
    "unseen": UNSEEN,
    "fresh": FRESH,
    "strangers": STRANGERS,
    "newcomers": NEWCOMERS,
}
WITHOUT = {
    "clean": CLEAN,
    "fresh-clean": FRESH_CLEAN,
    "strangers-clean": STRANGERS_CLEAN,
    "newcomers-clean": NEWCOMERS_CLEAN,
}
RUNS = 3
MOST_INFOS = 3
TIMED = """
import runpy, sys, time, jax, numpy
try:
    import optax, flax.nnx, flax.linen, equinox
except ImportError:
    pass
begun = time.perf_counter()
runpy.run_path(sys.argv[1], run_name="__main__")
print(time.perf_counter() - begun, file=sys.stderr)
"""


def audit_text(text: str, devices: int = 1) -> tuple[Finding, ...]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.py")
        path.write_text(text, encoding="utf-8")
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
        found = audit_program([sys.executable, str(path)])
        if found.ended.exit_code:
            raise SystemExit(f"the program failed with {found.ended.exit_code}:\n{text}")
        return found.audit.findings


def located(findings: tuple[Finding, ...]) -> list[tuple[str, int]]:
    return [(finding.rule, line) for finding in findings for _, line in finding.lines]


def best_s(text: str, devices: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.py")
        path.write_text(text, encoding="utf-8")
        env = os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
        done = subprocess.run(
            [sys.executable, "-c", TIMED, str(path)], env=env, capture_output=True, text=True, check=True
        )
        return float(done.stderr.strip().splitlines()[-1])


def gain(planted: Planted) -> str:
    pairs = [(best_s(planted.text, planted.devices), best_s(planted.followed, planted.devices)) for _ in range(RUNS)]
    before, after = (min(times) for times in zip(*pairs, strict=True))
    return f"{before:.2f} s -> {after:.2f} s ({before / after:.2f}x)"


def report_planted(planted: Planted, *, with_gain: bool) -> bool:
    findings = audit_text(planted.text, planted.devices)
    seen = is_found(planted, located(findings))
    left = {f.rule for f in audit_text(planted.followed, planted.devices)} & set(planted.rules) if seen else set[str]()
    outcome = "MISSED" if not seen else f"found, but still there afterwards: {left}" if left else "found"
    print(f"\n## {planted.name}: {outcome}", flush=True)
    for f in findings:
        print(f"- {f.severity} {f.rule} line {f.where[1] if f.where else None}: {f.title} [{f.gain or 'no gain told'}]")
    if with_gain and not planted.is_about_results:
        print(f"- followed: {gain(planted)}", flush=True)
    return seen and not left


def report_clean(name: str, text: str) -> Counter[str]:
    findings = audit_text(text)
    counts = Counter(f.severity for f in findings)
    print(f"\n## clean, {name}: {dict(counts)}", flush=True)
    for f in findings:
        print(f"- {f.severity} {f.rule} line {f.where[1] if f.where else None}: {f.title}")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="programs whose name contains it")
    parser.add_argument("--kind", choices=(*PLANTED, *WITHOUT), help="only these")
    parser.add_argument("--gains", action="store_true", help="time each program against the one with its remedy")
    asked = parser.parse_args()
    for kind, programs in PLANTED.items():
        chosen = [p for p in programs if asked.only in p.name and asked.kind in (None, kind)]
        found = [report_planted(p, with_gain=asked.gains) for p in chosen]
        if chosen:
            print(f"\n# {kind}: {sum(found)} of {len(found)} found")
    for kind, texts in WITHOUT.items():
        counts = [report_clean(n, t) for n, t in texts.items() if asked.only in n and asked.kind in (None, kind)]
        if counts:
            warned = sum(bool(c["warning"] + c["error"]) for c in counts)
            many = sum(c["info"] > MOST_INFOS for c in counts)
            print(f"\n# {kind}: {warned} of {len(counts)} with warnings, {many} with more than {MOST_INFOS} infos")


if __name__ == "__main__":
    main()
