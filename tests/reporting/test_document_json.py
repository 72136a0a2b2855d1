"""Documents that go from one process to another."""

from __future__ import annotations

import json

import pytest
from results_by_hand import every_result

from benchax.reporting.display import document_of
from benchax.reporting.document import decode_document, encode_document


@pytest.mark.parametrize("kind", ["Watch", "CacheUse", "Transfers", "Measurement", "Checklist"])
def test_a_document_arrives_as_it_was(kind: str) -> None:
    document = document_of(every_result("f <b>\n")[kind])

    assert decode_document(json.loads(json.dumps(encode_document(document)))) == document
