"""The promises of benchax.codec: nothing lost, strict JSON, old documents for ever, plain words about foreign ones."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparisons_by_hand import compared
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from measurement_strategies import HOST, PARAM, RICH, exact, measurements

from benchax.codec import (
    FORMAT,
    decode,
    decode_comparison,
    decode_params,
    encode,
    encode_params,
    from_document,
    to_document,
)
from benchax.errors import UPGRADE, FormatError
from benchax.model import CaseId, EarlierRuns, Failure, Measurement, Memory, Numerics, Opaque, Samples, WorkPerCall
from benchax.options import DEFAULTS

GOLDEN = Path(__file__).parent / "golden"
NEWEST = GOLDEN / f"measurement-v{FORMAT}.json"

PLAIN = Measurement(CaseId("f"), HOST, DEFAULTS, run_id="run", started_at="2025-11-21T01:35:00.000000+00:00")

# Drawing a whole Measurement takes longer than the default limits foresee.
whole = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@whole
@given(measurements())
def test_any_measurement_survives_exactly(m: Measurement) -> None:
    assert exact(decode(encode(m))) == exact(m)


@whole
@given(measurements())
def test_a_document_is_one_line_of_strict_ascii_json(m: Measurement) -> None:
    def no_constants(token: str) -> None:
        pytest.fail(f"{token} is not JSON")

    text = encode(m)

    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text, parse_constant=no_constants)["benchax"] == FORMAT


@given(PARAM, PARAM)
@example((1, 0.0), (True, -0.0))
def test_params_have_equal_texts_only_if_they_are_equal(a: Any, b: Any) -> None:
    texts = [encode_params((("x", value),)) for value in (a, b)]

    assert (texts[0] == texts[1]) == (exact(a) == exact(b))
    assert exact(decode_params(texts[0])) == exact((("x", a),))


LATER: dict[str, Any] = {"devices": None, "ranks": None, "earlier_runs": EarlierRuns()}
OLD = {
    "measurement-v1.json": dataclasses.replace(
        RICH,
        work=WorkPerCall(),
        memory=dataclasses.replace(RICH.memory, eager_rise_low_bytes=None, devices=1),
        noise=dataclasses.replace(RICH.noise, pace_scatter=None),
        options=dataclasses.replace(RICH.options, nprocs=None),
        **LATER,
    ),
    "measurement-v2.json": dataclasses.replace(
        RICH,
        memory=dataclasses.replace(RICH.memory, devices=1),
        options=dataclasses.replace(RICH.options, nprocs=None),
        **LATER,
    ),
    "measurement-v3.json": RICH,
}


@pytest.mark.parametrize("name", OLD)
def test_the_golden_document_of_each_format_is_read_for_ever(name: str) -> None:
    m = decode((GOLDEN / name).read_text("ascii"))

    assert exact(m) == exact(OLD[name])
    assert m.failure == Failure("wrong_output", "verify", "off by 0.1", "look at axis", "Traceback …")
    if m.ranks is not None:
        assert m.ranks.least_s == (1e-3, 1.1e-3)


def test_the_golden_document_is_what_is_written_today() -> None:
    """A difference means that the format changed: raise FORMAT, keep this file, add one for the new version."""
    assert json.loads(encode(RICH)) == json.loads(NEWEST.read_text("ascii"))


def test_a_document_from_before_an_option_existed_is_read_as_without_it() -> None:
    document = json.loads(NEWEST.read_text("ascii"))
    for later in ("isolate", "timeout_s", "memory_limit_bytes", "stages"):
        del document["options"][later]
    for samples in document["samples"]:
        for later in ("overhead_s", "clock_tier", "census", "trials"):
            samples.pop(later, None)

    m = decode(json.dumps(document))

    assert (m.options.isolate, m.options.timeout_s, m.options.memory_limit_bytes, m.options.stages) == (
        False, None, None, "all",
    )  # fmt: skip
    assert m.samples[1].overhead_s is None
    assert m.samples[1].per_call_s == (6.1e-3 / 64, 5.9e-3 / 64)


def test_the_golden_document_uses_every_field() -> None:
    def unused(value: Any, path: str) -> list[str]:
        if isinstance(value, tuple):
            return [] if not value else unused(value[-1], path)
        if not dataclasses.is_dataclass(value):
            return []
        return [
            found
            for f in dataclasses.fields(value)
            if not f.metadata.get("is_stored_apart")
            for found in (
                [f"{path}.{f.name}"]
                if getattr(value, f.name) == f.default
                else unused(getattr(value, f.name), f"{path}.{f.name}")
            )
        ]

    assert unused(RICH, "") == []


def test_fields_at_their_default_are_left_out() -> None:
    assert to_document(PLAIN) == {
        "benchax": FORMAT,
        "case": {"name": "f"},
        "environment": {"host": "host", "os": "Linux 6.1", "python": "3.11.2"},
        # In full: defaults change, and the row must not change with them. Left out are what came with later versions,
        # whose defaults in model.py are what rows without them were measured with.
        "options": {
            f.name: getattr(DEFAULTS, f.name) for f in dataclasses.fields(DEFAULTS) if f.default is dataclasses.MISSING
        },
        "run_id": "run",
        "started_at": "2025-11-21T01:35:00.000000+00:00",
    }


def test_numpy_scalars_become_python_ones() -> None:
    m = dataclasses.replace(
        PLAIN,
        case=CaseId("f", (("n", np.int64(3)), ("x", np.float32(0.5)))),
        samples=(Samples("wall", np.int32(4), (np.float64(0.25), np.inf)),),  # type: ignore[arg-type]
        memory=Memory(temp_bytes=np.uint64(7)),  # type: ignore[arg-type]
        numerics=Numerics("eager", np.bool_(True)),  # type: ignore[arg-type]
    )

    decoded = decode(encode(m))

    assert exact(decoded.case.params) == exact((("n", 3), ("x", 0.5)))
    assert exact(decoded.samples[0]) == exact(Samples("wall", 4, (0.25, float("inf"))))
    assert exact(decoded.memory.temp_bytes) == "7"
    assert decoded.numerics is not None
    assert decoded.numerics.agrees is True


CUTS = ('},"compared_at":"', ',"blocks":[', "]}]", ',"environment":{', '"\\')


@given(st.lists(st.text() | st.sampled_from(CUTS)).map("".join), st.booleans(), st.booleans())
def test_a_comparison_without_its_samples_is_the_same_whatever_its_texts_hold(
    text: str, has_blocks: bool, has_host: bool
):
    host = dataclasses.replace(HOST, host=text, flags={text: text}) if has_host else None
    c = compared(1, 1.5, case=CaseId(f"f{text}", (("n", text),)), why=text, environment=host)
    c = c if has_blocks else dataclasses.replace(c, blocks=())

    document = encode(c)

    assert decode_comparison(document) == c
    assert decode_comparison(document, with_blocks=False) == dataclasses.replace(c, blocks=())


class Colour(enum.StrEnum):
    RED = "red"


def test_a_parameter_that_json_has_no_word_for_does_not_cost_the_row() -> None:
    large = (("n", 10**5000), ("m", -(10**5000)))  # Python itself refuses to write more than 4300 decimal digits
    decoded = decode_params(encode_params((("z", 1 + 2j), ("shape", [1, [2]]), ("c", Colour.RED))))

    assert decoded == (("z", Opaque("complex", "(1+2j)")), ("shape", (1, (2,))), ("c", "red"))
    assert decode_params(encode_params(large)) == large


def test_a_value_that_could_not_be_read_back_is_not_written() -> None:
    wrong = dataclasses.replace(PLAIN, memory=Memory(temp_bytes="many"))  # type: ignore[arg-type]

    with pytest.raises(TypeError, match=r"Measurement.memory: Memory.temp_bytes: 'many' is not a value of type int"):
        encode(wrong)


def test_a_newer_document_is_refused_with_the_way_out() -> None:
    with pytest.raises(FormatError) as error:
        from_document({"benchax": 7, "unheard_of": 1})

    assert error.value.problem == "a document was written by a newer benchax (format 7; this one reads up to 3)"
    assert error.value.hint == UPGRADE


def test_keys_that_other_tools_added_are_ignored() -> None:
    assert from_document(to_document(PLAIN) | {"note": "run on a quiet evening"}) == PLAIN


NO_DOCUMENTS = (
    "", "{", "[1, 2]", "null", '{"a": 1}',
    '{"benchax": "1"}', '{"benchax": true}', '{"benchax": 0}', '{"benchax": NaN}',
)  # fmt: skip
CHANGES: tuple[dict[str, Any], ...] = (
    {"case": None}, {"case": {}}, {"case": {"name": 5}}, {"case": {"name": "f", "params": [["n"]]}},
    {"case": {"name": "f", "params": [["n", {"$int": "12"}]]}}, {"memory": {"temp_bytes": True}},
    {"stages": {"cache": "maybe"}}, {"samples": {}},
    {"environment": {"host": "h", "os": "o", "python": "p", "flags": {"A": 1}}},
    {"samples": [{"timer": "wall", "iterations": 1, "elapsed_s": [0.1, "x"]}]},
)  # fmt: skip


def damage(read: Callable[..., Any], document: Any) -> str:
    with pytest.raises(FormatError) as error:
        read(document)
    return str(error.value)


def test_what_is_not_a_document_is_quoted_and_a_wrong_value_named_by_its_place(snapshot: Any) -> None:
    found = {text: damage(decode, text) for text in NO_DOCUMENTS}
    found |= {repr(change): damage(from_document, to_document(PLAIN) | change) for change in CHANGES}

    assert found == snapshot
    for long in ("[" * 100_000, "9" * 5000):
        assert f"({len(long) + 2:,} characters)" in damage(decode, long)
        assert len(damage(decode, long)) < 400
