"""Whatever page of a store is damaged: every row of the other pages is read, and no number is another one."""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from measurement_strategies import measured

from benchax.model import Comparison, Measurement, Program, Remark, Samples, Version
from benchax.store import baselines, comparisons
from benchax.store.database import DatabaseStore, open_store
from benchax.store.schema import program_of

PAGE = 4096
LEAF, INTERIOR = 0x0D, 0x05
"""The first byte of a page with rows of a table, and of one that leads to such pages."""
ROWS = 12
Damage = Callable[[bytes], bytes]


def reading(i: int) -> float:
    """One that is in no other row."""
    return float.fromhex(f"0x1.{i:02x}5a5a5a5a5a5p-10")


def mark(i: int) -> str:
    """A text that is in no other row."""
    return f"~{i:02d}"


def row(i: int) -> Measurement:
    """Its parts fill pages with texts and readings by which they are known; its run is in an index besides."""
    long = Remark("note", "info", mark(i) * 900)
    samples = (
        Samples("wall", 1, (reading(i),) * 700, disturbed=None),
        Samples("pipelined", 1, (reading(i),) * (90 * (1 + i % 3))),
    )
    return replace(measured(f"case {mark(i)}", run=f"{i:02d}"), samples=samples, remarks=(long,))


def parts(i: int) -> tuple[bytes, bytes]:
    return mark(i).encode(), struct.pack("<d", reading(i))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store of some 70 pages."""
    store = open_store(tmp_path_factory.mktemp("whole"))
    with store.held_open():
        for i in range(ROWS):
            store.append(row(i))
    baselines.set_baseline(store, "main", "last")
    return Path(store.where).read_bytes()


def zeros(page: bytes) -> bytes:
    return bytes(len(page))


def ones(page: bytes) -> bytes:
    return b"\xff" * len(page)


def noise(page: bytes) -> bytes:
    return random.Random(len(page)).randbytes(len(page))


def second_half(page: bytes) -> bytes:
    return page[: len(page) // 2] + noise(page[: len(page) // 2])


def first_half(page: bytes) -> bytes:
    return second_half(page[::-1])[::-1]


DAMAGES = [zeros, ones, noise, first_half, second_half]


def damaged_store(folder: Path, whole: bytes, number: int, damage: Damage) -> tuple[DatabaseStore, bytes]:
    """(a store whose page `number` is damaged, what the page was)"""
    begin = PAGE * number
    page = whole[begin : begin + PAGE]
    folder.mkdir()
    (folder / "benchax.db").write_bytes(whole[:begin] + damage(page) + whole[begin + PAGE :])
    return open_store(folder), page


def check_all_others(store: DatabaseStore, page: bytes) -> None:
    """Is every row read that has no part in `page`, and as it was? The page may be one that leads to others."""
    here = {i for i in range(ROWS) if any(part in page for part in parts(i))}
    if page[0] == LEAF:  # it also holds the beginning of a row next to them, without a text or reading of it
        here |= {i + step for i in here for step in (-1, 1)}
    elsewhere = {row(i).run_id for i in range(ROWS) if i not in here and page[0] != INTERIOR}
    by_id = {r.id: r.run_id for r in store.rows()}
    found = store.query()
    store.append(measured("after", run="after"))

    assert elsewhere <= {m.run_id for m in found}
    assert elsewhere <= set(by_id.values())
    assert all(m == row(int(m.run_id)) for m in found)
    assert all(run == f"{id - 1:02d}" for id, run in by_id.items())
    assert store.query()[-1].run_id == "after"


@pytest.mark.filterwarnings("ignore:.*was damaged")
@pytest.mark.parametrize(
    ("first", "step", "damages"),
    [(1, 4, DAMAGES), *(pytest.param(1 + i % 2, 2, [d], marks=pytest.mark.slow) for i, d in enumerate(DAMAGES))],
)
def test_every_row_of_the_other_pages_is_read_whatever_the_damage(
    whole: bytes, tmp_path: Path, first: int, step: int, damages: list[Damage]
) -> None:
    for number in range(first, len(whole) // PAGE, step):
        store, page = damaged_store(tmp_path / str(number), whole, number, damages[number % len(damages)])
        check_all_others(store, page)


def test_rows_keep_their_ids_and_the_warning_says_how_many_were_saved(whole: bytes, tmp_path: Path) -> None:
    number = next(n for n in range(len(whole) // PAGE) if parts(5)[1] * 100 in whole[PAGE * n : PAGE * (n + 1)])
    store, _ = damaged_store(tmp_path / "damaged", whole, number, zeros)

    with pytest.warns(UserWarning, match=f"{ROWS - 1} of at least {ROWS} rows could be read") as warned:
        store.query()

    assert [r.id for r in store.rows()] == [i + 1 for i in range(ROWS) if i != 5]
    assert store.append(measured()) == ROWS + 1
    (aside,) = Path(store.where).parent.glob("benchax.db.damaged-*Z")
    assert f"is now {aside}" in str(warned[0].message)
    assert warned[0].filename == __file__


@pytest.mark.filterwarnings("ignore:.*was damaged")
@pytest.mark.parametrize("damaged_id", [0, 3, 11, 127])
def test_a_damaged_row_id_loses_no_more_than_the_rows_of_its_page(
    whole: bytes, tmp_path: Path, damaged_id: int
) -> None:
    number = next(
        n for n in range(len(whole) // PAGE) if whole[PAGE * n] == LEAF and b"~05~05" in whole[PAGE * n :][:PAGE]
    )

    def change_id(page: bytes) -> bytes:
        """Each cell of a table begins with its length, in two bytes here, and its row id."""
        (at,) = struct.unpack_from(">H", page, 8)
        return page[: at + 2] + bytes([damaged_id]) + page[at + 3 :]

    store, page = damaged_store(tmp_path / "damaged", whole, number, change_id)

    check_all_others(store, page)


def test_what_a_damaged_index_hides_is_all_saved(whole: bytes, tmp_path: Path) -> None:
    leaf_of_index = next(n for n in range(1, len(whole) // PAGE) if whole[PAGE * n] == 0x0A)
    store, _ = damaged_store(tmp_path / "damaged", whole, leaf_of_index, ones)

    def use_every_index() -> None:
        for i in range(ROWS):
            store.query(case=f"case {mark(i)}", run=f"{i:02d}")
        store.append(measured())

    with pytest.warns(UserWarning, match=f"all {ROWS} rows that were found could be read"):
        use_every_index()

    assert len(store.query()) == ROWS + 1


def test_baselines_comparisons_and_programs_are_saved_too(tmp_path: Path) -> None:
    program = b"\x05StableHLO" * 3000
    known = Program(hashlib.sha256(program).hexdigest(), len(program), program)
    compared = Comparison(row(0).case, "run", Version("v1"), Version("now"), "same")
    store = open_store(tmp_path)
    store.append(replace(row(0), program=known))
    comparisons.append(store, [compared])
    baselines.set_baseline(store, "main", row(0).run_id)
    store.append(replace(row(1), program=None))
    content = Path(store.where).read_bytes()
    at = content.rindex(parts(1)[1]) // PAGE * PAGE
    Path(store.where).write_bytes(content[:at] + bytes(PAGE) + content[at + PAGE :])

    with pytest.warns(UserWarning, match="1 of at least 2 rows could be read"):
        store.query()

    assert [(b.name, b.run_id) for b in baselines.list_baselines(store)] == [("main", row(0).run_id)]
    assert comparisons.history(store, compared.case) == [compared]
    assert store.read(lambda c: program_of(c, known.sha256), None) == program


def test_rows_that_were_only_in_the_wal_are_saved(tmp_path: Path) -> None:
    """As a kill leaves them while a program holds the file open."""
    store = open_store(tmp_path / "killed")
    copy = tmp_path / "copy"
    copy.mkdir()
    with store.held_open():
        for i in range(3):
            store.append(row(i))
        for file in ("benchax.db", "benchax.db-wal"):
            (copy / file).write_bytes((tmp_path / "killed" / file).read_bytes())
    (copy / "benchax.db").write_bytes(ones((copy / "benchax.db").read_bytes()))

    found = open_store(copy).query()

    assert found == [row(i) for i in range(3)]
