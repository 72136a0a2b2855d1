"""Many comparisons without their samples: the same as one by one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from comparisons_by_hand import compared
from hypothesis import given
from measurement_strategies import exact, values_of

from benchax.codec import decode_comparison, encode_comparison
from benchax.errors import FormatError
from benchax.model import CaseId, Comparison
from benchax.store import lean_reader
from benchax.store.lean_reader import LeanReader

MARKS = '},"metric":"x","blocks":[{"process":0}],"environment":{"host":"h"},"compared_at":"'


@given(comparison=values_of(Comparison))
def test_any_comparison_is_read_as_by_the_codec(comparison: Comparison) -> None:
    text = encode_comparison(comparison)

    assert exact(LeanReader().decode(text)) == exact(replace(decode_comparison(text), blocks=()))


def test_texts_that_look_like_marks_are_texts() -> None:
    comparison = replace(compared(1, 1.5), case=CaseId(MARKS, ((MARKS, MARKS),)), why=MARKS, compared_at=MARKS)

    assert LeanReader().decode(encode_comparison(comparison)) == replace(comparison, blocks=())


def test_samples_are_not_read_and_places_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would be no faster than the codec."""
    monkeypatch.setattr(lean_reader, "decode_comparison", pytest.fail)
    reader = LeanReader()

    first, second = (reader.decode(encode_comparison(compared(n, 1.5))) for n in (1, 2))

    assert (first.blocks, first.ratio) == ((), 1.5)
    assert first.environment is second.environment


@pytest.mark.parametrize("change", [{"benchax": 99}, {"ratio": "much"}, {"verdict": "slowish"}, {"baseline": None}])
def test_what_is_damaged_is_refused_as_by_the_codec(change: dict[str, object]) -> None:
    document = json.loads(encode_comparison(compared(1, 1.5))) | change

    with pytest.raises(FormatError):
        LeanReader().decode(json.dumps(document, separators=(",", ":")))


def test_a_document_of_the_first_format_is_read() -> None:
    document = json.loads(encode_comparison(compared(1, 1.5))) | {"benchax": 1}

    assert LeanReader().decode(json.dumps(document)) == replace(compared(1, 1.5), blocks=())
