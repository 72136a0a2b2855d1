"""Says once what many say: remarks that most cases of a run share, and remarks that comparisons have in common.

A run of twenty cases on a busy machine has one thing to tell about that, not twenty. Which numbers each case saw its
own row says (`benchax show`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from benchax.model import Remark

OF_THE_MACHINE = "busy"
"""The code of a remark that each comparison has with numbers of its own, and a reader needs once."""
MOST = 0.5
"""A remark that more than this share of the cases have appears once."""
MOST_EXCEPTIONS = 3
"""So many cases that lack it are named."""


@dataclass(frozen=True)
class SharedRemarks:
    """The remarks that appear once, and the remarks that stay with each case."""

    common: tuple[Remark, ...]
    """Their messages begin with how many have it."""
    universal: frozenset[str]
    """Codes of those that all have: no column needs them."""
    own: Mapping[str, tuple[Remark, ...]]
    """By name: the remarks about this case alone."""


def share_remarks(
    by_name: Mapping[str, Iterable[Remark]], noun: str = "case", apart: Collection[str] = ()
) -> SharedRemarks:
    """Moves remarks that most cases have out of the remarks of each case.

    Remarks with the same code are equal, even if their numbers differ. Errors always stay with their case, however many
    cases have the same error.

    Args:
        by_name: the remarks of each case, by its label.
        noun: the kind of thing that the names refer to, in the singular.
        apart: codes of remarks that are about one case even if other cases have them.
    """
    listed = {name: tuple(each_once(remarks)) for name, remarks in by_name.items()}
    holders: dict[str, dict[str, list[Remark]]] = {}
    for name, remarks in listed.items():
        for remark in remarks:
            holders.setdefault(remark.code, {}).setdefault(name, []).append(remark)
    common = {
        code: {name: remarks[0] for name, remarks in held.items()}
        for code, held in holders.items()
        if len(held) > max(1, MOST * len(listed)) and code not in apart and _is_one_each(held)
    }
    return SharedRemarks(
        tuple(_join(held, list(listed), noun) for held in common.values()),
        frozenset(code for code, held in common.items() if len(held) == len(listed)),
        {name: tuple(r for r in remarks if r.code not in common) for name, remarks in listed.items()},
    )


def _is_one_each(held: Mapping[str, Sequence[Remark]]) -> bool:
    return all(len(remarks) == 1 and remarks[0].severity != "error" for remarks in held.values())


def _join(held: Mapping[str, Remark], names: Sequence[str], noun: str) -> Remark:
    """busy: 18 of 20 cases, not f and g; of h: other processes used 20 % of the CPU"""
    first_name, first = next(iter(held.items()))
    lacking = [name for name in names if name not in held]
    everyone = f"both {noun}s" if len(names) == 2 else f"all {len(names)} {noun}s"
    counted = f"{len(held)} of {len(names)} {noun}s" if lacking else everyone
    if 0 < len(lacking) <= MOST_EXCEPTIONS:
        counted += f", not {' and '.join(filter(None, (', '.join(lacking[:-1]), lacking[-1])))}"
    is_alike = len({remark.message for remark in held.values()}) == 1
    # Numbers of one case are said to be its own.
    message = first.message if is_alike else f"of {first_name}: {first.message}"
    return replace(first, message=f"{first.code}: {counted}; {message}")


def each_once(remarks: Iterable[Remark]) -> list[Remark]:
    """Comparisons share what was found: each of them has the remark."""
    # Backwards, so that of those that count as one the first stays.
    keyed = [((r.code, "" if r.code == OF_THE_MACHINE else r.message), r) for r in remarks]
    chosen = dict(reversed(keyed))
    return [chosen[key] for key in dict.fromkeys(key for key, _ in keyed)]
