from __future__ import annotations

import pytest

from benchax.profiling import events


@pytest.fixture(autouse=True)
def _programs_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of `xspace_by_hand` are texts already."""
    read = events.text_of
    monkeypatch.setattr(events, "text_of", lambda proto: proto.decode() if proto[:9] == b"HloModule" else read(proto))
