"""What cannot be meant: a message that quotes it and says what is permitted, exit code 2, and nothing is measured."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Benchax
from comparisons_by_hand import counted, series
from measurement_strategies import measured
from results_by_hand import every_result

from benchax.model import CaseId
from benchax.store.baselines import set_baseline
from benchax.store.comparisons import append
from benchax.store.database import open_store

LINES = """
benchax frob
benchax python train.py
benchax "python train.py"
benchax train.py
benchax model.py:loss f32[8]
benchax --vresion
run --timer cupti
run --max-time soon
run --max-tim 3
run --verify bits
run --processes many
run -p n
run -p m=4
run -k fft
run nowhere
run empty
run notes.txt
run other.py
run broken.py
run --dry-run broken.py
run jax.numpy:sort f33[8]
run jax.numpy:sort f32[-8]
run f.py:doubel f32[8]
run jax.nowhere:f f32[8]
run f.py:double f32[8] -k fft
run f.py:double f32[8] -p n=4
run bench_it.py:matmul f32[8]
run --mode gradd broken.py
run --work tokens broken.py
run --work tokens=many broken.py
run --break-even --no-jit
run --devices 1,2 --on ray
run --devices 1,2 --timer wall
run --html missing/p.html
compare v2
compare v1 --fail-slower 5
compare v1 --fail-slower -3%
compare v1 --fail-slower abc
compare v1 --fail-slower speed=5%
compare v1 --resolution 0.1%
compare --jax 0.9.2,0.10.2 --resolution 1%
compare --ref a --process-pairs --resolution 1%
compare --ref main --jax 0.9.2
compare --jax 0.9.2,
compare v1 --process-pairs
compare v1 v1 -p n=3
compare v1 --timeout soon
compare --ref main --benchmarks theirs
compare v1 -k nothing
compare v1 --store missing
compare f.py:double f32[8]
compare f.py:double f.py:double f.py:triple f32[8]
compare f.py:doubel f.py:triple f32[8]
compare nowhere:f f.py:double f32[8]
compare f.py:double f.py:triple f33[8]
compare f.py:double f.py:triple f32[8] --baseline doubel
compare f.py:double f.py:triple f32[8] --resolution fine
compare f.py:double f.py:triple f32[8] --max-time soon
compare f.py:double f.py:triple f32[8] --timeout -3
compare f.py:double f.py:triple f32[8] --plot nowhere/a.png
compare f.py:double f.py:triple f32[8] --ref main --baseline double
compare f.py:double f.py:triple f32[8] --fail-slower 5%
compare f.py:double f.py:triple f32[8] --store s
compare benchax.workloads:mlp benchax.workloads:selu
bisect
bisect main
bisect --jax 0.9.2
bisect --jax 0.9.2,0.9.2
bisect --jax 0.9.2,
bisect main main --max-time soon
compiled-grid f32[8]
compiled-grid f.py:double
compiled-grid jax.numpy:sum f32[8] axis=0
compiled-grid f.py:double f32[8] --html missing/p.html
doctor --aa --max-time soon
doctor --aa --max-time 0
doctor --max-time 3min
doctor --duration 0
doctor --duration -1
doctor --duration soon
demo gird
experiment
experiment f.py:double f32[8] --variants donat
experiment f.py:double f32[8] --variants donate --given donate
experiment f.py:double f32[8] --variants donate --given donate=7
experiment f.py:double f32[8] --variants bf16 --given donate=0
experiment f.py:double f32[8] --variants bf16 --given batch=x
experiment f.py:double f32[{n}] -p n=4,8
experiment f.py:double f32[8] --output no/such/folder
experiment f.py:double f32[8] --variant donate
experiment broken.py
export
export --format xml
export --format asv
export v1 --format asv -o x
export --format csv -o empty
export v9 --format csv
export --format csv --timer lop
import missing.json
import empty.json
import broken.json
grid nothing.py
grid .
grid f.py
grid broken.py
grid grid.py --timeout 0
grid grid.py --total-timeout nan
grid grid.py --trials 0
grid grid.py --timer sundial
grid grid.py --memory-limit lots
grid grid.py --resume nothing
grid grid.py --csv no/such/folder.csv
history mathmul
history fft --baseline v1.3
history --baseline x
history --metric speed
history --metric flops
history --plot x.png
history fft --plot no/x.png
history fft --plot x.xyz
history --store fresh
history --store missing
inspect f.py:double f32[3] --show hol
inspect f.py:double f32[3] --show ""
inspect f.py:double f32[3] --show graph
inspect f.py:double f32[3] --output no/such/file
inspect f.py:double f32[3] --output .
inspect f.py:double f32[3
inspect f.py:nothing f32[]
inspect f.py:double f32[3] --exit-code
inspect f.py:double f32[3] --diff f32[4] --time
inspect f.py:double f32[3] --diff f32[4] --show cost
inspect f.py:double f32[3] --diff f32[4] --html p.html
inspect f.py:double f32[3] --json --show cost
inspect f.py:double f32[3] --diff ""
inspect f.py:double f32[3] --diff f32[4
inspect f.py:double f32[3] --diff no.such:thing
inspect f.py:double f32[3] --diff jax:0.1
inspect bench_it.py --diff f32[4]
inspect bench_it.py -k n=4 --diff f32[4]
inspect bench_it.py --show graph --output g.svg
inspect bench_it.py --html page.html
profile
profile --
profile f.py:double f32[8] --read p
profile --read p -- python
profile --duration 0s -- python
profile --timeout soon -- python
profile --start-after soon -- python
profile -- "nö such program"
profile --serve 0
profile --serve 0 f.py:double f32[8]
profile --serve 0 --memory -- python
profile --serve 0 -o p -- python
profile --attach 1 -- python
profile --attach 1 --read p
profile --attach 0
profile --serve 65536 -- python
profile --read nowhere
profile --read empty
profile f.py:double f32[64,64] --compare nowhere
profile f.py:double f32[8] --html missing/p.html
profile f.py:double f32[8] --nsys --html p.html
audit f.py:double f32[8] --rules captured
audit f.py:double f32[8] --fail-on warn
audit f.py:double f32[8] --sarif no/such/folder/o.sarif
audit f.py:double f32[8] --timeout 0
audit f.py:double -- python train.py
audit --json -- python train.py
checklist f.py:double f32[8] --html missing/p.html
watch
watch --output no/such/folder/x.json -- true
watch --html missing/p.html -- true
watch --timeout 0 -- true
watch --timeout soon -- true
watch -- no-such-program
report nothing
report -k nope
report -o missing/a.html
report missing.jsonl
report broken.json
report binary.json
report --store missing
report audit.json -k f
report other_version.json
report damaged.json
report two_kinds.json
site --store missing
site -o notes.txt/site
list --frob
list --limit few
list --limit 0
list --limit -1
list --limit 99999999999999999999
list --store missing
list --store off
list --run nothing
show 99
show abc
show 1.5
show 99999999999999999999
show last~
show last~x
show last~99
show latest
show 1 2
show --store missing
show --store off
show 1 --store missing
baseline set
baseline set v1 nothing
baseline set last
baseline set last~1
baseline remove v9
explain foldet
"""
FILES = {
    "bench_it.py": "import benchax\n@benchax.benchmark(args=lambda n: (f'f32[{n}]',), n=[4, 8])\n"
    "def matmul(x): return x @ x\n",
    "f.py": "def double(x): return 2 * x\ndef triple(x): return 3 * x\n",
    "grid.py": "def double(x): return 2 * x\nfunctions = [double]\ndata = ['f32[4]']\n",
    "broken.py": "raise AssertionError('imported')\n",
    "other.py": "",
    "notes.txt": "",
    "empty.json": "[]",
    "broken.json": '{"a": 1}',
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With files of every kind, a run that has the name v1, comparisons of three cases, and results."""
    folder = tmp_path_factory.mktemp("refusals")
    (folder / "empty").mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "binary.json").write_bytes(b"\xff\xfe\x00")
    audit, checklist = (encode_result(every_result("f")[kind]) for kind in ("Audit", "Checklist"))
    damaged = '{"name": 3, "signature": "", "ticks": []}'
    for name, lines in {
        "audit": [audit], "other_version": [audit[:-1] + ', "of_tomorrow": 3}'], "damaged": [checklist, damaged],
        "two_kinds": [checklist, '{"other": 1}'],
    }.items():  # fmt: skip
        (folder / f"{name}.json").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    store = open_store(folder / ".benchmarks")
    store.append(measured("matmul", run="first"))
    set_baseline(store, "v1", "first")
    append(store, series([1.0, 1.1]))
    append(store, series([1.0, 1.0], case=CaseId("matmul", (("n", 512),))))
    append(store, series([1.0], case=CaseId("fft")))
    append(store, [counted(0, 2.0**20, case=CaseId("fft"))])
    open_store(folder / "fresh").append(measured("matmul"))
    return folder


def encode_result(result: Any) -> str:
    return json.dumps(result.asdict(), default=str)


@pytest.fixture
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder as it was before, also after a command that is refused."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = sorted(folder.rglob("*"))
    yield folder
    assert [str(file) for file in folder.rglob("*") if file not in before and "__pycache__" not in file.parts] == []


COMMANDS = list(dict.fromkeys(line.split()[0] for line in LINES.split("\n") if line))


@pytest.mark.parametrize("command", COMMANDS)
def test_what_cannot_be_meant_is_refused_before_anything_is_done(
    command: str, in_folder: Path, benchax: Benchax, snapshot: Any
) -> None:
    said: dict[str, str] = {}
    for line in LINES.split("\n"):
        if line.startswith(f"{command} ") or line == command:
            done = benchax(*shlex.split(line)[command == "benchax" :])
            assert (done.code, done.out) == (2, ""), line
            text = re.sub(r"(?s)Usage: .*", "a usage error\n", done.err.replace(str(in_folder), "FOLDER"))
            said[line] = re.sub(r"one of \d+ names", "one of N names", text)

    assert said == snapshot
    assert [line for line, text in said.items() if "Traceback" in text and "broken.py" not in line] == []
