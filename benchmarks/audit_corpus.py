"""Audits the programs of tests/auditing/programs: what is found at the marked lines, and what is said of clean ones.

    pip install optax equinox flax diffrax numpyro blackjax
    python benchmarks/audit_corpus.py               # all, some minutes
    python benchmarks/audit_corpus.py --only key    # those whose name contains it

A marked line counts as found if a finding of its rule names it, as its own line or a related one.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from auditing import corpus

MOST_INFOS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="programs whose name contains it")
    asked = parser.parse_args()
    marked = missed = programs = false = clean = warned = many = 0
    with corpus.auditor() as audit:
        for program in corpus.programs():
            if asked.only not in program.name:
                continue
            if program.missing:
                print(f"{program.name}: not audited, {', '.join(program.missing)} is not installed")
                continue
            audits = audit(program, None).values()
            findings = [finding for found in audits for finding in found.findings]
            if program.is_bad:
                marks = {(rule, line) for rule, line, _ in program.marks}
                left = marks.difference(*(program.named(found) for found in audits))
                marked, missed = marked + len(marks), missed + len(left)
                for rule, line in sorted(left):
                    print(f"{program.name}: missed {rule} at line {line}")
                continue
            is_clean = program.rule == corpus.CLEAN
            told = [f for f in findings if (f.severity != "info" if is_clean else f.rule == program.rule)]
            for f in told:
                print(f"{program.name}: {f.severity} {f.rule} {f.where}: {f.title}")
            if is_clean:
                clean, warned = clean + 1, warned + bool(told)
                many += sum(f.severity == "info" for f in findings) > MOST_INFOS
            else:
                programs, false = programs + 1, false + bool(told)
    print(f"marked lines: {marked - missed} of {marked} found")
    print(f"programs without the pitfall of their rule: {false} of {programs} with a finding of it")
    print(f"clean programs: {warned} of {clean} with warnings, {many} with more than {MOST_INFOS} infos")


if __name__ == "__main__":
    main()
