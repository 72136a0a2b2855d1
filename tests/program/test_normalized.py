"""Is it the same program? Every change of the program shows, and nothing else does."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.program.hlo import digest, elides_constants, normalize, parse

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "hlo").glob("*/*.txt"))
LOOP = next(f for f in GOLDEN if f.parts[-2:] == ("jax-0.10.2", "loop.txt"))

# Parts of a line that say nothing about the program, so that no change of them has to show.
SILENT = re.compile(
    r"(?:, )?metadata=\{.*?\}(?=,|$)|/\*index=\d+\*/|channel_id=\d+|%[\w.\-]+|(?<=\])\{[\d,]+\}|^\s*(?:ROOT )?%\S+ = "
)


def name_of(file: Path) -> str:
    return f"{file.parent.name}/{file.stem}"


def compiled(fun: Callable[..., Any], *args: Any, **options: Any) -> str:
    return jax.jit(fun, **options).lower(*args).compile().as_text() or ""


def changed_lines(line: str) -> Iterator[str]:
    """One thing changed in each: a number, a word of the operation or an attribute, an operand."""
    kept = [m.span() for m in SILENT.finditer(line)]
    for token in re.finditer(r"\d+|[a-zA-Z][\w\-]*", line):
        if not any(start <= token.start() < end for start, end in kept):
            new = str(int(token[0]) + 1) if token[0].isdecimal() else token[0] + "x"
            yield line[: token.start()] + new + line[token.end() :]


def changed_operands(line: str, names: list[str]) -> Iterator[str]:
    head, equals, rest = line.partition(" = ")
    for operand in re.finditer(r"%[\w.\-]+", rest.split("), ")[0]):
        for other in {n for n in names if f"%{n}" != operand[0]}:
            yield f"{head}{equals}{rest[: operand.start()]}%{other}{rest[operand.end() :]}"


# Everything that changes the program shows


OLD_AND_NEW = [
    pytest.param(file, id=name_of(file), marks=[pytest.mark.slow] * (file.parent.name == "jax-0.6.0"))
    for file in GOLDEN
    if file.stem != "train"
]


@pytest.mark.slow
@pytest.mark.parametrize("file", OLD_AND_NEW)
def test_every_number_and_every_word_of_every_instruction_counts(file: Path) -> None:
    text = file.read_text()
    before = normalize(text)
    lines = text.splitlines()
    tried = 0

    for n, line in enumerate(lines):
        if " = " not in line or not line.lstrip().startswith(("%", "ROOT")):
            continue
        for other in changed_lines(line):
            tried += 1
            changed = "\n".join([*lines[:n], other, *lines[n + 1 :]])
            assert normalize(changed) != before, f"{line}\nbecame\n{other}"

    assert tried > 10


@pytest.mark.parametrize("file", [f for f in GOLDEN if f.stem in ("loop", "donated", "odd")], ids=name_of)
def test_every_operand_counts(file: Path) -> None:
    """Which value is read, and in which order: every operand replaced by every other value known before."""
    text = file.read_text()
    before = normalize(text)
    lines = text.splitlines()
    tried = 0

    for computation in parse(text).computations.values():
        known: list[str] = []
        for instruction in computation.instructions:
            n = next(i for i, line in enumerate(lines) if f"%{instruction.name} = " in line)
            for other in changed_operands(lines[n], known):
                tried += 1
                assert normalize("\n".join([*lines[:n], other, *lines[n + 1 :]])) != before, other
            known.append(instruction.name)

    assert tried > 0


def usual(x: Any, y: Any) -> Any:
    return jnp.sin(x) @ y


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (usual, lambda x, y: jnp.cos(x) @ y),
        (usual, lambda x, y: jnp.sin(y) @ x),
        (usual, lambda x, y: jnp.sin(x) @ y + 1e-7),
        (usual, lambda x, y: jnp.sin(jnp.sin(x)) @ y),
        (usual, lambda x, y: jnp.sin(x @ y)),
        (usual, lambda x, y: (jnp.sin(x) @ y).astype(jnp.bfloat16)),
    ],
    ids=["operation", "operands", "constant", "one more", "order", "dtype"],
)
def test_a_changed_program_differs(one: Callable[..., Any], other: Callable[..., Any]) -> None:
    x = jnp.ones((8, 8))

    assert normalize(compiled(other, x, x)) != normalize(compiled(one, x, x))


def test_donations_and_layouts_that_are_not_the_default_count() -> None:
    x, text = jnp.ones(8), LOOP.read_text()

    assert normalize(compiled(lambda x: x + 1, x, donate_argnums=0)) != normalize(compiled(lambda x: x + 1, x))
    for layout in ("{0,1}", "{1,0:T(8,128)}"):
        assert normalize(text.replace("f32[8,8]{1,0}", f"f32[8,8]{layout}")) != normalize(text)


# Nothing else does


@pytest.mark.parametrize("file", GOLDEN, ids=name_of)
def test_no_name_and_no_place_in_a_file_is_left(file: Path) -> None:
    text = normalize(file.read_text())

    assert not re.search(r"metadata|source_file|source_line|stack_frame|jit|model\.py|/\*|region|param_|main", text)
    assert sum(line.startswith("  ") for line in text.splitlines()) == sum(
        len(c.instructions) for c in parse(file.read_text()).computations.values()
    )


def renamed(text: str, seed: int) -> str:
    """Every name but those in quotes becomes another one."""
    draw = random.Random(seed)
    new: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        if found[1]:
            return found[0]
        return new.setdefault(found[0], f"%n{draw.randrange(10**9)}_{len(new)}")

    return re.sub(r'("(?:[^"\\]|\\.)*")|%[\w.\-]+', name, text)


def rescheduled(text: str, seed: int) -> str:
    """Each computation in another order that respects its operands, and the computations shuffled."""
    draw = random.Random(seed)
    module = parse(text)
    pieces = re.findall(r"^(?:ENTRY )?%\S+ \([^\n]*\{\n.*?^\}\n", text, re.MULTILINE | re.DOTALL)
    start = text[: text.index(pieces[0])]
    bodies = []
    for piece, computation in zip(pieces, module.computations.values(), strict=True):
        head, *lines, end = piece.splitlines()
        waiting = list(zip(computation.instructions, lines, strict=True))
        done: list[str] = []
        names: set[str] = set()
        while waiting:
            ready = [w for w in waiting if {o.name for o in computation.operands(w[0])} <= names]
            chosen = draw.choice(ready)
            waiting.remove(chosen)
            names.add(chosen[0].name)
            done.append(chosen[1])
        bodies.append("\n".join([head, *done, end]))
    draw.shuffle(bodies)
    return start + "\n\n".join(bodies) + "\n"


@given(file=st.sampled_from(GOLDEN), seed=st.integers(0, 10**6))
def test_names_and_the_schedule_do_not_count(file: Path, seed: int) -> None:
    text = file.read_text()
    other = renamed(rescheduled(text, seed), seed).replace("HloModule jit_", "HloModule jit_other_")

    assert other != text
    assert normalize(other) == normalize(text)


def test_hashes_of_the_text_and_numbers_of_channels_do_not_count() -> None:
    before = 'HloModule a, frontend_attributes={fingerprint_before_lhs="1f"}\n\nENTRY %e (x: f32[2]) -> f32[2] {\n'
    before += "  %x = f32[2]{0} parameter(0)\n  ROOT %r = f32[2]{0} all-reduce(%x), channel_id=3, to_apply=%add\n}\n"
    after = before.replace('"1f"', '"2e"').replace("channel_id=3", "channel_id=5")

    assert normalize(after) == normalize(before)
    assert "fingerprint" not in normalize(before)
    assert normalize(before.replace(', frontend_attributes={fingerprint_before_lhs="1f"}', "")) == normalize(before)


def test_source_lines_inside_of_a_sharding_do_not_count() -> None:
    before = "ENTRY %e (x: f32[2]) -> f32[2] {\n  ROOT %x = f32[2]{0} parameter(0), sharding={replicated"
    after = before + ' metadata={op_name="jit(f)/}" source_line=1}}\n}\n'

    assert normalize(after) == normalize(before + "}\n}\n")
    assert normalize(after.replace("replicated", "maximal device=0")) != normalize(after)


def test_what_must_run_before_counts_and_is_named_anew() -> None:
    text = (
        "ENTRY %e (x: f32[2]) -> f32[2] {\n  %x = f32[2]{0} parameter(0)\n"
        "  %a = f32[2]{0} one(%x)\n  %b = f32[2]{0} two(%x)\n"
        "  ROOT %r = f32[2]{0} three(%x), control-predecessors={%b, %a}\n}\n"
    )
    a, b = "  %a = f32[2]{0} one(%x)\n", "  %b = f32[2]{0} two(%x)\n"

    assert normalize(text.replace(a + b, b + a)) == normalize(text)
    assert normalize(text.replace("%a", "%else")) == normalize(text)
    assert normalize(text.replace("{%b, %a}", "{%b}")) != normalize(text)


def test_the_same_program_written_elsewhere_and_compiled_again_is_equal() -> None:
    def first(x: Any, limit: Any) -> Any:
        return jax.lax.while_loop(lambda c: c[0] < limit, lambda c: (c[0] + 1, jnp.sin(c[1]) @ c[1]), (0, x))

    def again(renamed_argument: Any, other: Any) -> Any:
        with jax.named_scope("somewhere else"):
            return first(renamed_argument, other)

    texts = [compiled(fn, jnp.ones((8, 8)), 5) for fn in (first, again)]

    assert texts[0] != texts[1]
    assert normalize(texts[0]) == normalize(texts[1])


# Constants that the text leaves out


def captured(value: float) -> tuple[str, str]:
    big = np.full(64, 1.0, np.float32)
    big[3] = value
    lowered = jax.jit(lambda x: x * big).lower(jnp.ones(64))
    return lowered.compile().as_text() or "", lowered.as_text()


def test_the_values_of_large_constants_come_from_the_lowered_program() -> None:
    (one, lowered_one), (two, lowered_two) = captured(1.5), captured(2.5)

    assert elides_constants(one)
    assert normalize(one) == normalize(two)  # the hole that `elides_constants` tells of
    assert normalize(one, stablehlo=lowered_one) != normalize(two, stablehlo=lowered_two)
    assert digest(one, stablehlo=lowered_one) == digest(*captured(1.5)[:1], stablehlo=captured(1.5)[1])
    # Without large constants the lowered program adds nothing.
    loop = LOOP.read_text()
    assert normalize(loop, stablehlo="stablehlo.constant dense<1> : tensor<i32>") == normalize(loop)


# The form


def test_the_form_of_a_digest_is_kept() -> None:
    """Digests are compared with those of earlier versions. Where this fails, count up the number in the prefix."""
    assert digest(LOOP.read_text()) == "hlo1-sha256:1ca61ec172a3175ccc67b0a558ea18b248490bc7c5c1ab2b9dd1e7030bee78e0"


@given(st.text())
def test_any_text_has_a_normal_form(text: str) -> None:
    assert normalize(text) == normalize(text)


def test_a_text_that_goes_in_circles_ends() -> None:
    text = "ENTRY %e () -> f32[] {\n  %a = f32[] add(%a, %b)\n  ROOT %b = f32[] negate(%a), to_apply=%e\n}\n"

    assert normalize(text).count(" = ") == 2
