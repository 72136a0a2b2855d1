"""Records what has to stay the same while code is rebuilt, and compares the code with the record.

    python tests/goldens record                             # contract, codec, printed, findings
    python tests/goldens compare                            # prints what differs, and exits with 1 then
    python tests/goldens compare --only printed,contract    # some seconds
    python tests/goldens compare --only findings --filter clean
    python tests/goldens record --only census,ratios        # need a quiet machine; a quarter of an hour

The records are the text files in tests/goldens/recorded. Record only after you have read the differences.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

TESTS = Path(__file__).parents[1]
PARTS = {
    "contract": "names, signatures, options, keys of JSON and SARIF, rules, remarks, variants",
    "codec": "the documents of stored rows, and the CSV rows of the pytest plugin",
    "printed": "what commands print about stored rows, and help, with exit codes",
    "findings": "what an audit finds in the programs of tests/auditing/programs",
    "census": "one word for each function and timer of benchmarks/census.py --limit 24",
    "ratios": "the measured ratios of benchmarks/accuracy.py --quick, rounded to 0.1",
}
SLOW = ("census", "ratios")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("--only", metavar="PARTS", help=f"separated by commas: {', '.join(PARTS)}")
    parser.add_argument("--filter", default="", metavar="TEXT", help="sections whose title contains it")
    parser.add_argument("--missing", action="store_true", help="record only sections that are not recorded yet")
    parser.add_argument("--workers", type=int, default=2, help="audits at the same time (default: 2)")
    parser.add_argument("--runs", type=int, default=2, help="runs of each audit; lines that vary are marked with ~")
    given = parser.parse_args()
    chosen = given.only.split(",") if given.only else [part for part in PARTS if part not in SLOW]
    if unknown := [part for part in chosen if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; expected some of {', '.join(PARTS)}")
    sys.path[:1] = [str(TESTS), str(TESTS.parent / "benchmarks"), str(TESTS.parent / "docs" / "_ext")]
    with tempfile.TemporaryDirectory() as folder:
        _isolate(Path(folder))
        if given.action == "record":
            for part in chosen:
                _record(part, given)
        else:
            sys.exit(_compare(chosen, given))


def _isolate(folder: Path) -> None:
    """Nothing of this user or terminal, and only the CPU. Before anything imports JAX."""
    for name in [name for name in os.environ if name.startswith("BENCHAX_") or name == "FORCE_COLOR"]:
        del os.environ[name]
    os.environ |= {"COLUMNS": "80", "NO_COLOR": "1", "JAX_PLATFORMS": "cpu", "PYTHONWARNINGS": "ignore"}
    os.environ |= {name: str(folder / "home") for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")}
    (folder / "home").mkdir()
    (folder / "project").mkdir()
    os.chdir(folder / "project")


def _choose(part: str, given: argparse.Namespace) -> dict:
    """Sections whose title contains the text of --filter."""
    return {title: make for title, make in _sections(part).items() if given.filter in title}


@cache
def _sections(part: str) -> dict:
    return import_module(f"goldens.{part}").sections()


def _texts(part: str, sections: dict, given: argparse.Namespace) -> dict[str, str]:
    from goldens import records

    workers = given.workers if part == "findings" else 1
    return records.make(sections, workers, lambda title: _tell(f"{part}: {title}"))


def _record(part: str, given: argparse.Namespace) -> None:
    from goldens import records

    kept = records.read(part) if given.filter or given.missing else {}
    chosen = {t: make for t, make in _choose(part, given).items() if t not in kept or not given.missing}
    runs = [_texts(part, chosen, given) for _ in range(given.runs if part == "findings" else 1)]
    made = {title: records.join([run[title] for run in runs]) if runs[1:] else runs[0][title] for title in chosen}
    for title in made:
        if made[title].startswith(records.FAILED):
            _tell(f"warning: {title} {made[title]}")
    kept |= made | {"recorded with": _versions()}
    records.write(part, {title: kept[title] for title in ("recorded with", *_sections(part)) if title in kept})
    _tell(f"{len(chosen)} sections are recorded in {records.file_of(part)}")


def _compare(parts: list[str], given: argparse.Namespace) -> int:
    from goldens import records

    compared, different = 0, []
    for part in parts:
        recorded = records.read(part)
        if not recorded:
            raise SystemExit(f"{part} was never recorded\nrecord it with: python tests/goldens record --only {part}")
        if (then := recorded.pop("recorded with")) != _versions():
            _tell(f"note: {part} was recorded with {then}; this is {_versions()}")
        chosen = _choose(part, given)
        # What was recorded and exists no more differs too.
        chosen = {title: None for title in recorded if given.filter in title} | chosen
        if part == "findings" and (new := [title for title in chosen if title not in recorded]):
            _tell(f"note: {len(new)} programs were never recorded, and are not compared; record --missing does it")
            chosen = {title: make for title, make in chosen.items() if title in recorded}
        now = _texts(part, {title: make for title, make in chosen.items() if make}, given)
        for title in chosen:
            compared += 1
            old, new = recorded.get(title, ""), now.get(title, "")
            if not records.is_same(old, new) and not (part == "findings" and _is_same_again(title, old)):
                different.append(f"{part}, " + records.difference(title, old, new))
    print(
        f"{len(different)} of {compared} sections differ from the record" if different else f"{compared} are the same"
    )
    for text in different:
        print(f"\n{text}")
    return int(bool(different))


def _is_same_again(title: str, recorded: str) -> bool:
    """A finding can depend on the load of the machine: a difference counts if a second audit shows it, too."""
    from goldens import records

    again = records.make({title: _sections("findings")[title]}, 1, _tell) if title in _sections("findings") else {}
    return records.is_same(recorded, again.get(title, ""))


def _versions() -> str:
    return f"Python {sys.version_info.major}.{sys.version_info.minor}, JAX {version('jax')}"


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
