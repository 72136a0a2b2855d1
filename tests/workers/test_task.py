"""Which functions can be tasks, and how what they return travels: any array that JAX has comes back as it was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from benchax.errors import FormatError
from benchax.json_values import Json
from benchax.model import Failure
from benchax.workers.channel import pack, rebuild_array, unpack
from benchax.workers.task import Say, find_task, task
from benchax.workers.worker import warm_up


@dataclass(frozen=True)
class Answer:
    name: str
    kind: Literal["one", "other"] = "one"
    readings: tuple[float, ...] = ()
    words: list[str] | None = None
    failures: dict[str, Failure] | None = None
    document: Json | None = None
    array: np.ndarray | None = None
    content: bytes | None = None


def travelled(value: Any, hint: Any = Answer) -> Any:
    return unpack([memoryview(bytearray(memoryview(section).cast("B"))) for section in pack(value, hint)], hint)


def test_a_task_is_found_by_its_module_and_its_name_and_is_the_function() -> None:
    stages: list[str] = []
    assert warm_up.name == "benchax.workers.worker:warm_up"
    assert find_task(warm_up.name) is warm_up

    assert warm_up((), lambda stage, **facts: stages.append(stage)) is None

    assert stages == ["warm-up"]


def unannotated(argument, say): ...


def test_what_no_other_process_can_import_or_answer_is_refused() -> None:
    def nested(argument: None, say: Say) -> None: ...

    with pytest.raises(TypeError, match=r"<locals>\.nested cannot be a task: expected a function at the top of a mod"):
        task(nested)
    with pytest.raises(TypeError, match="<lambda> cannot be a task"):
        task(lambda argument, say: None)
    nested.__qualname__, nested.__module__ = "nested", "__main__"
    with pytest.raises(TypeError, match="nested cannot be a task: no other process can import it from a script"):
        task(nested)
    with pytest.raises(TypeError, match="unannotated cannot be a task: expected an annotation of its result"):
        task(unannotated)


def test_a_dataclass_comes_back_as_it_was() -> None:
    failure = Failure("timeout", "run", "too late")
    sent = Answer(
        "é", "other", (1.0, float("inf")), ["a"], {"f": failure}, Json({"deep": [{"er": 1}]}), None, b"\0\xff"
    )

    assert travelled(sent) == sent


@pytest.mark.parametrize(
    ("value", "hint", "why"),
    [
        (Answer(3), Answer, "Answer.name: 3 is not a value of type str"),  # type: ignore[arg-type]
        (Answer("a", "third"), Answer, "'third' is not one of: one, other"),  # type: ignore[arg-type]
        (Answer("a", array=np.array([object()])), Answer, "an array of dtype object cannot be sent"),
        (np.zeros(2, [("a", "f4")]), np.ndarray, "an array of dtype .* cannot be sent from a worker process"),
        (Json({"a": object()}), Json, "Object of type object is not JSON serializable"),
        ((1, 2), tuple[int, int, int], "zip"),
    ],
)
def test_what_its_annotation_does_not_allow_does_not_travel(value: Any, hint: Any, why: str) -> None:
    with pytest.raises((TypeError, ValueError), match=why):
        pack(value, hint)


@pytest.mark.parametrize("text", [b"{}", b"[]", b'{"name": 3}', b'{"name": "a", "array": 3}', b'{"name": "a", "x": 1'])
def test_what_is_no_answer_is_refused(text: bytes) -> None:
    with pytest.raises((FormatError, ValueError)):
        unpack([memoryview(text)], Answer)


# ---- arrays ----------------------------------------------------------------------------------------------------------


NUMBERS = ["bool", "int8", "uint16", "int32", "int64", "float16", "float32", "float64", "complex64"]
DTYPES = [*NUMBERS, "<U3", "S4", "<M8[s]"]


def there_and_back(array: Any) -> np.ndarray:
    return travelled(array, np.ndarray)


@given(st.sampled_from(DTYPES).flatmap(lambda d: arrays_of.arrays(d, arrays_of.array_shapes(min_dims=0, min_side=0))))
def test_any_array_comes_back(array: np.ndarray) -> None:
    back = there_and_back(array)

    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert back.flags.writeable


def test_what_only_jax_has_comes_back_and_order_and_strides_do_not_matter() -> None:
    strided = np.arange(24.0).reshape(4, 6).T[::2]

    for dtype in ("bfloat16", "float8_e4m3fn", "int4"):
        array = jnp.arange(6, dtype=dtype).reshape(2, 3)
        back = there_and_back(array)
        assert (back.dtype, back.tolist()) == (array.dtype, array.tolist())
    np.testing.assert_array_equal(there_and_back(strided), strided)
    np.testing.assert_array_equal(there_and_back(jax.random.key(3)), jax.random.key_data(jax.random.key(3)))


def test_bytes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="3 bytes are no array"):
        rebuild_array({"dtype": "<f4", "shape": [1]}, memoryview(bytearray(3)))
