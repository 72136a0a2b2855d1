"""Whole modules read from their text: on texts of two versions of jax, kept as files, and on small literal ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchax.program import hlo_module

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "hlo").glob("*/*.txt"))


def name_of(file: Path) -> str:
    return f"{file.parent.name}/{file.stem}"


def test_reading_and_drawing_need_no_jax() -> None:
    code = "import sys, benchax.program.graph; sys.exit('jax' in sys.modules or 'numpy' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("file", GOLDEN, ids=name_of)
def test_every_instruction_is_read_with_all_its_operands(file: Path) -> None:
    text = file.read_text()
    module = hlo_module.parse(text)

    instructions = [(c, i) for c in module.computations.values() for i in c.instructions]

    assert sum(line.lstrip().startswith(("%", "ROOT")) and " = " in line for line in text.splitlines()) == len(
        instructions
    )
    assert [
        i.name for c, i in instructions if i.opcode != "constant" and i.operands.count("%") != len(c.operands(i))
    ] == []
    assert module.entry is not None
    assert all(c.root is not None for c in module.computations.values())


@pytest.mark.parametrize("file", GOLDEN, ids=name_of)
def test_every_computation_is_reached_from_the_entry(file: Path) -> None:
    module = hlo_module.parse(file.read_text())
    assert module.entry is not None

    reached = {module.entry.name}
    todo = [module.entry]
    while todo:
        found = [c for i in todo.pop().instructions for _, c in module.called_computations(i) if c.name not in reached]
        reached |= {c.name for c in found}
        todo += found

    assert reached == set(module.computations)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (", kind=kLoop, calls=%f.1", [("kind", "kLoop"), ("calls", "%f.1")]),
        (", dimensions={}, x={a, {b, c}}", [("dimensions", "{}"), ("x", "{a, {b, c}}")]),
        (', metadata={op_name="a}, b=\\"{"}, index=1', [("metadata", '{op_name="a}, b=\\"{"}'), ("index", "1")]),
        (', t="a,b", slice={[0:1], [0:8]}', [("t", '"a,b"'), ("slice", "{[0:1], [0:8]}")]),
        (
            ", replica_groups=mesh['d'=4] {'d'}, use_global_device_ids=true",
            [("replica_groups", "mesh['d'=4] {'d'}"), ("use_global_device_ids", "true")],
        ),
        (', backend_config={"n":"5","l":[]}', [("backend_config", '{"n":"5","l":[]}')]),
    ],
)
def test_attributes_are_split_outside_of_brackets_and_quotes(text: str, expected: list[tuple[str, str]]) -> None:
    assert hlo_module.split_entries(text) == expected


@pytest.mark.parametrize(
    ("key", "value", "names"),
    [
        ("calls", "%f.1", ["f.1"]),
        ("to_apply", "add", ["add"]),
        ("branch_computations", "{%a, %b}", ["a", "b"]),
        ("control-predecessors", "{%x, %y}", ["x", "y"]),
        ("direction", "LT", []),
        ("opaque", '"%f \\"%g\\" %h"', []),
    ],
)
def test_names_are_found_where_a_value_refers_to_something(key: str, value: str, names: list[str]) -> None:
    assert hlo_module.named_in(key, value) == names
    assert all(f"<{n}>" in hlo_module.rename(key, value, {n: f"<{n}>"}) for n in names)
    assert hlo_module.rename(key, value, {"f": "<f>", "h": "<h>"}) == value


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (r"a", "a"),
        (r"params[\'w\']", "params['w']"),
        (r"\303\251)(", "é)("),
        (r"\"\\n", '"\\n'),
        (r"a\nb", "a\nb"),
        (r"\377", "\ufffd"),
    ],
)
def test_the_escapes_of_quoted_text_are_undone(escaped: str, text: str) -> None:
    assert hlo_module.unescape(escaped) == text


@pytest.mark.parametrize("file", [f for f in GOLDEN if f.stem == "odd"], ids=lambda file: file.parent.name)
def test_the_name_of_an_argument_is_what_jax_calls_it(file: Path) -> None:
    entry = hlo_module.parse(file.read_text()).entry
    assert entry is not None

    names = [hlo_module.op_name(i) for i in entry.instructions if i.opcode == "parameter"]

    assert names == ["names['a}\" <&> b']", "names['é)(']"]


@pytest.mark.parametrize("text", ["", "HloModule m", "\n", "not HLO at all {\n}", "ENTRY %e (x: f32[]) -> f32[] {"])
def test_what_is_no_program_is_an_empty_one(text: str) -> None:
    assert [c.instructions for c in hlo_module.parse(text).computations.values() if c.instructions] == []
