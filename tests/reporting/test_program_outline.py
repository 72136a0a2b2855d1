"""A program folded by scope: in its own order, inside its loops, with sums that have no holes."""

from __future__ import annotations

from collections.abc import Sequence

from benchax.reporting.document import OutlineEntry
from benchax.reporting.program_text import MOST_PLAIN, make_outline
from benchax.results.operations import HloOperation, HloOperations


def one(
    name: str, scope: str = "", inside: int | None = None, part: str = "", flops: float | None = 1.0, **others: str
) -> HloOperation:
    fields = {"opcode": "dot", "shape": "f32[8]{0}", "source": "m.py:1"} | others
    return HloOperation(name, fields["opcode"], fields["shape"], fields["source"], scope, inside, part, flops, 0.0, 8.0)


def fold(*listed: HloOperation, left_out: int = 0) -> tuple[OutlineEntry, ...]:
    return make_outline(HloOperations(listed, left_out)).entries


def names(entries: Sequence[OutlineEntry]) -> list[object]:
    """["a", ["b", ["inside b"]]]"""
    return [[entry.name, names(entry.parts)] if entry.parts else entry.name for entry in entries]


def test_scopes_are_boxes_inside_one_another_in_the_order_of_the_program() -> None:
    found = fold(one("a"), one("b", "layer0/attention"), one("c"), one("d", "layer0"), one("e", "layer1"))

    assert names(found) == ["a", ["layer0", [["attention", ["b"]], "d"]], "c", ["layer1", ["e"]]]
    assert (found[1].kind, found[1].values[0], found[1].detail) == ("scope", 2.0, "2 operations")


def test_a_loop_is_folded_by_the_scopes_inside_of_its_own() -> None:
    loop = one("while.1", "rnn", opcode="while", flops=30.0)
    found = fold(
        loop, one("a", "rnn/cell", 0, "body"), one("b", "rnn", 0, "body"), one("c", "other/rnn", 0, "condition")
    )

    (scope,) = found
    (shown,) = scope.parts
    assert (shown.kind, shown.name, shown.values[0]) == ("loop", "while.1", 30.0)
    assert names(shown.parts) == [["body", [["cell", ["a"]], "b"]], ["condition", [["other", [["rnn", ["c"]]]]]]]


def test_a_sum_with_a_hole_in_it_is_none() -> None:
    (scope,) = fold(one("a", "s"), one("b", "s", flops=None))

    assert scope.values == (None, 0.0, 16.0)


def test_many_operations_without_scopes_are_folded_by_line() -> None:
    sources = ["m.py:1", "m.py:2", ""] * MOST_PLAIN
    found = fold(*(one(f"o{i}", source=source) for i, source in enumerate(sources)), one("alone", source="m.py:9"))

    assert [(entry.kind, entry.name, len(entry.parts)) for entry in found] == [
        ("line", "m.py:1", MOST_PLAIN),
        ("line", "m.py:2", MOST_PLAIN),
        ("line", "(the compiler's own)", MOST_PLAIN),
        ("dot", "alone", 0),
    ]


def test_shapes_stand_without_layouts_and_tuples_as_their_number() -> None:
    found = fold(one("a", shape="f32[8,4]{1,0:T(8)}"), one("b", shape="(f32[8]{0}, /*index=1*/s32[])"))

    assert [entry.detail for entry in found] == ["f32[8,4]", "2 arrays"]


def test_what_is_left_out_is_said() -> None:
    note = make_outline(HloOperations((one("a"),), 12)).note

    assert note.endswith("12 operations more, which stand deepest, are not listed.")
