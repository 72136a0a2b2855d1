"""Traces are read as they were written, or refused; and the arithmetic on their columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xspace_by_hand import Event, block, number, op, plane, space, varint

from benchax import protobuf as wire
from benchax.errors import FormatError
from benchax.profiling import events
from benchax.profiling.events import group_rows, number_rows, read

ONE = space(plane("/host:CPU", {"pool": [op("dot.1", 10, 5), op("sin.2", 20, 7, run_id=-3), Event("other", 30, 1)]}))


def test_events_and_their_stats_are_columns_that_say_which_events_have_none() -> None:
    found = read(ONE)

    assert [found.texts[i] for i in found.name.tolist()] == ["dot.1", "sin.2", "other"]
    assert (found.start_ps.tolist(), found.duration_ps.tolist()) == ([10, 20, 30], [5, 7, 1])
    names, (runs, has_run) = found.text("hlo_op"), found.number("run_id")

    assert [found.texts[i] for i in names] == ["dot.1", "sin.2", ""]
    assert runs[has_run].tolist() == [1, -3]
    assert has_run.tolist() == [True, True, False]


def test_only_the_stats_that_are_wanted_are_kept() -> None:
    found = read(ONE, keep=["run_id"])

    assert found.number("run_id")[1].any()
    assert not found.text("hlo_op").any()


def test_texts_that_are_written_out_are_read_as_those_that_are_references() -> None:
    stat = number(1, 1) + block(5, "dot.1")
    names = block(5, number(1, 1) + block(2, number(1, 1) + block(2, "hlo_op")))
    body = block(2, "/host:CPU") + block(3, block(4, number(1, 1) + block(4, stat))) + names

    found = read(block(1, body))

    assert found.texts[found.text("hlo_op")[0]] == "dot.1"


def test_times_of_lines_that_began_at_different_times_are_on_one_scale() -> None:
    early = plane("/host:CPU", {"a": [Event("x", 5, 1)]}, began_ns=1_795_312_703_000_000_000)
    late = plane("/device:GPU:0", {"b": [Event("x", 5, 1)]}, began_ns=1_795_312_703_000_000_002)

    assert read(early + late).start_ps.tolist() == [5, 2005]


def test_more_events_than_a_chunk_keep_their_stats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "CHUNK", 3)
    many = [op(f"op.{i}", 10 * i, 5, run_id=i) for i in range(10)]

    found = read(space(plane("/host:CPU", {"pool": many})))

    assert [found.texts[i] for i in found.text("hlo_op")] == [f"op.{i}" for i in range(10)]
    assert found.number("run_id")[0].tolist() == list(range(10))


def refused(data: bytes) -> str:
    """What the error says; empty where the bytes were read."""
    try:
        read(data)
    except FormatError as error:
        return str(error)
    return ""


def is_said_to_be_damaged(said: str) -> bool:
    """Where, or that nothing is in it; or it was read."""
    return said == "" or "at byte" in said or "hold no plane" in said


@pytest.mark.parametrize("cut", range(1, len(ONE), 7))
def test_a_trace_that_was_cut_is_an_error_or_shows_that_its_end_is_missing(cut: int) -> None:
    said = refused(ONE[:cut])

    # Cut between two messages it is a whole trace, which has lost the name of the host at its end.
    assert "at byte" in said or "no plane" in said or read(ONE[:cut]).hosts == ()


def test_an_error_says_where() -> None:
    with pytest.raises(FormatError, match=r"longer than what holds it at byte 0\n.*xplane\.pb"):
        read(ONE[:20])
    with pytest.raises(FormatError, match="0 bytes hold no plane"):
        read(b"")


@pytest.mark.parametrize("stat", [b"\x2a\x7fx", b"\x10\xff", b"\x11\x00", b"\x0b", b"\x00\x01"])
def test_a_stat_that_does_not_fit_into_its_event_is_refused(stat: bytes) -> None:
    """Too long a text, a number without an end, half a double, an unknown type, a field without a number."""
    assert "at byte" in refused(block(1, block(3, block(4, number(1, 1) + block(4, stat)))))


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (b"\x22", "a number without an end at byte 9"),
        (b"\x22\x05\x08\x01", "field 4 is longer than what holds it at byte 8"),
        (b"\x22\x85\x01\x08\x01", "field 4 is longer than what holds it at byte 8"),
    ],
)
def test_an_event_that_does_not_fit_into_its_line_is_refused(event: bytes, said: str) -> None:
    """It comes after one that does, and the bytes that follow are of another line."""
    line = block(4, number(1, 1)) + event

    assert said in refused(block(1, block(3, line) + block(3, block(4, number(1, 2)))))


@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_garbage_is_read_or_refused_and_nothing_else(data: bytes) -> None:
    for attempt in (data, block(1, data), block(1, block(3, data)), block(1, block(3, block(4, data)))):
        assert is_said_to_be_damaged(refused(attempt))  # which raises what is no FormatError


@given(position=st.integers(0, len(ONE) - 1), byte=st.integers(0, 255))
@settings(max_examples=300)
def test_a_damaged_byte_changes_what_is_read_or_is_refused(position: int, byte: int) -> None:
    assert is_said_to_be_damaged(refused(ONE[:position] + bytes([byte]) + ONE[position + 1 :]))


messages = st.lists(
    st.one_of(
        st.tuples(st.integers(1, 5000), st.integers(0, 2**64 - 1)),
        st.tuples(st.integers(1, 5000), st.binary(max_size=20)),
    ),
    max_size=8,
)


@given(st.lists(messages, max_size=6))
def test_many_messages_at_once_are_read_as_one_after_the_other(many: list[list[tuple[int, int | bytes]]]) -> None:
    written = [b"".join(number(k, v) if isinstance(v, int) else block(k, v) for k, v in one) for one in many]
    data = b"".join(written)
    starts = [sum(map(len, written[:i])) for i in range(len(written))]
    ends = [start + len(one) for start, one in zip(starts, written, strict=True)]

    padded = np.frombuffer(data + bytes(wire.PADDING), "u1")
    found: list[list[tuple[int, int | bytes]]] = [[] for _ in many]
    for which, *columns in wire.together(padded, np.array(starts, int), np.array(ends, int)):
        for i, key, kind, value, at in zip(*(column.tolist() for column in (which, *columns)), strict=True):
            found[i].append((key, value % 2**64 if kind == wire.VARINT else data[at : at + value]))

    assert found == many


@given(st.integers(-(2**63), 2**64 - 1))
def test_a_number_is_read_as_it_was_written(value: int) -> None:
    written = varint(value)

    assert wire.varint(written, 0, len(written)) == (value % 2**64, len(written))


# ---- groups of rows: rows of equal values have one number ----------------------------------------------------------

ROWS = st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([-(2**62), -1, 0, 7, 2**62]), st.integers(0, 2)))


@given(ROWS)
def test_groups_are_those_of_numpy_in_its_order(rows: list[tuple[int, int, int]]) -> None:
    columns = np.array(rows, np.int64).reshape(-1, 3)

    first, group = group_rows(*columns.T)

    _, expected_first, expected = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    assert first.tolist() == expected_first.tolist()
    assert group.tolist() == expected.reshape(-1).tolist()


def test_a_few_values_are_counted_and_not_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events.np, "unique", None)

    assert number_rows(np.array([5, 3, 5]), np.array([-1, -1, 0])).tolist() == [1, 0, 2]
