"""Notes values that a compiled function goes on with after they have changed."""

from __future__ import annotations

import contextlib
import inspect
import weakref
from typing import Any

from benchax.auditing.outer_values import OuterValue, outer_values
from benchax.watching.frames import JaxCall


class StaleValues:
    """Told of each program that is compiled, and of each call before it runs."""

    def __init__(self) -> None:
        self._values: weakref.WeakKeyDictionary[Any, list[OuterValue]] = weakref.WeakKeyDictionary()
        self._calls: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.found: dict[tuple[str, str], dict[str, Any]] = {}

    def note_compile(self, call: JaxCall) -> None:
        """What it read is what there is now: the trace has just ended."""
        with contextlib.suppress(TypeError):  # no hash or no weak references: nothing is known
            self._calls[call.fun] = 0
            self._values[call.fun] = outer_values(call.user.fun if call.user else call.fun, _static(call))

    def note_call(self, fun: Any) -> None:
        """Looks at calls 1, 2, 4, 8, … of a program: what changes from call to call is seen by then."""
        with contextlib.suppress(TypeError):
            values = self._values.get(fun)
            if values is None:
                return
            self._calls[fun] = n = self._calls[fun] + 1
            for value in values if n & (n - 1) == 0 else ():
                if value.has_changed:
                    name = getattr(fun, "__name__", type(fun).__name__)
                    told = {
                        "function": name,
                        "name": value.name,
                        "where": value.where,
                        "change": value.change,
                        "call": n,
                    }
                    self.found.setdefault((name, value.name), told)

    def asdict(self) -> list[dict[str, Any]]:
        return list(self.found.values())


def _static(call: JaxCall) -> dict[str, Any]:
    """Its static arguments, by name."""
    if call.user is not None:
        return {}
    numbers, names = (tuple(call.settings.get(f"static_arg{what}") or ()) for what in ("nums", "names"))
    parameters = list(inspect.signature(call.fun).parameters)
    by_number = {parameters[i]: call.args[i] for i in numbers if i < min(len(parameters), len(call.args))}
    return by_number | {name: call.kwargs[name] for name in names if name in call.kwargs}
