"""Many lines of a CSV file to columns, by arithmetic on all of them at once: a million rows in seconds.

Lines that were written with the same widths have their columns in the same places. So the lines of a block are sorted
by their length; the first line of a kind tells where its columns end, and the others are checked against it. Each
column is then a rectangle of characters. Whatever does not fit (edited by hand, damaged, of another form) is read by
`csv_rows.parse`, which decides what a line means; here is only speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from benchax.store.csv_numbers import Bytes, Mask, decimals, integers
from benchax.store.csv_rows import COLUMNS, KINDS, MISSING, Form, Kind, parse
from benchax.store.csv_text import unword

Indices = npt.NDArray[np.intp]

# Different layouts of the same length that are tried before lines are read one by one, and how many lines make one
# worth while: 35 columns take 1 ms together, a line by itself 20 µs.
_LAYOUTS = 8
_FEW = 32
# Texts of up to this many characters become fixed-width texts of NumPy, which takes no Python object per row.
_SHORT = 64
_BLANK = 32
DTYPES: dict[Kind, Any] = {"int": np.int64, "float": np.float64, "text": np.object_}


@dataclass
class Piece:
    """The rows of one block, in order."""

    count: int
    columns: dict[str, Any]
    """An array, or one value for all rows."""
    damaged: list[str] = field(default_factory=list[str])
    """Lines that could not be read, and are not among the rows."""

    def column(self, name: str) -> list[Any]:
        """As Python values, one per row."""
        return np.broadcast_to(np.asarray(self.columns.get(name), DTYPES[KINDS[name]]), self.count).tolist()


def read_block(block: bytes | memoryview, form: Form | None, wanted: Sequence[str] = COLUMNS) -> Piece:
    """The rows in `block`, whole lines with their line breaks. Keeps no reference to it."""
    characters = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(characters == 10)
    starts = np.r_[0, ends[:-1] + 1] if len(ends) else ends
    is_row = (characters[starts] != ord("#")) & (ends > starts)
    starts, lengths = starts[is_row], (ends - starts)[is_row]
    columns: dict[str, Any] = {}
    unread: list[Indices] = []
    for length in lengths[:1] if (lengths == lengths[:1]).all() else np.unique(lengths):
        alike = np.flatnonzero(lengths == length)
        rows = _rectangle(characters, starts[alike], int(length) + 1)
        for chosen, found in _read_alike(rows, form, wanted):
            if found is None:
                unread.append(alike[chosen])
            else:
                _put(columns, found, alike[chosen], len(starts))
    piece = Piece(len(starts), columns)
    if unread:
        rest = np.sort(np.concatenate(unread))
        _read_singly(piece, rest, [bytes(block[starts[i] : starts[i] + lengths[i]]) for i in rest], form, wanted)
    return piece


def _rectangle(characters: Bytes, starts: Indices, width: int) -> Bytes:
    """The lines as rows of characters, the line break last."""
    if len(starts) * width == len(characters):
        return characters.reshape(len(starts), width)
    return np.lib.stride_tricks.sliding_window_view(characters, width)[starts]


def _put(columns: dict[str, Any], found: dict[str, Any], where: Indices, count: int) -> None:
    for name, values in found.items():
        if len(where) == count:
            columns[name] = values
            continue
        if name not in columns:
            # Texts as objects here: those of the next lines may be longer.
            columns[name] = np.empty(count, DTYPES[KINDS[name]])
        columns[name][where] = values


# ---- lines of the same length -----------------------------------------------------------------------------------


def _read_alike(
    rows: Bytes, form: Form | None, wanted: Sequence[str]
) -> Iterator[tuple[Indices, dict[str, Any] | None]]:
    """(which of the rows, their columns); None for the columns where only a look at each line helps."""
    rest = np.arange(len(rows))
    for _ in range(_LAYOUTS):
        if not form or len(rest) < _FEW:
            break
        first = rows[rest[0]]
        ends = _column_ends(first, form)
        if ends is None or (first[ends - 1] <= _BLANK).any():
            yield rest[:1], None
            rest = rest[1:]
            continue
        of_all = rows if len(rest) == len(rows) else rows[rest]
        fits = (of_all[:, ends] == first[ends]).all(1) & (of_all[:, ends - 1] > _BLANK).all(1)
        if form.has_end:
            end = slice(ends[-2], ends[-1])
            fits &= (of_all[:, end] == first[end]).all(1)
        chosen = of_all if fits.all() else of_all[fits]
        yield rest[fits], _read_columns(chosen, ends, form, wanted)
        rest = rest[~fits]
    if len(rest):
        yield rest, None


def _column_ends(row: Bytes, form: Form) -> Indices | None:
    """Where the columns of this row end; None unless it is a whole row of the form."""
    if parse(row[:-1].tobytes().decode("utf-8", "surrogateescape"), form) is None:
        return None
    is_blank = (row == _BLANK) | (row == ord("\r")) | (row == ord("\n"))
    ends = np.flatnonzero(is_blank[1:] & ~is_blank[:-1]) + 1
    return ends if len(ends) == len(form.columns) else None


def _read_columns(rows: Bytes, ends: Indices, form: Form, wanted: Sequence[str]) -> dict[str, Any] | None:
    begins = np.r_[0, ends[:-1]]
    places = {name: slice(b, e) for name, b, e in zip(form.columns, begins, ends, strict=True) if name in KINDS}
    try:
        return {name: _read_column(rows[:, places[name]], KINDS[name], form) for name in wanted if name in places} | {
            name: MISSING[KINDS[name]] for name in wanted if name not in places
        }
    except ValueError:
        return None


def _read_column(cells: Bytes, kind: Kind, form: Form) -> Any:
    """An array, or the one value that all rows have.

    Raises:
        ValueError: a cell holds something else than one word of this kind.
    """
    columns = np.ascontiguousarray(cells.T)
    if (columns == columns[:, :1]).all():
        return _ONE[kind](columns[:, 0].tobytes().strip(), form)
    return _MANY[kind](columns, form)


def _texts(columns: Bytes, form: Form) -> npt.NDArray[Any]:
    is_blank = columns == _BLANK
    if (is_blank[1:] & ~is_blank[:-1]).any():
        raise ValueError("blanks inside of a text")
    widest = int(len(columns) - is_blank.all(1).argmin())
    columns, is_blank = columns[-widest:], is_blank[-widest:]
    special = (columns < _BLANK) | (columns >= 127) | (columns == ord("%")) | (columns == ord('"'))
    if widest <= _SHORT and not special.any():
        return np.ascontiguousarray(_left_aligned(columns, is_blank).T, np.uint32).view(f"U{widest}")[:, 0]
    words = np.ascontiguousarray(columns.T).tobytes().split()
    if len(words) != columns.shape[1]:
        raise ValueError("other blanks than ours inside of a text")
    # Equal texts as one object, which saves memory.
    texts = {word: _text(word, form) for word in set(words)}
    return np.array([texts[word] for word in words], np.object_)


def _left_aligned(columns: Bytes, is_blank: Mask) -> Bytes:
    """Each text without the blanks before it, and with zeros behind it."""
    if not is_blank.any():
        return columns
    moved = np.zeros_like(columns)
    lengths = len(columns) - is_blank.sum(0)
    for length in np.unique(lengths):
        alike = lengths == length
        moved[:length, alike] = columns[-length:, alike]
    return moved


def _one_text(cell: bytes, form: Form) -> str:
    (word,) = cell.split()  # a ValueError where there is a blank inside
    return _text(word, form)


def _text(word: bytes, form: Form) -> str:
    text = word.decode("utf-8", "surrogateescape")
    return unword(text) if form.version > 1 else text


_ONE: dict[Kind, Callable[[bytes, Form], Any]] = {
    "int": lambda word, _: int(word),
    "float": lambda word, _: float(word),
    "text": _one_text,
}
_MANY: dict[Kind, Callable[[Bytes, Form], Any]] = {
    "int": lambda columns, _: integers(columns),
    "float": lambda columns, _: decimals(columns),
    "text": _texts,
}


# ---- line by line -----------------------------------------------------------------------------------------------


def _read_singly(
    piece: Piece, where: Indices, lines: Sequence[bytes], form: Form | None, wanted: Sequence[str]
) -> None:
    """Puts these rows into the piece, and takes those out that are damaged."""
    texts = [line.decode("utf-8", "surrogateescape") for line in lines]
    parsed = [parse(text, form) for text in texts]
    is_good = np.array([row is not None for row in parsed], bool)
    good = [row for row in parsed if row is not None]
    if good:
        columns = {name: np.array([row[name] for row in good], DTYPES[KINDS[name]]) for name in wanted}
        _put(piece.columns, columns, where[is_good], piece.count)
    bad = where[~is_good]
    if len(bad):
        piece.damaged += [t for t, row in zip(texts, parsed, strict=True) if row is None and _is_content(t)]
        piece.columns = {n: v if np.isscalar(v) else np.delete(v, bad) for n, v in piece.columns.items()}
        piece.count -= len(bad)


def _is_content(text: str) -> bool:
    return bool(text.strip()) and not text.lstrip().startswith("#")
