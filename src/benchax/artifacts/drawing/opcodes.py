"""What kind of work an operation of HLO does; it decides the colour of its box."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

Role = Literal[
    "parameter",
    "constant",
    "matmul",
    "reduction",
    "elementwise",
    "movement",
    "communication",
    "library",
    "control",
    "output",
]
_OPCODES: dict[Role, str] = {
    "parameter": "parameter",
    "constant": "constant",
    "matmul": "dot convolution ragged-dot scaled-dot",
    "reduction": "reduce reduce-window select-and-scatter sort topk scan",
    "movement": "bitcast bitcast-convert broadcast concatenate copy copy-done copy-start domain dynamic-reshape "
    "dynamic-slice dynamic-update-slice gather get-dimension-size iota opt-barrier optimization-barrier pad reshape "
    "reverse scatter set-dimension-size slice transpose tuple get-tuple-element add-dependency after-all",
    "communication": "all-gather all-reduce all-to-all collective-broadcast collective-permute ragged-all-to-all "
    "recv reduce-scatter replica-id partition-id send all-gather-start all-gather-done all-reduce-start "
    "all-reduce-done collective-permute-start collective-permute-done send-done recv-done",
    "library": "custom-call fft cholesky triangular-solve rng rng-bit-generator rng-get-and-update-state infeed "
    "outfeed",
    "control": "while conditional call async-start async-update async-done",
}
_ROLE_OF: dict[str, Role] = {opcode: role for role, opcodes in _OPCODES.items() for opcode in opcodes.split()}
# In the names of library routines: __cublas$gemm, __cudnn$convForward, __onednn$matmul
_MATMULS = re.compile(r"gemm|matmul|conv(?!ert)|dot", re.IGNORECASE)
# A fusion is named after the most costly thing in it.
_WEIGHT: tuple[Role, ...] = ("matmul", "communication", "library", "control", "reduction", "elementwise")


def role_of(opcode: str, target: str = "") -> Role:
    """`target` is that of a custom call. An operation that is not listed computes each element for itself."""
    if opcode == "custom-call" and _MATMULS.search(target):
        return "matmul"
    return _ROLE_OF.get(opcode, "elementwise")


def role_of_fusion(inside: Iterable[Role]) -> Role:
    """Movement only if nothing else is in it."""
    weights = {_WEIGHT.index(role) for role in inside if role in _WEIGHT}
    return _WEIGHT[min(weights)] if weights else "movement"
