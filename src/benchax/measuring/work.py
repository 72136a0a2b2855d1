"""The work of one call, as the author of a case states it: amounts by name, or a function of the inputs that gives
them.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchax.amounts import check_work
from benchax.case import Case
from benchax.errors import NotMeasured, UsageError
from benchax.measuring.inputs import Inputs
from benchax.static_leaves import reveal


def amounts_of(case: Case, inputs: Inputs) -> Mapping[str, float]:
    """Returns the work of one call on these inputs; empty if the author states no work.

    Raises:
        NotMeasured: the function for it fails. Only the rates are lost by that, not the row.
    """
    if not callable(case.work):
        return case.work or {}
    try:
        found = case.work(*reveal(inputs.args), **reveal(inputs.kwargs))
        return check_work({} if found is None or callable(found) else found)
    except UsageError as error:
        raise NotMeasured(f"its function returned what says no amounts: {error.problem}") from error
    except Exception as error:
        raise NotMeasured(f"its function raised {type(error).__name__}: {error}") from error
