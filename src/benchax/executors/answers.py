"""What a task returns, on its way back: JSON by the annotation of the task (`codec.py`), arrays and bytes beside it.

Nothing of an answer is unpickled: it comes out of a process in which the user's code ran. JSON and plain bytes can be
wrong, but do no harm.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchax import codec
from benchax.executors.arrays import described, rebuilt
from benchax.executors.channel import Bytes

_ARRAY, _BYTES, _SECTION = "$array", "$bytes", "section"

codec.leave_as_it_is(np.ndarray)
codec.leave_as_it_is(bytes)


def pack(value: Any, hint: Any) -> list[Bytes]:
    """Sections of a message: the text, then the arrays and bytes that it refers to.

    Raises:
        TypeError: `value` is not what `hint` says, or holds what cannot travel.
        MemoryError: there is no room for a copy of an array.
    """
    beside: list[Bytes] = []

    def put_beside(leaf: Any) -> dict[str, Any]:
        """json.dumps asks for everything that JSON has no word for."""
        if isinstance(leaf, bytes):
            beside.append(leaf)
            return {_BYTES: len(beside)}
        if not hasattr(leaf, "dtype"):
            raise TypeError(f"Object of type {type(leaf).__name__} is not JSON serializable")
        description, content = described(leaf)
        beside.append(content)
        return {_ARRAY: description, _SECTION: len(beside)}

    text = json.dumps(codec.encode_value(value, hint), default=put_beside)
    return [text.encode("ascii"), *beside]


def unpack(sections: Sequence[memoryview], hint: Any) -> Any:
    """Inverse of `pack`; arrays are writable, over the memory of their sections.

    Raises:
        ValueError, KeyError, IndexError, TypeError, FormatError: what came is no answer of this kind.
    """

    def put_back(found: dict[str, Any]) -> Any:
        if _BYTES in found:
            return bytes(sections[found[_BYTES]])
        if _ARRAY in found:
            return rebuilt([found[_ARRAY]], [sections[found[_SECTION]]])[0]
        return found

    return codec.decode_value(json.loads(bytes(sections[0]), object_hook=put_back), hint)
