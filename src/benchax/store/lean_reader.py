"""Reads a million comparisons without their samples, in a third of the time that `codec` takes for one by one.

Samples are most of a document; case, versions and environment are shared by many. These are cut out of the text before
anything reads it, and all but the samples are read once. The marks at which a text is cut cannot stand in a value,
whose quotation marks are escaped. Whatever does not look as `codec.encode_comparison` writes it is read by `codec`,
which says what is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar, get_args, get_type_hints

from benchax.codec import FORMAT, VERSION_KEY, decode_comparison
from benchax.json_values import Mismatch, converter
from benchax.model import CaseId, Comparison, Environment, Version

T = TypeVar("T")
_JSON = json.JSONDecoder()

_BEGIN = f'{{"{VERSION_KEY}":{FORMAT},"case":'
_CASE_END = '},"metric":"'
_BASELINE, _CANDIDATE, _VERDICT = '"baseline":', '"candidate":', '"verdict":"'
_BLOCKS, _BLOCKS_END = '"blocks":[{"process":', "}],"
_ENVIRONMENT, _ENVIRONMENT_END = '"environment":', '},"compared_at":"'
_PLAIN: dict[str, type] = {
    "why": str, "compared_at": str, "signature": str,
    "ratio": float, "low": float, "high": float, "smallest_effect": float, "baseline_value": float,
    "candidate_value": float, "resolution": float, "cpu_ratio": float, "cpu_low": float, "cpu_high": float,
    "confirmed": bool, "is_by_cpu_time": bool,
}  # fmt: skip
"""Values of these types are taken as they are."""
_HINTS = get_type_hints(Comparison)
_WORDS = {name: set(get_args(_HINTS[name])) for name in ("metric", "verdict", "method")}
_NAMES = {f.name for f in fields(Comparison)}


class LeanReader:
    """Keeps the cases, versions and environments that it has read."""

    def __init__(self) -> None:
        self._cases = dict[str, CaseId]()
        self._environments = dict[str, Environment]()
        self._versions = dict[str, Version]()

    def decode(self, text: str) -> Comparison:
        """As `codec.decode_comparison`, without blocks. Raises as that does."""
        try:
            return self._decode(text)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, Mismatch):
            return replace(decode_comparison(text), blocks=())

    def _decode(self, text: str) -> Comparison:
        if not text.startswith(_BEGIN):
            raise ValueError("of an earlier format")
        end = text.index(_CASE_END)
        case = _read_once(self._cases, text[len(_BEGIN) : end + 1], CaseId)
        # The samples first: what is left is short.
        rest, where = _cut("{" + text[end + 2 :])
        rest, baseline, candidate = _cut_versions(rest)
        found: dict[str, Any] = {
            "case": case,
            "baseline": _read_once(self._versions, baseline, Version),
            "candidate": _read_once(self._versions, candidate, Version),
        }
        for name, value in _parse(rest).items():
            if type(value) is _PLAIN.get(name) or (name in _WORDS and value in _WORDS[name]):
                found[name] = value
            elif name in _NAMES:  # tools may have added notes
                found[name] = converter(_HINTS[name]).decode(value)
        if where:
            found["environment"] = _read_once(self._environments, where, Environment)
        return Comparison(**found)


def _read_once(known: dict[str, T], text: str, kind: Callable[..., T]) -> T:
    if text not in known:
        known[text] = converter(kind).decode(json.loads(text))
    return known[text]


def _parse(text: str) -> dict[str, Any]:
    """As `json.loads`, which looks for blanks on both sides and takes half as long again."""
    found, end = _JSON.raw_decode(text)
    if end != len(text):
        raise ValueError("something comes after it")
    return found


def _cut_versions(text: str) -> tuple[str, str, str]:
    """(the document without them, baseline, candidate). Raises ValueError where they are not where they are written."""
    first = text.index(_BASELINE)
    second = text.index(_CANDIDATE, first)
    end = text.index(_VERDICT, second)
    baseline = text[first + len(_BASELINE) : second - 1]
    return text[:first] + text[end:], baseline, text[second + len(_CANDIDATE) : end - 1]


def _cut(text: str) -> tuple[str, str]:
    """(the document without samples and environment, the environment or nothing)"""
    if (start := text.find(_BLOCKS)) >= 0:
        end = text.index(_BLOCKS_END, start)
        text = text[:start] + text[end + len(_BLOCKS_END) :]
    start, end = text.find(_ENVIRONMENT + "{"), text.rfind(_ENVIRONMENT_END)
    if not 0 <= start < end:
        return text, ""
    return text[:start] + text[end + 2 :], text[start + len(_ENVIRONMENT) : end + 1]
