"""Documents as JSON, for a process that waits for another one's: blocks with the names of their types."""

from __future__ import annotations

from typing import Any, get_args

from benchax.json_values import decode_value, encode_value
from benchax.reporting.document import Block, Document

KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Block)}


def encode_document(document: Document) -> list[list[Any]]:
    return [[type(block).__name__, encode_value(block, type(block))] for block in document.blocks]


def decode_document(coded: list[list[Any]]) -> Document:
    """Inverse of `encode_document`, of the same benchax."""
    return Document(tuple(decode_value(block, KINDS[name]) for name, block in coded))
