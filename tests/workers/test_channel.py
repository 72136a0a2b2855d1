"""Messages between processes: whole, in order, with their bytes and descriptors, and how what tasks return travels."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from benchax.errors import FormatError
from benchax.json_values import Json
from benchax.model import Failure
from benchax.workers import channel
from benchax.workers.channel import Channel, Closed, Garbled, pack, rebuild_array, unpack, wait_readable
from benchax.workers.worker import warm_up

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    one, other = map(Channel, socket.socketpair())
    yield one, other
    one.close()
    other.close()


def contents(sections: Any) -> list[bytes]:
    return [bytes(section) for section in sections]


# ---- what is sent arrives ---------------------------------------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.text(), JSON, max_size=3),
            st.lists(st.binary(max_size=40) | st.sampled_from([b"", b"x" * 2**16]), max_size=3),
        ),
        max_size=4,
    )
)
def test_messages_arrive_whole_and_in_order(messages: list[tuple[dict[str, Any], list[bytes]]]) -> None:
    one, other = map(Channel, socket.socketpair())
    sender = threading.Thread(target=lambda: [one.send(document, sections) for document, sections in messages])
    with one.sock, other.sock:
        sender.start()
        arrived = [other.receive(10.0) for _ in messages]
        sender.join()

    assert [(m.document, contents(m.sections)) for m in arrived if m is not None] == messages


@pytest.mark.parametrize("has_memfd", [True, False])
@pytest.mark.parametrize("length", [0, 2**16, 2**24 + 3])
def test_sections_arrive_without_a_reader_and_can_be_written_to(
    ends: tuple[Channel, Channel], length: int, has_memfd: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lie in a memory file, elsewhere than on Linux in another: who sends is done before anybody reads."""
    if not has_memfd:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0  # noqa: PTH208, PTH112
    content = os.urandom(length)

    ends[0].send({"n": 1}, [b"first", content], timeout_s=0.0)
    message = ends[1].receive(10.0)

    assert contents(message.sections) == [b"first", content]
    assert not any(section.readonly for section in message.sections)
    assert before in (0, len(os.listdir("/proc/self/fd")))  # noqa: PTH208


def test_descriptors_arrive_with_their_message(ends: tuple[Channel, Channel]) -> None:
    reading, writing = os.pipe()

    ends[0].send({"n": 1})
    ends[0].send({"n": 2}, [b"x" * 10**6], fds=[writing])
    first, second = ends[1].receive(10.0), ends[1].receive(10.0)

    assert (first.fds, len(second.fds)) == ((), 1)
    os.write(second.fds[0], b"through it")
    assert os.read(reading, 100) == b"through it"
    for fd in (reading, writing, *second.fds):
        os.close(fd)


# ---- waiting ----------------------------------------------------------------------------------------------------


def test_the_second_of_two_messages_is_there_without_waiting(ends: tuple[Channel, Channel]) -> None:
    """A buffered reader would have taken both from the socket, which then says that nothing came."""
    ends[0].send({"n": 1})
    ends[0].send({"n": 2})
    ends[1].take()

    assert not wait_readable([ends[1]], 0.0)
    assert [m.document for m in (ends[1].pop(), ends[1].pop()) if m] == [{"n": 1}, {"n": 2}]
    assert ends[1].pop() is None


def test_half_a_message_is_none_and_blocks_nobody(ends: tuple[Channel, Channel]) -> None:
    ends[0].send({"n": 1})
    frame = ends[1].sock.recv(1000)
    ends[0].sock.send(frame[:-1])

    assert ends[1].receive(0.01) is None
    ends[0].sock.send(frame[-1:])
    found = ends[1].receive(1.0)

    assert found.document == {"n": 1}


def test_a_reader_that_does_not_read_is_given_up(ends: tuple[Channel, Channel]) -> None:
    with pytest.raises(TimeoutError):
        ends[0].send({"text": "x" * 10**7}, timeout_s=0.01)


# ---- what is no message -----------------------------------------------------------------------------------------


def test_an_end_is_told(ends: tuple[Channel, Channel]) -> None:
    ends[0].close()

    with pytest.raises(Closed):
        ends[1].receive(1.0)
    with pytest.raises(Closed):
        ends[1].send({})


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", bytes(17), channel._HEADER.pack(b"bnx2", 0, 2**31)])
def test_anything_else_is_refused_before_memory_is_taken(ends: tuple[Channel, Channel], data: bytes) -> None:
    ends[0].sock.send(data)

    with pytest.raises(Garbled):
        ends[1].receive(1.0)


def test_more_than_the_machine_has_is_refused(ends: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch) -> None:
    class Little:
        available = 2**20

    monkeypatch.setattr(channel.psutil, "virtual_memory", lambda: Little)

    with pytest.raises(MemoryError, match=r"128 MiB to be sent, and only 1.00 MiB of memory are free"):
        ends[0].send({}, [bytes(2**27)])


# ---- tasks ---------------------------------------------------------------------------------------------------------


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


def test_a_task_is_a_function() -> None:
    stages: list[str] = []

    assert warm_up((), lambda stage, **facts: stages.append(stage)) is None

    assert stages == ["warm-up"]


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
    with pytest.raises(ValueError, match="3 bytes aren't an array"):
        rebuild_array({"dtype": "<f4", "shape": [1]}, memoryview(bytearray(3)))
