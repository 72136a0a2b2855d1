"""The text of the error that a call of the library ends with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchax.errors import UsageError


def refusal(call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> str:
    """What was wrong, what was expected, and what to do. Fails if the call goes through."""
    with pytest.raises(UsageError) as caught:
        call(*args, **kwargs)
    return str(caught.value)
